"""Which calls wait for the device, for how long, and what each wait cost: the one place that tells."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from boundby.attribution.context import TraceContext
from boundby.attribution.gaps import LAUNCH_LIMIT_NS, Gaps
from boundby.model.arrays import BoolArray, Int64Array, is_any, unique
from boundby.model.intervals import Coverage
from boundby.model.records import dataclass
from boundby.trace.vocabulary.cuda import CallClass


@dataclass(frozen=True)
class CallWaits:
    """Columns over the rows of Calls, few of which wait."""

    is_sync: BoolArray  # a blocking sync: explicit ones always, others where they waited longer than any launch takes
    _rows: npt.NDArray[np.intp]  # calls that wait or are to blame
    _ns: Int64Array  # of these: blocked, held, idle; shape (3, rows)

    def __len__(self) -> int:
        return len(self.is_sync)

    def _spread(self, which: int) -> Int64Array:
        column = np.zeros(len(self), np.int64)
        column[self._rows] = self._ns[which]
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


def wait_table(context: TraceContext, gaps: Iterable[Gaps]) -> CallWaits:
    """How long each call waited, and what that cost in the gaps of every device."""
    calls, host_state = context.calls, context.host_state
    blocked, held, idle = (np.zeros(len(calls), np.int64) for _ in range(3))
    for thread in unique(calls.thread).tolist():
        rows = calls.rows_of(thread)
        span = calls.start_ns[rows], calls.end_ns[rows]
        blocked[rows] = Coverage(host_state.blocked(thread)).within(*span)
        held[rows] = Coverage(host_state.waiting(thread)).within(*span)
    held[host_state.queue_full] = 0  # a full queue is no wait that anybody asked for
    for each in gaps:
        blamed: npt.NDArray[np.intp] = np.flatnonzero(each.wait >= 0)
        np.add.at(idle, each.wait[blamed], each.sync_ns[blamed])
    explicit = is_any(calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))
    held = blocked if bool((held <= blocked).all()) else np.maximum(held, blocked)
    told = np.flatnonzero((held != 0) | (idle != 0))  # nobody is blocked for longer than held
    return CallWaits(explicit | (blocked > LAUNCH_LIMIT_NS), told, np.stack((blocked[told], held[told], idle[told])))
