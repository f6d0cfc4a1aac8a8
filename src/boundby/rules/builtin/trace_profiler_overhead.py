"""The profiler's own work takes part of the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.cuda import OverheadClass, classify_overhead


def check(context: RuleContext) -> Iterator[Match]:
    held = context.time_ns(Cause.PROFILER)
    share = held / context.window_ns if context.window_ns else 0.0
    if share < RULE.threshold(context, "share"):
        return
    trace = context.trace
    table = trace.overhead
    own = np.array([classify_overhead(name) == OverheadClass.PROFILER for name in trace.names] or [False])
    rows = np.flatnonzero(own[table.name] & context.in_windows(table.start_ns))
    took = (table.end_ns - table.start_ns)[rows]
    order = rows[np.lexsort((rows, -took))][:3]
    yield Match(
        region=0,
        title=f"the GPU idles {duration(held)} ({percent(share)}) under the profiler's own work",
        evidence={"gpu_idle_ns": held, "gpu_idle_fraction": share, "profiler_intervals": len(rows)},
        saving_ns=None,
        advice=(
            "Capture less: without --cudabacktrace and --python-backtrace, with --sample=none --cpuctxsw=none, and for "
            "a shorter time. Times and shares here hold for the profiled run only",
        ),
        examples=tuple(
            Example(
                int(table.start_ns[row]), int(table.end_ns[row] - table.start_ns[row]), trace.names[table.name[row]]
            )
            for row in order.tolist()
        ),
        severity="note",
        instances=max(len(rows), 1),
    )


RULE = Rule(
    id="trace-profiler-overhead",
    title="The profiler's own work slows the program down",
    group="trace",
    check=check,
    needs=("kernels",),
    thresholds=(
        Threshold("share", 0.05, "fraction", "Below, it changes no verdict: causes are told apart from 3 % on."),
    ),
)
