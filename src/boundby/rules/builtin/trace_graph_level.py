"""CUDA graphs traced as one operation each hide what happens inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, Threshold, note
from boundby.trace.tables import OpKind


def _check(context: RuleContext) -> Iterator[Match]:
    table = context.operations
    in_window = (table.kind == OpKind.GRAPH) & context.in_windows(table.start_ns)
    graphs = KernelSet(context, np.flatnonzero(in_window), lambda _: "CUDA graph")
    share = graphs.total_ns / max(context.window_ns, 1)
    if not len(graphs) or context.time_ns(Cause.GPU_COMPUTE) == 0 or share < RULE.threshold(context, "share"):
        return
    yield note(
        f"{len(graphs):,} CUDA graph launches ({duration(graphs.total_ns)}, {percent(min(share, 1.0))}) are opaque "
        "and count as compute",
        {"graph_launches": len(graphs), "graph_ns": graphs.total_ns, "graph_fraction": share},
        "Capture once with --cuda-graph-trace=node to see kernels, copies and gaps inside the graphs; it costs more, "
        "so time the program at graph level",
        region=graphs.region,
        examples=graphs.examples(),
        instances=len(graphs),
    )


RULE = Rule(
    id="trace-graph-level",
    title="CUDA graphs are traced as a whole: what is slow inside them cannot be seen",
    group="trace",
    check=_check,
    needs=("kernels",),
    thresholds=(Threshold("share", 0.20, "fraction", "Below, what hides in graphs cannot change the verdict."),),
)
