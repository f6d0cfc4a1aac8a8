"""Figures per region: counts, sums and order statistics, of the device and of the host."""
