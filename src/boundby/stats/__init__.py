"""Figures per region and per name."""
