"""Reports, comparisons and gates as plain frozen data."""
