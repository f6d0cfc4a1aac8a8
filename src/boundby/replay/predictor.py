"""How long every device's window would be after a change: one graph per analysis, replayed for whoever asks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model import stage
from boundby.model.arrays import (
    BoolArray,
    FloatArray,
    Int64Array,
    as_rows,
    compact,
    factorize,
    group_sums,
    is_even,
    narrow,
    pick,
    unique,
)
from boundby.model.causes import BUSY_CAUSES, REMOVABLE, SHORT_LABEL, Cause
from boundby.model.intervals import CoveredTime, any_of, clip, union
from boundby.model.scale import A_FEW_LINES, HABIT, HARDLY, NEGLIGIBLE, NEXT_TO_NOTHING, NOTABLE, SMALL
from boundby.model.units import percent
from boundby.native.passes import AT_ONCE, NEVER, NONE, Column, Costs, Less, Spans, Windows
from boundby.replay.build import build_graph
from boundby.replay.engine import replay_otherwise, replay_spans, run_ahead_ns
from boundby.replay.graph import Graph
from boundby.replay.removals import (
    Change,
    Faster,
    Keeping,
    OnOtherRanks,
    Scope,
    Without,
    WithoutOpen,
    absent,
    changed_ns,
    filled_regions,
    held_by_region,
    is_removal,
    window_scope,
)
from boundby.replay.trust import (
    NO_ARRIVALS,
    OUTSIDE,
    Arrivals,
    Open,
    OpenRange,
    find_arrivals,
    find_doubts,
    find_open,
    gap_before,
    until_arrival,
)
from boundby.results.report import OpenDoubt
from boundby.trace.tables import OpKind

# When more than this share of the window is delay that no dependency explains, predictions are not to be trusted.
UNEXPLAINED_SHARE = NOTABLE
# A replay breaks a law of physics if it does so by more than this part of the window; by so much, it is not trusted.
LAW_SLACK, LAW_LIMIT = HARDLY, SMALL
# Ready work waits so long for nothing on record: somebody else has a share of the device, and of what would be saved.
SHARED_WAIT = NOTABLE
# Dependencies that the measured times deny for more than this share of the window leave nothing to replay.
CONTRADICTED_SHARE = NOTABLE
# What would save less of what is left does not bound it.
LEAST_BOUND = NEGLIGIBLE


# What is open below this share of the window is not looked at any further.
LEAST_OPEN = NEXT_TO_NOTHING
# On simulated programs most predictions lie nearer to the truth, but a real machine does more than
# the model knows: nothing is told as more certain than this.
MODEL_ERROR = SMALL
# Delays of work that was ready, for so much of a window, look like a device that is shared with another process. Who
# shares one gets another share of it once its own pace changes: by up to so many times these delays (as simulated).
# From where on that is more than the model's error, it counts; and so do other processes on record with so much.
SHARED_DELAYS = 4
SHARED = MODEL_ERROR / SHARED_DELAYS
# Threads that sleep for so much of the window matter to it, and so does who wakes them.
MUCH_SLEPT = SMALL
# Where dependencies were dropped, since measured times contradict them, as many others may not be known; and what a
# change makes others give back may be so much more than its part.
CHANCE = HABIT
# Loading code and allocating take another time in every run (a real pair: a third less); so much of it is left open.
LOADING_ERROR = NOTABLE


class _Widening:
    """A range that one thing after the other widens, to no more than its ends."""

    def __init__(self, predicted_ns: int, ends_ns: tuple[int, int], floor_ns: int) -> None:
        self.range = OpenRange(predicted_ns, (), floor_ns)
        self._least_ns, self._most_ns = ends_ns

    def reach(
        self,
        kind: str,
        low_ns: int | None = None,
        high_ns: int | None = None,
        *,
        steps: bool = False,
        where: Sequence[str] = (),
    ) -> None:
        low_ns = None if low_ns is None else max(low_ns, self._least_ns)
        high_ns = None if high_ns is None else min(high_ns, self._most_ns)
        self.range = self.range.reaching(kind, low_ns, high_ns, steps=int(steps), where=where)


def _is_of_kernels(change: Change) -> bool:
    """Whether nothing but the time of kernels changes."""
    return isinstance(change, Faster) or (
        isinstance(change, Without) and set(change.causes) <= {"gpu_compute", "gpu_comm"}
    )


#: What was removed everywhere: see `Predictor._removed`.
Name = tuple[Change | str | bool, ...]


class ReplayStep(NamedTuple):
    """One change, and where it is made."""

    change: Change
    scope: Scope


class _Outside(NamedTuple):
    """Operations that an end of a device's window cuts: nanoseconds of each that lie before and after it."""

    row: npt.NDArray[np.intp]
    before_ns: Int64Array
    after_ns: Int64Array


class _Length(NamedTuple):
    """Of a device's window, as replayed."""

    ns: int
    floor_ns: int  # the busiest of its streams, if the work in it can be shorter
    later_ns: int  # by how much later it ends


class _RangeQuestion(Struct, frozen=True):
    """A change whose range is asked for. Nanoseconds are those of the device's windows, one each."""

    costs: Costs
    is_of_kernels: bool
    may_go_with_it: bool  # what is open may
    leaves_input: bool
    is_sooner: bool  # replayed, it begins sooner than it was measured to
    open_ns: Sequence[int]  # without what is open
    explained_ns: Sequence[int]  # the same of the trace as it was
    fed_ns: Sequence[int]  # with the work of those that feed the host
    with_ranks_ns: Sequence[int]  # where the other ranks gain as much
    allocated_ns: Sequence[int]
    otherwise_ns: Sequence[int]  # with streams that take their turns
    ahead_ns: int
    loading_ns: float
    changed_ns: Sequence[float]
    of_host_ns: Sequence[int]  # with a device whose work takes no time


def _outside(
    rows: slice | npt.NDArray[np.intp], start: Int64Array, end: Int64Array, low_ns: int, high_ns: int
) -> _Outside:
    is_cut = (start[rows] < low_ns) | (end[rows] > high_ns)
    rows = np.flatnonzero(is_cut) + rows.start if isinstance(rows, slice) else rows[is_cut]
    return _Outside(rows, np.maximum(low_ns - start[rows], 0), np.maximum(end[rows] - high_ns, 0))


class _Edge(NamedTuple):
    """A node that a window begins or ends with."""

    place: int  # in the graph's edges
    is_end: bool
    offset_ns: int  # from the node to the edge


def _edges_of(device: DeviceTimeline, graph: Graph) -> list[_Edge]:
    """None where both lie in one call: nothing between them can be replayed."""
    edges, begin_ns = graph.edges, graph.links.node_begin_ns
    offset_ns = edges.time_ns - pick(begin_ns, edges.node, 0)
    edges_found: list[_Edge] = []
    for is_end, time_ns in enumerate((device.low_ns, device.high_ns)):
        rows = np.flatnonzero((edges.device == device.index) & (edges.time_ns == time_ns)).tolist()
        edges_found += [_Edge(node, bool(is_end), int(offset_ns[node])) for node in rows]
    instants = {int(begin_ns[edges.node[edge.place]]) for edge in edges_found}
    return edges_found if len(instants) == len(edges_found) else []


class Predictor:
    """Predicts the windows of all devices of a timeline after changes to the costs of its graph.

    Make one per analysis: verdicts, savings, questions and pages ask the same one, and what was replayed once (changes
    made everywhere) is not replayed again.
    """

    def __init__(self, timeline: Timeline, graph: Graph | None = None) -> None:
        """``graph``: of another timeline of the same trace, if it was built already."""
        self.timeline = timeline
        self.devices = timeline.devices
        self.measured_ns = [device.high_ns - device.low_ns for device in self.devices]
        self.graph = graph or build_graph(timeline)
        start = self.graph.links.start_ns
        end = start + self.graph.costs.duration_ns
        self._rows = [
            as_rows((self.graph.device == device.index) & (end > device.low_ns) & (start < device.high_ns))
            for device in self.devices
        ]
        self._outside = [
            _outside(rows, start, end, device.low_ns, device.high_ns)
            for rows, device in zip(self._rows, self.devices, strict=True)
        ]
        self._stream = narrow(factorize(timeline.trace.operations.process, timeline.trace.operations.stream)[1])
        self._streams = [self._stream[rows] for rows in self._rows]
        self.floors_ns: list[int] = []
        self.floors_ns = [self._floor_ns(self.graph.costs.duration_ns, number) for number in range(len(self._rows))]
        self._edges = [_edges_of(device, self.graph) for device in self.devices]
        window_of = np.full(len(start), NONE, np.int32)
        self._kept: list[slice] = []
        for number, (rows, outside) in enumerate(zip(self._rows, self._outside, strict=True)):
            begin = self._kept[-1].stop if self._kept else 0
            self._kept.append(slice(begin, begin + len(outside.row)))
            window_of[rows] = number
            window_of[outside.row] = -2 - np.arange(begin, begin + len(outside.row))
        self._windows = Windows(compact(window_of), len(self.devices), self.graph.edges.node)
        # What the window holds before its first and after its last operation follows from the account.
        spans = self._windows.spans(start, end, self.graph.links.node_begin_ns)
        bounds = self._bounds_ns(spans)
        self._ends_ns = [last for _, last in bounds]
        self.rest_ns = [
            length_ns - max(last - first, 0) for length_ns, (first, last) in zip(self.measured_ns, bounds, strict=True)
        ]
        low, high = min(device.low_ns for device in self.devices), max(device.high_ns for device in self.devices)
        self.everywhere = window_scope(self.graph, low, high)
        self._known: dict[Name, list[int]] = {}
        unchanged = self._length(spans, self.graph.costs.duration_ns)  # a replay of them gives the trace back
        self._lengths = WeakKeyDictionary({self.graph.costs: unchanged})
        self._begins_sooner: set[Name] = set()  # and so lasts longer than it was measured, as replayed
        self.broken: dict[
            str, float
        ] = {}  # by law: by how much of a window replays broke it at most, and were put right
        self._costs_without = lru_cache(maxsize=1)(self._remove)

    def windows(self, *steps: ReplayStep) -> list[int]:
        """Length of each device's window in nanoseconds after these changes, one after the other."""
        return self.ask(steps)[0]

    def ask(self, *questions: Sequence[ReplayStep]) -> list[list[int]]:
        """`windows` of each of these: several are replayed at once."""
        names = [
            number if (name := self._name(steps)) is None else name for number, steps in enumerate(questions)
        ]  # each once
        rest = {name: steps for name, steps in zip(names, questions, strict=True) if name not in self._known}
        answers: dict[Name | int, list[int]] = dict(self._known.items())
        for low in range(0, len(rest), AT_ONCE):
            stage.check()
            asked = list(rest)[low : low + AT_ONCE]
            lengths = self._replay([rest[name] for name in asked])
            answers |= {name: self._judged(rest[name], each) for name, each in zip(asked, lengths, strict=True)}
        return [answers[name] for name in names]

    def _name(self, steps: Sequence[ReplayStep]) -> Name | None:
        """By what the answer is known once it was asked for: changes made everywhere."""
        is_named = all(
            step.scope is self.everywhere and isinstance(step.change, Without | WithoutOpen | OnOtherRanks)
            for step in steps
        )
        return self._removed(steps) if is_named else None

    def _removed(self, steps: Sequence[ReplayStep]) -> Name:
        """What is removed by these steps, one after the other: each cause once, if there is anything of it; and whether
        queues are not limited then."""
        changes: list[Change | str] = []
        for change, _ in steps:
            if isinstance(change, Without):
                new = [cause for cause in change.in_order if cause not in changes and cause not in self._absent]
                changes.extend(new)
            else:
                changes.append(change)
        return *changes, any(isinstance(step.change, Without) and step.change.is_unlimited for step in steps)

    @cached_property
    def _absent(self) -> Collection[str]:
        """Causes of which there is nothing."""
        return absent(self.graph, self.everywhere)

    def held_ns(self) -> FloatArray:
        """How much of each of REMOVABLE there is to remove in each region, shape (regions, causes)."""
        return held_by_region(self.graph, self.everywhere, len(self.timeline.ownership.regions))

    def filled(self) -> BoolArray:
        """Which regions hold anything that can be removed. Shape (regions,)."""
        return filled_regions(self.graph, self.everywhere, len(self.timeline.ownership.regions))

    def _judged(self, steps: Sequence[ReplayStep], found: Sequence[_Length]) -> list[int]:
        """The windows of what was replayed, put right where it breaks a law."""
        is_less = all(is_removal(step.change) for step in steps)
        lengths, begins_sooner = [], False
        for number, (measured, (length, floor, later)) in enumerate(zip(self.measured_ns, found, strict=True)):
            floor += self.rest_ns[number]
            self._note("shorter than its busiest stream", floor - length, measured)
            if is_less:
                # What came before the window may let it begin sooner, and last longer: no work ends later.
                self._note("longer than measured", min(length - measured, later), measured)
            left = max(length, floor)
            lengths.append(min(left, measured) if is_less else left)
            begins_sooner |= is_less and length > measured * (1 + MODEL_ERROR)
        if (name := self._name(steps)) is not None:
            self._known[name] = lengths
            self._begins_sooner |= {name} if begins_sooner else set()
        return lengths

    def _replay(self, asked: Sequence[Sequence[ReplayStep]]) -> list[list[_Length]]:
        """The window of each device after these changes. Costs, which take memory, are made one after the other; where
        a change takes nothing away, they are those of before, and known."""
        new_costs: WeakKeyDictionary[Costs, int] = WeakKeyDictionary()  # of those that are replayed now
        durations: list[Column] = []
        lengths: list[int | list[_Length]] = []

        def made() -> Iterator[Costs]:
            for steps in asked:
                costs = self._costs(steps)
                if costs in self._lengths:
                    lengths.append(self._lengths[costs])
                    continue
                is_new = costs not in new_costs
                lengths.append(new_costs.setdefault(costs, len(durations)))
                if is_new:
                    durations.append(costs.column("duration_ns"))
                    yield costs

        spans = replay_spans(self.graph, made(), self._windows)
        replayed = [self._length(*each) for each in zip(spans, durations, strict=True)]
        self._lengths.update({costs: replayed[number] for costs, number in new_costs.items()})
        return [replayed[each] if isinstance(each, int) else each for each in lengths]

    def _length(self, found: Spans, duration_ns: Column) -> list[_Length]:
        return [
            _Length(
                self.rest_ns[number] + (span_ns := max(last - first, 0)),  # from the first operation to the last's end
                self._floor_below(span_ns, duration_ns, number),
                last - self._ends_ns[number],
            )
            for number, (first, last) in enumerate(self._bounds_ns(found))
        ]

    def _floor_below(self, span_ns: int, duration_ns: Column, number: int) -> int:
        """`_floor_ns`, if it can be more than the operations take from the first to the last."""
        if isinstance(duration_ns, Less):
            return 0 if span_ns >= self.floors_ns[number] else self._floor_ns(duration_ns.column, number)
        return self._floor_ns(duration_ns, number)

    def _costs(self, steps: Sequence[ReplayStep]) -> Costs:
        """What everything costs after these changes."""
        costs, gone = self.graph.costs, set[str]()
        for position, (change, scope) in enumerate(steps):
            if position == 0 and isinstance(change, Without):
                costs = self._costs_without(change, scope)  # many questions begin alike
            elif isinstance(change, Without):
                costs = change(self.graph, costs, scope, gone)
            else:
                costs = change(self.graph, costs, scope)
            if isinstance(change, Without) and scope is self.everywhere:
                gone.update(change.causes)
        measured_ns = self.graph.costs.duration_ns
        for row, before_ns, after_ns in self._outside:
            if len(row) and costs.duration_ns is not measured_ns:  # what lies outside of the window stays
                part = (before_ns + after_ns) / np.maximum(measured_ns[row], 1)
                duration_ns = costs.duration_ns.copy()
                duration_ns[row] = before_ns + after_ns + (duration_ns[row] * (1 - part)).astype(np.int64)
                costs = costs.changed(duration_ns=duration_ns)
        if any(isinstance(step.change, WithoutOpen | OnOtherRanks) for step in steps):
            return costs
        return until_arrival(self.graph, costs, self._arrivals_left(steps), round(LAW_SLACK * min(self.measured_ns)))

    @cached_property
    def _arrivals(self) -> Arrivals:
        """Of messages of other ranks that the host waits for."""
        return find_arrivals(self.timeline, self.graph)

    @property
    def awaits_ranks(self) -> bool:
        """Whether the host waits for messages of other ranks."""
        return len(self._arrivals.node) > 0

    def _arrivals_left(self, steps: Sequence[ReplayStep]) -> Arrivals:
        """All of them, or none where these steps remove waits for other ranks: then those come sooner."""
        arrivals, piece_at = self._arrivals, self.graph.piece_at
        for change, scope in steps if len(arrivals.node) else ():
            if isinstance(change, Without) and "host_blocked" in change.causes:
                gone = np.append(0, np.cumsum(scope.of_pieces(self.graph, Cause.HOST_BLOCKED)))
                if (gone[piece_at[arrivals.node + 1]] > gone[piece_at[arrivals.node]]).any():
                    return NO_ARRIVALS
        return arrivals

    def _note(self, law: str, excess_ns: int, window_ns: int) -> None:
        if excess_ns > LAW_SLACK * window_ns:
            self.broken[law] = max(self.broken.get(law, 0.0), excess_ns / max(window_ns, 1))

    def _remove(self, change: Without, scope: Scope) -> Costs:
        return change(self.graph, self.graph.costs, scope)

    def without(
        self, causes: Sequence[str], scope: Scope | None = None, *, first: tuple[str, ...] | None = None
    ) -> list[int]:
        """Length of each device's window in nanoseconds without these causes (everywhere, or in a scope); ``first``:
        in the program in which these are gone everywhere already."""
        begin = () if first is None else (ReplayStep(Without(first), self.everywhere),)
        return self.windows(*begin, ReplayStep(Without(tuple(causes)), scope or self.everywhere))

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
    def doubts(self) -> Mapping[int, tuple[OpenDoubt, ...]]:
        """By device index: what of its window the replay had to take as it was, largest first."""
        return find_doubts(self.timeline, self.graph, self.open)

    @cached_property
    def open(self) -> Open:
        """What the trace leaves open."""
        return find_open(self.timeline, self.graph)

    @cached_property
    def without_open(self) -> Change:
        """The change that takes all of that away."""
        return WithoutOpen(self.open)

    @cached_property
    def _without_open_but_sleeps(self) -> Change:
        return WithoutOpen(replace(self.open, sleep_ns=np.zeros_like(self.open.sleep_ns)))

    def _nothing_open(self, steps: Sequence[ReplayStep]) -> Change:
        """The change that takes away what is open of a program changed so; without waits for input, sleeps stay."""
        is_input_gone = any(isinstance(step.change, Without) and "host_blocked" in step.change.causes for step in steps)
        return self._without_open_but_sleeps if is_input_gone else self.without_open

    def ask_open(self, *questions: Sequence[ReplayStep]) -> None:
        """Replay at once what `between` asks of each of these."""
        if self.open_share >= LEAST_OPEN:
            self.ask(*((*steps, ReplayStep(self._nothing_open(steps), steps[-1].scope)) for steps in questions))

    @cached_property
    def undelayed(self) -> ReplayStep:
        """The step that takes nothing but delays of ready work away."""
        nothing, per_operation = np.zeros_like(self.open.sleep_ns), np.zeros_like(self.open.delay_ns)
        without = replace(self.open, sleep_ns=nothing, lag_ns=nothing, call_ns=nothing, wait_inside_ns=per_operation)
        return ReplayStep(WithoutOpen(without), self.everywhere)

    @cached_property
    def open_share(self) -> float:
        """How much of the windows that is, at most, on the device with most of it."""
        opened = self.open
        nodes = unique(np.concatenate([np.flatnonzero(ns) for ns in (opened.sleep_ns, opened.call_ns, opened.lag_ns)]))
        per_node = np.maximum(opened.sleep_ns[nodes] + opened.call_ns[nodes] + opened.lag_ns[nodes], 0)
        of_node = opened.device_of_node[nodes]
        shares = [
            (int(per_node[of_node == device.index].sum()) + self._delays_ns(rows)) / max(length, 1)
            for device, rows, length in zip(self.devices, self._rows, self.measured_ns, strict=True)
        ]
        return float(max(shares, default=0.0))

    def between(self, predicted_ns: Sequence[int], *steps: ReplayStep) -> list[OpenRange]:
        """How short and how long each device's window may be after these changes, of which the replay says
        ``predicted_ns``.

        What the trace leaves open may go with the change or stay. Where a device waits for something outside of the
        trace, that may take as long as before. A replay is no better than its model, in proportion to what is changed.
        """
        gone = {cause for step in steps if isinstance(step.change, Without) for cause in step.change.causes}
        leaves_input = "host_blocked" not in gone
        allocated_ns = self._allocated_otherwise_ns(steps, "sync" in gone) or predicted_ns
        open_ns, explained_ns = list(predicted_ns), self.measured_ns
        if self.open_share >= LEAST_OPEN:
            nothing_open = self._nothing_open(steps)
            open_ns = self.windows(*steps, ReplayStep(nothing_open, steps[-1].scope))
            explained_ns = self.windows(ReplayStep(nothing_open, self.everywhere))
        apart = ReplayStep(OnOtherRanks(), steps[-1].scope)
        with_ranks_ns = self.windows(*steps, apart) if len(self._arrivals_left(steps).node) else predicted_ns
        is_fed = not leaves_input and not self._removed(steps)[-1] and bool(self.open.fed_ns.any())
        fed_ns = (
            self.windows(*steps, ReplayStep(Keeping(self.open.fed_ns), steps[-1].scope)) if is_fed else predicted_ns
        )
        costs = self._costs(steps)
        loading = LOADING_ERROR * self._loading_ns(costs)
        # Beyond what follows it does not matter how much has changed.
        most_ns = max(*(MODEL_ERROR * ns + loading for ns in predicted_ns), LEAST_BOUND * max(self.measured_ns))
        asked = _RangeQuestion(
            costs=costs,
            is_of_kernels=all(_is_of_kernels(step.change) for step in steps),
            may_go_with_it=any(isinstance(step.change, Faster) or _is_of_kernels(step.change) for step in steps),
            leaves_input=leaves_input,
            is_sooner=self._removed(steps) in self._begins_sooner,
            open_ns=open_ns,
            explained_ns=explained_ns,
            fed_ns=fed_ns,
            with_ranks_ns=with_ranks_ns,
            allocated_ns=allocated_ns,
            otherwise_ns=self._otherwise_ns(costs),
            ahead_ns=run_ahead_ns(self.graph, costs),
            loading_ns=loading,
            changed_ns=self._changed_ns(costs, most_ns),
            of_host_ns=self._of_host_ns(predicted_ns, steps),
        )
        return [self._range(asked, position, predicted) for position, predicted in enumerate(predicted_ns)]

    def _range(self, asked: _RangeQuestion, position: int, predicted: int) -> OpenRange:
        """That of one device's window."""
        measured, floor = self.measured_ns[position], self._floor_ns(asked.costs.duration_ns, position)
        shared_ns, changed_ns = self._shared_ns(position, predicted), asked.changed_ns[position]
        is_of_kernels = asked.is_of_kernels
        error = round(min(MODEL_ERROR * predicted + asked.loading_ns, changed_ns))
        least_ns = 0 if shared_ns is not None and not is_of_kernels else min(predicted, floor)
        widening = _Widening(predicted, (least_ns, max(measured, predicted)), min(predicted, floor))
        gone_ns = self._gone_ns(asked, position, predicted)
        most_ns = predicted if asked.may_go_with_it else gone_ns
        widening.reach("unexplained", gone_ns, most_ns, where=self._open_places(position))
        widening.reach("ranks", asked.with_ranks_ns[position])
        widening.reach("makers", predicted, asked.fed_ns[position])
        widening.reach("allocations", asked.allocated_ns[position], min(asked.allocated_ns[position], measured))
        self._reach_order(widening, asked, position, predicted)
        if asked.leaves_input:
            held_ns = int(max(measured - widening.range.high_ns, 0) * self.open.held_up[position])
            widening.reach(OUTSIDE, predicted, widening.range.high_ns + held_ns)
        if shared_ns is not None:  # its work's time holds turns, too
            # Of what others have, a change gives back as much as it makes of the program's own pace, or more by chance.
            paced = min(CHANCE * (max(measured - predicted, 0) + error) / max(measured, 1), 1.0)
            turned_ns = predicted - round(paced * shared_ns)
            least = predicted if is_of_kernels else max(turned_ns, min(asked.of_host_ns[position], predicted))
            widening.reach("shared", least, predicted, steps=changed_ns > LEAST_BOUND * measured)
        high = widening.range.high_ns
        dropped_ns = int(max(measured - high, 0) * min(CHANCE * self._dropped, 1.0))
        widening.reach("contradictions", predicted, high + dropped_ns)
        less = error if is_of_kernels or shared_ns is None else 0  # else kernels had a share, too: it is open
        widening.reach("model", widening.range.low_ns - less, widening.range.high_ns + error)
        return widening.range

    def _gone_ns(self, asked: _RangeQuestion, position: int, predicted: int) -> int:
        """The window, had what is open gone with the change."""
        gone_ns = asked.open_ns[position]
        if not asked.may_go_with_it:
            # Taking away what is open shortens the trace itself; only what the change adds to that is its doing.
            return gone_ns + self.measured_ns[position] - asked.explained_ns[position]
        if asked.is_of_kernels:  # what has gone of the device's time, and its delays in proportion, is all there is
            return min(max(gone_ns, self._without_kernels_ns(asked.costs, position)), predicted)
        return gone_ns

    def _reach_order(self, found: _Widening, asked: _RangeQuestion, position: int, predicted: int) -> None:
        """In another order, with other threads to wake, and with as much overlap as there is room for."""
        measured = self.measured_ns[position]
        other = predicted + asked.otherwise_ns[position] - self._otherwise_unchanged_ns[position]
        turns = max(abs(other - predicted), asked.ahead_ns) > MODEL_ERROR * predicted
        is_same_work = asked.costs.column("duration_ns") is self.graph.costs.duration_ns
        busy = self._busy_ns[position] if is_same_work else 0  # what is shown to overlap does
        found.reach("wakers", steps=self._is_waker_open)
        found.reach("order", max(other, busy), min(other, measured), steps=turns or asked.is_sooner)
        if self._shares_room:  # more overlap than was measured may not be possible, and by what rule is not known
            is_less = abs(measured - predicted) > LEAST_BOUND * measured
            found.reach("room", predicted, min(busy, measured), steps=is_less and not self.graph.takes_turns)

    def _without_kernels_ns(self, costs: Costs, position: int) -> int:
        """A device's window, had everything gone that its kernels no longer take, and delays of ready work with it."""
        rows = self._rows[position]
        less = int((self.graph.costs.duration_ns - costs.duration_ns)[rows].sum())
        return self.measured_ns[position] - min(less, self._busy_ns[position]) - self._delays_ns(rows)

    def _shared_ns(self, position: int, predicted: int) -> int | None:
        """By how much shorter a window may be, where another process has a share of the device; None: none has."""
        delays_ns = int(self.open.delay_ns[self._rows[position]].sum())
        other_ns, turned_ns = self._other_processes_ns[position]
        is_shared = delays_ns >= SHARED * self.measured_ns[position] or other_ns >= SHARED * predicted > 0
        return SHARED_DELAYS * delays_ns + turned_ns if is_shared else None

    def _of_host_ns(self, predicted_ns: Sequence[int], steps: Sequence[ReplayStep]) -> Sequence[int]:
        """The windows, had the devices no work that takes time: who shares a device keeps no host back. Asked for where
        one is shared."""
        if all(self._shared_ns(position, ns) is None for position, ns in enumerate(predicted_ns)):
            return predicted_ns
        idle = Without(tuple(cause.key for cause in BUSY_CAUSES))
        return self.windows(*steps, ReplayStep(idle, self.everywhere), self.undelayed)

    def _open_places(self, position: int) -> tuple[str, ...]:
        """Where a device's window holds most that nothing on record explains."""
        open_doubts = self.doubts.get(self.devices[position].index, ())[:A_FEW_LINES]
        return tuple(
            f"{doubt.kind} ({f'stream {doubt.stream}' if doubt.tid is None else f'thread {doubt.tid}'})"
            for doubt in open_doubts
        )

    def _loading_ns(self, costs: Costs) -> int:
        """What these costs leave of initialization in the windows: what lies outside makes none of them longer."""
        loads, inside_ns = self._loads
        return int(np.minimum(costs.call_ns[loads], inside_ns).sum()) if len(loads) else 0

    @cached_property
    def _loads(self) -> tuple[npt.NDArray[np.intp], Int64Array]:
        """Nodes of initialization, and for how long each of them lies in a window."""
        loads = np.flatnonzero(self.graph.is_init)
        begin_ns, end_ns = self.graph.links.node_begin_ns[loads], self.graph.links.node_end_ns[loads]
        inside_ns = np.zeros(len(loads), np.int64)
        for device in self.devices:
            within = np.minimum(end_ns, device.high_ns) - np.maximum(begin_ns, device.low_ns)
            inside_ns = np.maximum(inside_ns, within)
        return loads, inside_ns

    @cached_property
    def _busy_ns(self) -> list[int]:
        return [clip(device.busy, device.low_ns, device.high_ns).total for device in self.devices]

    def _allocated_otherwise_ns(self, steps: Sequence[ReplayStep], is_waitless: bool) -> list[int] | None:
        """The windows if allocations of which it is open whether they wait do not where they are taken to, and do where
        they are not; None: there are none."""
        graph, measured = self.graph, self.graph.costs
        if not graph.wait_is_open.any():
            return None
        taken, may_wait = graph.wait_is_open & measured.waits, np.diff(graph.links.wait_at) > 0
        may_wait &= graph.wait_is_open & ~taken
        length_ns = graph.links.node_end_ns - graph.links.node_begin_ns
        call_ns = np.where(may_wait, np.minimum(measured.call_ns, measured.wait_lag_ns), measured.call_ns)
        costs = measured.changed(waits=measured.waits & ~taken | may_wait, call_ns=np.where(taken, length_ns, call_ns))
        for change, scope in steps:
            costs = change(graph, costs, scope)
        if is_waitless:
            waits = np.where(graph.wait_is_open & ~taken & steps[-1].scope.nodes, self.open.call_ns, 0)
            costs = costs.changed(call_ns=np.maximum(costs.call_ns - waits, 0))
        [outcome] = replay_spans(graph, [costs], self._windows)
        return [rest_ns + span_ns for rest_ns, span_ns in zip(self.rest_ns, self._spans_ns(outcome), strict=True)]

    def _otherwise_ns(self, costs: Costs) -> list[int]:
        """By how much longer each device's window is where streams take turns by rules that the measured times do not
        follow, than where they keep their order; nothing where they follow them."""
        otherwise = replay_otherwise(self.graph, costs, self._windows)
        if otherwise is None:
            return [0] * len(self.devices)
        outcomes = otherwise, *replay_spans(self.graph, [costs], self._windows)
        return [length_ns - other for length_ns, other in zip(*map(self._spans_ns, outcomes), strict=True)]

    @cached_property
    def _otherwise_unchanged_ns(self) -> list[int]:
        return self._otherwise_ns(self.graph.costs)

    @cached_property
    def _shares_room(self) -> bool:
        return len(self.graph.links.lane_first) > 0

    @cached_property
    def _other_processes_ns(self) -> list[tuple[int, int]]:
        """Per device: for how long kernels of all processes but the busiest ran on it, which may take turns or run side
        by side; and for how long kernels of several did at once, all the slower for it."""
        table, pairs = self.timeline.trace.operations, []
        for rows in self._rows:
            if is_even(table.process[rows]):
                pairs.append((0, 0))
                continue
            process, start, end = table.process[rows], table.start_ns[rows], table.end_ns[rows]
            kernels = table.kind[rows] <= OpKind.GRAPH
            own = [kernels & (process == number) for number in unique(process[kernels]).tolist()]
            busy = [union(start[members], end[members]).total for members in own] if len(own) > 1 else [0]
            both = union(start[kernels], end[kernels]).total if len(own) > 1 else 0
            pairs.append((sum(busy) - max(busy), sum(busy) - both))
        return pairs

    @cached_property
    def _is_waker_open(self) -> bool:
        """Whether threads sleep for long, and only context switches tell of it: not who woke them."""
        graph, captured = self.graph, self.timeline.trace.captured
        if captured.osrt or captured.python_stacks or (graph.links.chains < 2 and not self._is_partner_unknown):
            return False
        links, slept = graph.links, graph.pieces_of(Cause.HOST_BLOCKED)
        tied = np.flatnonzero(links.follows[1:] >= 0) + 1
        # Of the thread that does most: others that are taken to wait for it hardly decide.
        tied = tied[
            (links.chain[tied] == links.chain[tied - 1]) & (links.chain[tied] == np.bincount(links.chain).argmax())
        ]
        waited_ns = int((links.node_begin_ns[tied] - links.node_end_ns[tied - 1]).sum())
        return int(graph.piece_ns[slept].sum()) + waited_ns > MUCH_SLEPT * max(self.measured_ns, default=1)

    @cached_property
    def _is_partner_unknown(self) -> bool:
        """Whether a thread that calls may have worked while another one slept, and nothing tells if it did."""
        callers = unique(self.timeline.calls.thread).tolist()
        evidence = [self.timeline.host_state.evidence(thread) for thread in callers]
        is_clear = [thread_evidence.is_known or thread_evidence.shown is not None for thread_evidence in evidence]
        return any(is_clear) and not all(is_clear)

    @cached_property
    def _dropped(self) -> float:
        """Dependencies between operations that the measured times contradict, as a part of all operations."""
        return self.graph.contradictions.streams / max(self.graph.links.operations, 1)

    def _delays_ns(self, rows: slice | npt.NDArray[np.intp]) -> int:
        return int(self.open.delay_ns[rows].sum() + self.open.wait_inside_ns[rows].sum())

    def _changed_ns(self, costs: Costs, enough_ns: float) -> list[float]:
        """By how much costs differ from those measured, per device: its operations', and those of all threads; as far
        as that is not more than ``enough_ns``."""
        before = self.graph.costs
        if (before.waits != costs.waits).any() or before.has_queue_limit != costs.has_queue_limit:
            return [math.inf] * len(self.devices)
        names = ("duration_ns", "launch_latency_ns", "unexplained_delay_ns", "switch_ns")
        host_ns, amounts = 0, []
        for name in ("interval_ns", "call_ns", "wait_lag_ns"):
            if host_ns <= enough_ns:
                host_ns += changed_ns(costs, name, before, enough_ns)
        for rows in self._rows:
            own_ns = host_ns
            for name in names:
                if own_ns <= enough_ns:
                    own_ns += changed_ns(costs, name, before, enough_ns, rows)
            amounts.append(float(own_ns))
        return amounts

    def _floor_ns(self, duration_ns: Int64Array, number: int) -> int:
        """The busiest stream of a device if operations take so long: no window is shorter than the work that it holds
        one after the other."""
        if duration_ns is self.graph.costs.duration_ns and number < len(self.floors_ns):
            return self.floors_ns[number]
        streams, (row, before_ns, after_ns) = self._streams[number], self._outside[number]
        work_ns = group_sums(streams, duration_ns[self._rows[number]], int(self._stream.max(initial=0)) + 1)
        np.subtract.at(work_ns, self._stream[row], before_ns + after_ns)
        return int(work_ns.max())

    def _spans_ns(self, found: Spans) -> list[int]:
        """From the first operation of each device to the end of the last one."""
        return [max(last - first, 0) for first, last in self._bounds_ns(found)]

    def _bounds_ns(self, found: Spans) -> list[tuple[int, int]]:
        """When the first operation of each device begins and the last one has ended, without what lies outside of its
        window."""
        bounds_ns = []
        for number, (_, before_ns, after_ns) in enumerate(self._outside):
            kept = found.kept[self._kept[number]]
            first = min(int(found.first[number]), int((kept[:, 0] + before_ns).min(initial=-NEVER)))
            last = max(int(found.last[number]), int((kept[:, 1] - after_ns).max(initial=NEVER)))
            for edge, is_end, offset_ns in self._edges[number]:
                time_ns = int(found.begun[edge]) + offset_ns
                first, last = (first, max(last, time_ns)) if is_end else (min(first, time_ns), last)
            bounds_ns.append((first, last))
        return bounds_ns

    def next_bounds(self, *steps: ReplayStep, left_ns: Sequence[int] | None = None) -> list[str | None]:
        """What would save most on each device once these changes are made, everywhere: waits of what is left
        (``left_ns``, if it is more than the replay says), any other cause once nothing waits. What was removed
        everywhere bounds nothing. None: nothing worth 1 % of what is left."""

        wholly = (step.change for step in steps if step.scope is self.everywhere)
        gone = {cause for change in wholly if isinstance(change, Without) for cause in change.causes}
        also = [("sync",), *(("sync", cause.key) for cause in REMOVABLE if cause.key not in {"sync", *gone})]
        asked = [(*steps, ReplayStep(Without(causes), self.everywhere)) for causes in also]
        *lengths, left = self.ask(*asked, steps) if left_ns is None else (*self.ask(*asked), [*left_ns])
        waitless, after = lengths[0], {causes[-1]: windows for causes, windows in zip(also, lengths, strict=True)}
        if "sync" in gone:
            del after["sync"]
        bounds: list[str | None] = []
        for position, length in enumerate(left):
            saved = {
                key: (length if key == "sync" else waitless[position]) - windows[position]
                for key, windows in after.items()
            }
            best, most = max(saved.items(), key=lambda item: item[1], default=("", 0))
            bounds.append(best if length and most > 0 and most >= LEAST_BOUND * length else None)
        return bounds

    def _faulted_ns(self, device: DeviceTimeline, moved: BoolArray) -> tuple[int, int]:
        """For how long a device migrates pages that no call asked for, idles before it does, and runs kernels that may
        wait for them; and for how long it runs these kernels."""
        links, rows = self.graph.links, np.flatnonzero(moved & (self.graph.device == device.index))
        if not len(rows):
            return 0, 0
        end = links.start_ns + self.graph.costs.duration_ns
        pages = union(links.start_ns[rows], end[rows])
        kernels = np.flatnonzero((self.graph.device == device.index) & (self.graph.op_kind <= OpKind.GRAPH))
        waits = kernels[CoveredTime(pages).within(links.start_ns[kernels], end[kernels]) > 0]
        idle_ns = gap_before(device, links.start_ns[rows])
        before = union(links.start_ns[rows] - idle_ns, end[rows])
        waiting = union(links.start_ns[waits], end[waits])
        spans = (any_of((before, waiting)), waiting)
        faulted, of_kernels = (clip(span, device.low_ns, device.high_ns).total for span in spans)
        return faulted, of_kernels

    @property
    def unreliable(self) -> str | None:
        """Why predictions on this trace are not to be trusted; None: they are, as far as has been replayed."""
        return self._undependable or self._delayed or (self._law_broken if self._shares_room else None)

    @property
    def is_delayed(self) -> bool:
        """Whether nothing but turns on the device makes predictions unreliable: delays of ready work in which it
        waits for nothing that the host does (another process has it meanwhile, as it seems), or the order in which
        streams get room, in which less work may take longer."""
        if self._undependable is not None or self._delayed is None:
            return self._undependable is None and self.unreliable is not None
        waits = [device.segments.by_cause()[Cause.DEVICE_WAIT] for device in self.devices]
        return any(wait >= SHARED_WAIT * ns for wait, ns in zip(waits, self.measured_ns, strict=True))

    @cached_property
    def _delayed(self) -> str | None:
        for device, length_ns in zip(self.devices, self.measured_ns, strict=True):
            if (counted := self.delayed.get(device.index)) is not None:
                most = max(counted, key=lambda cause: counted[cause])
                is_wait = most == Cause.DEVICE_WAIT
                delayed_ns = sum(counted.values()) if is_wait else counted[most]
                share = percent(delayed_ns / length_ns)
                if is_wait:
                    return f"launched work did not start for {share} of the time, and the trace does not show why"
                what = f"{share} of the time is counted as {SHORT_LABEL[most.key]} without proof"
                return f"{what}: launched work did not start then"
        return None

    @cached_property
    def delayed(self) -> Mapping[int, Mapping[Cause, int]]:
        """By device index, what the account calls the idle time in which launched work did not start for no reason on
        record; without devices that have little of it. None where the dependencies, of which delays are found, are not
        to be trusted."""
        graph, found = self.graph, {}
        devices = zip(self.devices, self.measured_ns, strict=True) if self._undependable is None else ()
        for device, length_ns in devices:
            rows = np.flatnonzero(graph.costs.unexplained_delay_ns)
            rows = rows[graph.device[rows] == device.index]
            start_ns = graph.links.start_ns[rows]
            # Only delays in which the device idles count.
            idle_ns = np.minimum(graph.costs.unexplained_delay_ns[rows], gap_before(device, start_ns))
            if int(idle_ns.sum()) > UNEXPLAINED_SHARE * max(length_ns, 1):
                found[device.index] = self._counted_as(device, start_ns, idle_ns)
        return found

    @staticmethod
    def _counted_as(device: DeviceTimeline, start_ns: Int64Array, delay_ns: Int64Array) -> dict[Cause, int]:
        """What the account calls the time (ns) before these starts."""
        segments, counted = device.segments, {}
        for cause in map(int, unique(segments.cause)):
            is_of_cause = segments.cause == cause
            covered = CoveredTime(union(segments.start_ns[is_of_cause], segments.end_ns[is_of_cause]))
            counted[Cause(cause)] = int(covered.within(start_ns - delay_ns, start_ns).sum())
        return counted

    @property
    def _law_broken(self) -> str | None:
        for law, excess in sorted(self.broken.items()):
            if excess > LAW_LIMIT:
                return f"replays of it come out {law}, by {percent(excess)} of the window"
        return None

    @property
    def _undependable(self) -> str | None:
        """Why the dependencies themselves are not to be trusted."""
        return self._contradicted or (None if self._shares_room else self._law_broken)

    @cached_property
    def _contradicted(self) -> str | None:
        graph = self.graph
        if graph.links.nodes == 0:
            return "CUDA API calls were not captured"
        lost, operations = graph.links.launch < 0, max(graph.links.operations, 1)
        moved = lost & (self.timeline.trace.operations.kind == OpKind.MIGRATION)
        if (unlaunched := np.count_nonzero(lost & ~moved) / operations) > NOTABLE:
            return f"{percent(unlaunched)} of the operations have no known launching call"
        for device, length_ns in zip(self.devices, self.measured_ns, strict=True):
            faulted_ns, of_kernels_ns = self._faulted_ns(device, moved)
            if faulted_ns > NOTABLE * length_ns:
                if of_kernels_ns < NOTABLE * length_ns:
                    return (
                        "managed memory moves between host and GPU, and the trace does not show which code waits for it"
                    )
                is_all = of_kernels_ns >= (1 - HARDLY) * length_ns
                most = "perhaps all" if is_all else f"at most {percent(of_kernels_ns / length_ns)}"
                return f"the trace does not show how long kernels wait for pages of managed memory: {most} of the time"
        by_ns = graph.contradictions.by_ns
        rows = np.flatnonzero(by_ns)
        for number, (device, length_ns) in enumerate(zip(self.devices, self.measured_ns, strict=True)):
            denied = float(by_ns[rows[graph.device[rows] == device.index]].sum()) / max(length_ns, 1)
            if denied > CONTRADICTED_SHARE:
                return f"for {percent(denied)} of the window operations run before what they come after has ended"
            if (beside := self.rest_ns[number] / max(length_ns, 1)) > NOTABLE:
                return f"{percent(beside)} of the window lies beside all that it could move"
        differing = sum(item.ns for item in graph.disagreements) / max(*self.measured_ns, 1)
        if differing > LAW_LIMIT:
            return (
                f"for {percent(differing)} of the window it takes the host's time for something else than the account"
            )
        return None


def most_saved(before: Sequence[int], after: Sequence[int]) -> int:
    """What the device that saves most does save: devices run at the same time."""
    return max(0, *(b - a for b, a in zip(before, after, strict=True)))
