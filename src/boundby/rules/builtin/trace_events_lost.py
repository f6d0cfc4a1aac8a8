"""Events that the profiler says it lost, or rows that the export lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Rule

_LOST = re.compile(
    r"\b(?:dropp|discard|truncat|overflow)\w*|\blost\b|events? (?:were|was|have been) (?:not|missed)"
    r"|buffers? (?:is|are|was) full"
    r"|not enough (?:buffer|memory|space)|out of (?:memory|disk)|insufficient",
    re.IGNORECASE,
)
_CODES = frozenset({"export-incomplete", "broken-rows"})
# What is said about other data than the account rests on.
_BESIDE = re.compile(r"symbol|GPU metrics|perf event|kernel IP", re.IGNORECASE)


def check(context: RuleContext) -> Iterator[Match]:
    told = [
        warning.message
        for warning in context.trace.warnings
        if warning.code in _CODES
        or (
            warning.code.startswith("profiler-")
            and _LOST.search(warning.message)
            and not _BESIDE.search(warning.message)
        )
    ]
    if not told:
        return
    first = " ".join(told[0].split())
    yield Match(
        region=None,
        title=f"events are missing: {first[:160].rstrip('.')}",
        evidence={"messages": [" ".join(message.split()) for message in told], "count": len(told)},
        saving_ns=None,
        advice=(
            "Capture a shorter time (--duration, or --capture-range around some steps), export again, and compare: "
            "gaps in this trace may be events that were lost",
        ),
        severity="note",
        instances=len(told),
    )


RULE = Rule(
    id="trace-events-lost",
    title="Events were lost or rows are damaged: gaps may be none",
    group="trace",
    check=check,
    needs=("kernels",),
)
