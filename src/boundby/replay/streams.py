"""The device's side of the graph: operations in the order of their streams, and what each one had to wait for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import (
    BoolArray,
    Int64Array,
    factorize,
    in_order,
    is_even,
    median,
    pick,
    places,
    quantile,
    unique,
)
from boundby.model.scale import BUSY_NS, LAUNCH_NS, SWITCH_NS
from boundby.native.passes import NONE
from boundby.trace.tables import Operations

# An operation that starts this soon after what it waited for was held up by that.
SWITCH_LIMIT_NS = 6_000
# A launch that reaches an idle device takes this long at most before it counts as held up by something unseen.
ARRIVAL_LIMIT_NS = BUSY_NS
# A call this long did more than launch; what it launched could not start before it was done.
LONG_CALL_NS = 30_000
# Fallbacks where a trace shows no example.
USUAL_SWITCH_NS = SWITCH_NS
USUAL_ARRIVAL_NS = LAUNCH_NS // 2
NEVER = np.iinfo(np.int64).min // 2


class StreamQueues:
    """What each stream held at any instant: its operations in the order in which they were launched."""

    def __init__(self, table: Operations, launched: Int64Array) -> None:
        """``launched``: when each operation was handed over, on the host's clock."""
        self.launched = launched
        count = len(table)
        # ``key``, of each operation: a number for (device, process, stream); ``place`` is these of each key.
        streams, self.key = factorize(table.device, table.process, table.stream)
        self.count = len(streams)
        self.place = {
            (device, process, stream): number for number, (device, process, stream) in enumerate(streams.tolist())
        }
        self._order = np.arange(count)[in_order(self.key, launched, table.end_ns)]
        self._low = int(launched.min()) if count else 0
        self._stride = (int(launched.max()) - self._low + 2) if count else 2
        self._sorted = launched[self._order] - self._low
        if self.count > 1:
            self._sorted += self.key[self._order] * self._stride

    @cached_property
    def rows(self) -> list[npt.NDArray[np.intp]]:
        """The operations of each stream in the order in which they were launched."""
        return np.split(self._order, np.cumsum(np.bincount(self.key, minlength=self.count))[:-1])

    def tail(self, key: Int64Array, time: Int64Array) -> Int64Array:
        """The last operation launched on each stream before each instant; NONE without one."""
        return self._find(key, time, -1)

    def head(self, key: Int64Array, time: Int64Array) -> Int64Array:
        """The first operation launched on each stream at or after each instant; NONE without one."""
        return self._find(key, time, 0)

    def _find(self, key: Int64Array, time: Int64Array, step: int) -> Int64Array:
        if self.count == 0:
            return np.full(len(key), NONE, np.int64)
        wanted = np.clip(time - self._low, 0, self._stride - 1)
        if self.count > 1:
            wanted += key * self._stride
        position = places(self._sorted, wanted) + step
        row = self._order[np.clip(position, 0, len(self._order) - 1)]
        good = (position >= 0) & (position < len(self._order)) & (key >= 0) & (self.key[row] == key)
        return np.where(good, row, NONE)


class StreamOrder(Struct, frozen=True):
    """Per operation: when it can start at the earliest. Lags in nanoseconds."""

    launch_latency: Int64Array  # from the start of the launching call (or its end) to the device
    from_call_end: BoolArray
    before: Int64Array  # the operation before it on its stream; NONE
    switch: Int64Array  # from the end of that one, or of what it waited for on other streams


def predecessors(table: Operations) -> Int64Array:
    """The operation before each one on its stream, by start; NONE."""
    sorted_rows = in_order(table.device, table.process, table.stream, table.start_ns, table.end_ns)
    same = np.ones(max(len(table) - 1, 0), bool)
    for column in (table.stream, table.process, table.device):
        if not is_even(column):
            ordered = column[sorted_rows]
            same &= ordered[1:] == ordered[:-1]
    before = np.arange(-1, len(table) - 1)
    if isinstance(sorted_rows, slice):
        before[1:][~same] = NONE
        return before
    before[sorted_rows[:1]] = NONE
    before[sorted_rows[1:]] = np.where(same, sorted_rows[:-1], NONE)
    return before


def order_streams(
    table: Operations,
    launch: Int64Array,
    call_start: Int64Array,
    call_end: Int64Array,
    before: Int64Array,
    crossed: Int64Array,
    held_until: Int64Array,
) -> StreamOrder:
    """Lags of every operation. ``call_end`` of calls that wait is their start: what they launch need not wait for
    them. When what it waited for was over (NEVER: nothing): ``crossed``, on other streams; ``held_until``, for room
    on the device."""
    # Work without a call (page migrations) on a stream of its own follows what ended last on the device.
    lost = np.flatnonzero((launch < 0) & (before < 0))
    if len(lost):
        before = before.copy()
        before[lost] = ended_last(table, lost)
    has_call = launch >= 0
    launched, finished = pick(call_start, launch, NEVER), pick(call_end, launch, NEVER)
    from_end = has_call & (finished - launched >= LONG_CALL_NS)
    if from_end.any():
        from_end &= table.start_ns >= finished - USUAL_ARRIVAL_NS
        launched = np.where(from_end, finished, launched)
    free = np.maximum(pick(table.end_ns, before, NEVER), crossed)
    free_all = free if is_even(held_until) and held_until[0] == NEVER else np.maximum(free, held_until)
    after_free, after_launch = table.start_ns - free, table.start_ns - launched
    idle_before = has_call & ~from_end & (free_all < launched) & (after_launch <= ARRIVAL_LIMIT_NS)
    usual = _usual_arrival(launched, finished, after_launch, idle_before)
    if from_end.any():
        usual = np.where(from_end, 0, usual)
    del idle_before
    # What had arrived before its stream was free was held up by its stream.
    queued = (after_free if free_all is free else table.start_ns - free_all) <= SWITCH_LIMIT_NS
    queued &= free_all > NEVER
    queued &= ~has_call | (launched + usual <= free_all)
    arrived = ~queued & has_call & (table.start_ns - np.maximum(launched, finished) <= ARRIVAL_LIMIT_NS)
    by_stream = queued if free_all is free else queued & (free >= held_until)
    tells = by_stream & (finished > launched)  # in a call that waits, the host may have held it up as well
    usual_switch = int(median(np.maximum(after_free[tells], 0))) if tells.any() else USUAL_SWITCH_NS
    del launched, finished, free_all
    switch, latency = np.minimum(usual_switch, after_free), np.minimum(usual, after_launch, out=usual)
    np.copyto(switch, after_free, where=by_stream)
    np.copyto(latency, after_launch, where=arrived)
    switch[free <= NEVER], latency[~has_call] = 0, 0
    return StreamOrder(latency, from_end, before, switch)


def _usual_arrival(
    launched: Int64Array, finished: Int64Array, after_launch: Int64Array, idle_before: BoolArray
) -> Int64Array:
    """How long each launch takes to reach the device: nearly its call's length, and what the way takes from there."""
    if not idle_before.any():
        return np.full(len(launched), USUAL_ARRIVAL_NS)
    length = np.subtract(finished, launched)
    np.maximum(length, 0, out=length)
    after, own = after_launch[idle_before], length[idle_before]
    whole = int(quantile(after, 0.25))
    if not own.any():
        return np.full(len(launched), whole)
    after -= own
    rest = int(median(after if own.all() else after[own > 0]))
    return np.where((length > 0) & (length < LONG_CALL_NS), np.maximum(length + rest, 0), whole)


def ended_last(table: Operations, rows: npt.NDArray[np.intp]) -> Int64Array:
    """The operation of the same device that ended last before each of these started; NONE without one."""
    before = np.full(len(rows), NONE, np.int64)
    for device in unique(table.device[rows]).tolist():
        everyone = np.flatnonzero(table.device == device)
        by_end = everyone[np.lexsort((table.start_ns[everyone], table.end_ns[everyone]))]
        own = np.flatnonzero(table.device[rows] == device)
        position = np.searchsorted(table.end_ns[by_end], table.start_ns[rows[own]], side="right") - 1
        other = by_end[np.maximum(position, 0)]
        good = (position >= 0) & (table.start_ns[other] < table.start_ns[rows[own]])
        before[own[good]] = other[good]
    return before
