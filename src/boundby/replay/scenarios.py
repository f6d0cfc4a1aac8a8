"""Scenarios: which costs are removed, everywhere or inside one region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.model.causes import Cause
from boundby.replay.graph import Graph
from boundby.replay.replay import Costs
from boundby.replay.waits import USUAL_RETURN_NS
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# What each scenario removes (docs/what-if.md).
SCENARIOS: dict[str, tuple[str, ...]] = {
    "no_sync": ("sync",),
    "no_launch_overhead": ("cuda_api",),
    "infinite_gpu": ("gpu_compute",),
    "copies_free": ("gpu_copy",),
    "cpu_free": ("cpu",),
    "input_free": ("host_blocked",),
    "comm_free": ("gpu_comm",),
    "init_free": ("init",),
    "infinite_host": ("sync", "cuda_api", "cpu", "host_blocked", "init"),
}


@dataclass(frozen=True)
class Scope:
    """Where costs are removed: masks over calls, operations and interval pieces. None: everywhere."""

    calls: Bool
    operations: Bool
    pieces: Bool
    is_everything: bool = False  # all regions of the window


def scope_of(graph: Graph, low: int, high: int, inside: Bool | None) -> Scope:
    """What lies in the window [low, high) and in a set of regions (a mask over regions; None: all of them).

    On the host the window begins with the call that launched its first operation.
    """
    operations = (graph.start_ns >= low) & (graph.start_ns < high)
    launch = graph.launch[operations]
    launch = launch[launch >= 0]
    begin = int(graph.call_start_ns[launch].min()) if len(launch) else low
    calls = (graph.call_start_ns >= begin) & (graph.call_start_ns < high)
    pieces = calls[graph.piece_call] & (graph.call_start_ns[graph.piece_call] > begin)
    if operations.all() and (graph.launch >= 0).all():  # nothing is tied to the clock: what came before counts, too
        calls, pieces = np.ones_like(calls), np.ones_like(pieces)
    whole = Scope(calls, operations, pieces, is_everything=True)
    return whole if inside is None else narrow(graph, whole, inside)


def narrow(graph: Graph, scope: Scope, inside: Bool) -> Scope:
    """The part of a scope that lies in a set of regions."""
    return Scope(
        scope.calls & inside[graph.call_region],
        scope.operations & inside[graph.op_region],
        scope.pieces & inside[graph.piece_region],
    )


def remove(graph: Graph, costs: Costs, causes: Sequence[str], scope: Scope) -> Costs:
    """The costs without these causes inside the scope."""
    for cause in causes:
        costs = _REMOVE[cause](graph, costs, scope)
    if set(causes) >= set(SCENARIOS["infinite_host"]) and scope.is_everything:
        costs = replace(costs, has_queue_limit=False)
    return costs


def _without_sync(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Blocking calls return at once; copies stay on the device. Allocations keep their own time."""
    is_sync = scope.calls & (graph.kind == CallClass.SYNC)
    return replace(
        costs,
        waits=costs.waits & ~scope.calls,
        call_ns=np.where(is_sync, 0, costs.call_ns),
    )


def _without_launching(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Launch-class calls that do not wait, dispatch between calls and launch latency take no time."""
    launches = np.isin(graph.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY, CallClass.OTHER)) & ~graph.is_init
    call = np.where(scope.calls & launches & ~costs.waits, 0, costs.call_ns)
    # What a waiting call launches still comes after that call's own work.
    own = np.append(np.where(costs.waits, costs.call_ns, 0), 0)[graph.launch]
    arrival = np.minimum(costs.arrival_ns, np.where(graph.from_call_end, 0, own))
    return replace(
        costs,
        call_ns=call,
        interval_ns=costs.interval_ns - _pieces(graph, Cause.CUDA_API, scope),
        arrival_ns=np.where(scope.operations, arrival, costs.arrival_ns),
    )


def _pieces(graph: Graph, cause: Cause, scope: Scope) -> Int:
    mine = scope.pieces & (graph.piece_cause == cause)
    return np.bincount(graph.piece_call[mine], graph.piece_ns[mine], minlength=graph.calls).astype(np.int64)


def faster_cpu(graph: Graph, costs: Costs, scope: Scope, factor: float) -> Costs:
    """The host's own code between calls takes a ``factor``-th of its time."""
    saved = _pieces(graph, Cause.CPU, scope)
    return replace(costs, interval_ns=costs.interval_ns - saved + (saved / factor).astype(np.int64))


def _without_cpu(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return replace(costs, interval_ns=costs.interval_ns - _pieces(graph, Cause.CPU, scope))


def _without_sleep(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return replace(costs, interval_ns=costs.interval_ns - _pieces(graph, Cause.HOST_BLOCKED, scope))


def _without_init(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Allocations only wait; launches that load code only launch."""
    gone = scope.calls & graph.is_init
    launches = (graph.kind == CallClass.LAUNCH) & ~graph.is_init
    usual = int(np.median(graph.cost_ns[launches])) if launches.any() else 0
    left = np.where(graph.kind == CallClass.LAUNCH, np.minimum(costs.call_ns, usual), 0)
    is_allocation = gone & (graph.kind == CallClass.ALLOC)
    return replace(
        costs,
        call_ns=np.where(gone, left, costs.call_ns),
        wait_lag_ns=np.where(is_allocation, 0, costs.wait_lag_ns),
    )


def _without_operations(costs: Costs, mine: Bool) -> Costs:
    return replace(
        costs,
        duration_ns=np.where(mine, 0, costs.duration_ns),
        hold_ns=np.where(mine, 0, costs.hold_ns),
    )


def _without_compute(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_operations(costs, scope.operations & (graph.op_kind <= OpKind.GRAPH) & ~graph.is_communication)


def _without_comm(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    return _without_operations(costs, scope.operations & graph.is_communication)


def _without_copies(graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Copies take no time on the device, and blocking ones none on the host."""
    copies = scope.operations & (graph.op_kind >= OpKind.MEMCPY)
    costs = _without_operations(costs, copies)
    calls = np.zeros(graph.calls, bool)
    launch = graph.launch[copies]
    calls[launch[launch >= 0]] = True
    blocking = calls & ((graph.kind == CallClass.BLOCKING_COPY) | graph.waits)
    own = np.append(np.where(blocking, graph.cost_ns, 0), 0)[graph.launch]
    return replace(
        costs,
        waits=costs.waits & ~blocking,
        call_ns=np.where(blocking, 0, costs.call_ns),
        arrival_ns=np.where(copies, np.maximum(costs.arrival_ns - own, 0), costs.arrival_ns),
    )


def faster(graph: Graph, costs: Costs, rows: Bool, factor: float) -> Costs:
    """These operations (a mask) run ``factor`` times as fast; calls that are held by copies among them are for as much
    less: they stage the data through a buffer before, after and while the copy runs."""
    left = 1.0 / factor
    launch = graph.launch[rows & (graph.op_kind >= OpKind.MEMCPY)]
    calls = np.zeros(graph.calls, bool)
    calls[launch[launch >= 0]] = True
    held = calls & ((graph.kind == CallClass.BLOCKING_COPY) | graph.waits)
    gone = np.append(np.where(held, graph.cost_ns * (1 - left), 0).astype(np.int64), 0)
    returning = np.minimum(costs.wait_lag_ns, USUAL_RETURN_NS)
    lag = returning + ((costs.wait_lag_ns - returning) * left).astype(np.int64)
    return replace(
        costs,
        duration_ns=np.where(rows, (costs.duration_ns * left).astype(np.int64), costs.duration_ns),
        call_ns=np.maximum(costs.call_ns - gone[:-1], 0),
        arrival_ns=np.where(rows, np.maximum(costs.arrival_ns - gone[graph.launch], 0), costs.arrival_ns),
        wait_lag_ns=np.where(held, lag, costs.wait_lag_ns),
    )


_REMOVE = {
    "sync": _without_sync,
    "cuda_api": _without_launching,
    "cpu": _without_cpu,
    "host_blocked": _without_sleep,
    "init": _without_init,
    "gpu_compute": _without_compute,
    "gpu_comm": _without_comm,
    "gpu_copy": _without_copies,
}
