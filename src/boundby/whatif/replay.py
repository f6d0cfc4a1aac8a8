"""The forward pass: when would everything have happened, with these costs?

One loop over the events in dependency order. It is plain Python, compiled by Numba when there is enough to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.whatif.graph import Graph

Int = npt.NDArray[np.int64]

# Below this many events in all the loop itself is quicker than loading the compiler.
WORTH_COMPILING = 1_500_000


@dataclass(frozen=True)
class Costs:
    """The costs that scenarios change; one entry per call or per operation. Unchanged they replay the trace."""

    interval_ns: Int  # before each call
    call_ns: Int
    waits_for: npt.NDArray[np.int32]
    wait_lag_ns: Int
    arrival_ns: Int
    switch_ns: Int
    hold_ns: Int
    duration_ns: Int


def measured_costs(graph: Graph) -> Costs:
    """The costs of the trace as it ran."""
    return Costs(
        interval_ns=graph.dispatch_ns + graph.cpu_ns + graph.sleep_ns + graph.overlap_ns,
        call_ns=graph.cost_ns,
        waits_for=graph.waits_for,
        wait_lag_ns=graph.wait_lag_ns,
        arrival_ns=graph.arrival_ns,
        switch_ns=graph.switch_ns,
        hold_ns=graph.hold_ns,
        duration_ns=graph.duration_ns,
    )


class Replayer:
    """Replays one graph under any number of costs. ``runs`` is how often it is going to: many are worth compiling for.

    Each chain begins when its first call was measured to begin; everything else follows from the costs.
    """

    def __init__(self, graph: Graph, runs: int = 1) -> None:
        self._loop = _compiled() if runs * len(graph.order) >= WORTH_COMPILING else None
        self._chains = int(graph.chain.max(initial=-1)) + 1
        self._calls, self._operations = graph.calls, len(graph.launch)
        self._fixed: dict[str, Any] = {
            "order": graph.order,
            "chain": graph.chain,
            "measured_start": graph.call_start_ns,
            "follows": graph.follows,
            "follow_lag": graph.follow_lag_ns,
            "by_start": graph.waits_for_start,
            "launch": graph.launch,
            "before": graph.before,
            "also_after": graph.also_after,
            "from_call_end": graph.from_call_end,
            "measured_op": graph.start_ns,
        }
        if self._loop is None:  # lists are much quicker than arrays, element by element
            self._fixed = {name: column.tolist() for name, column in self._fixed.items()}

    def run(self, costs: Costs) -> tuple[Int, Int]:
        """Start and end of every operation, shape (operations,), in nanoseconds."""
        changing: dict[str, Any] = {
            "interval": costs.interval_ns,
            "cost": costs.call_ns,
            "waits_for": costs.waits_for,
            "wait_lag": costs.wait_lag_ns,
            "arrival": costs.arrival_ns,
            "switch": costs.switch_ns,
            "hold": costs.hold_ns,
            "duration": costs.duration_ns,
            "call_start": np.zeros(self._calls, np.int64),
            "call_end": np.zeros(self._calls, np.int64),
            "clock": np.zeros(self._chains, np.int64),
            "begun": np.zeros(self._chains, np.bool_),
            "start": np.zeros(self._operations, np.int64),
            "end": np.zeros(self._operations, np.int64),
        }
        loop = self._loop or _forward
        if self._loop is None:
            changing = {name: column.tolist() for name, column in changing.items()}
        loop(*[{**self._fixed, **changing}[name] for name in _ARGUMENTS])
        return np.asarray(changing["start"], np.int64), np.asarray(changing["end"], np.int64)


def _forward(
    order: Any,
    chain: Any,
    measured_start: Any,
    follows: Any,
    follow_lag: Any,
    interval: Any,
    cost: Any,
    waits_for: Any,
    by_start: Any,
    wait_lag: Any,
    launch: Any,
    arrival: Any,
    from_call_end: Any,
    before: Any,
    switch: Any,
    also_after: Any,
    hold: Any,
    duration: Any,
    measured_op: Any,
    call_start: Any,
    call_end: Any,
    clock: Any,
    begun: Any,
    start: Any,
    end: Any,
) -> None:
    for index in range(len(order)):
        event = order[index]
        if event >= 0:
            call = event >> 1
            line = chain[call]
            operation = waits_for[call]
            if event & 1:
                if operation >= 0:
                    done = start[operation] if by_start[call] else end[operation]
                    if done + wait_lag[call] > clock[line]:
                        clock[line] = done + wait_lag[call]
                        call_end[call] = clock[line]
                continue
            if begun[line]:
                now = clock[line] + interval[call]
                waker = follows[call]
                if waker >= 0 and call_end[waker] + follow_lag[call] > now:
                    now = call_end[waker] + follow_lag[call]
            else:
                now = measured_start[call]
                begun[line] = True
            call_start[call] = now
            clock[line] = now + cost[call]
            call_end[call] = clock[line]
        else:
            row = -event - 1
            call, previous, other = launch[row], before[row], also_after[row]
            if call >= 0 or previous >= 0:
                time = -(1 << 62)
                if call >= 0:
                    time = (call_end[call] if from_call_end[row] else call_start[call]) + arrival[row]
                if previous >= 0 and end[previous] + switch[row] > time:
                    time = end[previous] + switch[row]
                if other >= 0 and end[other] > time:
                    time = end[other]
                time += hold[row]
            else:
                time = measured_op[row]
            start[row] = time
            end[row] = time + duration[row]


_ARGUMENTS = tuple(inspect.signature(_forward).parameters)


@cache
def _compiled() -> Callable[..., None]:
    import numba

    compiled: Callable[..., None] = numba.njit(cache=True)(_forward)
    return compiled
