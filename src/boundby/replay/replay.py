"""The forward pass: when would everything have happened, with these costs?

One loop over the events in dependency order. It is plain Python, compiled by Numba when there is enough to do.
Where streams share a device, the order in which they get it follows from the times; then a second pass goes in the
order that the first one found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import BoolArray
from boundby.replay.engines import KERNELS
from boundby.replay.graph import Graph

Int = npt.NDArray[np.int64]

# Below this many events the loop itself is quicker than loading the compiler.
WORTH_COMPILING = 10_000
# Passes at most where the order of operations depends on their times.
MOST_PASSES = 8
# The rules by which streams take turns hold if no operation moves by more than this part of the whole.
TURNS_ERROR = 0.005


@dataclass(frozen=True)
class Costs:
    """The costs that scenarios change; one entry per node or per operation. Unchanged they replay the trace."""

    interval_ns: Int  # before each node
    call_ns: Int
    waits: BoolArray
    wait_lag_ns: Int
    arrival_ns: Int
    switch_ns: Int
    hold_ns: Int
    duration_ns: Int
    has_queue_limit: bool = True


class Lessons(NamedTuple):
    """What the measured starts teach: see Graph."""

    hold: Int
    early: Int


def measured_costs(graph: Graph) -> Costs:
    """The costs of the trace as it ran."""
    return Costs(
        interval_ns=graph.interval_ns,
        call_ns=graph.cost_ns,
        waits=graph.waits,
        wait_lag_ns=graph.wait_lag_ns,
        arrival_ns=graph.arrival_ns,
        switch_ns=graph.switch_ns,
        hold_ns=graph.hold_ns,
        duration_ns=graph.duration_ns,
    )


def learn(graph: Graph) -> Graph:
    """The graph with what its rules leave unexplained of the measured starts."""
    found = Lessons(*(np.zeros(len(graph.launch), np.int64) for _ in range(2)))
    Replayer(graph).run(measured_costs(graph), found)
    graph = replace(graph, hold_ns=found.hold, early_ns=found.early)
    return replace(graph, takes_turns=Replayer(graph).takes_turns())


class Replayer:
    """Replays one graph under any number of costs.

    Chains that follow nothing begin when their first node was measured to begin; all else follows from the costs.
    """

    def __init__(self, graph: Graph) -> None:
        self._loop = _compiled() if len(graph.order) >= WORTH_COMPILING else None
        self._chains = int(graph.chain.max(initial=-1)) + 1
        self._nodes, self._operations = graph.calls, len(graph.launch)
        self._slots = len(graph.engines.first)
        self._takes_turns = graph.takes_turns
        self._order = graph.order
        self._measured = measured_costs(graph)
        engines = graph.engines
        self._fixed: dict[str, Any] = {
            "chain": graph.chain,
            "measured_start": graph.call_start_ns,
            "follows": graph.follows,
            "follow_lag": graph.follow_lag_ns,
            "wait_at": graph.wait_at,
            "wait_for": graph.wait_for,
            "by_start": graph.waits_for_start,
            "room": graph.room,
            "room_lag": graph.room_lag_ns,
            "launch": graph.launch,
            "before": graph.before,
            "after_at": graph.after_at,
            "after_what": graph.after_what,
            "from_call_end": graph.from_call_end,
            "measured_op": graph.start_ns,
            "slot": engines.slot,
            "slot_first": engines.first,
            "slot_stop": engines.stop,
            "op_class": engines.kind,
            "classes": engines.kinds,
            "kernels": KERNELS,
            "excludes": engines.excludes,
        }
        self._learnt = Lessons(graph.hold_ns, graph.early_ns)
        self._lists: dict[int, Any] = {}  # of the measured costs, by their arrays
        if self._loop is None:  # lists are much quicker than arrays, element by element
            self._fixed = {name: _plain(column) for name, column in self._fixed.items()}
            measured = [getattr(self._measured, field.name) for field in fields(Costs)]
            self._lists = {id(column): _plain(column) for column in (*measured, self._learnt.early, self._order)}

    def run(self, costs: Costs, lessons: Lessons | None = None) -> tuple[Int, Int]:
        """Start and end of every operation, shape (operations,), in nanoseconds. ``lessons``, if given, are filled."""
        order = self._order
        settled = not self._takes_turns or lessons is not None or _are_same(costs, self._measured)
        if settled:
            state = self._pass(costs, order, lessons)
            return state["start"], state["end"]
        for _ in range(MOST_PASSES):
            state = self._pass(costs, order, None, looks_ahead=True)
            following = _reorder(order, state)
            if (following == order).all():
                return state["start"], state["end"]
            order = following
        state = self._pass(costs, order, None)  # no order was found that stays: none may run at once all the same
        return state["start"], state["end"]

    def takes_turns(self) -> bool:
        """True if streams share devices, and the rules by which they do give the measured times back."""
        if self._slots == 0:
            return False
        first = self._pass(self._measured, self._order, None)
        second = self._pass(self._measured, _reorder(self._order, first), None)
        span = int(first["end"].max() - first["start"].min())
        return bool(np.abs(first["start"] - second["start"]).max() <= TURNS_ERROR * span)

    def _pass(self, costs: Costs, order: Any, lessons: Lessons | None, *, looks_ahead: bool = False) -> dict[str, Int]:
        """One pass in this order. ``looks_ahead``: what has its turn later is in nobody's way, although it comes first
        in this order; the next pass puts it right."""
        never = -(1 << 62)
        changing: dict[str, Any] = {
            "order": order,
            "interval": costs.interval_ns,
            "cost": costs.call_ns,
            "waits": costs.waits,
            "wait_lag": costs.wait_lag_ns,
            "limited": costs.has_queue_limit,
            "arrival": costs.arrival_ns,
            "switch": costs.switch_ns,
            "hold": costs.hold_ns if lessons is None else lessons.hold,
            "early": (lessons or self._learnt).early,
            "duration": costs.duration_ns,
            "learns": lessons is not None,
            "shared": self._slots > 0,
            "strict": not looks_ahead,
            "call_start": np.zeros(self._nodes, np.int64),
            "call_end": np.zeros(self._nodes, np.int64),
            "clock": np.zeros(self._chains, np.int64),
            "begun": np.zeros(self._chains, np.bool_),
            "slot_end": np.full(self._slots, never, np.int64),
            "slot_class": np.zeros(self._slots, np.int64),
            "slot_turn": np.full(self._slots, never, np.int64),
            "front": np.full(self._slots, never, np.int64),
            "front_turn": np.full(self._slots, never, np.int64),
            "turn": np.zeros(self._operations, np.int64),
            "start": np.zeros(self._operations, np.int64),
            "end": np.zeros(self._operations, np.int64),
        }
        if self._loop is not None:
            self._loop(*[{**self._fixed, **changing}[name] for name in _ARGUMENTS])
            return changing
        lists = {
            name: _plain(column) if lessons is not None else self._as_list(column) for name, column in changing.items()
        }
        _forward(*[{**self._fixed, **lists}[name] for name in _ARGUMENTS])
        if lessons is not None:
            for name, column in zip(Lessons._fields, lessons, strict=True):
                column[:] = lists[name]
        wanted = ("start", "end", "turn", "call_start", "call_end") if self._slots else ("start", "end")
        return {name: np.asarray(lists[name], np.int64) for name in wanted}

    def _as_list(self, column: Any) -> Any:
        known = self._lists.get(id(column))
        return _plain(column) if known is None else known


def _are_same(first: Costs, second: Costs) -> bool:
    pairs = [(getattr(first, field.name), getattr(second, field.name)) for field in fields(Costs)]
    return all(a is b or np.array_equal(a, b) for a, b in pairs)


def _plain(column: Any) -> Any:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _reorder(order: npt.NDArray[np.int32], state: dict[str, Int]) -> npt.NDArray[np.int32]:
    """The events in the order in which they came; those of one instant stay as they were."""
    node = order >> 1
    is_op, is_end = order < 0, (order & 1) == 1
    row = np.where(is_op, ~order, 0)
    node = np.where(is_op, 0, node)
    time = np.where(is_end, state["call_end"][node], state["call_start"][node]) if len(state["call_end"]) else 0
    time = np.where(is_op, state["turn"][row], time)
    ordered: npt.NDArray[np.int32] = order[np.argsort(time, kind="stable")]
    return ordered


def _forward(
    order: Any,
    chain: Any,
    measured_start: Any,
    follows: Any,
    follow_lag: Any,
    interval: Any,
    cost: Any,
    waits: Any,
    wait_at: Any,
    wait_for: Any,
    by_start: Any,
    wait_lag: Any,
    limited: Any,
    room: Any,
    room_lag: Any,
    launch: Any,
    arrival: Any,
    from_call_end: Any,
    before: Any,
    switch: Any,
    after_at: Any,
    after_what: Any,
    slot: Any,
    slot_first: Any,
    slot_stop: Any,
    slot_end: Any,
    slot_class: Any,
    slot_turn: Any,
    op_class: Any,
    classes: Any,
    kernels: Any,
    front: Any,
    front_turn: Any,
    excludes: Any,
    early: Any,
    hold: Any,
    duration: Any,
    measured_op: Any,
    learns: Any,
    shared: Any,
    strict: Any,
    call_start: Any,
    call_end: Any,
    clock: Any,
    begun: Any,
    turn: Any,
    start: Any,
    end: Any,
) -> None:
    for index in range(len(order)):
        event = order[index]
        if event >= 0:
            node = event >> 1
            line = chain[node]
            if event & 1:
                if waits[node]:
                    done = call_end[node]
                    for edge in range(wait_at[node], wait_at[node + 1]):
                        row = wait_for[edge]
                        other = launch[row]
                        if other >= 0 and chain[other] != line and call_start[other] > call_start[node]:
                            continue  # another thread launches it after this call now
                        time = (start[row] if by_start[node] else end[row]) + wait_lag[node]
                        if time > done:
                            done = time
                    call_end[node] = done
                    if done > clock[line]:
                        clock[line] = done
                continue
            waker = follows[node]
            if begun[line]:
                now = clock[line] + interval[node]
            else:  # a thread that another one began, or one that was there from the beginning
                now = -(1 << 62) if waker >= 0 else measured_start[node]
                begun[line] = True
            if waker >= 0 and call_end[waker] + follow_lag[node] > now:
                now = call_end[waker] + follow_lag[node]
            row = room[node]
            if limited and row >= 0 and end[row] + room_lag[node] > now:
                now = end[row] + room_lag[node]
            call_start[node] = now
            clock[line] = now + cost[node]
            call_end[node] = clock[line]
        else:
            row = -event - 1
            node, previous = launch[row], before[row]
            if node >= 0 or previous >= 0:
                time = -(1 << 62)
                if node >= 0:
                    time = (call_end[node] if from_call_end[row] else call_start[node]) + arrival[row]
                if previous >= 0 and end[previous] + switch[row] > time:
                    time = end[previous] + switch[row]
                for edge in range(after_at[row], after_at[row + 1]):
                    if end[after_what[edge]] + switch[row] > time:
                        time = end[after_what[edge]] + switch[row]
                ready = time
                place = slot[row] if shared else -1
                if place >= 0:
                    free = time
                    first = slot_first[place]
                    in_front = strict or front_turn[first] <= ready
                    if op_class[row] >= kernels and front[first] > free and in_front:
                        free = front[first]  # none overtakes a kernel that waits for room
                    for other in range(first, slot_stop[place]):
                        is_busy = other != place and slot_end[other] > free
                        is_busy = is_busy and (strict or slot_turn[other] <= ready)
                        if is_busy and excludes[op_class[row] * classes + slot_class[other]]:
                            free = slot_end[other]
                    if learns:
                        early[row] = max(0, free - max(measured_op[row], time))
                    free -= early[row]
                    if free > time:
                        time = free
                    if op_class[row] >= kernels and time > front[first]:
                        front[first], front_turn[first] = time, ready
                if learns:
                    hold[row] = measured_op[row] - time
                time += hold[row]
            else:
                time = ready = measured_op[row]
            start[row] = time
            end[row] = time + duration[row]
            if shared:
                # Its turn comes when it is ready and what nothing explains has passed; never before what it follows.
                due = min(time, ready + hold[row])
                if node >= 0 and call_start[node] > due:
                    due = call_start[node]
                if previous >= 0 and start[previous] > due:
                    due = start[previous]
                turn[row] = due
                if slot[row] >= 0:
                    slot_end[slot[row]] = end[row]
                    slot_class[slot[row]] = op_class[row]
                    slot_turn[slot[row]] = due


_ARGUMENTS = tuple(inspect.signature(_forward).parameters)


@cache
def _compiled() -> Callable[..., None]:
    import numba

    compiled: Callable[..., None] = numba.njit(cache=True)(_forward)
    return compiled
