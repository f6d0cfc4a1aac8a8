"""How each cause's costs are removed, or made smaller: everywhere, or in a selection of calls and operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from boundby.model.arrays import BoolArray, Int64Array, median
from boundby.model.causes import Cause
from boundby.model.records import dataclass
from boundby.model.scenarios import SCENARIOS
from boundby.native.forward import Costs
from boundby.replay.graph import Graph
from boundby.replay.trust import Open
from boundby.replay.waits import USUAL_RETURN_NS
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass


@dataclass(frozen=True, eq=False)
class Scope:
    """Where costs are changed: masks over nodes, operations and pieces of the intervals between nodes."""

    nodes: BoolArray
    operations: BoolArray
    pieces: BoolArray
    is_everything: bool = False  # all regions of the window

    def inside(self, graph: Graph, regions: BoolArray) -> Scope:
        """The part that lies in these regions (a mask over regions)."""
        return Scope(
            self.nodes & regions[graph.node_region],
            self.operations & regions[graph.op_region],
            self.pieces & regions[graph.piece_region],
        )

    def selected(self, graph: Graph, calls: BoolArray | None, operations: BoolArray | None) -> Scope:
        """The part that belongs to these calls (a mask over the rows of Calls; the interval before a call belongs to
        it) and operations. Given one of the two, the other is nothing; given neither, both are everything."""
        if calls is None and operations is None:
            return self
        nodes = np.zeros(graph.links.nodes, bool) if calls is None else np.append(calls, False)[graph.call_row]
        rows = np.zeros(len(graph.links.launch), bool) if operations is None else operations
        return Scope(self.nodes & nodes, self.operations & rows, self.pieces & nodes[graph.piece_node])


def window_scope(graph: Graph, low: int, high: int) -> Scope:
    """What lies in the window [low, high), or partly does. On the host it begins with the call that launched the first
    operation that begins in it."""
    start = graph.links.start_ns
    operations = (start + np.maximum(graph.costs.duration_ns, 1) > low) & (start < high)
    launch = graph.links.launch[operations & (start >= low)]
    launch = launch[launch >= 0]
    begin = int(graph.links.node_begin_ns[launch].min()) if len(launch) else low
    calls = (graph.links.node_begin_ns >= begin) & (graph.links.node_begin_ns < high)
    pieces = calls[graph.piece_node] & (graph.links.node_begin_ns[graph.piece_node] > begin)
    if (
        operations.all() and (graph.links.launch >= 0).all()
    ):  # nothing is tied to the clock: what came before counts, too
        calls, pieces = np.ones_like(calls), np.ones_like(pieces)
    return Scope(calls, operations, pieces, is_everything=True)


@dataclass(frozen=True)
class Without:
    """Nothing of these causes (keys of `Cause`) is left, in whatever order and however often they are named."""

    causes: tuple[str, ...]

    def __call__(self, graph: Graph, costs: Costs, scope: Scope) -> Costs:
        for cause, removal in REMOVALS.items():
            if cause in self.causes:
                costs = removal.remove(graph, costs, scope)
        if set(self.causes) >= set(SCENARIOS["infinite_host"].causes) and scope.is_everything:
            costs = replace(costs, has_queue_limit=False)
        return costs


@dataclass(frozen=True)
class FasterHost:
    """The host's own code between calls takes a ``factor``-th of its time."""

    factor: float

    def __call__(self, graph: Graph, costs: Costs, scope: Scope) -> Costs:
        saved = _pieces(graph, Cause.CPU, scope)
        return replace(costs, interval_ns=costs.interval_ns - saved + (saved / self.factor).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Faster:
    """These operations (a mask) run ``factor`` times as fast; calls that are held by copies among them are for as much
    less: they stage the data through a buffer before, after and while the copy runs."""

    operations: BoolArray
    factor: float

    def __call__(self, graph: Graph, costs: Costs, scope: Scope) -> Costs:
        rows, left = self.operations & scope.operations, 1.0 / self.factor
        held = _held_by(graph, rows & (graph.op_kind >= OpKind.MEMCPY))
        gone = np.append(np.where(held, graph.costs.call_ns * (1 - left), 0).astype(np.int64), 0)
        returning = np.minimum(costs.wait_lag_ns, USUAL_RETURN_NS)
        lag = returning + ((costs.wait_lag_ns - returning) * left).astype(np.int64)
        return replace(
            costs,
            duration_ns=np.where(rows, (costs.duration_ns * left).astype(np.int64), costs.duration_ns),
            call_ns=np.maximum(costs.call_ns - gone[:-1], 0),
            launch_latency_ns=np.where(
                rows, np.maximum(costs.launch_latency_ns - gone[graph.links.launch], 0), costs.launch_latency_ns
            ),
            wait_lag_ns=np.where(held, lag, costs.wait_lag_ns),
            # Delays of a busy device, turns of another process say, come with the time that its work takes.
            unexplained_delay_ns=np.where(
                rows, (costs.unexplained_delay_ns * left).astype(np.int64), costs.unexplained_delay_ns
            ),
        )


@dataclass(frozen=True, eq=False)
class WithoutOpen:
    """What the trace leaves open is gone, as far as another change has left it."""

    open: Open

    def __call__(self, graph: Graph, costs: Costs, scope: Scope) -> Costs:
        found, measured = self.open, graph.costs

        def less(now: Int64Array, before: Int64Array, gone: Int64Array, where: BoolArray) -> Int64Array:
            return now - np.where(where, np.clip(now - (before - gone), 0, gone), 0)

        return replace(
            costs,
            interval_ns=less(costs.interval_ns, measured.interval_ns, found.sleep_ns, scope.nodes),
            call_ns=less(costs.call_ns, measured.call_ns, found.call_ns, scope.nodes),
            wait_lag_ns=less(costs.wait_lag_ns, measured.wait_lag_ns, found.lag_ns, scope.nodes),
            duration_ns=less(costs.duration_ns, measured.duration_ns, found.wait_inside_ns, scope.operations),
            unexplained_delay_ns=np.where(scope.operations, 0, costs.unexplained_delay_ns),
        )


Change = Callable[[Graph, Costs, Scope], Costs]


def is_removal(change: Change) -> bool:
    """Whether nothing takes longer by it."""
    return change.factor >= 1 if isinstance(change, Faster | FasterHost) else isinstance(change, Without | WithoutOpen)


def _without_sync(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Blocking calls return at once; copies stay on the device. Allocations keep their own time."""
    is_sync = scope.nodes & (graph.node_kind == CallClass.SYNC)
    return replace(
        costs,
        waits=costs.waits & ~scope.nodes,
        call_ns=np.where(is_sync, 0, costs.call_ns),
    )


def _without_launching(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Launch-class calls that do not wait, dispatch between calls and launch latency take no time."""
    call = np.where(scope.nodes & graph.launches & ~costs.waits, 0, costs.call_ns)
    if costs.waits.any():  # what a waiting call launches still comes after that call's own work
        own = np.append(np.where(costs.waits, costs.call_ns, 0), 0)[graph.links.launch]
        arrival = np.minimum(costs.launch_latency_ns, np.where(graph.links.from_call_end, 0, own))
    else:
        arrival = np.minimum(costs.launch_latency_ns, 0)
    return replace(
        costs,
        call_ns=call,
        interval_ns=_without_pieces(graph, costs, Cause.CUDA_API, scope),
        launch_latency_ns=np.where(scope.operations, arrival, costs.launch_latency_ns),
    )


def _pieces(graph: Graph, cause: Cause, scope: Scope) -> Int64Array:
    mine = graph.pieces_of(cause)
    mine = mine[scope.pieces[mine]]
    return np.bincount(graph.piece_node[mine], graph.piece_ns[mine], minlength=graph.links.nodes).astype(np.int64)


def _without_pieces(graph: Graph, costs: Costs, cause: Cause, scope: Scope) -> Int64Array:
    """The intervals before nodes without their pieces of a cause."""
    if not len(graph.pieces_of(cause)):
        return costs.interval_ns
    left: Int64Array = costs.interval_ns - _pieces(graph, cause, scope)
    return left


def _without_cpu(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return replace(costs, interval_ns=_without_pieces(graph, costs, Cause.CPU, scope))


def _without_sleep(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return replace(costs, interval_ns=_without_pieces(graph, costs, Cause.HOST_BLOCKED, scope))


def _without_init(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Allocations only wait; launches that load code only launch; nothing is compiled."""
    gone = scope.nodes & graph.is_init
    if not graph.is_init.any():
        return replace(costs, interval_ns=_without_pieces(graph, costs, Cause.INIT, scope))
    launches = (graph.node_kind == CallClass.LAUNCH) & ~graph.is_init
    usual = int(median(graph.costs.call_ns[launches])) if launches.any() else 0
    left = np.where(graph.node_kind == CallClass.LAUNCH, np.minimum(costs.call_ns, usual), 0)
    is_allocation = gone & (graph.node_kind == CallClass.ALLOC)
    return replace(
        costs,
        call_ns=np.where(gone, left, costs.call_ns),
        interval_ns=_without_pieces(graph, costs, Cause.INIT, scope),
        wait_lag_ns=np.where(is_allocation, 0, costs.wait_lag_ns),
    )


def _without_operations(costs: Costs, mine: BoolArray) -> Costs:
    if not mine.any():
        return costs
    return replace(
        costs,
        duration_ns=np.where(mine, 0, costs.duration_ns),
        unexplained_delay_ns=np.where(mine, 0, costs.unexplained_delay_ns),
    )


def _without_compute(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_operations(costs, scope.operations & graph.computes)


def _without_comm(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_operations(costs, scope.operations & graph.is_communication)


def _held_by(graph: Graph, copies: BoolArray) -> BoolArray:
    """Nodes whose call is held by one of these copies, as it was measured."""
    launching = np.zeros(graph.links.nodes, bool)
    launch = graph.links.launch[copies]
    launching[launch[launch >= 0]] = True
    held: BoolArray = launching & ((graph.node_kind == CallClass.BLOCKING_COPY) | graph.costs.waits)
    return held


def _without_copies(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Copies take no time on the device, and blocking ones none on the host."""
    copies = scope.operations & graph.copies
    costs = _without_operations(costs, copies)
    blocking = _held_by(graph, copies)
    own = np.append(np.where(blocking, graph.costs.call_ns, 0), 0)[graph.links.launch]
    return replace(
        costs,
        waits=costs.waits & ~blocking,
        call_ns=np.where(blocking, 0, costs.call_ns),
        launch_latency_ns=np.where(copies, np.maximum(costs.launch_latency_ns - own, 0), costs.launch_latency_ns),
    )


def _pieces_ns(graph: Graph, cause: Cause, scope: Scope) -> int:
    mine = graph.pieces_of(cause)
    return int(graph.piece_ns[mine[scope.pieces[mine]]].sum())


def _waits_ns(graph: Graph, scope: Scope) -> float:
    """Where anything waits, removing that is worth a replay: what it costs shows only there."""
    return math.inf if graph.costs.waits[scope.nodes].any() else 0


def _launching_ns(graph: Graph, scope: Scope) -> int:
    calls_ns = graph.costs.call_ns[scope.nodes & ~graph.is_init].sum()
    return int(calls_ns + graph.costs.launch_latency_ns[scope.operations].sum()) + _pieces_ns(
        graph, Cause.CUDA_API, scope
    )


def _init_ns(graph: Graph, scope: Scope) -> int:
    return int(graph.costs.call_ns[scope.nodes & graph.is_init].sum()) + _pieces_ns(graph, Cause.INIT, scope)


def _operations_ns(graph: Graph, mine: BoolArray) -> int:
    return int(graph.costs.duration_ns[mine].sum())


class Removal(NamedTuple):
    """How one cause is removed, and how much of it there is to remove, in nanoseconds."""

    remove: Callable[[Graph, Costs, Scope], Costs]
    held_ns: Callable[[Graph, Scope], float]


#: By key of every cause in `boundby.model.causes.REMOVABLE`.
REMOVALS: dict[str, Removal] = {
    "sync": Removal(_without_sync, _waits_ns),
    "cuda_api": Removal(_without_launching, _launching_ns),
    "cpu": Removal(_without_cpu, lambda graph, scope: _pieces_ns(graph, Cause.CPU, scope)),
    "host_blocked": Removal(_without_sleep, lambda graph, scope: _pieces_ns(graph, Cause.HOST_BLOCKED, scope)),
    "init": Removal(_without_init, _init_ns),
    "gpu_compute": Removal(
        _without_compute, lambda graph, scope: _operations_ns(graph, scope.operations & graph.computes)
    ),
    "gpu_comm": Removal(
        _without_comm, lambda graph, scope: _operations_ns(graph, scope.operations & graph.is_communication)
    ),
    "gpu_copy": Removal(_without_copies, lambda graph, scope: _operations_ns(graph, scope.operations & graph.copies)),
}
