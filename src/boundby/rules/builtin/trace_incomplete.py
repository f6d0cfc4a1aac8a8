"""What was not captured, and so leaves a large part of the time unexplained."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.rules.rule import Match, Remedy, Rule, Threshold


def check(context: RuleContext) -> Iterator[Match]:
    captured = context.timeline.trace.captured
    least = context.threshold(RULE, "share")
    unknown = context.time_ns(Cause.UNATTRIBUTED)
    if unknown >= least * context.window_ns:
        why = "no CUDA API calls were captured" if not captured.cuda_api else "the trace does not show by what"
        yield _match(
            context,
            f"{percent(unknown / context.window_ns)} of the time the GPU idles and {why}",
            unknown,
            "Capture with -t cuda,nvtx,osrt --cpuctxsw=process-tree (boundby profile does), from the program's start",
        )
    guessed = context.time_ns(Cause.CPU) + context.time_ns(Cause.HOST_BLOCKED)
    if not captured.osrt and not captured.cpu_scheduling and guessed >= least * context.window_ns:
        yield _match(
            context,
            f"{duration(guessed)} ({percent(guessed / context.window_ns)}) count as the host's own work, but the "
            "thread may have slept",
            guessed,
            "Capture with -t osrt and --cpuctxsw=process-tree: then work, files, locks and sleeps are told apart",
        )


def _match(context: RuleContext, title: str, ns: int, advice: str) -> Match:
    evidence = {"unexplained_ns": ns, "unexplained_fraction": ns / context.window_ns}
    return Match(None, title, evidence, None, (advice,), severity="note")


RULE = Rule(
    id="trace-incomplete",
    title="Data that were not captured leave much of the time unexplained",
    group="trace",
    picture="""
    host   ?????????????????????????        (no OS calls, no context switches)
    GPU    [kernel ]       [kernel ]
                    ^^^^^^^ does the host compute here, or sleep?
    """,
    meaning="""
A verdict is as good as what was captured. Without CUDA API calls nobody can say what the host did while the GPU
idled. Without OS calls and context switches a thread outside CUDA may compute or sleep: boundby counts it as
`cpu` and says so.

Told by: the account's `unattributed` time, or its `cpu` and `host_blocked` time in a trace without CPU data,
where either is a large part of the window. What is missing and changes nothing is listed under "not captured"
only.
""",
    remedies=(
        Remedy(
            "Capture what lacks.",
            """
            boundby profile -- python train.py
            nsys profile -t cuda,nvtx,osrt --cpuctxsw=process-tree python train.py   # or without boundby
            """,
            "bash",
            caution="context switches need perf_event_paranoid of 2 or less; boundby doctor tells whether they work.",
        ),
    ),
    disproof="""
If a capture with CPU data shows the same cause, the guess was right; verdicts and advice then stand as they
are.
""",
    check=check,
    needs=("kernels",),
    thresholds=(Threshold("share", 0.10, "fraction", "Less unexplained time cannot turn a clear verdict round."),),
    see_also=("trace-events-lost", "trace-no-nvtx"),
)
