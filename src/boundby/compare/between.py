"""Two reports in, a comparison out."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from boundby.compare import changes
from boundby.compare.comparability import doubts
from boundby.compare.findings import findings
from boundby.compare.matching import Match, Part, match, steps_of, tree
from boundby.compare.significance import adjust, significance
from boundby.model import stage
from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import SelectionError
from boundby.model.scale import NEGLIGIBLE
from boundby.results.comparison import Account, Comparison, DeviceChange, RegionChange, Side, Significance
from boundby.results.report import Coverage, DeviceReport, Report, ThreadReport

#: More than this of a device's launches or time without records: its window is no measure of the program.
LOST = NEGLIGIBLE
_NOT_TESTED = Significance("not_tested")


def compare(before: Report, after: Report, *, steps: str | None = None) -> Comparison:
    """What changed from one report to the other.

    ``steps``: a glob of the region that is the program's step, where the guess (the outermost repeated region that
    takes most) is wrong. Raises SelectionError if it matches no region of both.
    """
    matches = match(tree(before), tree(after))
    pair = _steps(matches, steps)
    regions = _regions(matches)
    devices = _devices(before, after, pair)
    matched = any(item.path and item.before is not None and item.after is not None for item in regions)
    return Comparison(
        before=_side(before),
        after=_side(after),
        devices=tuple(devices),
        regions=tuple(regions),
        findings=tuple(findings(before, after, regions)),
        outside=_outside(before, after, _runs(pair)),
        predictions=tuple(changes.predictions(before.what_if, devices, regions, [item.id for item in before.devices])),
        doubts=tuple(doubts(before, after, pair, matched)),
        steps=pair[1].path if pair else None,
    )


def _steps(matches: Sequence[Match], glob: str | None) -> tuple[Part, Part] | None:
    pairs = [(item.before, item.after) for item in matches if item.before is not None and item.after is not None]
    if glob is not None:
        for one, other in pairs:
            path = "/".join(other.path)
            if other.path and (
                glob in (path, other.label) or fnmatchcase(path, glob) or fnmatchcase(other.label, glob)
            ):
                return one, other
        raise SelectionError(f"No region that both reports have matches {glob!r}.", "Choose another with --steps.")
    partner = {id(other): one for one, other in pairs}
    # What repeats before must be matched; how often it repeats after is free.
    whole = next((other for _, other in pairs if not other.path), Part((), ""))
    found = steps_of([other for one, other in pairs if one.instances > 1], whole)
    if found is None:
        return None
    return partner[id(found)], found


def _side(report: Report) -> Side:
    total = sum(device.window_ns for device in report.devices) or sum(thread.total_ns for thread in report.threads)
    return Side(
        path=report.trace.path,
        command=report.trace.command,
        gpus=tuple(device.name for device in report.devices),
        nsys_version=report.trace.nsys_version,
        window=report.analysis.window,
        total_ns=total,
        found_high=sum(finding.severity == "high" for finding in report.findings),
    )


def _devices(before: Report, after: Report, steps: tuple[Part, Part] | None) -> list[DeviceChange]:
    """Devices by id where both have the same ones, else in order; without GPU work the threads together."""
    runs = _runs(steps)
    is_per_step = runs != (1, 1)
    if not before.devices and not after.devices:
        hosts = _host(before, runs[0]), _host(after, runs[1])
        return [DeviceChange(*hosts, is_per_step)] if any(hosts) else []
    result = []
    for one, other in _pairs(before.devices, after.devices):
        result.append(
            DeviceChange(
                _device(one, runs[0]) if one else None,
                _device(other, runs[1]) if other else None,
                is_per_step,
                one.gpu_utilization if one else None,
                other.gpu_utilization if other else None,
                _missing([one.coverage], [other.coverage], min(one.window_ns, other.window_ns))
                if one and other
                else None,
            )
        )
    return result


def _runs(steps: tuple[Part, Part] | None) -> tuple[int, int]:
    """How many steps each run took, where that differs; else each is one run."""
    if steps is not None and steps[0].instances != steps[1].instances and min(part.instances for part in steps):
        return steps[0].instances, steps[1].instances
    return 1, 1


def _outside(before: Report, after: Report, runs: tuple[int, int]) -> RegionChange | None:
    """What no range owns, in both."""
    accounts = []
    for report, times in zip((before, after), runs, strict=True):
        root = next((region for region in report.regions if not region.path), None)
        if root is None or len(report.regions) == 1:
            return None
        own = root.time_exclusive
        accounts.append(
            Account(name="(no range)", instances=times, total_ns=sum(own.values()), time=own, verdict=root.verdict)
        )
    one, other = accounts
    return RegionChange(before=one, after=other, domain="", matched_by=None, similarity=1.0, significance=_NOT_TESTED)


def _missing(before: Sequence[Coverage], after: Sequence[Coverage], total_ns: int) -> str | None:
    """Why two devices or regions, of the shorter one's time, cannot be compared: one lacks records of more than a
    little of its time or of its launches."""
    told = []
    for records, when in ((before, "before"), (after, "after")):
        lost, launches = (sum(getattr(part, name) for part in records) for name in ("launches_lost", "launches"))
        open_ns = sum(part.unrecorded_ns for part in records)
        if max(lost / max(launches, 1), open_ns / max(total_ns, 1)) > LOST:
            told.append(f"{lost:,} of {launches:,} launches {when} have no work on record")
    return ", ".join(told) or None


def _pairs(
    before: Sequence[DeviceReport], after: Sequence[DeviceReport]
) -> list[tuple[DeviceReport | None, DeviceReport | None]]:
    if {device.id for device in before} == {device.id for device in after}:
        later = {device.id: device for device in after}
        return [(device, later[device.id]) for device in before]
    longest = max(len(before), len(after))
    return [(before[i] if i < len(before) else None, after[i] if i < len(after) else None) for i in range(longest)]


def _device(device: DeviceReport, runs: int) -> Account:
    return Account(
        name=f"GPU {device.id}",
        instances=runs,
        total_ns=device.window_ns,
        time=device.time,
        sync_count=device.sync.count,
        verdict=device.verdict,
    )


def _host(report: Report, runs: int) -> Account | None:
    if not report.threads:
        return None
    longest: ThreadReport = max(report.threads, key=lambda thread: thread.total_ns)
    time = {key: sum(thread.time.get(key, 0) for thread in report.threads) for key in CAUSE_KEYS}
    total = sum(thread.total_ns for thread in report.threads)
    return Account(name="Host", instances=runs, total_ns=total, time=time, verdict=longest.verdict)


def _regions(matches: Sequence[Match]) -> list[RegionChange]:
    tested = [_significance(item) for item in matches]
    return [
        RegionChange(
            before=item.before.account() if item.before is not None else None,
            after=item.after.account() if item.after is not None else None,
            domain=(item.after or item.before or Part((), "")).domain,
            matched_by=item.how or None,
            similarity=item.score,
            significance=decided,
            why_not=_missing_of(item.before, item.after) if item.before and item.after else None,
        )
        for item, decided in zip(matches, adjust(tested), strict=True)
    ]


def _missing_of(one: Part, other: Part) -> str | None:
    before, after = ([member.coverage for member in part.members] for part in (one, other))
    return _missing(before, after, min(one.total_ns, other.total_ns))


def _significance(item: Match) -> tuple[Significance, float | None]:
    stage.check()
    one, other = item.before, item.after
    if one is None or other is None or not other.path:
        return _NOT_TESTED, None
    if not one.series("host") or not other.series("host"):
        return Significance("not_tested", reason="the durations of instances are not in the saved result"), None
    kind = _series(one, other)
    return significance(one.series(kind), other.series(kind), kind)


def _series(one: Part, other: Part) -> str:
    """Which durations stand for the region: those whose mean lies nearer to its account per instance.

    Where the host runs ahead of the device, how long it stays in a range says nothing of how long its work takes; where
    the device waits for the host inside the range, the span of its work leaves that out. Where work is missing, so is
    the end of that span.
    """
    if any(member.coverage.launches_lost for part in (one, other) for member in part.members):
        return "host"
    if min(len(one.series("projected")), len(other.series("projected"))) == 0 or not one.total_ns + other.total_ns:
        return "host"
    off = {kind: sum(_distance(part, kind) for part in (one, other)) for kind in ("projected", "host")}
    return "host" if off["host"] < off["projected"] else "projected"


def _distance(part: Part, kind: str) -> float:
    values = part.series(kind)
    each = part.total_ns / part.instances if part.instances else 0.0
    mean = sum(values) / len(values)
    return abs(mean - each) / max(mean, each, 1.0)
