"""Limits and whether they were kept, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One value that a limit was held against."""

    subject: str  # "step/loss", "GPU 0", or "" for the whole
    value: float | None  # None: not captured
    kept: bool


@dataclass(frozen=True)
class LimitResult:
    """``message`` says in one sentence what was measured. ``unit``: ns, fraction, count, per_ms, bytes."""

    limit: str  # as written
    kept: bool
    unit: str
    message: str
    measured: tuple[Measured, ...] = ()
    reason: str = ""  # why the limit is there, in its author's words
    skipped: bool = False  # nothing to hold it against, and the budget allows that


@dataclass(frozen=True)
class GateResult:
    """All limits of one check. ``subject`` names what was checked."""

    subject: str
    results: tuple[LimitResult, ...]

    @property
    def passed(self) -> bool:
        return all(result.kept for result in self.results)

    @property
    def broken(self) -> tuple[LimitResult, ...]:
        return tuple(result for result in self.results if not result.kept)
