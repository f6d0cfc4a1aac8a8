"""Which calls wait for the device, for how long, and what each wait cost: the one place that tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.gaps import GapTable
from boundby.attribution.groundwork import TraceContext
from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.model.arrays import BoolArray, Int64Array, as_rows, group_sums, is_any, places, unique
from boundby.model.intervals import IntervalSet, overlay
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
        for found, times in ((blocked, waits), (held, waiting)):
            if found is held and times is waits:  # no call holds it besides
                found.append(blocked[-1])
                continue
            pieces = overlay(times, IntervalSet(calls.start_ns[rows], calls.end_ns[rows]))
            found.append((pieces.right + rows.start, pieces.end - pieces.start))
    for each in gaps:
        blamed: npt.NDArray[np.intp] = np.flatnonzero(each.wait >= 0)
        idle.append((each.wait[blamed], each.sync_ns[blamed]))
    columns = [[np.concatenate(column) for column in zip(*parts, strict=True)] for parts in (blocked, held, idle)]
    is_told = np.zeros(len(calls), bool)
    for rows_of_calls, _ in columns:
        is_told[rows_of_calls] = True
    told = np.flatnonzero(is_told)
    ns = np.stack([group_sums(places(told, call), length, len(told)) for call, length in columns])
    ns[1][host_state.queue_full[told]] = 0  # a full queue is no wait that anybody asked for
    np.maximum(ns[0], ns[1], out=ns[1])
    is_sync = is_any(calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))
    is_sync[told[ns[0] > LAUNCH_LIMIT_NS]] = True
    some = as_rows((ns[1] != 0) | (ns[2] != 0))  # nobody is blocked for longer than held
    return CallWaits(is_sync, told[some], ns[:, some])
