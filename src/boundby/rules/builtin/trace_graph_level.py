"""CUDA graphs traced as one operation each hide what happens inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Remedy, Rule, Threshold
from boundby.trace.tables import OpKind


def check(context: RuleContext) -> Iterator[Match]:
    table = context.timeline.trace.operations
    rows = np.flatnonzero((table.kind == OpKind.GRAPH) & context.in_windows(table.start_ns))
    took = (table.end_ns - table.start_ns)[rows]
    busy = context.time_ns(Cause.GPU_COMPUTE)
    share = int(took.sum()) / context.window_ns if context.window_ns else 0.0
    if not len(rows) or busy == 0 or share < context.threshold(RULE, "share"):
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
    picture="""
    traced  [graph                                 ]
    really  [kernel] [kernel]  [copy]   [kernel    ]
                    ^        ^^      ^^^ not in the trace
    """,
    meaning="""
At graph level nsys records one operation for each launch of a graph. From its start to its end the GPU counts
as computing, though copies, communication and gaps may lie inside; hot kernels, precision and launch shapes
cannot be judged.

Told by: operations of that kind, and their share of the window.
""",
    remedies=(
        Remedy(
            "Capture at node level to look inside.",
            "nsys profile --cuda-graph-trace=node -t cuda,nvtx python serve.py",
            "bash",
            caution="node level adds some microseconds to every node: use it to look, not to time.",
        ),
    ),
    disproof="""
If at node level the kernels follow each other without gaps and no copies lie between, the graph is all compute.
""",
    check=check,
    needs=("kernels",),
    thresholds=(Threshold("share", 0.20, "fraction", "Below, what hides in graphs cannot change the verdict."),),
)
