"""A trace as column tables, and what its names say."""
