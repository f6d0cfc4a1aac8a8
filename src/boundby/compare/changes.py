"""What became of findings, and how predictions made on the earlier run fared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from boundby.model.causes import CAUSE_KEYS
from boundby.model.comparison import Account, DeviceChange, FindingChange, Prediction, RegionChange
from boundby.model.report import Finding, Report, WhatIf
from boundby.timeline.fold import fold_name

Path = tuple[str, ...]
#: The causes that a scenario takes away.
SCENARIO_CAUSES: Mapping[str, tuple[str, ...]] = {
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
#: A prediction is set against the measurement only if at least so much of its cause is gone: of a change that was
#: not made nothing can be learnt.
LEAST_REMOVED = 0.25
#: And if it had promised at least this part of the window.
LEAST_PROMISE = 0.02
WORTH_NAMING = 0.005  # of the time: smaller causes are not named
#: What other causes changed by, as a part of the whole change, from which on the prediction was not of what was done.
OTHERS = 0.25
#: And from which on nothing can be learnt of it.
MOSTLY_OTHERS = 0.5


def findings(before: Report, after: Report, regions: Sequence[RegionChange]) -> list[FindingChange]:
    """Findings of both reports, matched by rule and region: resolved, new and remaining ones, the most severe first."""
    renamed = {item.before.path: item for item in regions if item.before is not None}
    places: dict[tuple[str, Path | None], list[Finding]] = defaultdict(list)
    for finding in after.findings:
        places[finding.rule, _folded(finding.region)].append(finding)
    unchecked = {item.rule for item in after.not_checked}
    result = []
    for finding in before.findings:
        old = _folded(finding.region)
        change = renamed.get(old) if old is not None else None
        place = change.after.path if change is not None and change.after is not None else old
        later = places.get((finding.rule, place), [])
        if later:
            now = later.pop(0)
            result.append(FindingChange("remains", now, finding.saving_ns, now.saving_ns))
        elif finding.rule in unchecked:
            result.append(FindingChange("unchecked", finding, finding.saving_ns, None))
        else:
            gone = change is not None and bool(change.path) and change.after is None
            known = not gone and (not old or change is not None)
            measured = _shortened(before, after, change) if known else None
            result.append(FindingChange("resolved", finding, finding.saving_ns, None, measured, gone))
    left = [finding for found in places.values() for finding in found]
    result += [FindingChange("new", item, None, item.saving_ns) for item in after.findings if item in left]
    order = {"new": 0, "resolved": 1, "remains": 2, "unchecked": 3}
    return sorted(result, key=lambda item: order[item.status])


def _folded(path: Path | None) -> Path | None:
    return None if path is None else tuple(fold_name(name) for name in path)


def _shortened(before: Report, after: Report, change: RegionChange | None) -> int | None:
    """By how much the region's account (or all windows) became shorter, for as many instances as before."""
    if change is None or not change.path:
        total = sum(device.window_ns for device in before.devices)
        return total - sum(device.window_ns for device in after.devices) if total else None
    one, other = change.before, change.after
    if one is None:
        return None
    return one.total_ns - round((other.each_ns if other else 0.0) * one.instances)


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
            if item.device == number and item.scenario in SCENARIO_CAUSES:
                runs = one.instances or 1
                made = _prediction(one, other, item.scenario, item.baseline_ns / runs, item.predicted_ns / runs)
                found += [made] if made else []
    found.sort(key=lambda item: (item.subject, -item.removed * (item.baseline_ns - item.predicted_ns), item.scenario))
    inner = []
    for change in regions:
        one, other = change.before, change.after
        if one is None or other is None or not change.path or one.verdict.saving_ns is None:
            continue
        scenario = next((name for name, causes in SCENARIO_CAUSES.items() if causes == (one.verdict.bound,)), None)
        if scenario is not None and one.instances and one.verdict.decided_by == "replay":
            gone = one.verdict.saving_ns / one.instances
            made = _prediction(one, other, scenario, one.each_ns, max(one.each_ns - gone, 0.0))
            inner += [made] if made and not made.also else []
    return found + inner


def _prediction(one: Account, other: Account, scenario: str, baseline: float, predicted: float) -> Prediction | None:
    # Of a scenario of many causes, those that there were.
    causes = tuple(cause for cause in SCENARIO_CAUSES[scenario] if one.each_of(cause) >= WORTH_NAMING * one.each_ns)
    had = sum(one.each_of(cause) for cause in causes)
    has = sum(other.each_of(cause) for cause in causes)
    promise = baseline - predicted
    if had <= 0 or baseline <= 0 or promise < LEAST_PROMISE * baseline:
        return None
    removed = 1 - has / had
    if removed < LEAST_REMOVED:
        return None
    expected = baseline - removed * promise
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
