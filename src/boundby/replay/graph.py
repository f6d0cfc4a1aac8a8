"""The dependency graph of a trace: host nodes in order, operations in stream order, launches, waits.

Every edge carries a measured lag, so that an unchanged replay gives the measured times back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import BoolArray
from boundby.replay.engines import Engines

Int = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]  # indexes: half the memory at millions of events


@dataclass(frozen=True)
class Graph:
    """Columns of host nodes, of operations, and edges. Times are nanoseconds on the host's clock.

    A node is a CUDA call or an instant on a thread (see Chains). It comes after the one before it in its chain: an
    interval of dispatch, own code and sleep lies between. A call that waits also ends after some operations.
    """

    # nodes, by chain and start
    chain: Int32
    interval_ns: Int  # before the node
    cost_ns: Int  # the call's own time, without waiting
    kind: npt.NDArray[np.int8]  # CallClass
    is_call: BoolArray
    is_init: BoolArray
    wait_at: Int32  # wait_at[node]:wait_at[node + 1] of wait_for are the operations it waits for
    wait_for: Int32
    waits_for_start: BoolArray  # it returns by their start, not their end
    wait_lag_ns: Int  # from then to the call's return
    room: Int32  # the operation that must have ended for the queue to have room; NONE
    room_lag_ns: Int
    follows: Int32  # a node of another chain that woke this one's thread; NONE
    follow_lag_ns: Int  # from that node's end to this one's start
    call_start_ns: Int
    call_row: Int32  # the row in Calls of the call; of an instant that of the next call of its chain; NONE
    call_region: Int32
    # operations, by device and start
    launch: Int32  # node, or NONE: the operation starts when it did, relative to the one before it
    arrival_ns: Int  # from the start of the launching call (or its end) to the start at the earliest
    from_call_end: BoolArray  # a long launching call had to finish first: it loaded a module, say
    before: Int32  # the operation before it on its stream; NONE
    switch_ns: Int
    after_at: Int32  # after_at[row]:after_at[row + 1] of after_what are operations of other streams it comes after
    after_what: Int32
    engines: Engines
    takes_turns: bool  # where streams share a device, the order follows from the times; else it stays as measured
    early_ns: Int  # by how much it was seen to start before its device should have had room
    hold_ns: Int  # what nothing explains
    duration_ns: Int
    start_ns: Int
    device: Int32
    op_kind: npt.NDArray[np.int8]
    is_communication: BoolArray
    op_region: Int32
    # event order: 2 * node begins it, 2 * node + 1 ends one that waits, ~row is an operation
    order: Int32
    # pieces of intervals, for scenarios: node, nanoseconds, cause, region
    piece_call: Int32
    piece_ns: Int
    piece_cause: npt.NDArray[np.int8]
    piece_region: Int32

    @property
    def calls(self) -> int:
        """Number of nodes."""
        return len(self.chain)

    @property
    def waits(self) -> BoolArray:
        """Nodes that wait for an operation."""
        return np.diff(self.wait_at) > 0
