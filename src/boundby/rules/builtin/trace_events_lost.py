"""Events that the profiler says it lost, or rows that the export lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Remedy, Rule

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
        for warning in context.timeline.trace.warnings
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
    picture="""
    GPU    [kernel ][kernel ]   (lost)   [kernel ]
                             ^^^^^^^^^^^^ looks idle
    """,
    meaning="""
When its buffers are full, or the disk is, a profiler drops events. A kernel that is not in the trace looks like
an idle GPU, a lost API call like time that nobody explains.

Told by: warnings and errors that the profiler wrote into the report about dropped, lost or discarded events, an
export without its closing metadata, and rows that could not be read.
""",
    remedies=(
        Remedy(
            "Capture less at a time.",
            """
            boundby profile --duration 20 -- python train.py
            nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop python train.py
            """,
            "bash",
        ),
    ),
    disproof="""
If a shorter capture of the same steps shows the same times per step and gaps in the same places, nothing that
matters was lost.
""",
    check=check,
    needs=("kernels",),
    see_also=("trace-incomplete",),
)
