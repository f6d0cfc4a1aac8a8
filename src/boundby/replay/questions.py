"""Questions people ask: named scenarios, things made k times faster, overlapped copies, and combinations of them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.causes import REMOVABLE
from boundby.model.errors import SelectionError
from boundby.replay.graph import Graph
from boundby.replay.removals import Change, Predictor
from boundby.replay.replay import Costs
from boundby.replay.scenarios import SCENARIOS, Scope, faster, faster_cpu, remove
from boundby.trace.tables import OpKind

Bool = npt.NDArray[np.bool_]

_FASTER = re.compile(r"^(kernels|copies|comm|cpu|kernel:(?P<glob>.+))=(?P<factor>-?\d+(?:\.\d+)?)$")
OVERLAPPED = {"copies_overlapped": "copies_free", "comm_overlapped": "comm_free"}

FORMS = (
    f"{', '.join(SCENARIOS)}, {', '.join(OVERLAPPED)}, kernels=K, kernel:GLOB=K, copies=K, comm=K, cpu=K "
    "(K times faster), or several joined by +"
)


@dataclass(frozen=True)
class Answer:
    """What one scenario would leave of one device's window. Times in nanoseconds.

    ``low_ns`` and ``high_ns`` enclose what the trace leaves open: delays that no recorded dependency explains may
    go or stay. ``then_bound`` is what would bound next (None: nothing worth 1 % of what is left).
    """

    scenario: str
    region: str | None
    device: int
    baseline_ns: int
    predicted_ns: int
    low_ns: int
    high_ns: int
    then_bound: str | None

    @property
    def speedup(self) -> float | None:
        """Times faster; None where nothing would be left."""
        return self.baseline_ns / self.predicted_ns if self.predicted_ns else None


def answer(timeline: Timeline, scenario: str, inside: Bool | None = None, region: str | None = None) -> list[Answer]:
    """Predict a scenario for every device; ``inside`` limits it to some regions. Raises SelectionError."""
    terms = [term.strip() for term in scenario.split("+") if term.strip()]
    changes = [_change(term, timeline) for term in terms]
    if not changes:
        raise SelectionError("The scenario is empty.", f"Known: {FORMS}.")
    predictor = Predictor(timeline, runs=2 * len(REMOVABLE) + 6)
    floors = [_floor(term, predictor, inside) for term in terms]
    measured = [device.high_ns - device.low_ns for device in timeline.devices]
    stay = _at_least(predictor.after(changes, inside), floors)
    go = _at_least(predictor.after([*changes, _no_holds], inside), floors)
    unchanged = predictor.after([_no_holds], None)
    answers = []
    for position, device in enumerate(timeline.devices):
        # Explaining nothing away shortens the trace itself; only what the change adds to that is its doing.
        gone = min(stay[position], go[position] + measured[position] - unchanged[position])
        low, high = sorted((gone, stay[position]))
        answers.append(
            Answer(
                scenario=scenario,
                region=region,
                device=timeline.trace.gpus[device.index].id,
                baseline_ns=measured[position],
                predicted_ns=stay[position],
                low_ns=max(low, 0),
                high_ns=high,
                then_bound=_then(predictor, changes, inside, position, stay[position]),
            )
        )
    return answers


def _at_least(windows: list[int], floors: Sequence[list[int]]) -> list[int]:
    return [max([length, *(floor[position] for floor in floors)]) for position, length in enumerate(windows)]


def _floor(term: str, predictor: Predictor, inside: Bool | None) -> list[int]:
    """Overlapped work still takes its own time on the device: no window is shorter than that."""
    if term not in OVERLAPPED:
        return [0] * len(predictor.devices)
    graph, scope = predictor.graph, predictor.scope(inside)
    moves = graph.is_communication if term == "comm_overlapped" else graph.op_kind >= OpKind.MEMCPY
    return [
        int(graph.duration_ns[scope.operations & moves & (graph.device == device.index)].sum())
        for device in predictor.devices
    ]


def _then(predictor: Predictor, changes: Sequence[Change], inside: Bool | None, position: int, left: int) -> str | None:
    """The cause that would save most once the change is made."""
    best = ("", 0)
    waits = predictor.after([*changes, _removal(("sync",))], inside, widen_last=True)[position]
    for cause in REMOVABLE:
        base = left if cause.key == "sync" else waits
        gone = [_removal(("sync",))] if cause.key == "sync" else [_removal(("sync", cause.key))]
        saved = base - predictor.after([*changes, *gone], inside, widen_last=True)[position]
        if saved > best[1]:
            best = (cause.key, saved)
    return best[0] if left and best[1] >= 0.01 * left else None


def _change(term: str, timeline: Timeline) -> Change:
    if term in SCENARIOS or term in OVERLAPPED:
        return _removal(SCENARIOS[OVERLAPPED.get(term, term)])
    match = _FASTER.match(term)
    if not match:
        raise SelectionError(f"{term!r} is no scenario.", f"Known: {FORMS}.")
    if float(match["factor"]) <= 0:
        raise SelectionError(f"K of {term!r} must be above 0.", f"It says how many times as fast: {match[1]}=2.")
    factor, kind = float(match["factor"]), match[1]
    if kind == "cpu":
        return lambda graph, costs, scope: faster_cpu(graph, costs, scope, factor)
    rows = _operations(kind, match["glob"], timeline)

    def shorten(graph: Graph, costs: Costs, scope: Scope) -> Costs:
        return faster(graph, costs, rows & scope.operations, factor)

    return shorten


def _operations(kind: str, glob: str | None, timeline: Timeline) -> Bool:
    table, names = timeline.trace.operations, timeline.trace.names
    kernels = (table.kind <= OpKind.GRAPH) & ~table.is_communication
    if kind == "copies":
        return table.kind >= OpKind.MEMCPY
    if kind == "comm":
        return table.is_communication
    if glob is None:
        return kernels
    wanted = np.array([fnmatch.fnmatchcase(name, glob) or glob in name for name in names], bool)
    found: Bool = (table.kind == OpKind.KERNEL) & wanted[table.name]
    if not found.any():
        raise SelectionError(f"No kernel matches {glob!r}.", "Give a part of its name, or a glob such as '*gemm*'.")
    return found


def _removal(causes: Sequence[str]) -> Change:
    return lambda graph, costs, scope: remove(graph, costs, causes, scope)


def _no_holds(_graph: Graph, costs: Costs, scope: Scope) -> Costs:
    """Delays that nothing recorded explains go away."""
    return replace(costs, hold_ns=np.where(scope.operations, 0, costs.hold_ns))
