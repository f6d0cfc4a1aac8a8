"""A thread that asks again and again whether the device is done, and launches nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from boundby.evidence.code_lines import line_of_calls
from boundby.evidence.context import Rows, RuleContext
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.intervals import expand
from boundby.model.scale import MANY, NO_LAUNCH_NS
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule
from boundby.trace.vocabulary.cuda import cuda_name

Int = npt.NDArray[np.int64]
# Who polls asks again at once, or after a short sleep. What asks now and then (the allocator of pinned memory, once a
# batch) does not wait for an answer.
LONGEST_PAUSE_NS = NO_LAUNCH_NS
_QUERY = expression(r"^cu(?:da)?(?:Event|Stream)Query$")


def check(context: RuleContext) -> Iterator[Match]:
    calls = context.calls
    is_query = context.named(calls.name, lambda name: _QUERY.match(cuda_name(name)))
    rows = np.flatnonzero(is_query)
    rows = rows[context.in_windows(calls.start_ns[rows])]
    first, last = _runs(rows, calls.thread, calls.start_ns, calls.end_ns)
    long = (last - first + 1) >= MANY
    first, last = first[long], last[long]
    took = calls.end_ns[last] - calls.start_ns[first]
    if took.sum() < context.least_ns:
        return
    asked = int((last - first + 1).sum())
    # With the interval before each call; that before the first of a loop is the program's own.
    _, again = expand(first + 1, last + 1)
    saved = context.saving((Cause.CUDA_API.key, Cause.CPU.key, Cause.HOST_BLOCKED.key), calls=again)
    worst = np.lexsort((first, -took))[:3].tolist()
    yield Match(
        region=context.place(context.timeline.call_region[first], took),
        title=f"{context.call_name(first[worst[0]])} is called {asked:,} times in {len(first):,} loops, "
        f"for {duration(int(took.sum()))} in all",
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
                int(calls.start_ns[first[loop]]),
                int(took[loop]),
                f"{last[loop] - first[loop] + 1:,} calls of {context.call_name(first[loop])}",
            )
            for loop in worst
        ),
        instances=len(first),
        where=line_of_calls(context, first, took),
    ).advising(
        code=context.program.pick(
            "cudaEventSynchronize(event);  // once, in place of the loop over cudaEventQuery",
            torch="event.synchronize()  # once, in place of the loop over event.query()",
        )
    )


def _runs(rows: Rows, thread: npt.NDArray[np.int32], start_ns: Int, end_ns: Int) -> tuple[Rows, Rows]:
    """First and last row of each run of these calls with no other call of the thread between, and no long pause."""
    if len(rows) == 0:
        return rows, rows
    breaks = (np.diff(rows) != 1) | (np.diff(thread[rows]) != 0)
    breaks |= start_ns[rows[1:]] - end_ns[rows[:-1]] > LONGEST_PAUSE_NS
    return rows[np.append(True, breaks)], rows[np.append(breaks, True)]


RULE = Rule(
    id="sync-polling",
    title="The host polls events or streams in a loop instead of launching",
    group="sync",
    cause=Cause.SYNC,
    causes=(Cause.CUDA_API,),  # each question is a call, in place of a launch
    check=check,
    needs=("cuda_api", "kernels"),
)
