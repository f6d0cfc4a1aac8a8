"""Limits and whether they were kept, as plain frozen data."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from boundby.results.codec import OneOf, derived
from boundby.results.saved import Saved


class Measured(Struct, frozen=True):
    """One value that a limit was held against."""

    subject: Annotated[str, "Region or device; empty: the whole."]  # "step/loss", "GPU 0"
    value: Annotated[float | None, "null: it is not known."]
    kept: Annotated[bool, "Whether this one kept the limit."]


class LimitResult(Struct, frozen=True):
    """One limit."""

    limit: Annotated[str, "As written."]
    kept: Annotated[bool, "Whether it was kept."]
    unit: Annotated[str, OneOf(("ns", "fraction", "count", "per_ms", "bytes")), "Of the measured values."]
    message: Annotated[str, "What was measured, in a sentence."]
    measured: Annotated[tuple[Measured, ...], "The values it was compared with."] = ()
    reason: Annotated[str, "Why the limit is there, in its author's words."] = ""
    skipped: Annotated[bool, "Optional, and nothing to hold it against."] = False
    untold: Annotated[bool, "Neither kept nor broken: what was recorded does not tell."] = False


class GateResult(Saved, Struct, frozen=True):
    """All limits of one check."""

    kind: ClassVar[str] = "check"
    written_by: ClassVar[str] = "boundby check REPORT --json"
    names_tool: ClassVar[bool] = False

    subject: Annotated[str, "What was checked: of a comparison, the later report."]
    limits: Annotated[tuple[LimitResult, ...], "One entry a limit."]

    @property
    @derived(after="subject")
    def passed(self) -> bool:
        """Whether every limit was kept."""
        return all(result.kept for result in self.limits)

    @property
    def broken(self) -> tuple[LimitResult, ...]:
        return tuple(result for result in self.limits if not result.kept and not result.untold)

    @property
    def untold(self) -> tuple[LimitResult, ...]:
        """Limits of which nothing can be said."""
        return tuple(result for result in self.limits if result.untold)
