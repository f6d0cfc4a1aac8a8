"""Readers: one per input kind and schema variation, each turning a file into a ``model.trace.Trace``."""

from boundby.readers.nsys.reader import read_sqlite

__all__ = ["read_sqlite"]
