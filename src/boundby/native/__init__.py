"""Passes over events in C. `tests/native/twins.py` says in Python what each of them does."""
