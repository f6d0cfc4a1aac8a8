"""A thread that asks again and again whether the device is done, and launches nothing meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import RuleContext
from boundby.model.causes import Cause
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.cuda import plain_name

Int = npt.NDArray[np.int64]
_QUERY = re.compile(r"^cu(?:da)?(?:Event|Stream)Query$")


def check(context: RuleContext) -> Iterator[Match]:
    timeline = context.timeline
    calls, names = timeline.calls, timeline.trace.names
    is_query = np.array([bool(_QUERY.match(plain_name(name))) for name in names] or [False])[calls.name]
    first, last = _runs(is_query & context.in_windows(calls.start_ns), calls.thread)
    long = (last - first + 1) >= RULE.threshold(context, "calls")
    first, last = first[long], last[long]
    took = calls.end_ns[last] - calls.start_ns[first]
    if took.sum() < context.least_ns:
        return
    chosen = np.zeros(len(calls), bool)
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        chosen[low + 1 : high + 1] = True  # with the interval before each; that before the first is the program's own
    asked = int((last - first + 1).sum())
    saved = context.saving((Cause.CUDA_API.key, Cause.CPU.key, Cause.HOST_BLOCKED.key), calls=chosen)
    regions = _regions(context, first)
    worst = np.lexsort((first, -took))[:3]
    name = plain_name(names[calls.name[first[worst[0]]]])
    yield Match(
        region=context.place(regions, took),
        title=f"{name} is asked {asked:,} times in {len(first):,} loops, {duration(int(took.sum()))} in all",
        evidence={
            "calls": asked,
            "loops": len(first),
            "polling_ns": int(took.sum()),
            "longest_loop_ns": int(took.max()),
        },
        saving_ns=saved if saved is not None else (0, int(took.sum())),
        advice=(
            "Launch what comes next before asking; where one stream must wait for another use cudaStreamWaitEvent, and "
            "where the host must wait, one cudaEventSynchronize",
        ),
        examples=tuple(
            Example(
                int(calls.start_ns[first[row]]),
                int(took[row]),
                f"{last[row] - first[row] + 1:,} calls of {plain_name(names[calls.name[first[row]]])}",
            )
            for row in worst.tolist()
        ),
        instances=len(first),
    )


def _runs(chosen: npt.NDArray[np.bool_], thread: npt.NDArray[np.int32]) -> tuple[Int, Int]:
    """First and last row of each run of chosen calls with no other call of the thread between."""
    rows = np.flatnonzero(chosen)
    if len(rows) == 0:
        return rows, rows
    breaks = (np.diff(rows) != 1) | (np.diff(thread[rows]) != 0)
    return rows[np.append(True, breaks)], rows[np.append(breaks, True)]


def _regions(context: RuleContext, rows: Int) -> Int:
    timeline = context.timeline
    found = np.zeros(len(rows), np.int64)
    for thread in np.unique(timeline.calls.thread[rows]).tolist():
        mine = timeline.calls.thread[rows] == thread
        found[mine] = timeline.ownership.at(thread, timeline.calls.start_ns[rows[mine]])
    return found


RULE = Rule(
    id="sync-polling",
    title="The host polls events or streams in a loop instead of launching",
    group="sync",
    cause=Cause.SYNC,
    check=check,
    needs=("cuda_api", "kernels"),
    thresholds=(
        Threshold(
            "calls",
            20,
            "count",
            "A framework asks for a few events when it reuses memory; a loop asks dozens of times.",
        ),
    ),
)
