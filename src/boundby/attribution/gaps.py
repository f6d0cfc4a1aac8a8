"""Which calls wait for the device and for how long, and why it is idle: the table of its gaps, the wait that is to
blame for each, and the pieces of the account.

Everything that asks about gaps asks this table: it is built once, with the account.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution import segments
from boundby.attribution.groundwork import DeviceOperations, TraceContext
from boundby.attribution.host_state import ELSEWHERE, INPUT, LAUNCH_LIMIT_NS
from boundby.attribution.losses import Losses, Withheld, withhold
from boundby.attribution.regions import ROOT
from boundby.attribution.segments import NO_THREAD, Segments
from boundby.model.arrays import (
    BoolArray,
    Int32Array,
    Int64Array,
    as_rows,
    bounds,
    compact,
    group_sums,
    in_order,
    is_any,
    joined,
    narrow,
    pick,
    places,
    running_maximum,
    spread,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import NOTHING, IntervalSet, overlay
from boundby.model.library import int64
from boundby.native.passes import Divided, around, divide
from boundby.trace.tables import ColumnTable, Operations, OpKind
from boundby.trace.vocabulary.cuda import CallClass

_Parts = list[tuple[npt.NDArray[Any], Int64Array]]  # rows of calls, nanoseconds


class CallWaits(Struct, frozen=True):
    """Columns over the rows of Calls, few of which wait."""

    is_sync: BoolArray  # a blocking sync: explicit ones always, others where they waited longer than any launch takes
    rows: npt.NDArray[np.intp]  # calls that wait or are to blame; all others have waited for nothing
    ns: Int64Array  # of these: blocked, held, idle; shape (3, rows)

    def __len__(self) -> int:
        return len(self.is_sync)

    def _spread(self, which: int) -> Int64Array:
        column = np.zeros(len(self), np.int64)
        column[self.rows] = self.ns[which]
        return column

    @property
    def blocked_ns(self) -> Int64Array:
        """Waited for the device: in syncs, blocking copies, allocations, before pageable copies."""
        return self._spread(0)

    @property
    def held_ns(self) -> Int64Array:
        """Besides, stood by while a pageable copy ran."""
        return self._spread(1)

    @property
    def idle_ns(self) -> Int64Array:
        """Of the account's sync time on all devices: what this wait is to blame for."""
        return self._spread(2)


def wait_table(context: TraceContext, gaps: Iterable[GapTable]) -> CallWaits:
    """How long each call waited, and what that cost in the gaps of every device."""
    calls, host_state = context.calls, context.host_state
    nothing: _Parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    blocked, held, idle = [*nothing], [*nothing], [*nothing]
    for thread in unique(calls.thread).tolist():
        rows = calls.rows_of(thread)
        waits, waiting = host_state.blocked(thread), host_state.waiting(thread)
        for pieces_of, times in ((blocked, waits), (held, waiting)):
            if pieces_of is held and times is waits:  # no call holds it besides
                pieces_of.append(blocked[-1])
                continue
            pieces = overlay(times, IntervalSet(calls.start_ns[rows], calls.end_ns[rows]))
            pieces_of.append((pieces.right + rows.start, pieces.end - pieces.start))
    for each in gaps:
        blamed: npt.NDArray[np.intp] = np.flatnonzero(each.wait >= 0)
        idle.append((each.wait[blamed], each.sync_ns[blamed]))
    columns = [[np.concatenate(column) for column in zip(*parts, strict=True)] for parts in (blocked, held, idle)]
    is_told = np.zeros(len(calls), bool)
    for rows_of_calls, _ in columns:
        is_told[rows_of_calls] = True
    is_shown = np.flatnonzero(is_told)
    ns = np.stack([group_sums(places(is_shown, call), length, len(is_shown)) for call, length in columns])
    ns[1][host_state.queue_full[is_shown]] = 0  # a full queue is no wait that anybody asked for
    np.maximum(ns[0], ns[1], out=ns[1])
    is_sync = is_any(calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))
    is_sync[is_shown[ns[0] > LAUNCH_LIMIT_NS]] = True
    some = as_rows((ns[1] != 0) | (ns[2] != 0))  # nobody is blocked for longer than held
    return CallWaits(is_sync, is_shown[some], ns[:, some])


# Of the waits that delayed one launch, only so many of the latest are looked at to find the one to blame.
_LATEST_WAITS = 32


class GapTable(ColumnTable, frozen=True):
    """The idle intervals of one device inside its window, in order of time: a row each.

    Waits since the operation before the gap was launched delayed the next launch; the longest of them, of the
    responsible thread or of those it takes turns with, is to blame.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    thread: Int32Array  # responsible: launched what ends the gap, or what ran before a last gap; NO_THREAD
    operation: Int32Array  # that ends the gap, a row of Trace.operations; NOTHING: none comes any more
    wait: Int32Array  # the call that is to blame, a row of Calls; NOTHING: nobody waited
    sync_ns: Int64Array  # how much of the gap is ``sync`` in the account: what that wait cost

    @property
    def intervals(self) -> IntervalSet:
        """When the device is idle."""
        return IntervalSet(self.start_ns, self.end_ns)

    @property
    def length_ns(self) -> Int64Array:
        return self.end_ns - self.start_ns

    def at(self, time: Int64Array) -> npt.NDArray[np.intp]:
        """The gap that holds each of these instants, all of which must be idle."""
        return places(self.start_ns, time, side="right") - 1


class _Dividing(GapTable, frozen=True):
    """Gaps with the columns that only their division into causes needs."""

    launch: Int32Array  # the call that launched what ends it, a row of Calls; NOTHING: not known
    since_ns: Int64Array  # when the operation before the gap was launched

    def costs(self, pieces: Segments) -> Int64Array:
        """How much of each gap is ``sync``."""
        sync = np.flatnonzero(pieces.cause == Cause.SYNC)
        start, end = pieces.start_ns[sync], pieces.end_ns[sync]
        return group_sums(self.at(start), end - start, len(self))

    def divided(self, wait: Int32Array, sync_ns: Int64Array) -> GapTable:
        """The table with the waits that are to blame and what they cost."""
        result = replace(self, wait=wait, sync_ns=narrow(sync_ns))
        return GapTable(*(compact(getattr(result, column)) for column in GapTable.__struct_fields__))


def account_gaps(
    context: TraceContext,
    operations: DeviceOperations,
    idle: IntervalSet,
    span: tuple[int, int],
    losses: Losses,
    device: int,
) -> tuple[GapTable, Segments, Withheld]:
    """The table of a device's gaps, the segments of the account that cover them exactly, and what of these is withheld
    because records are missing.

    ``idle``: when the device does nothing in its window, which is ``span``.
    """
    gaps = _find_gaps(context, operations, idle, span[0])
    wait, cost = np.full(len(gaps), NOTHING, np.int32), np.zeros(len(gaps), np.int64)
    parts: list[Segments] = []
    waits: dict[int, _BlockedTime] = {}  # by the leader of those that take turns
    for thread in unique(gaps.thread).tolist():
        rows = as_rows(gaps.thread == thread)
        of_thread = gaps.take(rows)
        if thread == NO_THREAD:
            nobodys = np.full(len(of_thread), ROOT)
            parts.insert(0, segments.make(of_thread.start_ns, of_thread.end_ns, Cause.UNATTRIBUTED, nobodys))
            continue
        leader = int(context.logical_threads.leader[thread])
        if leader not in waits:
            waits[leader] = _waits_of(context, leader)
        divided = _divided(context, thread, waits[leader], of_thread)
        wait[rows], cost[rows] = divided.wait, divided.sync
        parts.append(Segments(*divided[:5]))
    whole = segments.concatenate(segments.nothing(), *parts)
    pieces, withheld = withhold(context, losses, device, whole, span)
    return gaps.divided(wait, cost if pieces is whole else gaps.costs(pieces)), pieces, withheld


def _find_gaps(context: TraceContext, operations: DeviceOperations, idle: IntervalSet, low: int) -> _Dividing:
    """For each idle interval: who is responsible, what ends it, since when waits count. Nobody is blamed yet."""
    calls, table = context.calls, operations.table
    call_of, launched_ns = calls.of_operation[operations.rows], calls.launched_ns[operations.rows]
    if len(without := np.flatnonzero(call_of < 0)):
        launched_ns = launched_ns.copy()
        launched_ns[without] = table.start_ns[without]
    following, telling, since_ns = around(idle, table.start_ns, table.end_ns, launched_ns, low)
    launch = pick(call_of, following, NOTHING).astype(np.int32, copy=False)
    is_followed, first = bool((telling == following).all()), int(operations.rows.start)
    return _Dividing(
        start_ns=idle.start,
        end_ns=idle.end,
        thread=_launching_threads(context, launch if is_followed else pick(call_of, telling, NOTHING), table, telling),
        operation=np.where(following >= 0, following + np.int32(first), NOTHING) if first else following,
        launch=launch,
        wait=spread(NOTHING, len(idle.start), np.int32),
        sync_ns=spread(0, len(idle.start)),
        since_ns=since_ns,
    )


def _launching_threads(
    context: TraceContext, call: npt.NDArray[np.integer], table: Operations, rows: Int32Array
) -> Int32Array:
    """The thread of each launching call; without a known call the only thread of the process of the operation, one of
    these rows, that calls CUDA; of several the one that is at work as pages migrate, which no call makes; else
    NO_THREAD."""
    callers = unique(context.calls.thread)
    if len(call) and len(callers) == 1 and bounds(call)[0] >= 0:
        return compact(spread(int(callers[0]), len(call), np.int32))
    number = context.trace.process_of_thread[callers]
    sole = np.full(len(context.trace.processes) + 1, NO_THREAD, np.int32)  # the last: of processes that are not known
    sole[number] = np.where(np.bincount(number, minlength=1)[number] == 1, callers, NO_THREAD)
    thread = pick(context.calls.thread, call, NO_THREAD)
    without = np.flatnonzero(call < 0)
    thread[without] = sole[table.process[rows[without]]]
    moved = np.flatnonzero((call < 0) & (thread == NO_THREAD))
    moved = moved[table.kind[rows[moved]] == OpKind.MIGRATION]
    if len(moved):
        thread[moved] = context.host_state.at_work(table.process[rows[moved]], table.start_ns[rows[moved]])
    return thread


def _divided(context: TraceContext, thread: int, waits: _BlockedTime, gaps: _Dividing) -> Divided:
    """The pieces of all gaps of one responsible thread: its states, launch latency, waiting for the device to begin.

    The sync debit (``boundby_idle`` in ``native/account.c``): up to W of each gap becomes ``sync``, where W is how long
    the host was blocked since the operation before was launched. Had it not waited, the next launch would have come W
    earlier. What lies in a sync call goes first, then the earliest part; it belongs to the region in which the wait
    began that is to blame. Time in which the device itself delays a launched operation is not the host's to save.
    While the thread sleeps, whoever of its process runs is responsible.
    """
    state, blocked = context.host_state, context.host_state.logical_thread_blocked(thread)
    asked: list[int] = []
    while True:
        threads = dict.fromkeys([thread, *asked, *unique(waits.thread).tolist()])
        divided = divide(
            {
                "start": gaps.start_ns,
                "end": gaps.end_ns,
                "since": gaps.since_ns,
                "launch": gaps.launch,
                "operation": gaps.operation,
            },
            {
                "call_start": int64(context.calls.start_ns),
                "call_end": int64(context.calls.end_ns),
                "launch_region": context.launch_region.astype(np.int32, copy=False),
            },
            state.responsible(thread),
            [(other, state.running(other, thread)) for other in asked],
            {other: context.ownership.steps(other) for other in threads},
            context.ownership.regions.of_range,
            (*blocked, np.append(0, np.cumsum(blocked.end - blocked.start))),
            {
                "wait_start": waits.start,
                "wait_end": waits.end,
                "wait_reach": waits.reach,
                "wait_call": waits.call,
                "wait_owner": waits.thread,
            },
            {
                "latest_waits": _LATEST_WAITS,
                "launch_limit": LAUNCH_LIMIT_NS,
                "sync": Cause.SYNC,
                "cuda_api": Cause.CUDA_API,
                "device_wait": Cause.DEVICE_WAIT,
                "host_blocked": Cause.HOST_BLOCKED,
                "elsewhere": ELSEWHERE,
                "awake": state.awake,
            },
        )
        every = state.running_elsewhere(thread) if divided.asleep else []
        if len(asked) == len(every) or not divided.asleep:
            return divided._replace(cause=np.where(divided.cause == INPUT, np.int8(Cause.HOST_BLOCKED), divided.cause))
        asked = every[: max(1, 2 * len(asked))]  # who need not be asked need not be worked out


class _BlockedTime(Struct, frozen=True):
    """When the members of one logical thread waited for the device, in order of start, and in which call."""

    start: Int64Array
    end: Int64Array
    reach: Int64Array  # the latest end so far
    call: Int64Array
    thread: Int64Array  # whose wait it is


def _waits_of(context: TraceContext, thread: int) -> _BlockedTime:
    calls, parts = context.calls, []
    for member in context.logical_threads.members(thread).tolist():
        blocked, rows = context.host_state.blocked(member), calls.rows_of(member)
        call = places(calls.start_ns[rows], blocked.start, side="right") + (rows.start - 1)
        parts.append((blocked.start, blocked.end, call, np.full(len(call), member, np.int64)))
    start, end, call, of_thread = (joined(columns) for columns in zip(*parts, strict=True))
    order = in_order(start)
    return _BlockedTime(start[order], end[order], running_maximum(end[order]), call[order], of_thread[order])
