"""Events that the profiler says it lost, or rows that the export lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Rule, note

_LOST = re.compile(
    r"\b(?:dropp|discard|truncat|overflow)\w*|\blost\b|events? (?:were|was|have been) (?:not|missed)"
    r"|buffers? (?:is|are|was) full"
    r"|not enough (?:buffer|memory|space)|out of (?:memory|disk)|insufficient",
    re.IGNORECASE,
)
_CODES = frozenset({"export-incomplete", "broken-rows"})
# What is said about other data than the account rests on.
_BESIDE = re.compile(r"symbol|GPU metrics|perf event|kernel IP", re.IGNORECASE)


def _check(context: RuleContext) -> Iterator[Match]:
    messages = [
        " ".join(warning.message.split())
        for warning in context.trace.warnings
        if warning.code in _CODES or (warning.code.startswith("profiler-") and _is_loss(warning.message))
    ]
    if messages:
        yield note(
            f"events are missing: {messages[0][:160].rstrip('.')}",
            {"messages": messages, "count": len(messages)},
            "Capture a shorter time (--duration, or --capture-range around some steps), export again, and compare: "
            "gaps in this trace may be lost events",
            instances=len(messages),
        )


def _is_loss(message: str) -> bool:
    return bool(_LOST.search(message)) and not _BESIDE.search(message)


RULE = Rule(
    id="trace-events-lost",
    title="Events were lost or rows are damaged: gaps may not be real",
    group="trace",
    check=_check,
    needs=("kernels",),
)
