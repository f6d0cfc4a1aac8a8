"""How each cause's costs are removed, or made smaller: everywhere, or in a selection of calls and operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.model.arrays import (
    BoolArray,
    FloatArray,
    Int32Array,
    Int64Array,
    blank,
    group_sums,
    marked,
    median,
    pick,
    tally,
)
from boundby.model.causes import REMOVABLE, SCENARIOS, Cause
from boundby.model.scale import ROOM
from boundby.native.passes import Column, Costs, Less
from boundby.replay.graph import Graph
from boundby.replay.trust import Open
from boundby.replay.wait_edges import USUAL_RETURN_NS
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass

# Causes of host intervals that no removal names.
_OF_NO_REMOVAL = (Cause.UNATTRIBUTED, Cause.PROFILER, Cause.SYNC)


class Scope(Struct, frozen=True, eq=False, dict=True):
    """Where costs are changed: masks over nodes, operations and pieces of the intervals between nodes (``find_pieces``:
    not every change asks for these)."""

    nodes: BoolArray
    operations: BoolArray
    find_pieces: Callable[[], BoolArray]
    is_everything: bool = False  # all regions of the window
    is_whole: bool = False  # all of the graph

    @cached_property
    def pieces(self) -> BoolArray:
        """A mask over the pieces of the intervals between nodes."""
        return self.find_pieces()

    @cached_property
    def no_nodes(self) -> BoolArray:
        """A mask over nodes that is false, one for all who ask."""
        return np.zeros(len(self.nodes), bool)

    @cached_property
    def no_operations(self) -> BoolArray:
        """A mask over operations that is false, one for all who ask."""
        return np.zeros(len(self.operations), bool)

    def of_nodes(self, mask: BoolArray) -> BoolArray:
        """Those of these nodes that lie there."""
        return mask if self.is_whole else self.nodes & mask

    def of_operations(self, mask: BoolArray) -> BoolArray:
        """Those of these operations that lie there."""
        return mask if self.is_whole else self.operations & mask

    def of_picked(self, pieces: BoolArray) -> BoolArray:
        """Those of these pieces that lie there."""
        return pieces if self.is_whole else self.pieces & pieces

    def of_pieces(self, graph: Graph, cause: Cause) -> BoolArray:
        """The pieces of this cause that lie there."""
        return self.of_picked(graph.pieces_of(cause))

    def inside(self, graph: Graph, regions: BoolArray) -> Scope:
        """The part that lies in these regions (a mask over regions)."""
        return Scope(
            self.of_nodes(pick(regions, graph.node_region, regions[0])),
            self.of_operations(pick(regions, graph.op_region, regions[0])),
            lambda: self.of_picked(pick(regions, graph.piece_region, regions[0])),
        )

    def selected(self, graph: Graph, calls: BoolArray | None, operations: BoolArray | None) -> Scope:
        """The part that belongs to these calls (a mask over the rows of Calls; the interval before a call belongs to
        it) and operations. Given one of the two, the other is nothing; given neither, both are everything."""
        if calls is None and operations is None:
            return self
        nodes = self.no_nodes if calls is None else calls
        if calls is not None and graph.call_row is not None:
            nodes = pick(calls, graph.call_row, False)
        rows = self.no_operations if operations is None else self.of_operations(operations)
        return Scope(
            self.of_nodes(nodes),
            rows,
            lambda: self.of_picked(graph.of_pieces(nodes)),
        )


def window_scope(graph: Graph, low: int, high: int) -> Scope:
    """What lies in the window [low, high), or partly does. On the host it begins with the call that launched the first
    operation that begins in it, or where the host is at work before that."""
    start = graph.links.start_ns
    operations = (start + np.maximum(graph.costs.duration_ns, 1) > low) & (start < high)
    if operations.all() and graph.links.launch.min(initial=0) >= 0:
        # Nothing is tied to the clock: what came before counts, too.
        nodes, pieces = np.ones(graph.links.nodes, bool), len(graph.piece_ns)
        return Scope(nodes, operations, lambda: np.ones(pieces, bool), is_everything=True, is_whole=True)
    launch = graph.links.launch[operations & (start >= low)]
    launch = launch[launch >= 0]
    edges = graph.edges.node[(graph.edges.time_ns >= low) & (graph.edges.time_ns < high)]
    begin = int(graph.links.node_begin_ns[np.concatenate((launch, edges))].min(initial=high))
    calls = (graph.links.node_begin_ns >= begin) & (graph.links.node_begin_ns < high)
    after = calls & (graph.links.node_begin_ns > begin)
    return Scope(calls, operations, lambda: graph.of_pieces(after), is_everything=True)


class Without(Struct, frozen=True):
    """Nothing of these causes (keys of `Cause`) is left, in whatever order and however often they are named."""

    causes: tuple[str, ...]

    def __call__(self, graph: Graph, costs: Costs, scope: Scope, gone: Collection[str] = ()) -> Costs:
        """``gone``: causes of which nothing is left already; what takes no time cannot take less."""
        for cause in self.in_order:
            if cause not in gone:
                costs = REMOVALS[cause].remove(graph, costs, scope)
        if self.is_unlimited and scope.is_everything:  # nothing of the host is left, whatever it did
            costs = costs.changed(has_queue_limit=False)
            for left in _OF_NO_REMOVAL:
                costs = _without_pieces(graph, costs, left, scope)
        return costs

    @property
    def in_order(self) -> list[str]:
        """The causes as they are removed, one after the other."""
        return [cause for cause in REMOVALS if cause in self.causes]

    @property
    def is_unlimited(self) -> bool:
        """Whether queues are not limited, where they are gone everywhere."""
        return set(self.causes) >= set(SCENARIOS["infinite_host"].causes)


class FasterHost(Struct, frozen=True):
    """The host's own code between calls takes a ``factor``-th of its time."""

    factor: float

    def __call__(self, graph: Graph, costs: Costs, scope: Scope) -> Costs:
        saved = costs.interval_ns - _without_pieces(graph, costs, Cause.CPU, scope).interval_ns
        return costs.changed(interval_ns=costs.interval_ns - saved + (saved / self.factor).astype(np.int64))


class Faster(Struct, frozen=True, eq=False):
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
        return costs.changed(
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


class WithoutOpen(Struct, frozen=True, eq=False, dict=True):
    """What the trace leaves open is gone, as far as another change has left it."""

    open: Open

    @cached_property
    def _left(self) -> dict[str, Int64Array]:
        """What is left of what was measured, by column."""
        return {}

    def __call__(self, graph: Graph, costs: Costs, scope: Scope) -> Costs:
        open_times, measured = self.open, graph.costs

        def less(name: str, gone: Int64Array, where: BoolArray) -> Column:
            before: Int64Array = getattr(measured, name)
            if not gone.any():
                return costs.column(name)
            if costs.column(name) is before:  # one column for all replays, so that several can be one pass
                if name not in self._left:
                    self._left[name] = before - gone
                return Less(before, where, self._left[name])
            now: Int64Array = getattr(costs, name)
            left: Int64Array = now - np.where(where, np.clip(now - (before - gone), 0, gone), 0)
            return left

        return costs.changed(
            interval_ns=less("interval_ns", open_times.sleep_ns, scope.nodes),
            call_ns=less("call_ns", open_times.call_ns, scope.nodes),
            wait_lag_ns=less("wait_lag_ns", open_times.lag_ns, scope.nodes),
            duration_ns=less("duration_ns", open_times.wait_inside_ns, scope.operations),
            unexplained_delay_ns=costs.blanked("unexplained_delay_ns", scope.operations),
        )


class OnOtherRanks(Struct, frozen=True):
    """The other ranks gain as much: their messages come sooner, as these are waited for sooner."""

    def __call__(self, _graph: Graph, costs: Costs, _scope: Scope) -> Costs:
        return costs


class Keeping(Struct, frozen=True, eq=False):
    """What other changes took of the intervals before nodes stays, up to this: work on the input, say."""

    ns: Int64Array

    def __call__(self, graph: Graph, costs: Costs, _scope: Scope) -> Costs:
        left_ns: Int64Array = costs.interval_ns
        return costs.changed(interval_ns=left_ns + np.clip(graph.costs.interval_ns - left_ns, 0, self.ns))


Change = Callable[[Graph, Costs, Scope], Costs]


def changed_ns(
    costs: Costs, name: str, before: Costs, enough_ns: float, rows: slice | npt.NDArray[np.intp] = slice(None)
) -> int:
    """By how much a column differs from what it was, in these rows (of the intervals before nodes in all), as far as
    that is not more than ``enough_ns``: then it is only known to be."""
    column, measured = costs.column(name), getattr(before, name)
    if column is measured:
        return 0
    if not (isinstance(column, Less) and column.measured is measured and column.left is None):
        return int(np.abs(measured - getattr(costs, name))[rows].sum())
    ns, where, total_ns = (measured if column.pieces is None else column.pieces.ns)[rows], column.where[rows], 0
    for low in range(0, len(ns), ROOM):
        total_ns += int(np.abs(ns[low : low + ROOM][where[low : low + ROOM]]).sum())
        if total_ns > enough_ns:
            break
    return total_ns


def is_removal(change: Change) -> bool:
    """Whether nothing takes longer by it."""
    return (
        change.factor >= 1
        if isinstance(change, Faster | FasterHost)
        else isinstance(change, Without | WithoutOpen | OnOtherRanks)
    )


def _without_sync(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Blocking calls return at once; copies stay on the device. Allocations keep their own time."""
    gone, syncs = scope.of_nodes(costs.waits), scope.of_nodes(graph.syncs)
    if not gone.any() and not graph.costs.call_ns[syncs].any():
        return costs
    return costs.changed(waits=costs.waits ^ gone, call_ns=costs.blanked("call_ns", syncs))


def _without_launching(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Launch-class calls that do not wait, dispatch between calls and launch latency take no time."""
    latency: Column = Less(graph.costs.launch_latency_ns, scope.operations, graph.early_ns)
    if costs.column("launch_latency_ns") is not graph.costs.launch_latency_ns:
        latency = blank(costs.launch_latency_ns, scope.operations, at_most=True)
    # What a waiting call launches still comes after that call's own work.
    rows = graph.launched_by_waits
    rows = rows[scope.operations[rows] & costs.waits[graph.links.launch[rows]] & ~graph.links.from_call_end[rows]]
    if len(rows):
        latency = latency.column if isinstance(latency, Less) else latency
        latency[rows] = np.minimum(costs.launch_latency_ns[rows], costs.call_ns[graph.links.launch[rows]])
    calls = costs.blanked("call_ns", scope.of_nodes(graph.launches & ~costs.waits))
    return _without_pieces(graph, costs.changed(call_ns=calls, launch_latency_ns=latency), Cause.CUDA_API, scope)


def _without_pieces(graph: Graph, costs: Costs, cause: Cause, scope: Scope) -> Costs:
    """The intervals before nodes without their pieces of a cause."""
    is_chosen, column = scope.of_pieces(graph, cause), costs.column("interval_ns")
    if not is_chosen.any():
        return costs
    if isinstance(column, Less) and column.pieces is not None:
        return costs.changed(interval_ns=column._replace(where=column.where | is_chosen))
    return costs.changed(interval_ns=Less(costs.interval_ns, is_chosen, pieces=graph.pieces))


def _without_cpu(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_pieces(graph, costs, Cause.CPU, scope)


def _without_sleep(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_pieces(graph, costs, Cause.HOST_BLOCKED, scope)


def _without_init(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Allocations only wait; launches that load code only launch, and what they launch arrives as soon as others do;
    nothing is compiled."""
    costs, gone = _without_pieces(graph, costs, Cause.INIT, scope), scope.of_nodes(graph.is_init)
    if not graph.is_init.any():
        return costs
    is_launch = graph.node_kind == CallClass.LAUNCH
    launches, by_launch = is_launch & ~graph.is_init, pick(is_launch, graph.links.launch, False)
    usual = int(median(graph.costs.call_ns[launches])) if launches.any() else 0
    left = np.where(is_launch, np.minimum(costs.call_ns, usual), 0)
    is_allocation = gone & (graph.node_kind == CallClass.ALLOC)
    costs = costs.changed(
        call_ns=np.where(gone, left, costs.call_ns), wait_lag_ns=costs.blanked("wait_lag_ns", is_allocation)
    )
    loaded = np.flatnonzero(by_launch & pick(gone, graph.links.launch, False))
    if not len(loaded):
        return costs
    others = by_launch & ~pick(graph.is_init, graph.links.launch, False)
    arrival_ns = int(median(graph.costs.launch_latency_ns[others])) if others.any() else LAUNCH_LIMIT_NS
    latency_ns = costs.launch_latency_ns.copy()
    latency_ns[loaded] = np.minimum(latency_ns[loaded], arrival_ns)
    return costs.changed(launch_latency_ns=latency_ns)


def _without_operations(costs: Costs, mine: BoolArray) -> Costs:
    if not mine.any():
        return costs
    delay_ns = costs.column("unexplained_delay_ns")
    return costs.changed(
        duration_ns=costs.blanked("duration_ns", mine),
        unexplained_delay_ns=delay_ns
        if isinstance(delay_ns, np.ndarray) and not delay_ns.any()
        else costs.blanked("unexplained_delay_ns", mine),
    )


def _without_compute(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_operations(costs, scope.of_operations(graph.computes))


def _without_comm(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_operations(costs, scope.of_operations(graph.is_communication))


def _held_by(graph: Graph, copies: BoolArray) -> BoolArray:
    """Nodes whose call is held by one of these copies, as it was measured."""
    launching = np.zeros(graph.links.nodes, bool)
    launch = graph.links.launch[copies]
    launching[launch[launch >= 0]] = True
    held: BoolArray = launching & ((graph.node_kind == CallClass.BLOCKING_COPY) | graph.costs.waits)
    return held


def _without_copies(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Copies take no time on the device, and blocking ones none on the host."""
    copies = scope.of_operations(graph.copies)
    if not copies.any():
        return costs
    costs = _without_operations(costs, copies)
    blocking = _held_by(graph, copies)
    own = np.append(np.where(blocking, graph.costs.call_ns, 0), 0)[graph.links.launch]
    return costs.changed(
        waits=costs.waits & ~blocking,
        call_ns=costs.blanked("call_ns", blocking),
        launch_latency_ns=np.where(copies, np.maximum(costs.launch_latency_ns - own, 0), costs.launch_latency_ns),
    )


def _summed(region: Int32Array, ns: Int64Array, where: BoolArray, regions: int) -> Int64Array:
    if not where.any():
        return np.zeros(regions, np.int64)
    return group_sums(region, ns if where.all() else blank(ns, ~where), regions)


def _pieces_ns(graph: Graph, scope: Scope, regions: int) -> Int64Array:
    """The pieces of the intervals before nodes by region and cause, shape (regions, causes)."""
    rows = slice(None) if scope.is_whole else scope.pieces
    sums = tally(graph.piece_region[rows], graph.piece_cause[rows], None, graph.piece_ns[rows])
    table = np.zeros((regions, len(Cause)), np.int64)
    table[sums.group, sums.label] = sums.ns
    return table


def _in_pieces(cause: Cause) -> Callable[[Graph, Scope, Int64Array], Int64Array]:
    return lambda _graph, _scope, pieces_ns: pieces_ns[:, cause]


def _calls_ns(graph: Graph, where: BoolArray, regions: int) -> Int64Array:
    return _summed(graph.node_region, graph.costs.call_ns, where, regions)


def _operations_ns(graph: Graph, where: BoolArray, regions: int) -> Int64Array:
    return _summed(graph.op_region, graph.costs.duration_ns, where, regions)


def _waits(graph: Graph, scope: Scope, pieces_ns: Int64Array) -> FloatArray:
    """Where anything waits, removing that is worth a replay: what it costs shows only there."""
    waits = marked(graph.node_region[scope.of_nodes(graph.costs.waits)], len(pieces_ns))
    return np.where(waits, math.inf, 0.0)


def _launching_ns(graph: Graph, scope: Scope, pieces_ns: Int64Array) -> Int64Array:
    own_ns = _calls_ns(graph, scope.of_nodes(~graph.is_init), len(pieces_ns))
    late_ns = graph.costs.launch_latency_ns
    late_ns = late_ns if graph.early_ns is None else np.maximum(late_ns, 0)  # some seem to arrive before they are sent
    latency_ns = _summed(graph.op_region, late_ns, scope.operations, len(pieces_ns))
    return own_ns + latency_ns + pieces_ns[:, Cause.CUDA_API]


def _init_ns(graph: Graph, scope: Scope, pieces_ns: Int64Array) -> Int64Array:
    return _calls_ns(graph, scope.of_nodes(graph.is_init), len(pieces_ns)) + pieces_ns[:, Cause.INIT]


class CauseRemoval(Struct, frozen=True):
    """How one cause is removed, and how much of it there is to remove in each region, in nanoseconds, of which the
    third (see `_pieces_ns`) is known."""

    remove: Callable[[Graph, Costs, Scope], Costs]
    held_ns: Callable[[Graph, Scope, Int64Array], Int64Array | FloatArray]


#: By key of every cause in `boundby.model.causes.REMOVABLE`.
REMOVALS: dict[str, CauseRemoval] = {
    "sync": CauseRemoval(_without_sync, _waits),
    "cuda_api": CauseRemoval(_without_launching, _launching_ns),
    "cpu": CauseRemoval(_without_cpu, _in_pieces(Cause.CPU)),
    "host_blocked": CauseRemoval(_without_sleep, _in_pieces(Cause.HOST_BLOCKED)),
    "init": CauseRemoval(_without_init, _init_ns),
    "gpu_compute": CauseRemoval(
        _without_compute,
        lambda graph, scope, held: _operations_ns(graph, scope.of_operations(graph.computes), len(held)),
    ),
    "gpu_comm": CauseRemoval(
        _without_comm,
        lambda graph, scope, held: _operations_ns(graph, scope.of_operations(graph.is_communication), len(held)),
    ),
    "gpu_copy": CauseRemoval(
        _without_copies,
        lambda graph, scope, held: _operations_ns(graph, scope.of_operations(graph.copies), len(held)),
    ),
}


def absent(graph: Graph, scope: Scope) -> set[str]:
    """Causes of which there is nothing, so that what removes them changes nothing, whatever else was removed."""
    own = {
        "cpu": scope.of_pieces(graph, Cause.CPU),
        "host_blocked": scope.of_pieces(graph, Cause.HOST_BLOCKED),
        "gpu_compute": scope.of_operations(graph.computes),
        "gpu_comm": scope.of_operations(graph.is_communication),
        "gpu_copy": scope.of_operations(graph.copies),
    }
    return {cause for cause, is_own in own.items() if not is_own.any()}


def held_by_region(graph: Graph, scope: Scope, regions: int) -> FloatArray:
    """How much of each of REMOVABLE there is to remove in each region, shape (regions, causes)."""
    pieces_ns = _pieces_ns(graph, scope, regions)
    return np.stack([REMOVALS[cause.key].held_ns(graph, scope, pieces_ns) for cause in REMOVABLE], axis=1).astype(float)


def filled_regions(graph: Graph, scope: Scope, regions: int) -> BoolArray:
    """Which regions hold anything of a graph. Shape (regions,)."""
    filled = np.zeros(regions, bool)
    for region, mask in (
        (graph.node_region, scope.nodes),
        (graph.op_region, scope.operations),
        (graph.piece_region, scope.pieces),
    ):
        used = region if scope.is_whole else region[mask]
        filled |= marked(used, regions)
        filled[0] |= int(used.min(initial=0)) < 0
    return filled
