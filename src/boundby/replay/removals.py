"""What removing each cause would save, by replay: for every device, and inside every region that matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.causes import REMOVABLE, Cause
from boundby.model.intervals import contains
from boundby.model.units import percent
from boundby.replay.build import build_graph
from boundby.replay.graph import Graph
from boundby.replay.replay import Costs, Replayer, measured_costs
from boundby.replay.scenarios import SCENARIOS, Scope, faster, narrow, remove, scope_of
from boundby.trace.tables import OpKind

Bool = npt.NDArray[np.bool_]
Change = Callable[[Graph, Costs, Scope], Costs]

# Regions below this share of the window are not replayed: they cannot save more than they hold.
REGION_SHARE = 0.01
# More regions than this are not replayed, largest first.
MOST_REGIONS = 60
# A cause of which a region holds less than this share of its own time is not replayed there.
CAUSE_SHARE = 0.02
# A cause that saves less of the window everywhere is not looked for in the regions.
LEAST_BOUND = 0.003
# When more than this share of the window is delay that no dependency explains, predictions are not to be trusted.
UNEXPLAINED_SHARE = 0.10
UNLAUNCHED_SHARE = 0.10


@dataclass(frozen=True)
class Removals:
    """Savings in nanoseconds by cause: ``sync`` from the program as it ran, every other cause from the program that
    no longer waits. ``unreliable`` says why the trace cannot be replayed to be trusted; None: it can."""

    device: Mapping[int, Mapping[str, int]]  # by device index
    following: Mapping[int, Mapping[str, int]]  # by device index: savings once its best cause is gone too
    region: Mapping[int, Mapping[str, int]]  # by region, summed over devices
    predicted_ns: Mapping[int, Mapping[str, int]]  # by device index and scenario
    unreliable: str | None


class Predictor:
    """Predicts the windows of all devices of a timeline under removed causes."""

    def __init__(self, timeline: Timeline, runs: int = 40) -> None:
        self.graph = build_graph(timeline, runs)
        self.devices = timeline.devices
        self._replayer = Replayer(self.graph, runs)
        self._measured = measured_costs(self.graph)
        start, end = self.graph.start_ns, self.graph.start_ns + self.graph.duration_ns
        self._rows = [
            np.flatnonzero((self.graph.device == device.index) & (end > device.low_ns) & (start < device.high_ns))
            for device in self.devices
        ]
        # What the window holds before its first and after its last operation is not the device's to change.
        self._rest_ns = [
            device.high_ns - device.low_ns - (int(end[rows].max() - start[rows].min()) if len(rows) else 0)
            for device, rows in zip(self.devices, self._rows, strict=True)
        ]
        low = min(device.low_ns for device in self.devices)
        self._everywhere = scope_of(self.graph, low, max(device.high_ns for device in self.devices), None)
        self._without: dict[tuple[str, ...], Costs] = {(): self._measured}
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}

    def windows(self, causes: Sequence[str], inside: Bool | None = None, *, first: tuple[str, ...] = ()) -> list[int]:
        """Length of each device's window in nanoseconds without these causes (inside some regions only), and without
        the causes in ``first`` everywhere."""
        key = tuple(sorted(first)), tuple(sorted(causes))
        if inside is None and key in self._known:
            return self._known[key]
        if first not in self._without:
            self._without[first] = remove(self.graph, self._measured, first, self._everywhere)
        found = self._lengths(remove(self.graph, self._without[first], causes, self.scope(inside)))
        if inside is None:
            self._known[key] = found
        return found

    def after(self, changes: Sequence[Change], inside: Bool | None, *, widen_last: bool = False) -> list[int]:
        """Length of each device's window after these changes inside some regions (the last one everywhere, if
        ``widen_last``)."""
        costs = self._measured
        for position, change in enumerate(changes):
            is_wide = widen_last and position == len(changes) - 1
            costs = change(self.graph, costs, self.scope(None if is_wide else inside))
        return self._lengths(costs)

    def without(
        self,
        causes: Sequence[str],
        calls: Bool | None = None,
        operations: Bool | None = None,
        regions: Bool | None = None,
        *,
        holds: bool = True,
        waits: bool = True,
    ) -> list[int]:
        """Length of each device's window in nanoseconds without these causes, in a selection only.

        ``calls``: mask over ``timeline.calls``; the interval before a call belongs to it. ``operations``: mask
        over ``trace.operations``. Given one of the two, the other defaults to nothing; given neither, to everything.
        ``regions``: mask over regions; what lies in none of them stays as it is. Removing waits looks at calls,
        removing device time at operations (and the calls that launched them), removing launch overhead at both.
        ``holds``: delays that no recorded dependency explains stay (else they are gone everywhere). ``waits``: the host
        waits for the device (else it does nowhere).
        """
        base = self._costs(holds, waits)
        return self._lengths(remove(self.graph, base, causes, self._selection(calls, operations, regions)))

    def faster(self, operations: Bool, factor: float, *, holds: bool = True, waits: bool = True) -> list[int]:
        """Length of each device's window in nanoseconds if these operations (mask over ``trace.operations``) ran
        ``factor`` times as fast."""
        rows = operations & self._everywhere.operations
        return self._lengths(faster(self.graph, self._costs(holds, waits), rows, factor))

    def _costs(self, holds: bool, waits: bool) -> Costs:
        if not waits and ("sync",) not in self._without:
            self._without[("sync",)] = remove(self.graph, self._measured, ("sync",), self._everywhere)
        base = self._measured if waits else self._without[("sync",)]
        return base if holds else replace(base, hold_ns=np.zeros_like(base.hold_ns))

    def _selection(self, calls: Bool | None, operations: Bool | None, regions: Bool | None) -> Scope:
        scope = self.scope(regions)
        if calls is None and operations is None:
            return scope
        chosen = np.zeros(self.graph.calls, bool) if calls is None else np.append(calls, False)[self.graph.call_row]
        rows = np.zeros(len(self.graph.launch), bool) if operations is None else operations
        return Scope(scope.calls & chosen, scope.operations & rows, scope.pieces & chosen[self.graph.piece_call])

    def scope(self, inside: Bool | None) -> Scope:
        """What lies in the windows and in these regions."""
        return self._everywhere if inside is None else narrow(self.graph, self._everywhere, inside)

    def _lengths(self, costs: Costs) -> list[int]:
        start, end = self._replayer.run(costs)
        return [
            rest_ns + (int(end[rows].max() - start[rows].min()) if len(rows) else 0)
            for rows, rest_ns in zip(self._rows, self._rest_ns, strict=True)
        ]


def removals(timeline: Timeline, inclusive: npt.NDArray[np.int64], predictor: Predictor | None = None) -> Removals:
    """Replay the trace without each cause. ``inclusive`` is the account by region, shape (regions, causes).
    ``predictor``: one of this timeline that is there already."""
    chosen = _regions_that_matter(timeline, inclusive)
    predictor = predictor or Predictor(timeline, runs=2 * len(chosen) + 3 * len(REMOVABLE))
    measured = [device.high_ns - device.low_ns for device in timeline.devices]
    without_sync = predictor.windows(("sync",))
    device: dict[int, dict[str, int]] = {item.index: {} for item in timeline.devices}
    there = _worth_replaying(predictor.graph, predictor.scope(None), 0)
    for cause in REMOVABLE:
        if cause not in there:
            for item in timeline.devices:
                device[item.index][cause.key] = 0
            continue
        base = measured if cause == Cause.SYNC else without_sync
        after = without_sync if cause == Cause.SYNC else predictor.windows((cause.key,), first=("sync",))
        for item, before, length in zip(timeline.devices, base, after, strict=True):
            device[item.index][cause.key] = max(before - length, 0)
    predicted: dict[int, dict[str, int]] = {item.index: {} for item in timeline.devices}
    keys = {cause.key for cause in there}
    for name, causes in SCENARIOS.items():
        lengths = predictor.windows(causes) if keys & set(causes) else measured
        for item, length in zip(timeline.devices, lengths, strict=True):
            # Removing something never makes a program slower; a replay's rounding of dependencies can.
            predicted[item.index][name] = min(length, item.high_ns - item.low_ns)
    region: dict[int, dict[str, int]] = {}
    alike: dict[bytes, int] = {}  # what lies in a region, and the first that holds just that
    at_most = _bounds(predictor, there, measured)
    for number in chosen:
        inside = timeline.ownership.regions.subtree(number)
        scope = predictor.scope(inside)
        content = b"".join(np.packbits(mask).tobytes() for mask in (scope.calls, scope.operations, scope.pieces))
        if content in alike:
            region[number] = region[alike[content]]
            continue
        alike[content] = number
        worth = _worth_replaying(predictor.graph, scope, int(inclusive[number].sum()))
        worth = {cause for cause in worth if at_most[cause] >= LEAST_BOUND * timeline.total_ns}
        region[number] = _region_savings(predictor, inside, worth, measured)
    return Removals(
        device=device,
        following={
            index: _following(predictor, position, device[index], there) for position, index in enumerate(device)
        },
        region=region,
        predicted_ns=predicted,
        unreliable=unreliable(predictor.graph, timeline.devices),
    )


def _worth_replaying(graph: Graph, scope: Scope, total_ns: int) -> set[Cause]:
    """Causes of which a region holds enough that removing them can save anything to speak of."""
    held = {
        Cause.SYNC: int(graph.waits[scope.calls].sum()) * max(total_ns, 1),
        Cause.INIT: int(graph.cost_ns[scope.calls & graph.is_init].sum()),
        Cause.CUDA_API: int(
            graph.cost_ns[scope.calls & ~graph.is_init].sum() + graph.arrival_ns[scope.operations].sum()
        ),
    }
    for cause in (Cause.CUDA_API, Cause.CPU, Cause.HOST_BLOCKED):
        held[cause] = held.get(cause, 0) + int(graph.piece_ns[scope.pieces & (graph.piece_cause == cause)].sum())
    compute = (graph.op_kind <= OpKind.GRAPH) & ~graph.is_communication
    copies = graph.op_kind >= OpKind.MEMCPY
    for cause, kind in (
        (Cause.GPU_COMPUTE, compute),
        (Cause.GPU_COMM, graph.is_communication),
        (Cause.GPU_COPY, copies),
    ):
        held[cause] = int(graph.duration_ns[scope.operations & kind].sum())
    return {cause for cause in REMOVABLE if held[cause] > 0 and held[cause] >= CAUSE_SHARE * total_ns}


def _bounds(predictor: Predictor, there: set[Cause], measured: list[int]) -> dict[Cause, int]:
    """What removing each cause saves everywhere, from the program as it ran or as it would without waits, whichever
    is more: removing it in a region only saves hardly more than that."""
    waitless = predictor.windows(("sync",))
    found = dict.fromkeys(REMOVABLE, 0)
    for cause in there:
        alone = _most_saved(measured, predictor.windows((cause.key,)))
        found[cause] = max(alone, _most_saved(waitless, predictor.windows((cause.key,), first=("sync",))))
    return found


def _region_savings(predictor: Predictor, inside: Bool, worth: set[Cause], measured: list[int]) -> dict[str, int]:
    """Savings of removals inside one region only: its waits, and every other cause once its waits are gone. Of
    several devices, which run at the same time, the one that saves most."""
    found = dict.fromkeys((cause.key for cause in REMOVABLE), 0)
    if worth:
        waitless = predictor.windows(("sync",), inside) if Cause.SYNC in worth else measured
        found[Cause.SYNC.key] = _most_saved(measured, waitless) if Cause.SYNC in worth else 0
        for cause in sorted(worth - {Cause.SYNC}):
            found[cause.key] = _most_saved(waitless, predictor.windows(("sync", cause.key), inside))
    return found


def _most_saved(before: list[int], after: list[int]) -> int:
    return max(0, *(b - a for b, a in zip(before, after, strict=True)))


def _following(predictor: Predictor, position: int, savings: Mapping[str, int], there: set[Cause]) -> dict[str, int]:
    """Savings on one device once its best cause (and every wait) is gone."""
    best = max(sorted(savings), key=lambda cause: savings[cause])
    gone = tuple(dict.fromkeys(("sync", best)))
    base = predictor.windows((), first=gone)[position]
    return {
        cause.key: max(base - predictor.windows((cause.key,), first=gone)[position], 0)
        for cause in sorted(there)
        if cause.key not in gone
    } or {"sync": 0}


def _regions_that_matter(timeline: Timeline, inclusive: npt.NDArray[np.int64]) -> list[int]:
    share = inclusive.sum(axis=1) / max(timeline.total_ns, 1)
    rows = np.flatnonzero(share >= REGION_SHARE)
    rows = rows[rows > 0]
    return [int(row) for row in rows[np.lexsort((rows, -share[rows]))][:MOST_REGIONS]]


def unreliable(graph: Graph, devices: Sequence[DeviceTimeline]) -> str | None:
    """Why predictions on this trace are not to be trusted, or None."""
    if graph.calls == 0:
        return "CUDA API calls were not captured"
    if (graph.launch < 0).mean() > UNLAUNCHED_SHARE:
        return f"{percent(float((graph.launch < 0).mean()))} of the operations have no known launching call"
    for device in devices:
        rows = np.flatnonzero(graph.device == device.index)
        idle = device.gaps.intervals
        gap = contains(idle, graph.start_ns[rows] - 1)  # only delays in which the device idles count
        length = np.where(gap >= 0, (idle.end - idle.start)[gap], 0) if len(idle.start) else np.zeros(len(rows))
        waited = int(np.minimum(graph.hold_ns[rows], length).sum()) / max(device.high_ns - device.low_ns, 1)
        if waited > UNEXPLAINED_SHARE:
            return f"{percent(waited)} of the window is delay that no recorded dependency explains"
    return None


def unreliable_timeline(timeline: Timeline) -> str | None:
    """The same for a timeline that has not been replayed yet."""
    return unreliable(build_graph(timeline), timeline.devices)
