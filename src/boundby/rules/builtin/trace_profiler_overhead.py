"""The profiler's own work takes part of the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Remedy, Rule, Threshold
from boundby.trace.vocabulary.cuda import OverheadClass, classify_overhead


def check(context: RuleContext) -> Iterator[Match]:
    held = context.time_ns(Cause.PROFILER)
    share = held / context.window_ns if context.window_ns else 0.0
    if share < context.threshold(RULE, "share"):
        return
    trace = context.timeline.trace
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
    picture="""
    host   launch [profiler: buffer flush      ] launch
    GPU     [kernel ]                             [kernel ]
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ idle, but not without the profiler
    """,
    meaning="""
A profiler writes down every call and kernel, and now and then it empties its buffers while the program waits.
What the trace shows of that it marks, and the account calls it `profiler`. Where that is a large part, the
other shares, and averages of single steps, describe the profiled run and not the program.

Told by: the share of the window that the GPU idles while the responsible thread is in an interval that the
trace marks as overhead. Each event's own small cost (about a microsecond a call) is in no trace; a program of
very many small calls may be slowed down more than this says.
""",
    remedies=(
        Remedy(
            "Capture less of what is not needed.",
            "nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none --delay=30 --duration=10 python train.py",
            "bash",
            caution="without CPU data, host work and sleeping can no longer be told apart.",
        ),
    ),
    disproof="""
Time the program without the profiler: if it takes as long as under it, the overhead lies where it costs
nothing.
""",
    check=check,
    needs=("kernels",),
    thresholds=(
        Threshold("share", 0.05, "fraction", "Below, it changes no verdict: causes are told apart from 3 % on."),
    ),
)
