"""How predictions made on the earlier run fared."""

from __future__ import annotations

from collections.abc import Sequence

from boundby.model.causes import BUSY_CAUSES, CAUSE_KEYS
from boundby.model.scale import HALF, HARDLY, QUARTER, SLIGHT
from boundby.model.scenarios import SCENARIO_OF_CAUSE, SCENARIOS
from boundby.results.comparison import Account, DeviceChange, Prediction, RegionChange
from boundby.results.report import WhatIf

#: A prediction is set against the measurement only if at least so much of its cause is gone: of a change that was
#: not made nothing can be learnt.
LEAST_REMOVED = QUARTER
#: And if it had promised at least this part of the window.
LEAST_PROMISE = SLIGHT
WORTH_NAMING = HARDLY  # of the time: smaller causes are not named
#: Work of the device itself.
DEVICE = {cause.key for cause in BUSY_CAUSES}
#: What other causes changed by, as a part of the whole change, from which on the prediction was not of what was done.
OTHERS = QUARTER
#: And from which on nothing can be learnt of it.
MOSTLY_OTHERS = HALF


def predictions(
    what_if: Sequence[WhatIf], devices: Sequence[DeviceChange], regions: Sequence[RegionChange], ids: Sequence[int]
) -> list[Prediction]:
    """Of each device every scenario whose cause is at least partly gone, then the verdicts of regions likewise.

    ``ids``: the earlier report's device ids, as ``devices`` begins.
    """
    found = []
    for number, device in zip(ids, devices, strict=False):
        one, other = device.before, device.after
        if one is None or other is None:
            continue
        for item in what_if:
            if item.device == number and item.scenario in SCENARIOS:
                runs = one.instances or 1
                made = _prediction(one, other, item.scenario, item.baseline_ns / runs, item.predicted_ns / runs)
                found += [made] if made else []
    found.sort(key=lambda item: (item.subject, -item.removed * (item.baseline_ns - item.predicted_ns), item.scenario))
    inner = []
    for change in regions:
        one, other = change.before, change.after
        if one is None or other is None or not change.path or one.verdict.saving_ns is None:
            continue
        scenario = SCENARIO_OF_CAUSE.get(one.verdict.bound)
        if scenario is not None and one.instances and one.verdict.decided_by == "replay":
            gone = one.verdict.saving_ns / one.instances
            made = _prediction(one, other, scenario, one.each_ns, max(one.each_ns - gone, 0.0))
            inner += [made] if made and not made.also else []
    return found + inner


def _prediction(one: Account, other: Account, scenario: str, baseline: float, predicted: float) -> Prediction | None:
    # Of a scenario of many causes, those that there were.
    causes = tuple(cause for cause in SCENARIOS[scenario].causes if one.each_of(cause) >= WORTH_NAMING * one.each_ns)
    had = sum(one.each_of(cause) for cause in causes)
    has = sum(other.each_of(cause) for cause in causes)
    promise = baseline - predicted
    if had <= 0 or baseline <= 0 or promise < LEAST_PROMISE * baseline:
        return None
    removed = 1 - has / had
    if removed < LEAST_REMOVED:
        return None
    # The longest way through a program is a convex function of what is on it: a part of a change saves no less than
    # that part of what all of it would; of the device's own work, which comes first, nearly all that is gone.
    gone = (had - has) if set(causes) <= DEVICE else 0.0
    expected = baseline - min(max(removed * promise, gone), promise)
    subject = "/".join(one.path) or one.name
    deltas = {cause: other.each_of(cause) - one.each_of(cause) for cause in CAUSE_KEYS}
    rest = {cause: delta for cause, delta in deltas.items() if cause not in causes}
    also: tuple[str, ...] = ()
    changed, other_changes = sum(map(abs, deltas.values())), sum(map(abs, rest.values()))
    if other_changes > MOSTLY_OTHERS * changed:
        return None
    if other_changes > OTHERS * changed:
        also = tuple(sorted((cause for cause in rest if rest[cause]), key=lambda cause: (-abs(rest[cause]), cause))[:2])
    return Prediction(subject, scenario, causes, baseline, predicted, removed, expected, other.each_ns, also)
