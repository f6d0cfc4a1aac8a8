"""The dependency graph of a trace: host nodes in order, operations in stream order, launches, waits.

Every edge carries a measured lag, so that an unchanged replay gives the measured times back.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct, field

from boundby.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array, is_any, pick
from boundby.model.causes import Cause
from boundby.native.passes import Costs, Following, Links, Pieces, assign_slots, follow
from boundby.replay.host_nodes import NO_EDGES, Disagreement, WindowEdges
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass


class Contradictions(Struct, frozen=True, eq=False):
    """Dependencies that the measured times contradict, by what they were taken from. They are dropped, and counted."""

    streams: int = 0  # an operation began while another that it comes after ran
    waits: int = 0  # a call returned before what it waits for was done
    launches: int = 0  # an operation began before the call that launched it
    by_ns: Int64Array = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # per operation: how much too early it began


class Graph(Struct, frozen=True, dict=True):
    """Columns of host nodes, of operations, and edges. Times are nanoseconds on the host's clock.

    A node is a CUDA call or an instant on a thread (see HostNodes). It comes after the one before it in its chain: an
    interval of dispatch, own code and sleep lies between. A call that waits also ends after some operations.
    """

    links: Links  # what comes after what
    costs: Costs  # as measured
    order: Int32Array  # events: 2 * node begins it, 2 * node + 1 ends one that waits, ~row is an operation
    # nodes, by chain and start
    node_kind: Int8Array  # CallClass
    is_init: BoolArray
    wait_is_open: BoolArray  # an allocation of which the times do not tell whether it waits for the device
    call_row: Int32Array | None  # the row in Calls of the call; of an instant that of the next call of its chain; NONE
    node_region: Int32Array
    # operations, by device and start
    device: Int32Array
    op_kind: Int8Array
    is_communication: BoolArray
    op_region: Int32Array
    # pieces of the intervals before nodes, in order of the nodes
    piece_at: Int32Array  # piece_at[node]:piece_at[node + 1] are those of each
    piece_ns: Int32Array
    piece_cause: Int8Array
    piece_region: Int32Array
    contradictions: Contradictions = field(default_factory=Contradictions)
    disagreements: tuple[Disagreement, ...] = ()  # with the account, about what threads did
    edges: WindowEdges = NO_EDGES
    takes_turns: bool = False  # where streams share a device, the order follows from the times; else it stays

    @cached_property
    def following(self) -> Following:
        """What comes after each event of the order."""
        return follow(self.links, self.order)

    @cached_property
    def slots(self) -> tuple[Int32Array, Int32Array, int] | None:
        """Where several replays at once keep their times; None: the order cannot be gone through event by event."""
        return assign_slots(self.links, self.order, self.edges.node)

    @cached_property
    def pieces(self) -> Pieces:
        """What the intervals before nodes are made of."""
        return Pieces(self.piece_at, self.piece_ns)

    @cached_property
    def early_ns(self) -> Int64Array | None:
        """Of launch latencies what is below nothing, where clocks err; None: none is."""
        latency_ns = self.costs.launch_latency_ns
        return np.minimum(latency_ns, 0) if len(latency_ns) and int(latency_ns.min()) < 0 else None

    @cached_property
    def launches(self) -> BoolArray:
        """Nodes whose call only launches. Shape (nodes,)."""
        launching = (CallClass.LAUNCH, CallClass.BLOCKING_COPY, CallClass.OTHER)
        return is_any(self.node_kind, launching) & ~self.is_init

    @cached_property
    def computes(self) -> BoolArray:
        """Operations that are no communication and no copy. Shape (operations,)."""
        return (self.op_kind <= OpKind.GRAPH) & ~self.is_communication

    @cached_property
    def copies(self) -> BoolArray:
        """Shape (operations,)."""
        return self.op_kind >= OpKind.MEMCPY

    @cached_property
    def syncs(self) -> BoolArray:
        """Nodes whose call only waits. Shape (nodes,)."""
        return np.equal(self.node_kind, CallClass.SYNC)

    @cached_property
    def launched_by_waits(self) -> Int64Array:
        """Operations whose launching call waits."""
        launch = self.links.launch
        return np.flatnonzero((launch >= 0) & pick(self.costs.waits, launch, False))

    def of_pieces(self, nodes: BoolArray) -> BoolArray:
        """The pieces of intervals before these nodes (a mask), a mask."""
        return np.repeat(nodes, np.diff(self.piece_at))

    def pieces_of(self, cause: Cause) -> BoolArray:
        """The pieces of intervals of this cause, a mask."""
        of_cause: BoolArray = np.equal(self.piece_cause, np.int8(cause))
        return of_cause
