"""Questions people ask: named scenarios, things made k times faster, overlapped copies, and combinations of them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import asdict

from boundby.model.arrays import BoolArray, unique
from boundby.model.errors import SelectionError, did_you_mean
from boundby.model.expressions import expression
from boundby.model.intervals import clip, union
from boundby.model.scenarios import SCENARIOS
from boundby.replay.predictor import Predictor, ReplayStep
from boundby.replay.removals import Change, Faster, FasterHost, Scope, Without
from boundby.results.report import WhatIf
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import kernel_label

_FASTER = expression(r"^(kernels|copies|comm|cpu|kernel:(?P<glob>.+))=(?P<factor>-?\d+(?:\.\d+)?)$")
OVERLAPPED = {"copies_overlapped": "copies_free", "comm_overlapped": "comm_free"}

FORMS = (
    f"{', '.join(SCENARIOS)}, {', '.join(OVERLAPPED)}, kernels=K, kernel:NAME=K, copies=K, comm=K, cpu=K "
    "(K times faster), or several joined by +"
)


class Answer(WhatIf, frozen=True):
    """What one scenario would leave of one device's window, changed only in a region (None: everywhere).

    ``then_bound`` is what would bound next (None: nothing worth 1 % of what is left).
    """

    region: str | None = None
    then_bound: str | None = None


def answered(item: WhatIf, then_bound: str | None) -> Answer:
    """A prediction of the report as an answer."""
    return Answer(**asdict(item), then_bound=then_bound)


def answer(
    predictor: Predictor,
    scenario: str,
    inside: BoolArray | None = None,
    region: str | None = None,
    *,
    tells_next: bool = True,
) -> list[Answer]:
    """Predict a scenario for every device; ``inside`` limits it to some regions, without ``tells_next`` nobody asks
    what would bound next, which takes replays of its own. Raises SelectionError."""
    terms = [term.strip() for term in scenario.split("+") if term.strip()]
    scope = predictor.scope(regions=inside)
    steps = [ReplayStep(change, scope) for change in _at_once([_change(term, predictor) for term in terms])]
    if not steps:
        raise SelectionError("The scenario is empty.", f"Known: {FORMS}.")
    floors = [_floor(predictor, term, scope) for term in terms if term in OVERLAPPED]
    stay = _at_least(_windows(predictor, steps), floors)
    between = predictor.between(stay, *steps)
    then = predictor.next_bounds(*steps, left_ns=stay) if tells_next else [None] * len(stay)
    answers = []
    for position, (device, found) in enumerate(zip(predictor.devices, between, strict=True)):
        floor_ns = max(found.floor_ns, min(max((lengths[position] for lengths in floors), default=0), found.told_ns))
        found, measured_ns = found._replace(floor_ns=floor_ns), predictor.measured_ns[position]
        answers.append(
            Answer(
                scenario=scenario,
                region=region,
                device=predictor.timeline.trace.gpus[device.index].id,
                baseline_ns=measured_ns,
                predicted_ns=found.told_ns,
                low_ns=found.least_ns,
                high_ns=found.high_ns,
                confidence=found.confidence_of(measured_ns),
                then_bound=then[position],
                uncertainties=found.told,
            )
        )
    return answers


def causes_of(scenario: str) -> frozenset[str]:
    """The causes that the scenarios named in a question remove."""
    terms = (OVERLAPPED.get(term.strip(), term.strip()) for term in scenario.split("+"))
    return frozenset(cause for term in terms if term in SCENARIOS for cause in SCENARIOS[term].causes)


def check(predictor: Predictor, scenario: str) -> None:
    """Raises SelectionError where a question means nothing."""
    if not [_change(term.strip(), predictor) for term in scenario.split("+") if term.strip()]:
        raise SelectionError("The scenario is empty.", f"Known: {FORMS}.")


def next_bounds(predictor: Predictor, predictions: Iterable[WhatIf]) -> Mapping[tuple[int, str], str | None]:
    """What would bound each device next under these predictions of named scenarios, by (device id, scenario); None:
    nothing worth 1 %."""
    gpus = predictor.timeline.trace.gpus
    numbers = [gpus[device.index].id for device in predictor.devices]
    by_name: dict[str, dict[int, int]] = {}
    for item in predictions:
        by_name.setdefault(item.scenario, {})[item.device] = item.predicted_ns
    found: dict[tuple[int, str], str | None] = {}
    for name, predicted_ns in by_name.items():
        gone = ReplayStep(Without(SCENARIOS[name].causes), predictor.everywhere)
        bounds = predictor.next_bounds(gone, left_ns=[predicted_ns[number] for number in numbers])
        found |= {(number, name): bound for number, bound in zip(numbers, bounds, strict=True)}
    return found


def _windows(predictor: Predictor, steps: Sequence[ReplayStep]) -> list[int]:
    """Length of each device's window after these changes. Removing more never makes a program slower; where streams
    take turns, a replay's order of them can."""
    if not all(isinstance(step.change, Without) for step in steps):
        return predictor.windows(*steps)
    parts = [[ReplayStep(Without((cause,)), step.scope)] for step in steps for cause in _causes(step.change)]
    return [min(lengths) for lengths in zip(predictor.measured_ns, *predictor.ask(steps, *parts), strict=True)]


def _causes(change: Change) -> tuple[str, ...]:
    return change.causes if isinstance(change, Without) else ()


def _at_once(changes: Sequence[Change]) -> list[Change]:
    """All removals as one, then the rest: in which order they are named, and how often, says nothing."""
    gone = tuple(dict.fromkeys(cause for change in changes for cause in _causes(change)))
    rest = [change for change in changes if not isinstance(change, Without)]
    return [Without(gone), *rest] if gone else rest


def _at_least(windows: list[int], floors: Sequence[list[int]]) -> list[int]:
    return [max(lengths) for lengths in zip(windows, *floors, strict=True)]


def _floor(predictor: Predictor, term: str, scope: Scope) -> list[int]:
    """Overlapped work still takes its own time on each device, beside other such work as it did: no window is shorter
    than that."""
    graph = predictor.graph
    rows = scope.operations & (graph.is_communication if term == "comm_overlapped" else graph.op_kind >= OpKind.MEMCPY)
    floors = []
    for device in predictor.devices:
        own = np.flatnonzero(rows & (graph.device == device.index))
        start_ns = graph.links.start_ns[own]
        moves = union(start_ns, start_ns + graph.costs.duration_ns[own])
        floors.append(clip(moves, device.low_ns, device.high_ns).total)
    return floors


def _change(term: str, predictor: Predictor) -> Change:
    name = OVERLAPPED.get(term, term)
    if name in SCENARIOS:
        return Without(SCENARIOS[name].causes)
    match = _FASTER.match(term)
    if not match:
        near = did_you_mean(term, (*SCENARIOS, *OVERLAPPED))
        raise SelectionError(f"{term!r} is not a scenario.", f"{near}Known: {FORMS}.")
    if float(match["factor"]) <= 0:
        raise SelectionError(f"K of {term!r} must be above 0.", f"It says how many times as fast: {match[1]}=2.")
    if match[1] == "cpu":
        return FasterHost(float(match["factor"]))
    return Faster(_operations(predictor, match[1], match["glob"]), float(match["factor"]))


def _operations(predictor: Predictor, kind: str, glob: str | None) -> BoolArray:
    trace = predictor.timeline.trace
    table = trace.operations
    if kind == "copies":
        return table.kind >= OpKind.MEMCPY
    if kind == "comm":
        return table.is_communication
    if glob is None:
        return (table.kind <= OpKind.GRAPH) & ~table.is_communication
    is_kernel = table.kind == OpKind.KERNEL
    used = [number for number in unique(table.name[is_kernel]).tolist() if number >= 0]
    # A whole name is that kernel and no other, as reports name it or in full.
    wanted = [number for number in used if glob in (trace.names[number], kernel_label(trace.names[number]))]
    wanted = wanted or [
        number for number in used if fnmatch.fnmatchcase(trace.names[number], glob) or glob in trace.names[number]
    ]
    named: BoolArray = is_kernel & np.isin(table.name, wanted)
    if not wanted:
        raise SelectionError(
            f"No kernel matches {glob!r}.",
            "Give its name as reports show it, a part of it, or a glob such as '*gemm*'.",
        )
    return named
