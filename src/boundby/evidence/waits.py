"""Every call in which the host waited for the device, and the one rule that speaks of it.

A wait belongs to the most specific rule: that of the operator it was made by, else of what it is (an allocation that
stalls, a value read back, a pageable copy), else of the call itself. No rule speaks of a wait that a copy's own length
makes, or that a release of memory right after it would make in its stead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.operator_syncs import TO_DEVICE, TO_HOST, OperatorSync, operator_sync
from boundby.evidence.operators import Operators, operators_of, source_of
from boundby.model.causes import Cause
from boundby.model.intervals import EMPTY, Coverage, union
from boundby.model.step_function import NOTHING
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.stats.device import SMALL_COPY_BYTES
from boundby.trace.tables import Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.cuda import CallClass, plain_name

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

OPERATOR, ALLOCATION, READBACK, PAGEABLE, CALL, COPY, TAKEN_OVER = range(7)
# Calls that wait for the device whenever it is busy: without the wait before them, they would wait in its stead.
_FREES = re.compile(r"^cu(?:da)?(?:Free(?:Host|Array)?|MemFree(?:Host)?|HostUnregister|MemHostUnregister|DeviceReset)$")
# A call that was held for a copy waited, if it was held this part of its time by what came before the copy. Else the
# copy itself is the matter, and rules on copies speak of it.
AHEAD_SHARE = 0.5
# Of the groups of one rule at most so many are replayed, largest first: the rest are small beside them.
MOST_GROUPS = 8
# Waits share what they cost: without its neighbours one may save more than its own time. Ask from this part of the
# least saving worth telling on.
ASK_SHARE = 0.25
MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Waits:
    """Columns of waits, in order of their calls. ``call`` is a row of ``timeline.calls``."""

    call: Int
    start_ns: Int
    blocked_ns: Int  # the host waited in the call
    idle_ns: Int  # of the account's sync time, what this wait is to blame for, on all devices
    held_ns: Int  # the host was held, by waits or by a copy that it had to stand by
    incident: Int  # the same of waits for one thing: a copy and the sync right after it
    kind: Int
    region: Int  # the innermost region that is the user's, not an operator
    operator: tuple[OperatorSync | None, ...]
    operators: Operators

    def of_kind(self, kind: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.kind == kind)


@dataclass(frozen=True)
class Group:
    """Alike waits in one place: ``rows`` of `Waits`."""

    key: str
    region: int
    rows: npt.NDArray[np.intp]
    incidents: int
    idle_ns: int
    held_ns: int


def waits_of(context: RuleContext) -> Waits:
    """All waits whose call lies in the window (use as ``context.once(waits_of)``)."""
    timeline = context.timeline
    calls = timeline.calls
    if not len(calls):
        raise CannotCheckError("the trace holds no CUDA API calls")
    of_calls = timeline.waits
    rows = np.flatnonzero(((of_calls.held_ns > 0) | (of_calls.idle_ns > 0)) & context.in_windows(calls.start_ns))
    operators = context.once(_operators)
    kind, incident, found = _kinds(context, operators, rows, of_calls.blocked_ns, of_calls.held_ns)
    return Waits(
        call=rows,
        start_ns=calls.start_ns[rows],
        blocked_ns=of_calls.blocked_ns[rows],
        idle_ns=of_calls.idle_ns[rows],
        held_ns=of_calls.held_ns[rows],
        incident=incident,
        kind=kind,
        region=operators.region[rows],
        operator=found,
        operators=operators,
    )


def _operators(context: RuleContext) -> Operators:
    return operators_of(context.timeline)


def _kinds(
    context: RuleContext, operators: Operators, rows: Int, blocked: Int, held: Int
) -> tuple[Int, Int, tuple[OperatorSync | None, ...]]:
    """What each wait is, what it belongs to, and the operator that makes it."""
    calls = context.timeline.calls
    taken_over = _is_taken_over(context)[rows] & (calls.kind[rows] != CallClass.ALLOC)
    copies = _copies(context)
    # What a sync waits for is most often what was launched just before it: a copy to the host is what it is there for.
    is_sync = calls.kind[rows] == CallClass.SYNC
    about = np.where(is_sync, _last_launch(context)[rows], rows)
    known, about = about >= 0, np.maximum(about, 0)
    reads, feeds = known & copies.to_host[about], known & copies.to_device[about]
    pageable, small = copies.pageable[about], reads & copies.small[about]
    kind = np.full(len(rows), CALL, np.int64)
    kind[pageable & ((calls.kind[rows] == CallClass.LAUNCH) | (is_sync & feeds))] = PAGEABLE
    kind[small] = READBACK
    kind[calls.kind[rows] == CallClass.ALLOC] = ALLOCATION
    incident = np.where(is_sync & (reads | feeds) & np.isin(about, rows), about, rows)
    is_copy = (reads | feeds) & ~small
    until = np.clip(copies.start_ns[about], calls.start_ns[rows], calls.end_ns[rows])
    ahead = _busy(context).within(calls.start_ns[rows], until)
    of_incident = np.unique(incident, return_inverse=True)[1]
    waited = np.bincount(of_incident, np.where(is_copy, ahead, blocked[rows]), minlength=1)
    stood = np.bincount(of_incident, held[rows], minlength=1)
    is_copy &= (waited < AHEAD_SHARE * stood)[of_incident]
    found: list[OperatorSync | None] = [None] * len(rows)
    for number in np.flatnonzero(operators.of_range[rows] >= 0).tolist():
        chain = operators.chain(int(rows[number]))
        operator = operator_sync(chain, is_read=bool(reads[number]), is_fed=bool(feeds[number]))
        if operator is not None and kind[number] != ALLOCATION:
            found[number], kind[number] = operator, OPERATOR
            is_copy[number] &= operator in (TO_HOST, TO_DEVICE)
    kind[is_copy] = COPY
    kind[taken_over] = TAKEN_OVER
    return kind, incident, tuple(found)


def _busy(context: RuleContext) -> Coverage:
    """When at least one device works."""
    parts = [device.busy for device in context.timeline.devices]
    if not parts:
        return Coverage(EMPTY)
    return Coverage(union(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])))


@dataclass(frozen=True)
class _Copies:
    """Per call: what it copies, where it copies at all. ``start_ns``: when the copy itself begins."""

    to_host: Bool
    to_device: Bool
    small: Bool
    pageable: Bool
    start_ns: Int


def _copies(context: RuleContext) -> _Copies:
    timeline = context.timeline
    calls, table = timeline.calls, timeline.trace.operations
    rows = np.flatnonzero((table.kind == OpKind.MEMCPY) & (calls.of_operation >= 0))
    call = calls.of_operation[rows]
    to_host, to_device, small, pageable = (np.zeros(len(calls), bool) for _ in range(4))
    to_host[call] = table.direction[rows] == Direction.DTOH
    to_device[call] = table.direction[rows] == Direction.HTOD
    small[call] = table.bytes[rows] <= SMALL_COPY_BYTES
    pageable[call] = (table.source[rows] == MemoryKind.PAGEABLE) | (table.target[rows] == MemoryKind.PAGEABLE)
    start = calls.end_ns.copy()
    start[call] = table.start_ns[rows]
    return _Copies(to_host, to_device, small, pageable, start)


def _is_taken_over(context: RuleContext) -> Bool:
    """Calls of a thread after which memory is freed before anything is launched."""
    timeline = context.timeline
    calls = timeline.calls
    by_name = np.array([bool(_FREES.match(plain_name(name))) for name in timeline.trace.names] or [False])
    frees = by_name[calls.name]
    either = frees | np.isin(calls.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY))
    found = np.zeros(len(calls), bool)
    for thread in np.unique(calls.thread).tolist():
        mine = calls.rows_of(thread)
        end = mine.stop - mine.start
        own = np.where(either[mine], np.arange(end), end)
        following = np.append(np.minimum.accumulate(own[::-1])[::-1][1:], end)
        found[mine] = np.append(frees[mine], False)[following]
    return found


def _last_launch(context: RuleContext) -> Int:
    """For each call the one before it on its thread that launched something; NOTHING without one."""
    calls = context.timeline.calls
    launches = np.isin(calls.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY))
    last = np.full(len(calls), NOTHING, np.int64)
    for thread in np.unique(calls.thread).tolist():
        mine = calls.rows_of(thread)
        own = np.where(launches[mine], np.arange(mine.start, mine.stop), NOTHING)
        last[mine] = np.append(NOTHING, np.maximum.accumulate(own)[:-1])
    return last


def groups(context: RuleContext, waits: Waits, rows: npt.NDArray[np.intp], keys: Sequence[str]) -> Iterator[Group]:
    """Waits of one key in one region that are worth asking about, largest first; what is scattered over small
    regions comes together, in the region that holds it.

    The account shows the gap right after a wait alone. What the host lost of its lead it may pay for later, so the time
    it was held counts as well, where the device was idle after a wait at all.
    """
    weight = np.maximum(waits.idle_ns, waits.held_ns)
    found: list[tuple[int, Group]] = []
    named = np.array(keys, dtype=object)
    for key in sorted(set(keys)):
        mine = rows[named == key]
        scattered: list[npt.NDArray[np.intp]] = []
        for region in np.unique(waits.region[mine]).tolist():
            here = mine[waits.region[mine] == region]
            if _is_worth(context, waits, here, weight):
                found.append((int(weight[here].sum()), _group(key, region, here, waits)))
            else:
                scattered.append(here)
        rest = np.concatenate(scattered) if scattered else np.empty(0, np.intp)
        if _is_worth(context, waits, rest, weight):
            region = context.place(waits.region[rest], weight[rest])
            found.append((int(weight[rest].sum()), _group(key, region, rest, waits)))
    found.sort(key=lambda item: (-item[0], item[1].key, item[1].region))
    return iter([group for _, group in found[:MOST_GROUPS]])


def _is_worth(context: RuleContext, waits: Waits, rows: npt.NDArray[np.intp], weight: Int) -> bool:
    gap = waits.idle_ns[rows].any() or (waits.kind[rows] == PAGEABLE).any()
    return bool(gap) and int(weight[rows].sum()) >= ASK_SHARE * context.least_ns


def _group(key: str, region: int, rows: npt.NDArray[np.intp], waits: Waits) -> Group:
    incidents = len(np.unique(waits.incident[rows]))
    return Group(key, region, rows, incidents, int(waits.idle_ns[rows].sum()), int(waits.held_ns[rows].sum()))


def saving(context: RuleContext, waits: Waits, group: Group) -> tuple[tuple[int, int], dict[str, object]]:
    """What a program without these waits would save, and how that was told.

    Where one wait goes, the next often waits in its stead. Waits that save next to nothing alone, but do once all
    others are gone as well, are told with both figures.
    """
    calls, every = (np.zeros(len(context.timeline.calls), bool) for _ in range(2))
    calls[waits.call[group.rows]] = True
    every[waits.call[~np.isin(waits.kind, (COPY, TAKEN_OVER))]] = True
    alone = context.saving((Cause.SYNC.key,), calls=calls)
    if alone is None:
        return (0, group.idle_ns), {}  # the account's
    together, others = (
        context.saving((Cause.SYNC.key,), calls=every),
        context.saving((Cause.SYNC.key,), calls=every & ~calls),
    )
    last = 0 if together is None or others is None else max(sum(together) - sum(others), 0) // 2
    found = alone if alone[1] >= context.least_ns else (min(alone[0], last), max(alone[1], last))
    return found, {"saving_alone_ns": sum(alone) // 2, "saving_after_other_waits_ns": last}


def together_advice(context: RuleContext, told: dict[str, object]) -> tuple[str, ...]:
    """A line for waits that save something only together with others."""
    alone = told.get("saving_alone_ns")
    if not isinstance(alone, int) or alone >= context.least_ns:
        return ()
    return ("Alone it saves little, since the next wait takes its place: remove the waits of this part together",)


def evidence(context: RuleContext, waits: Waits, group: Group) -> dict[str, object]:
    """What all findings on waits say of them."""
    rows = group.rows
    names = context.timeline.trace.names
    by_call: dict[str, int] = {}
    for name in (plain_name(names[number]) for number in context.timeline.calls.name[waits.call[rows]].tolist()):
        by_call[name] = by_call.get(name, 0) + 1
    return {
        "waits": group.incidents,
        "host_waited_ns": group.held_ns,
        "longest_wait_ns": int(waits.held_ns[rows].max(initial=0)),
        "gpu_idle_right_after_ns": group.idle_ns,
        "calls": dict(sorted(by_call.items(), key=lambda item: (-item[1], item[0]))),
    }


def examples(context: RuleContext, waits: Waits, group: Group) -> tuple[Example, ...]:
    """The waits that cost most, with the operator and the source line where the trace holds them."""
    timeline = context.timeline
    rows = group.rows[np.lexsort((group.rows, -waits.idle_ns[group.rows], -waits.held_ns[group.rows]))]
    found = []
    for row in rows[:MOST_EXAMPLES].tolist():
        call = int(waits.call[row])
        what = plain_name(timeline.trace.names[timeline.calls.name[call]])
        chain = waits.operators.chain(call)
        if chain:
            what += f" in {' < '.join(chain[:3])}"
        source = source_of(context.timeline, call, 1)
        if source:
            what += f", {source[0]}"
        length = int(timeline.calls.end_ns[call] - timeline.calls.start_ns[call])
        found.append(Example(int(waits.start_ns[row]), length, what))
    return tuple(found)


def costs(group: Group) -> str:
    """``1,200 times, 53.2 ms in all``."""
    times = "once" if group.incidents == 1 else f"{group.incidents:,} times"
    return f"{times}, {duration(group.held_ns)} in all"


def is_python(context: RuleContext) -> bool:
    """Whether the program may be a Python one: its advice then speaks of PyTorch."""
    trace = context.timeline.trace
    told = (trace.command or "", *(process.name for process in trace.processes))
    return any("python" in text.lower() for text in told) or any("at::native" in name for name in trace.names)
