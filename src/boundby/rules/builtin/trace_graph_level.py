"""CUDA graphs traced as one operation each hide what happens inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind


def check(context: RuleContext) -> Iterator[Match]:
    table = context.operations
    rows = np.flatnonzero((table.kind == OpKind.GRAPH) & context.in_windows(table.start_ns))
    took = (table.end_ns - table.start_ns)[rows]
    busy = context.time_ns(Cause.GPU_COMPUTE)
    share = int(took.sum()) / context.window_ns if context.window_ns else 0.0
    if not len(rows) or busy == 0 or share < RULE.threshold(context, "share"):
        return
    order = np.lexsort((rows, -took))[:3]
    yield Match(
        region=context.place(context.timeline.launch_region[rows], took),
        title=f"{len(rows):,} CUDA graph launches ({duration(int(took.sum()))}, {percent(min(share, 1.0))}) are opaque "
        "and count as compute",
        evidence={"graph_launches": len(rows), "graph_ns": int(took.sum()), "graph_fraction": share},
        saving_ns=None,
        advice=(
            "Capture once with --cuda-graph-trace=node to see kernels, copies and gaps inside the graphs; it costs "
            "more, so time the program at graph level",
        ),
        examples=tuple(Example(int(table.start_ns[rows[row]]), int(took[row]), "CUDA graph") for row in order.tolist()),
        severity="note",
        instances=len(rows),
    )


RULE = Rule(
    id="trace-graph-level",
    title="CUDA graphs are traced as a whole: what is slow inside them cannot be seen",
    group="trace",
    check=check,
    needs=("kernels",),
    thresholds=(Threshold("share", 0.20, "fraction", "Below, what hides in graphs cannot change the verdict."),),
)
