"""The profiler's own work takes part of the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold, note
from boundby.trace.vocabulary.cuda import OverheadClass, classify_overhead


def _check(context: RuleContext) -> Iterator[Match]:
    held = context.time_ns(Cause.PROFILER)
    share = held / max(context.window_ns, 1)
    if share < RULE.threshold(context, "share"):
        return
    table, names = context.trace.overhead, context.trace.names
    is_profiler = context.names_where(table.name, lambda name: classify_overhead(name) == OverheadClass.PROFILER)
    rows = np.flatnonzero(is_profiler[table.name] & context.in_windows(table.start_ns))
    length = table.end_ns - table.start_ns
    longest = rows[np.lexsort((rows, -length[rows]))][:3].tolist()
    yield note(
        f"the GPU idles {duration(held)} ({percent(share)}) under the profiler's own work",
        {"gpu_idle_ns": held, "gpu_idle_fraction": share, "profiler_intervals": len(rows)},
        "Capture less: without --cudabacktrace and --python-backtrace, with --sample=none --cpuctxsw=none, and for a "
        "shorter time. Times and shares here hold for the profiled run only",
        region=ROOT,
        examples=tuple(Example(int(table.start_ns[row]), int(length[row]), names[table.name[row]]) for row in longest),
        instances=max(len(rows), 1),
    )


RULE = Rule(
    id="trace-profiler-overhead",
    title="The profiler's own work slows the program down",
    group="trace",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share", 0.05, "fraction", "Below, it changes no verdict: causes within 3 % count as alike."),
    ),
)
