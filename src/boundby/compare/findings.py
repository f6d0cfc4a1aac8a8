"""What became of findings: matched by rule and place, then by places around each other, then by rule alone where the
place itself is new."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from boundby.results.comparison import FindingChange, RegionChange
from boundby.results.report import Finding, Report
from boundby.trace.vocabulary.ranges import fold_name

Path = tuple[str, ...]
#: A finding of a place that only the later run has is taken for one of the earlier run only if it promises no more
#: than so many times as much: what grew is told as new.
SAME_AT_MOST = 1.25
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")


def findings(before: Report, after: Report, regions: Sequence[RegionChange]) -> list[FindingChange]:
    """Findings of both reports: new, resolved, remaining ones and those that could not be checked, each most severe
    first."""
    renamed = {item.before.path: item for item in regions if item.before is not None}
    places: dict[tuple[str, Path | None], list[Finding]] = defaultdict(list)
    for finding in after.findings:
        places[finding.rule, _folded(finding.region)].append(finding)
    pairs: dict[int, FindingChange] = {}  # place among the earlier findings: what became of it
    for number, finding in enumerate(before.findings):
        change = _region_of(finding, renamed)
        place = change.after.path if change is not None and change.after is not None else _folded(finding.region)
        later = places.get((finding.rule, place), [])
        if later:
            now = later.pop(_most_alike(finding, later))
            pairs[number] = _remains(finding, now, _times(change))
    left = [item for item in after.findings if any(item is other for found in places.values() for other in found)]
    gone = [(number, item) for number, item in enumerate(before.findings) if number not in pairs]
    known = {item.after.path for item in regions if item.after is not None and item.before is not None}
    moved: list[FindingChange] = []
    for now in left:  # told of a place around the other, as most of it lies there now, it is one matter all the same
        around = [(n, one) for n, one in gone if n not in pairs and one.rule == now.rule and _is_nested(one, now)]
        if around:
            number, earlier = around[_most_alike(now, [item for _, item in around])]
            became = _remains(earlier, now, _times(_region_of(earlier, renamed)))
            parts = [one for one in left if one.rule == now.rule and _is_nested(earlier, one)]
            if became.trend == "improved" and not _is_less(earlier, parts):  # it was told in parts now
                became = replace(became, trend=None)
            pairs[number] = became
    left = [item for item in left if not any(item is change.finding for change in pairs.values())]
    gone = [(number, item) for number, item in gone if number not in pairs]
    for now in [item for item in left if _folded(item.region) not in known]:
        was = next((pair for pair in gone if pair[1].rule == now.rule and _promises_no_more(now, pair[1])), None)
        if was is not None:
            # Of several that one has become none can be held against it: no trend.
            moved.append(_kept(was[1], now))
            pairs.setdefault(was[0], moved[-1])
            left = [item for item in left if item is not now]
    unchecked = {item.rule for item in after.not_checked}
    ended = [
        FindingChange(status="unchecked", finding=finding, saving_before_ns=finding.saving_ns)
        if finding.rule in unchecked
        else _resolved(before, after, finding, _region_of(finding, renamed))
        for number, finding in enumerate(before.findings)
        if number not in pairs
    ]
    stayed = [change for number, change in sorted(pairs.items()) if not any(change is other for other in moved)]
    result = [FindingChange(status="new", finding=item, saving_after_ns=item.saving_ns) for item in left]
    result += [*_shared(ended), *stayed, *moved]
    order = {"new": 0, "resolved": 1, "remains": 2, "unchecked": 3}
    return sorted(result, key=lambda item: order[item.status])


def _region_of(finding: Finding, regions: Mapping[Path, RegionChange]) -> RegionChange | None:
    place = _folded(finding.region)
    return regions.get(place) if place is not None else None


def _folded(path: Path | None) -> Path | None:
    return None if path is None else tuple(fold_name(name) for name in path)


def _is_nested(one: Finding, other: Finding) -> bool:
    """Whether one's place lies in the other's; everything lies in none."""
    outer, inner = sorted((_folded(one.region) or (), _folded(other.region) or ()), key=len)
    return inner[: len(outer)] == outer


def _is_less(was: Finding, parts: Sequence[Finding]) -> bool:
    """Whether all of these together would save less than that by a quarter or more, as far as that is told."""
    now_ns = sum(one.saving_ns[1] for one in parts if one.saving_ns)
    return was.saving_ns is None or SAME_AT_MOST * now_ns < was.saving_ns[1]


def _most_alike(finding: Finding, later: Sequence[Finding]) -> int:
    """Of several of one rule in one place, the one that says the same with other figures; else the first."""
    said = _FIGURE.sub("#", finding.title)
    return next((number for number, item in enumerate(later) if _FIGURE.sub("#", item.title) == said), 0)


def _promises_no_more(now: Finding, was: Finding) -> bool:
    if now.saving_ns is None or was.saving_ns is None:
        return now.saving_ns is None and was.saving_ns is None
    return now.saving_ns[1] <= SAME_AT_MOST * was.saving_ns[1]


def _remains(was: Finding, now: Finding, times: float) -> FindingChange:
    """``times``: the place ran so many times as often before; costs are compared for as many runs."""
    costs = _costs(was, now)
    trend, is_cost_alike = None, False
    if costs is not None and costs[0] > 0:
        ratio = costs[1] * times / costs[0]
        evidence = _evidence(was, now)
        if evidence is not None and evidence[0] > 0 and ratio > 1:  # what it costs is as before: only others went
            cost = max(evidence[1] * times / evidence[0], 1.0)
            is_cost_alike = cost <= SAME_AT_MOST < ratio
            ratio = min(ratio, cost)
        trend = "improved" if ratio < 1 / SAME_AT_MOST else "worse" if ratio > SAME_AT_MOST else None
    return _kept(was, now, trend, is_cost_alike)


def _kept(was: Finding, now: Finding, trend: str | None = None, is_cost_alike: bool = False) -> FindingChange:
    return FindingChange(
        status="remains",
        finding=now,
        saving_before_ns=was.saving_ns,
        saving_after_ns=now.saving_ns,
        title_before=was.title,
        region_before=was.region,
        trend=trend,
        is_cost_alike=is_cost_alike,
    )


def _costs(was: Finding, now: Finding) -> tuple[float, float] | None:
    """What it could save at most, then and now; where that is not told, the longest time that both have as evidence."""
    if was.severity == now.severity == "note":
        return None
    if was.saving_ns and now.saving_ns:
        return was.saving_ns[1], now.saving_ns[1]
    return _evidence(was, now)


def _evidence(was: Finding, now: Finding) -> tuple[float, float] | None:
    """The longest time that both have as evidence."""
    times = {
        key: (float(value), float(later))
        for key, value in was.evidence.items()
        if key.endswith("_ns")
        and isinstance(value, int | float)
        and isinstance(later := now.evidence.get(key), int | float)
    }
    return max(times.values(), default=None)


def _resolved(before: Report, after: Report, finding: Finding, change: RegionChange | None) -> FindingChange:
    gone = change is not None and bool(change.path) and change.after is None
    resolved = FindingChange(
        status="resolved", finding=finding, saving_before_ns=finding.saving_ns, is_region_gone=gone
    )
    if gone or (finding.region and change is None):
        return resolved
    cause = _cause(finding.rule)
    return replace(
        resolved,
        measured_ns=_shortened(before, after, change),
        cause=cause,
        cause_ns=_shortened(before, after, change, cause) if cause else None,
    )


def _cause(rule_id: str) -> str | None:
    """The cause that the rule's remedy takes away: what its region has less of it is to its credit. None for rules
    that change several, and for rules that are not installed here: they are told with their region's whole time."""
    from boundby.rules.builtin import every  # 41 modules, for findings that are gone only

    return next((rule.cause.key for rule in every() if rule.id == rule_id and rule.cause is not None), None)


def _shortened(before: Report, after: Report, change: RegionChange | None, cause: str | None = None) -> int | None:
    """By how much the region's account (or all windows), or one cause of it, became shorter, for as many instances
    as before."""
    if change is None or not change.path:
        totals = [
            sum(device.time.get(cause, 0) if cause else device.window_ns for device in report.devices)
            for report in (before, after)
        ]
        return totals[0] - totals[1] if before.devices else None
    one, other = change.before, change.after
    if one is None:
        return None
    each = 0.0 if other is None else other.each_of(cause) if cause else other.each_ns
    return (one.time.get(cause, 0) if cause else one.total_ns) - round(each * one.instances)


def _shared(ended: Sequence[FindingChange]) -> list[FindingChange]:
    """With how many resolved findings share one measurement: none of them may take all the credit."""
    keys = [(_folded(item.finding.region), item.cause) for item in ended]
    count = Counter(
        key for key, item in zip(keys, ended, strict=True) if item.status == "resolved" and item.measured_ns is not None
    )
    return [replace(item, together=max(count[key], 1)) for key, item in zip(keys, ended, strict=True)]


def _times(change: RegionChange | None) -> float:
    """How many times as often a place ran before."""
    one, other = (change.before, change.after) if change is not None else (None, None)
    return one.instances / other.instances if one and other and one.instances and other.instances else 1.0
