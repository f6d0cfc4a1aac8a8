"""What runs inside the profiled program: torch's own hooks, turned into NVTX ranges. See the launcher's docstring."""

from __future__ import annotations


def wait_for_torch(notes: str) -> None:
    """Add ranges as soon as the program has imported torch."""
    from .watch import when_imported

    def begin() -> None:
        from .begin import begin

        begin(notes)

    when_imported("torch", begin)
