"""Measurements: run by hand or by CI, quoted as ratios within one run, never asserted as seconds."""
