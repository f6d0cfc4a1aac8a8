"""Which threads of a process work as one: PyTorch's forward thread and its autograd thread, for example.

Threads that launch device work *in turns* are one logical host: while one issues calls, the other waits for it.
Threads whose calls interleave are independent of each other (data feeding, other streams).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.correlation.correlate import Calls
from boundby.correlation.cpu_evidence import gather_evidence
from boundby.model.arrays import Int64Array, merged, places, unique
from boundby.model.intervals import IntervalSet, contains, intersect, union
from boundby.model.scale import NEARLY_ALL, QUARTER, SEVERAL, SMALL
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.cuda import CallClass
from boundby.trace.vocabulary.range_names import BACKWARD

# Threads take turns when their calls, merged by time, change hands in at most this fraction of the smaller
# thread's calls. Independent threads with equal rates change hands at every second call (1.0 of the smaller).
TURN_TAKING = QUARTER
# Where it is known when threads sleep: threads take turns when this fraction of each one's calls begins while the
# other one sleeps.
ASLEEP_FRACTION = NEARLY_ALL
# Threads that are in calls at the same time for more than this fraction of the lesser one's do not take turns: one of
# them waits in its calls for the device, say, and works for itself.
AT_ONCE_FRACTION = SMALL
# Fewer calls than this are no pattern.
LEAST_CALLS = SEVERAL
# A thread in whose ranges the annotated thread opens nothing and calls nothing, in this fraction of its
# outermost ranges, works on that thread's behalf: its ranges belong inside.
QUIET_FRACTION = NEARLY_ALL


class LogicalThreads(Struct, frozen=True):
    """Per thread: the one that leads the logical thread it belongs to (itself, where it works alone), and the thread
    whose open ranges it borrows (-1: none). ``is_delegate``: its own ranges lie inside the lender's."""

    leader: npt.NDArray[np.int64]
    lender: npt.NDArray[np.int64]
    is_delegate: npt.NDArray[np.bool_]

    def members(self, thread: int) -> npt.NDArray[np.intp]:
        """All threads that take turns with a thread, itself included."""
        return np.flatnonzero(self.leader == self.leader[thread])


def find_logical_threads(trace: Trace, calls: Calls) -> LogicalThreads:
    """Find the annotated thread of each process and the threads that take turns with the leading one."""
    count = len(trace.threads)
    leader = np.arange(count, dtype=np.int64)
    lender = np.full(count, -1, np.int64)
    is_delegate = np.zeros(count, bool)
    process = trace.process_of_thread
    is_main = np.array([thread.pid == thread.tid for thread in trace.threads], bool)
    # Who only asks (NCCL's watchdog, whether events are done) neither leads nor follows.
    call_count, acts = np.zeros(count, np.int64), np.zeros(count, bool)
    for thread in unique(calls.thread).tolist():
        kind = calls.kind[calls.rows_of(thread)]
        call_count[thread], acts[thread] = len(kind), bool((kind != CallClass.OTHER).any())
    pushed = ~trace.ranges.is_start_end
    covered = np.bincount(
        trace.ranges.thread[pushed],
        weights=(trace.ranges.end_ns - trace.ranges.start_ns)[pushed].astype(float),
        minlength=count,
    )
    for number in unique(process[(call_count > 0) | (covered > 0)]).tolist():
        members = np.flatnonzero(process == number)
        annotated = members[covered[members] > 0]
        callers = members[acts[members]]
        if len(annotated):
            first = annotated[np.lexsort((annotated, -covered[annotated], ~is_main[annotated]))[0]]
            lender[members] = np.where(members == first, -1, first)
        if len(callers):
            by_calls = callers[np.lexsort((callers, -call_count[callers], ~is_main[callers]))].tolist()
            group = _caller(trace, calls, by_calls[0])
            for number in by_calls[1:]:
                runs_backward = _runs_backward(trace, calls, by_calls[0], number)
                if call_count[number] < LEAST_CALLS and not runs_backward:
                    continue
                other = _caller(trace, calls, number)
                if _calls_at_once(group, other):
                    continue
                in_turns = _sleep_in_turns(trace, group, other)
                if runs_backward or _take_turns(group.issued_ns, other.issued_ns) if in_turns is None else in_turns:
                    leader[number] = by_calls[0]
                    group = _joined(group, other)
        for other in annotated.tolist():
            if lender[other] >= 0 and leader[other] == leader[lender[other]]:
                is_delegate[other] = _is_quiet_during(trace, calls, int(lender[other]), other)
    return LogicalThreads(leader, lender, is_delegate)


class _Caller(Struct, frozen=True):
    """What is known of a thread that calls, or of several that take turns."""

    issued_ns: npt.NDArray[np.int64]  # when calls begin, in order
    in_call: IntervalSet
    away: IntervalSet  # nobody of them runs
    is_known: bool  # when each of them sleeps


def _caller(trace: Trace, calls: Calls, thread: int) -> _Caller:
    rows, evidence = calls.rows_of(thread), gather_evidence(trace, thread)
    start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
    return _Caller(merged(start_ns), union(start_ns, end_ns), evidence.away, evidence.is_known)


def _joined(one: _Caller, other: _Caller) -> _Caller:
    starts, ends = ([getattr(each.in_call, side) for each in (one, other)] for side in ("start", "end"))
    return _Caller(
        merged(one.issued_ns, other.issued_ns),
        union(np.concatenate(starts), np.concatenate(ends)),
        intersect(one.away, other.away),
        one.is_known and other.is_known,
    )


def _calls_at_once(first: _Caller, second: _Caller) -> bool:
    """Whether both are in calls at the same time for too large a part of the time in which the one that calls less
    is."""
    least = min(first.in_call.total, second.in_call.total)
    return intersect(first.in_call, second.in_call).total > AT_ONCE_FRACTION * least


def _asleep_share(caller: _Caller, instants: Int64Array) -> float:
    """At how many of these instants it is off the CPU; of none at all."""
    return float((contains(caller.away, instants) >= 0).mean()) if len(instants) else 1.0


def _sleep_in_turns(trace: Trace, group: _Caller, other: _Caller) -> bool | None:
    """True if the thread calls while all of these are off the CPU, and they while it is; None: not known."""
    theirs = other.issued_ns
    if len(theirs) < LEAST_CALLS:
        return None
    while_group = _asleep_share(group, theirs)
    if not other.is_known and group.is_known:  # it has no say in their sleep
        return True if while_group >= ASLEEP_FRACTION else None
    by_frames = trace.is_told_by_frames and group.is_known and other.is_known
    if not (trace.captured.osrt or by_frames):
        return None
    alive = (group.issued_ns >= theirs[0]) & (group.issued_ns <= theirs[-1])  # before its first call it may not exist
    if min(while_group, _asleep_share(other, group.issued_ns[alive])) >= ASLEEP_FRACTION:
        return True
    return None if by_frames else False  # not all that sleeps does so in a function that is known for it


def _take_turns(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> bool:
    """True if calls at these times come in long runs of the one and of the other."""
    fewer = min(len(first), len(second))
    if fewer < LEAST_CALLS:
        return False
    merged = np.concatenate((np.zeros(len(first), np.int8), np.ones(len(second), np.int8)))
    merged = merged[np.argsort(np.concatenate((first, second)), kind="stable")]
    return bool(np.count_nonzero(np.diff(merged)) <= TURN_TAKING * fewer)


def _runs_backward(trace: Trace, calls: Calls, lead: int, other: int) -> bool:
    """True for a thread of autograd's engine: who called ``backward()`` waits for it, however few their calls are."""
    names = unique(trace.ranges.of_thread(other).name).tolist()
    is_engine = any(trace.names[name].startswith(BACKWARD) for name in names if name >= 0)
    return is_engine and _is_quiet_during(trace, calls, lead, other)


def _is_quiet_during(trace: Trace, calls: Calls, lender: int, other: int) -> bool:
    """True if the lender hardly ever acts during the other thread's outermost ranges."""
    ranges = trace.ranges
    is_own = (ranges.thread == other) & ~ranges.is_start_end
    start, end = ranges.start_ns[is_own], ranges.end_ns[is_own]
    reach = np.maximum.accumulate(end)
    outermost = np.append(True, start[1:] >= reach[:-1])
    start, end = start[outermost], end[outermost]
    theirs = (ranges.thread == lender) & ~ranges.is_start_end
    actions = merged(calls.start_ns[calls.rows_of(lender)], ranges.start_ns[theirs], ranges.end_ns[theirs])
    acts = places(actions, end) > places(actions, start, side="right")
    inside = (places(merged(ranges.start_ns[theirs]), start, side="right") > 0).any()
    return bool(inside and (~acts).mean() >= QUIET_FRACTION)
