"""How long every device's window would be after a change: one graph per analysis, replayed for whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import BoolArray
from boundby.model.causes import REMOVABLE
from boundby.model.intervals import contains
from boundby.model.units import percent
from boundby.native.forward import Costs
from boundby.replay.build import build_graph
from boundby.replay.engine import replay
from boundby.replay.removals import Change, Scope, Without, WithoutUnexplained, window_scope

# When more than this share of the window is delay that no dependency explains, predictions are not to be trusted.
UNEXPLAINED_SHARE = 0.10
UNLAUNCHED_SHARE = 0.10
# What would save less of what is left does not bound it.
LEAST_BOUND = 0.01


class Step(NamedTuple):
    """One change, and where it is made."""

    change: Change
    scope: Scope


class Predictor:
    """Predicts the windows of all devices of a timeline after changes to the costs of its graph.

    Make one per analysis: verdicts, savings, questions and pages ask the same one, and what was replayed once (changes
    made everywhere) is not replayed again.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.devices = timeline.devices
        self.measured_ns = [device.high_ns - device.low_ns for device in self.devices]
        self.graph = build_graph(timeline)
        start = self.graph.links.start_ns
        end = start + self.graph.costs.duration_ns
        self._rows = [
            np.flatnonzero((self.graph.device == device.index) & (end > device.low_ns) & (start < device.high_ns))
            for device in self.devices
        ]
        # What the window holds before its first and after its last operation is not the device's to change.
        self._rest_ns = [
            length_ns - (int(end[rows].max() - start[rows].min()) if len(rows) else 0)
            for length_ns, rows in zip(self.measured_ns, self._rows, strict=True)
        ]
        low, high = min(device.low_ns for device in self.devices), max(device.high_ns for device in self.devices)
        self.everywhere = window_scope(self.graph, low, high)
        self._known: dict[tuple[Change, ...], list[int]] = {}
        self._costs_without = lru_cache(maxsize=4)(self._remove_everywhere)

    def windows(self, *steps: Step) -> list[int]:
        """Length of each device's window in nanoseconds after these changes, one after the other."""
        changes = tuple(step.change for step in steps)
        is_known_by_name = all(
            step.scope is self.everywhere and isinstance(step.change, Without | WithoutUnexplained) for step in steps
        )
        if is_known_by_name and changes in self._known:
            return self._known[changes]
        costs = self.graph.costs
        for position, (change, scope) in enumerate(steps):
            if position == 0 and len(steps) > 1 and isinstance(change, Without) and scope is self.everywhere:
                costs = self._costs_without(change)  # many questions begin alike
            else:
                costs = change(self.graph, costs, scope)
        start, end = replay(self.graph, costs)
        lengths = [
            rest_ns + (int(end[rows].max() - start[rows].min()) if len(rows) else 0)
            for rows, rest_ns in zip(self._rows, self._rest_ns, strict=True)
        ]
        if is_known_by_name:
            self._known[changes] = lengths
        return lengths

    def _remove_everywhere(self, change: Without) -> Costs:
        return change(self.graph, self.graph.costs, self.everywhere)

    def without(
        self, causes: Sequence[str], scope: Scope | None = None, *, first: tuple[str, ...] | None = None
    ) -> list[int]:
        """Length of each device's window in nanoseconds without these causes (everywhere, or in a scope); ``first``:
        in the program in which these are gone everywhere already."""
        begin = () if first is None else (Step(Without(first), self.everywhere),)
        return self.windows(*begin, Step(Without(tuple(causes)), scope or self.everywhere))

    def scope(
        self, *, calls: BoolArray | None = None, operations: BoolArray | None = None, regions: BoolArray | None = None
    ) -> Scope:
        """What lies in the windows and in this selection. ``calls``: mask over ``timeline.calls``; the interval
        before a call belongs to it. ``operations``: mask over ``trace.operations``. Given one of the two, the other
        is nothing; given neither, both are everything. ``regions``: mask over regions; what lies in none of them is
        left out."""
        scope = self.everywhere if regions is None else self.everywhere.inside(self.graph, regions)
        return scope.selected(self.graph, calls, operations)

    @cached_property
    def explained_only_ns(self) -> list[int]:
        """Length of each device's window without delays that no recorded dependency explains."""
        return self.windows(Step(WithoutUnexplained(), self.everywhere))

    def next_bounds(self, *steps: Step, left_ns: Sequence[int] | None = None) -> list[str | None]:
        """What would save most on each device once these changes are made, everywhere: waits of what is left
        (``left_ns``, if it is more than the replay says), any other cause once nothing waits. None: nothing worth 1 %
        of what is left."""

        def also_without(*causes: str) -> list[int]:
            return self.windows(*steps, Step(Without(causes), self.everywhere))

        left, waitless = left_ns or self.windows(*steps), also_without("sync")
        after = {cause.key: waitless if cause.key == "sync" else also_without("sync", cause.key) for cause in REMOVABLE}
        bounds: list[str | None] = []
        for position, length in enumerate(left):
            saved = {
                key: (length if key == "sync" else waitless[position]) - windows[position]
                for key, windows in after.items()
            }
            best, most = max(saved.items(), key=lambda item: item[1])
            bounds.append(best if length and most > 0 and most >= LEAST_BOUND * length else None)
        return bounds

    @cached_property
    def unreliable(self) -> str | None:
        """Why predictions on this trace are not to be trusted; None: they are."""
        graph = self.graph
        if graph.links.nodes == 0:
            return "CUDA API calls were not captured"
        unlaunched = float((graph.links.launch < 0).mean())
        if unlaunched > UNLAUNCHED_SHARE:
            return f"{percent(unlaunched)} of the operations have no known launching call"
        for device, length_ns in zip(self.devices, self.measured_ns, strict=True):
            rows = np.flatnonzero(graph.device == device.index)
            idle = device.gaps.intervals
            gap = contains(idle, graph.links.start_ns[rows] - 1)  # only delays in which the device idles count
            length = np.where(gap >= 0, (idle.end - idle.start)[gap], 0) if len(idle.start) else np.zeros(len(rows))
            delayed = int(np.minimum(graph.costs.unexplained_delay_ns[rows], length).sum()) / max(length_ns, 1)
            if delayed > UNEXPLAINED_SHARE:
                return f"{percent(delayed)} of the window is delay that no recorded dependency explains"
        return None


def most_saved(before: Sequence[int], after: Sequence[int]) -> int:
    """What the device that saves most does save: devices run at the same time."""
    return max(0, *(b - a for b, a in zip(before, after, strict=True)))
