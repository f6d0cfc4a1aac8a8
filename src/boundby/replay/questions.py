"""What one change would save: asked by people (named scenarios, things made k times faster, overlapped copies, and
combinations of them), and by rules, as a range."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import asdict, replace

from boundby.model.arrays import BoolArray, unique
from boundby.model.causes import SCENARIOS
from boundby.model.errors import SelectionError, did_you_mean
from boundby.model.intervals import clip, union
from boundby.model.late import expression
from boundby.model.scale import MARGIN
from boundby.replay.predictor import LEAST_OPEN, MODEL_ERROR, Predictor, ReplayStep, most_saved
from boundby.replay.removals import Change, Faster, FasterHost, Scope, Without
from boundby.replay.trust import OpenRange
from boundby.results.report import WhatIf
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import kernel_label

_FASTER = expression(r"^(kernels|copies|comm|cpu|kernel:(?P<glob>.+))=(?P<factor>-?\d+(?:\.\d+)?)$")
OVERLAPPED = {"copies_overlapped": "copies_free", "comm_overlapped": "comm_free"}

FORMS = (
    f"{', '.join(SCENARIOS)}, {', '.join(OVERLAPPED)}, kernels=K, kernel:NAME=K, copies=K, comm=K, cpu=K "
    "(K times as fast), or several joined by +"
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
    for position, (device, reach) in enumerate(zip(predictor.devices, between, strict=True)):
        floor_ns = max(reach.floor_ns, min(max((lengths[position] for lengths in floors), default=0), reach.told_ns))
        reach, measured_ns = reach._replace(floor_ns=floor_ns), predictor.measured_ns[position]
        answers.append(
            Answer(
                scenario=scenario,
                region=region,
                device=predictor.timeline.trace.gpus[device.index].id,
                baseline_ns=measured_ns,
                predicted_ns=reach.told_ns,
                low_ns=reach.least_ns,
                high_ns=reach.high_ns,
                confidence=reach.confidence_of(measured_ns),
                then_bound=then[position],
                uncertainties=reach.told,
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
    bounds_of: dict[tuple[int, str], str | None] = {}
    for name, predicted_ns in by_name.items():
        gone = ReplayStep(Without(SCENARIOS[name].causes), predictor.everywhere)
        bounds = predictor.next_bounds(gone, left_ns=[predicted_ns[number] for number in numbers])
        bounds_of |= {(number, name): bound for number, bound in zip(numbers, bounds, strict=True)}
    return bounds_of


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
    if not match and "=" not in term and _FASTER.match(f"{term}=2"):
        raise SelectionError(f"{term!r} does not say how many times as fast.", f"For twice as fast: {term}=2")
    if not match:
        near = did_you_mean(term, (*SCENARIOS, *OVERLAPPED))
        raise SelectionError(f"{term!r} is not a scenario.", f"{near}Known: {FORMS}.")
    if float(match["factor"]) <= 0:
        raise SelectionError(
            f"K of {term!r} must be above 0.", f"K says how many times as fast: {match[1]}=2 is twice as fast."
        )
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


SavingNs = tuple[int, int]
Key = tuple[object, ...]


class _Question(NamedTuple):
    """By what its answer is known, what changes, and in which calls, operations and regions (those of none: all)."""

    key: Key
    change: Change
    where: Mapping[str, BoolArray | None]


# Where the host's waits cost this share of the window, what another change saves depends on whether they go first.
WAITS_SHARE = MARGIN


class Savings:
    """Savings of single changes to the program as it ran, in nanoseconds: (low, high).

    The range holds what the trace leaves open (delays that no recorded dependency explains would stay, or go) and the
    replay's own error. Where waits for the device matter, other changes are replayed on the program that no longer
    waits as well: syncs and launches, say, can cost the same idle time, and who removes one gains little by the other.
    Of several devices, which run at the same time, the one that saves most counts. Every answer is None where the
    trace cannot be replayed to be trusted; ``unreliable`` says why.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.unreliable = predictor.unreliable
        self._predictor = predictor
        self._known: dict[Key, SavingNs] = {}
        self._longest_ns = max(predictor.measured_ns, default=0)
        self._has_open = predictor.open_share >= LEAST_OPEN
        whole = replace(predictor.everywhere, operations=np.ones_like(predictor.everywhere.operations))
        self._explained = ReplayStep(predictor.without_open, whole)
        self._explained_ns: list[int] | None = None
        self.asked = 0  # questions that were replayed

    def without(
        self,
        causes: Sequence[str],
        *,
        calls: BoolArray | None = None,
        operations: BoolArray | None = None,
        regions: BoolArray | None = None,
    ) -> SavingNs | None:
        """Without these causes there: see `Predictor.scope`. Removing waits looks at calls, removing device time at
        operations (and the calls that launched them), removing launch overhead at both."""
        key = ("without", tuple(causes), _digest(calls), _digest(operations), _digest(regions))
        where = {"calls": calls, "operations": operations, "regions": regions}
        answers = self._answers([_Question(key, Without(tuple(causes)), where)], is_wait="sync" in causes)
        return None if answers is None else answers[0]

    def without_waits(self, calls: Iterable[BoolArray]) -> list[SavingNs] | None:
        """Without the waits in each of these selections of calls: `without`, all replayed at once."""
        change = Without(("sync",))
        return self._answers(
            (_Question(("without", ("sync",), _digest(mask), None, None), change, {"calls": mask}) for mask in calls),
            is_wait=True,
        )

    def faster(self, operations: BoolArray, least: float, most: float) -> SavingNs | None:
        """With these operations (mask over ``trace.operations``) ``least`` to ``most`` times as fast."""
        digest = _digest(operations)
        asked = [_Question(("faster", factor, digest), Faster(operations, factor), {}) for factor in (least, most)]
        answers = self._answers(asked, is_wait=False)
        return None if answers is None else (answers[0][0], max(answers[0][1], answers[1][1]))

    def _answers(self, asked: Iterable[_Question], *, is_wait: bool) -> list[SavingNs] | None:
        """What each of these questions saves; those that are new are replayed at once."""
        if self.unreliable is not None:
            return None
        keys, new = [], dict[Key, ReplayStep]()
        for key, change, where in asked:
            keys.append(key)
            if key not in self._known and key not in new:
                new[key] = ReplayStep(change, self._predictor.scope(**where))
        if new:
            self._known |= dict(zip(new, self._ranges([*new.values()], is_wait=is_wait), strict=True))
            self.asked += len(new)
        return [self._known[key] for key in keys]

    def _ranges(self, steps: Sequence[ReplayStep], *, is_wait: bool) -> list[SavingNs]:
        """What each of these changes saves: all that decides it is replayed at once."""
        predictor = self._predictor
        waitless = predictor.without(("sync",))
        waits_matter = most_saved(predictor.measured_ns, waitless) >= WAITS_SHARE * self._longest_ns
        asked: list[list[ReplayStep]] = [[step] for step in steps]
        if self._has_open:
            asked += [[step, self._explained] for step in steps]
        if has_waits := waits_matter and not is_wait:
            asked += [[ReplayStep(Without(("sync",)), predictor.everywhere), step] for step in steps]
        if self._has_open and self._explained_ns is None:
            *left, self._explained_ns = predictor.ask(*asked, [self._explained])
        else:
            left = predictor.ask(*asked)
        ranges = []
        for number in range(len(steps)):
            alone, *others = left[number :: len(steps)]
            reach = OpenRange(most_saved(predictor.measured_ns, alone))
            if has_waits and reach.told_ns:
                reach = reach.between("waits-first", most_saved(waitless, others[-1]))
            if self._explained_ns is not None:
                # Explaining nothing away shortens the trace itself; only what the change adds to that is its doing.
                reach = reach.between("unexplained", most_saved(self._explained_ns, others[0]))
            ends = round(reach.low_ns * (1 - MODEL_ERROR)), round(reach.high_ns * (1 + MODEL_ERROR))
            reach = reach.reaching("model", ends[0], min(ends[1], self._longest_ns))
            ranges.append((reach.low_ns, reach.high_ns))
        return ranges


def _digest(mask: BoolArray | None) -> tuple[int, int] | None:
    """64 bits and a count tell a few hundred masks apart; hashlib would load OpenSSL first, for 10 ms."""
    return None if mask is None else (hash(np.packbits(mask).tobytes()), int(np.count_nonzero(mask)))
