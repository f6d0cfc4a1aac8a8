"""Passes over events in C, each beside the Python that says what it does and does it where the C cannot."""
