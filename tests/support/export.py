"""The export builder lives with the simulator; tests take it from here."""

from __future__ import annotations

from boundby.simulate.nsys_export import CallRow, Export, ExportedThread
from boundby.trace.tables import NO_STREAM

__all__ = ["NO_STREAM", "CallRow", "Export", "ExportedThread"]
