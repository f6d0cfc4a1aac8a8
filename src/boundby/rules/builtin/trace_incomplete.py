"""What was not captured, and so leaves a large part of the time unexplained."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration, percent
from boundby.rules.rule import Match, Rule, Threshold, note

_OF_PYTORCH = (
    "Outside operators only Python functions tell what the host does: torch.profiler.profile(with_stack=True); whether "
    "it sleeps, and on what, nsys tells (boundby profile)"
)


_OF_NSYS = "Capture with -t cuda,nvtx,osrt --cpuctxsw=process-tree (boundby profile does), from the program's start"


def _check(context: RuleContext) -> Iterator[Match]:
    captured = context.trace.captured
    least_ns = RULE.threshold(context, "share") * context.window_ns
    unknown = context.time_ns(Cause.UNATTRIBUTED)
    if unknown >= least_ns:
        why = "no CUDA API calls were captured" if not captured.cuda_api else "the trace does not show by what"
        yield note(
            f"{percent(unknown / context.window_ns)} of the time the GPU idles and {why}",
            {"unexplained_ns": unknown, "unexplained_fraction": unknown / context.window_ns},
            _OF_PYTORCH if context.trace.is_told_by_frames else _OF_NSYS,
        )
    guessed = context.time_ns(Cause.CPU) + context.time_ns(Cause.HOST_BLOCKED)
    is_guessed = not captured.osrt and not captured.cpu_scheduling and not context.trace.is_told_by_frames
    if is_guessed and guessed >= least_ns:
        yield note(
            f"{duration(guessed)} ({percent(guessed / context.window_ns)}) count as the host's own work, but the "
            "thread may have slept",
            {"unexplained_ns": guessed, "unexplained_fraction": guessed / context.window_ns},
            "Capture with -t osrt and --cpuctxsw=process-tree: then work, files, locks and sleeps are told apart",
        )


RULE = Rule(
    id="trace-incomplete",
    title="Data that was not captured leaves much of the time unexplained",
    group="trace",
    check=_check,
    needs=("kernels",),
    thresholds=(Threshold("share", 0.10, "fraction", "Less unexplained time cannot overturn a clear verdict."),),
)
