"""Calls that allocate, load and initialize: which of them come early, which throughout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.correlation.correlate import FIRST_LOAD_FACTOR, FIRST_LOAD_MINIMUM_NS
from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import Int, Rows, device_work
from boundby.model.causes import Cause
from boundby.model.units import count, duration
from boundby.results.report import Example
from boundby.trace.vocabulary.cuda import CallClass, plain_name

Float = npt.NDArray[np.float64]

# Allocations are steady if this share of their time comes after half of the kernels.
STEADY_SHARE = 0.25
# Fewer than this are looked at together with what else comes once.
LEAST_STEADY = 10
# What ends the program is no steady state: what comes after so much of the kernels counts neither way.
TAIL = 0.05
_MOST_EXAMPLES = 20


@dataclass(frozen=True)
class SetupCalls:
    """Rows of ``timeline.calls`` in the windows."""

    steady: Rows  # allocations throughout
    once: Rows  # loading, contexts, JIT, and allocations that come early only


def setup_calls(context: RuleContext) -> SetupCalls:
    """Divide the calls of the account's `init`. Ask with ``context.once(setup_calls)``."""
    calls = context.timeline.calls
    # By their middle: a call may begin while the first kernel is on its way, or be the long one that launches it.
    inside = context.in_windows((calls.start_ns + calls.end_ns) // 2)
    allocations = np.flatnonzero(inside & (calls.kind == CallClass.ALLOC))
    loads = inside & ((calls.kind == CallClass.INIT) | calls.is_first_load)
    length = calls.end_ns - calls.start_ns
    extraordinary = _extraordinary(length[allocations], calls.name[allocations])
    loads[allocations[extraordinary]] = True
    allocations = allocations[~extraordinary]
    at = _progress(context, allocations)
    counted = at < 1 - TAIL
    late = int(length[allocations[counted & (at >= 0.5)]].sum())
    enough = int(counted.sum()) >= LEAST_STEADY
    if enough and late >= STEADY_SHARE * int(length[allocations[counted]].sum()):
        return SetupCalls(allocations, np.flatnonzero(loads))
    loads[allocations] = True
    return SetupCalls(np.empty(0, np.intp), np.flatnonzero(loads))


def _extraordinary(length: Int, name: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Calls that take far longer than their like: they set something up besides."""
    found = np.zeros(len(length), bool)
    for number in np.unique(name).tolist():
        mine = name == number
        usual = float(np.median(length[mine]))
        found |= mine & (length > np.maximum(FIRST_LOAD_FACTOR * usual, FIRST_LOAD_MINIMUM_NS))
    return found


def _progress(context: RuleContext, rows: Rows) -> Float:
    return progress_at(context, context.timeline.calls.start_ns[rows])


def progress_at(context: RuleContext, start_ns: Int) -> Float:
    """How far the program had come at these instants: the share of its kernels that it had launched. By time, a program
    that loads for long and then computes would allocate for its first step in the middle."""
    calls, work = context.timeline.calls, context.once(device_work)
    launches = np.zeros(len(calls), bool)
    launches[calls.of_operation[work.is_kernel & (calls.of_operation >= 0)]] = True
    launched_ns = np.sort(calls.start_ns[launches])
    found: Float = np.searchsorted(launched_ns, start_ns) / max(len(launched_ns), 1)
    return found


def init_saving(context: RuleContext, rows: Rows, least: float) -> tuple[int, int]:
    """What these calls taking no time would save: by replay, else at most their part of the account."""
    calls = context.timeline.calls
    mask = np.zeros(len(calls), bool)
    mask[rows] = True
    own = int((calls.end_ns - calls.start_ns)[rows].sum())
    found = context.saving((Cause.INIT.key,), calls=mask)
    if found is None:
        found = 0, min(context.time_ns(Cause.INIT), context.longest_window_ns)
    return round(least * min(found[0], own)), min(found[1], own)  # no more than they take, whatever replay's error


def named_calls(context: RuleContext, rows: Rows, most: int = 5) -> list[str]:
    """``cudaMalloc: 12 x, 3.40 ms`` of each kind of call, longest first."""
    calls, names = context.timeline.calls, context.timeline.trace.names
    total: dict[str, list[int]] = {}
    for name, length in zip(calls.name[rows].tolist(), (calls.end_ns - calls.start_ns)[rows].tolist(), strict=True):
        entry = total.setdefault(plain_name(names[name]), [0, 0])
        entry[0] += 1
        entry[1] += length
    ranked = sorted(total.items(), key=lambda item: (-item[1][1], item[0]))[:most]
    return [f"{name}: {count(times)} x, {duration(length)}" for name, (times, length) in ranked]


def call_evidence(context: RuleContext, rows: Rows) -> dict[str, object]:
    """How many calls, how long, which."""
    calls = context.timeline.calls
    length = (calls.end_ns - calls.start_ns)[rows]
    return {
        "count": len(rows),
        "total_ns": int(length.sum()),
        "longest_ns": int(length.max()),
        "threads": len(np.unique(calls.thread[rows])),
        "calls": named_calls(context, rows),
    }


def call_examples(context: RuleContext, rows: Rows) -> tuple[Example, ...]:
    """The longest of these calls."""
    calls, names = context.timeline.calls, context.timeline.trace.names
    length = calls.end_ns - calls.start_ns
    longest = rows[np.lexsort((rows, -length[rows]))][:_MOST_EXAMPLES]
    return tuple(
        Example(int(calls.start_ns[row]), int(length[row]), plain_name(names[calls.name[row]]))
        for row in longest.tolist()
    )


def call_place(context: RuleContext, rows: Rows) -> int:
    """The region in which these calls are made, weighted by their time."""
    calls, ownership = context.timeline.calls, context.timeline.ownership
    region = np.zeros(len(rows), np.int64)
    for thread in np.unique(calls.thread[rows]).tolist():
        mine = calls.thread[rows] == thread
        region[mine] = ownership.at(thread, calls.start_ns[rows[mine]])
    return context.place(region, np.maximum((calls.end_ns - calls.start_ns)[rows], 1))
