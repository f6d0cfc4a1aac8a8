"""The export builder lives with the simulator; tests take it from here."""

from __future__ import annotations

from boundby.simulate.rows import NO_STREAM, Call, Export, Thread

__all__ = ["NO_STREAM", "Call", "Export", "Thread"]
