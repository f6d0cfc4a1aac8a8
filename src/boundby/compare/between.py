"""Two reports in, a comparison out: whether changes are more than chance, why runs may not be comparable, how
predictions made on the earlier run fared. And the same of two jobs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from boundby.claims.laws import of_verdict, of_what_if
from boundby.compare.gate import OPEN
from boundby.compare.matching import RegionMatch, TreePart, finding_changes, match, steps_of, tree
from boundby.model import stage, units
from boundby.model.causes import BUSY_CAUSES, CAUSE_KEYS, SCENARIO_OF_CAUSE, SCENARIOS
from boundby.model.errors import SelectionError
from boundby.model.scale import HABIT, HALF, HARDLY, MOST, NEGLIGIBLE, PLENTY, QUARTER, SLIGHT
from boundby.model.statistics import CONFIDENCE, FEWEST, Float, mann_whitney, median_ratio_interval, ranks, student_tail
from boundby.model.units import plural
from boundby.results.comparison import (
    Account,
    Comparison,
    DeviceChange,
    Doubt,
    Prediction,
    RegionChange,
    Side,
    Significance,
)
from boundby.results.job_report import (
    JobComparison,
    JobReport,
    JobSide,
    RankChange,
    RankReport,
    Straggler,
    StragglerChange,
)
from boundby.results.report import Coverage, DeviceReport, Report, ThreadReport, WhatIf
from boundby.trace.facts import PYTORCH, Captured
from boundby.trace.vocabulary.last_words import FAILED

# Whether instances of one run are typically longer than those of another, or differ by chance.
#
# The test is that of Brunner and Munzel (2000): it asks whether an instance of the one run is longer than one of the
# other more often than not, on ranks, so that no shape of the distribution is assumed and single slow instances count
# as one each; unlike the Mann-Whitney test it stays right where one run spreads more than the other. Neighbouring
# instances are alike in most programs (caches, clocks, data of similar size), so that n of them tell less than n
# independent ones would: variances are multiplied by each series' autocorrelation time, degrees of freedom divided by
# it. For a handful of instances, where its distribution is only approximate, the p-value is no smaller than that of
# the Mann-Whitney test, nor than what complete separation of so many would have.

#: Of falsely calling one region of a comparison changed, after adjusting for the number of regions tested.
LEVEL = NEGLIGIBLE
#: Smaller changes are not called changes, however sure: two runs of one program differ by as much (clocks, heat).
LEAST_CHANGE = NEGLIGIBLE
RESAMPLES = PLENTY


class Weighed(Struct, frozen=True):
    """``p_value`` two-sided; ``effective``: how many independent instances the two series are worth."""

    p_value: float
    effective: tuple[float, float]


def weigh(before: Sequence[float], after: Sequence[float]) -> Weighed:
    """Brunner and Munzel's test of two series in order of time."""
    earlier, later = np.asarray(before, float), np.asarray(after, float)
    sizes = (len(earlier), len(later))
    both = ranks(np.concatenate([earlier, later]))
    first, second = both[: sizes[0]], both[sizes[0] :]
    # Placements: how many of the other series lie below each value. Their variance is that of the statistic.
    place_one, place_other = first - ranks(earlier), second - ranks(later)
    inflation = (autocorrelation_time(earlier), autocorrelation_time(later))
    effective = (sizes[0] / inflation[0], sizes[1] / inflation[1])
    least = _separation(*effective)
    difference = float(second.mean() - first.mean())
    variances = (float(place_one.var(ddof=1)) * inflation[0], float(place_other.var(ddof=1)) * inflation[1])
    spread = sizes[0] * variances[0] + sizes[1] * variances[1]
    if difference == 0:
        return Weighed(1.0, effective)
    if spread == 0:  # no value of one lies among the other's
        return Weighed(least, effective)
    statistic = abs(difference) * sizes[0] * sizes[1] / (sum(sizes) * math.sqrt(spread))
    parts = (sizes[0] * variances[0], sizes[1] * variances[1])
    freedom = spread**2 / sum(part**2 / max(size - 1, 0.5) for part, size in zip(parts, effective, strict=True))
    exact_enough = student_tail(statistic, freedom)
    return Weighed(min(max(exact_enough, mann_whitney(earlier, later, inflation)[1], least), 1.0), effective)


def significance(before: Sequence[int], after: Sequence[int], series: str) -> tuple[Significance, float | None]:
    """The comparison of two series of durations, and its p-value before adjusting (None: nothing was tested)."""
    counts = (len(before), len(after))
    if min(counts) < FEWEST:
        reason = f"{min(counts)} instances are too few to tell: {FEWEST} are needed on both sides"
        medians = (float(np.median(before)) if before else None, float(np.median(after)) if after else None)
        return Significance("too_few", series, *counts, *medians, change=_change(*medians), reason=reason), None
    weighed = weigh(before, after)
    earlier, later = np.asarray(before, float), np.asarray(after, float)
    medians = (float(np.median(earlier)), float(np.median(later)))
    blocks = (_alike(earlier), _alike(later))
    interval = median_ratio_interval(earlier, later, CONFIDENCE, blocks, RESAMPLES)
    made = Significance(
        "same",
        series,
        *counts,
        *medians,
        change=_change(*medians),
        change_low=interval[0] - 1 if interval else None,
        change_high=interval[1] - 1 if interval else None,
        p_value=weighed.p_value,
    )
    if _separation(*weighed.effective) >= LEVEL:
        worth = min(weighed.effective)
        reason = f"instances drift together: {min(counts)} are worth {worth:.0f} independent ones, too few"
        return _with(made, "too_few", made.p_value, reason), None
    return made, weighed.p_value


def adjust(found: Sequence[tuple[Significance, float | None]]) -> list[Significance]:
    """Decide, after raising p-values for the number of regions tested (Benjamini and Hochberg), so that of two runs of
    one program any of many regions is called changed no more often than a single one would be."""
    tested = sorted(((p, index) for index, (_, p) in enumerate(found) if p is not None), reverse=True)
    result = [item for item, _ in found]
    adjusted = 1.0
    for rank, (p, index) in enumerate(tested):
        adjusted = min(adjusted, p * len(tested) / (len(tested) - rank))
        result[index] = _decided(result[index], adjusted)
    return result


def _decided(item: Significance, p_value: float) -> Significance:
    change = item.change or 0.0
    if p_value >= LEVEL:
        return _with(item, "same", p_value, "within the usual spread of instances")
    if abs(change) < LEAST_CHANGE:
        return _with(item, "same", p_value, f"two runs cannot show a change below {LEAST_CHANGE:.0%}")
    return _with(item, "faster" if change < 0 else "slower", p_value, "")


def _with(item: Significance, status: str, p_value: float | None, reason: str) -> Significance:
    return replace(item, status=status, p_value=p_value, reason=reason)


def _change(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


def autocorrelation_time(values: Float) -> float:
    """How many neighbours are worth one independent value (at least 1), on ranks.

    1 + twice the sum of autocorrelations, as long as sums of neighbouring pairs stay positive (Geyer's initial
    positive sequence) and exceed what chance gives the first of them. A trend shows as a long time, rightly.
    """
    size = len(values)
    centred = ranks(values) - (size + 1) / 2
    variance = float(centred @ centred)
    if size < FEWEST or variance == 0:
        return 1.0
    # The sample's own mean pulls each autocorrelation down by about 1/n; give it back.
    correlation = [float(centred[:-lag] @ centred[lag:]) / variance + 1 / size for lag in range(1, size // 2 + 1)]
    if abs(correlation[0]) < 1.0 / math.sqrt(size):  # nothing that chance does not give
        return 1.0
    total = 1.0
    for lag in range(0, len(correlation) - 1, 2):
        pair = correlation[lag] + correlation[lag + 1]
        if pair <= 0:
            break
        total += 2 * pair
    return min(max(total, 1.0), size / 2)


def _alike(values: Float) -> int:
    """How many neighbours are alike: a block of the bootstrap."""
    return min(math.ceil(autocorrelation_time(values)), len(values))


def _separation(one: float, other: float) -> float:
    """Two-sided chance that so many independent values of both separate completely."""
    total = math.lgamma(one + other + 1) - math.lgamma(one + 1) - math.lgamma(other + 1)
    return min(1.0, 2 * math.exp(-total))


# Why two reports may not be comparable, or only in part.

# Kernels, copies and syncs are left out: a program that makes none of them leaves the same trace as a capture without.
_KINDS = {
    "cuda_api": "CUDA calls",
    "nvtx": "NVTX ranges",
    "osrt": "OS runtime calls",
    "cpu_scheduling": "CPU scheduling",
    "cpu_samples": "CPU samples",
    "gpu_metrics": "GPU metrics",
}
#: What decides between the causes of idle time: without it on one side, shares move between them.
_DECIDES = ("cuda_api", "osrt", "cpu_scheduling", "cpu_samples")
#: Warnings of a trace that change what times mean.
_TELLING = ("clock-skew", "graph-level", *OPEN)


def doubts(before: Report, after: Report, steps: tuple[TreePart, TreePart] | None, matched: bool = True) -> list[Doubt]:
    """Everything that differs beside the program itself, in the order of how much it spoils. ``matched``: some region
    of the one is in the other."""
    return [
        *_ends(before, after),
        *_devices(before, after),
        *_windows(before, after),
        *_commands(before, after),
        *_programs(before, after, matched),
        *_captures(before, after),
        *_steps(steps),
        *_found(before, after),
        *_traces(before, after),
    ]


def _ends(before: Report, after: Report) -> Iterator[Doubt]:
    for which, report in (("earlier", before), ("later", after)):
        if (end := report.trace.program) is not None and end.ended == FAILED:
            said = f" ({end.words})" if end.words else ""
            text = f"The program of the {which} report failed{said}: it was measured only until then."
            yield Doubt(f"{which}-failed", text)


def _devices(before: Report, after: Report) -> Iterator[Doubt]:
    if bool(before.devices) != bool(after.devices):
        which = "earlier" if before.devices else "later"
        yield Doubt("gpu-work", f"Only the {which} report holds GPU work: their accounts are of different things.")
        return
    earlier, later = (Counter(device.name for device in report.devices) for report in (before, after))
    if set(earlier) != set(later):
        yield Doubt("gpu", f"Other GPUs: {_names(earlier)} before, {_names(later)} after.")
    elif earlier != later:
        yield Doubt("gpu-count", f"{plural(len(before.devices), 'GPU')} before, {len(after.devices)} after.")


def _names(counts: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(counts.items())) or "none"


def _windows(before: Report, after: Report) -> Iterator[Doubt]:
    earlier, later = before.analysis, after.analysis
    if earlier.window != later.window:
        yield Doubt("window", f"Other windows: {earlier.window} before, {later.window} after.")
    if earlier.skip_first != later.skip_first:
        first = plural(earlier.skip_first, "step")
        yield Doubt(
            "skip-first", f"Warm-up was left out differently: the first {first} before, {later.skip_first} after."
        )
    if (earlier.device_ids, earlier.process_ids) != (later.device_ids, later.process_ids):
        yield Doubt("selection", "Other devices or processes were chosen in the two.")
    if (earlier.region_glob, earlier.min_share) != (later.region_glob, later.min_share):
        yield Doubt("regions", "The two reports were limited to other regions: some may look new or gone.")
    rules = [(asked.rules_disabled, dict(asked.thresholds), asked.show_all) for asked in (earlier, later)]
    if rules[0] != rules[1]:
        yield Doubt("rules", "Findings were looked for by other rules or thresholds in the two.")


def _commands(before: Report, after: Report) -> Iterator[Doubt]:
    earlier, later = before.trace.command, after.trace.command
    if earlier != later and earlier is not None and later is not None:
        yield Doubt("command", "The commands differ.")
    elif (earlier is None) != (later is None):
        which = "earlier" if earlier is None else "later"
        yield Doubt("command-unknown", f"What ran is not recorded in the {which} report.")


def _programs(before: Report, after: Report, matched: bool) -> Iterator[Doubt]:
    """Nothing that both do: no region, and no kernel of those with most time."""
    earlier, later = before.trace.command, after.trace.command
    if matched or (earlier is not None and earlier == later):
        return
    kernels = [{top.name for device in report.devices for top in device.kernels.top} for report in (before, after)]
    if kernels[0] and kernels[1] and not kernels[0] & kernels[1]:
        yield Doubt(
            "program",
            "Two programs: no region is in both, and no kernel of those with most time. What differs is no change.",
        )


def _captures(before: Report, after: Report) -> Iterator[Doubt]:
    for report, other, when in ((before, after, "before"), (after, before, "after")):
        only = [key for key in _KINDS if _has(report.trace.captured, key) and not _has(other.trace.captured, key)]
        if not only:
            continue
        cost = "the profiler's own cost differs"
        if any(key in _DECIDES for key in only):
            cost = "idle time is told apart by other evidence, so causes can trade places"
        yield Doubt("capture", f"Captured only {when}: {', '.join(_KINDS[key] for key in only)}; {cost}.")
    yield from _profilers(before, after)


def _profilers(before: Report, after: Report) -> Iterator[Doubt]:
    """Who recorded the two, where it was not the same."""
    old, new = before.trace.nsys_version, after.trace.nsys_version
    if before.trace.source != after.trace.source and PYTORCH in (before.trace.source, after.trace.source):
        first, then = ("torch.profiler" if report.trace.source == PYTORCH else "nsys" for report in (before, after))
        yield Doubt("profiler", f"Two profilers: {first} before, {then} after; each one's own cost differs.")
    elif old and new and old != new:
        yield Doubt("nsys", f"Other versions of nsys: {old} before, {new} after.")


def _has(captured: Captured, key: str) -> bool:
    return bool(getattr(captured, key))


def _steps(steps: tuple[TreePart, TreePart] | None) -> Iterator[Doubt]:
    if steps is None or steps[0].instances == steps[1].instances:
        return
    name = "/".join(steps[1].path)
    ran = f"{name} ran {steps[0].instances} times before, {steps[1].instances} after"
    text = f"{ran}: the program's times are divided by these numbers."
    yield Doubt("steps", text)


def _found(before: Report, after: Report) -> Iterator[Doubt]:
    """Regions that boundby found have its names, given again in each report."""
    earlier, later = (
        {region.path: region.instances for region in report.regions if region.found} for report in (before, after)
    )
    if earlier != later:
        text = "Regions were found by repetition and named by boundby: that equal names mean the same code is a guess."
        yield Doubt("found-regions", text)


def _traces(before: Report, after: Report) -> Iterator[Doubt]:
    for code in _TELLING:
        earlier, later = (any(item.code == code for item in report.trace.warnings) for report in (before, after))
        if earlier != later:
            which = "earlier" if earlier else "later"
            yield Doubt(code, f"Only the {which} trace has the warning {code}: see there what it means.")


# How predictions made on the earlier run fared.

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
    predicted = list(_of_devices(what_if, zip(ids, devices, strict=False)))
    predicted.sort(
        key=lambda item: (item.subject, -item.removed * (item.baseline_ns - item.predicted_ns), item.scenario)
    )
    return [*predicted, *_of_regions(regions)]


def _of_devices(what_if: Sequence[WhatIf], devices: Iterable[tuple[int, DeviceChange]]) -> Iterator[Prediction]:
    for number, device in devices:
        earlier, later = device.before, device.after
        if earlier is None or later is None:
            continue
        runs = earlier.instances or 1
        for claim in of_what_if(item for item in what_if if item.device == number):
            made = _prediction(earlier, later, claim.change, earlier.total_ns / runs, claim.most_ns / runs)
            yield from [made] if made else []


def _of_regions(regions: Sequence[RegionChange]) -> Iterator[Prediction]:
    """What a replay claimed of the bounds of regions, where nothing else changed."""
    for change in regions:
        earlier, later = change.before, change.after
        if (
            earlier is None
            or later is None
            or not change.path
            or not earlier.instances
            or earlier.verdict.saving_ns is None
        ):
            continue
        for change_of_bound, promise_ns in _replayed(earlier):
            made = _prediction(earlier, later, SCENARIO_OF_CAUSE[change_of_bound], earlier.each_ns, promise_ns)
            yield from [made] if made and not made.also else []


def _replayed(region: Account) -> Iterator[tuple[str, float]]:
    """The change that takes a region's bound away, and what an instance would save at most, where a replay says so."""
    for claim in of_verdict(region.verdict, region.path):
        if claim.change == region.verdict.bound and claim.basis == "replay":
            yield claim.change, min(claim.most_ns / region.instances, region.each_ns)


def _prediction(one: Account, other: Account, scenario: str, baseline: float, promise: float) -> Prediction | None:
    # Of a scenario of many causes, those that there were.
    causes = tuple(cause for cause in SCENARIOS[scenario].causes if one.each_of(cause) >= WORTH_NAMING * one.each_ns)
    had = sum(one.each_of(cause) for cause in causes)
    has = sum(other.each_of(cause) for cause in causes)
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
    also = _also(one, other, causes)
    if also is None:
        return None
    predicted = baseline - promise
    return Prediction(subject, scenario, causes, baseline, predicted, removed, expected, other.each_ns, also)


def _also(one: Account, other: Account, causes: Collection[str]) -> tuple[str, ...] | None:
    """Which other causes changed, too, that most; none where it is little, None where it is most of the change."""
    deltas = {cause: other.each_of(cause) - one.each_of(cause) for cause in CAUSE_KEYS}
    rest = {cause: delta for cause, delta in deltas.items() if cause not in causes}
    changed, other_changes = sum(map(abs, deltas.values())), sum(map(abs, rest.values()))
    if other_changes > MOSTLY_OTHERS * changed:
        return None
    if other_changes <= OTHERS * changed:
        return ()
    return tuple(sorted((cause for cause in rest if rest[cause]), key=lambda cause: (-abs(rest[cause]), cause))[:2])


#: More than this of a device's launches or time without records: its window is no measure of the program.
LOST = NEGLIGIBLE
_NOT_TESTED = Significance("not_tested")


def compare(before: Report, after: Report, *, steps: str | None = None) -> Comparison:
    """What changed from one report to the other.

    ``steps``: a glob of the region that is the program's step, where the guess (the outermost repeated region that
    takes most) is wrong. Raises SelectionError if it matches no region of both.
    """
    matches = match(tree(before), tree(after))
    pair = _step_pair(matches, steps)
    unlike = _unlike_work(matches) if _runs(pair) == (1, 1) else []
    if unlike and all(
        earlier and later and _is_as_long(earlier, later) for earlier, later in _pairs(before.devices, after.devices)
    ):
        pair = _unit_of(matches, unlike) or pair
    regions = _regions(matches)
    devices = _device_changes(before, after, pair, _how_unlike(unlike))
    matched = any(item.path and item.before is not None and item.after is not None for item in regions)
    return Comparison(
        before=_side(before),
        after=_side(after),
        devices=tuple(devices),
        regions=tuple(regions),
        findings=tuple(finding_changes(before, after, regions)),
        outside=_outside(before, after, _runs(pair)),
        predictions=tuple(predictions(before.what_if, devices, regions, [item.id for item in before.devices])),
        doubts=tuple(doubts(before, after, pair, matched)),
        steps=pair[1].path if pair else None,
    )


def _is_called(part: TreePart, glob: str) -> bool:
    path = "/".join(part.path)
    names = (path, part.label)
    return bool(part.path) and (glob in names or any(fnmatchcase(name, glob) for name in names))


def _step_pair(matches: Sequence[RegionMatch], glob: str | None) -> tuple[TreePart, TreePart] | None:
    pairs = [(item.before, item.after) for item in matches if item.before is not None and item.after is not None]
    if glob is not None:
        chosen = next((pair for pair in pairs if _is_called(pair[1], glob)), None)
        if chosen is None:
            raise SelectionError(f"No region that both reports have matches {glob!r}.", "Choose another with --steps.")
        return chosen
    partner = {id(later): earlier for earlier, later in pairs}
    # What repeats before must be matched; how often it repeats after is free.
    whole = next((later for _, later in pairs if not later.path), TreePart((), ""))
    step_region = steps_of([later for earlier, later in pairs if earlier.instances > 1], whole)
    if step_region is None:
        return None
    return partner[id(step_region)], step_region


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
        run_ns=_run_ns(report),
    )


def _run_ns(report: Report) -> int | None:
    """How long the program ran, GPU work or not; None where the trace shows a part of it."""
    if report.trace.source == PYTORCH or report.trace.is_part or not report.devices:
        return None
    return max(device.startup_ns + device.window_ns + device.shutdown_ns for device in report.devices)


def _device_changes(
    before: Report, after: Report, steps: tuple[TreePart, TreePart] | None, unlike: str | None
) -> list[DeviceChange]:
    """Devices by id where both have the same ones, else in order; without GPU work the threads together. ``unlike``:
    why windows of one length cannot be compared."""
    is_per_step = _runs(steps) != (1, 1)
    runs = _runs_of_devices(steps, before, after)
    if not before.devices and not after.devices:
        hosts = _host(before, runs[0]), _host(after, runs[1])
        return [DeviceChange(*hosts, is_per_step)] if any(hosts) else []
    return [
        DeviceChange(
            _device(earlier, runs[0]),
            _device(later, runs[1]),
            is_per_step,
            getattr(earlier, "gpu_utilization", None),
            getattr(later, "gpu_utilization", None),
            _why_not(earlier, later, None if is_per_step else unlike),
        )
        for earlier, later in _pairs(before.devices, after.devices)
    ]


def _why_not(one: DeviceReport | None, other: DeviceReport | None, unlike: str | None) -> str | None:
    """Why two windows of a device cannot be compared."""
    if one is None or other is None:
        return None
    missing = _missing([one.coverage], [other.coverage], min(one.window_ns, other.window_ns))
    return missing or (unlike if _is_as_long(one, other) else None)


def _is_as_long(one: DeviceReport, other: DeviceReport) -> bool:
    return abs(other.window_ns - one.window_ns) < LEAST_CHANGE * one.window_ns


def _repeated(matches: Sequence[RegionMatch]) -> list[tuple[TreePart, TreePart]]:
    """The outermost regions that ran more than once in both."""
    return [
        (earlier, later)
        for item in matches
        if (earlier := item.before) is not None and (later := item.after) is not None
        if len(later.path) == 1 and min(earlier.instances, later.instances) > 1
    ]


def _unlike_work(matches: Sequence[RegionMatch]) -> list[tuple[TreePart, TreePart]]:
    """What repeats in both and ran unlike often, the most time first, where that is most of what repeats: windows of
    one length are then excerpts, cut off after a time, and their length says nothing of how long the work takes."""
    repeated = _repeated(matches)
    unlike = [pair for pair in repeated if pair[0].instances != pair[1].instances]
    if sum(other.total_ns for _, other in unlike) <= HALF * sum(other.total_ns for _, other in repeated):
        return []
    return sorted(unlike, key=lambda pair: (-pair[1].total_ns, pair[1].path))


def _unit_of(
    matches: Sequence[RegionMatch], unlike: Sequence[tuple[TreePart, TreePart]]
) -> tuple[TreePart, TreePart] | None:
    """What two excerpts can be compared by: the region that takes most, if nearly all that repeats ran so much more or
    less often as it did, but for one unit at the windows' edges. The same work was then done at another rate."""
    first_before, other = unlike[0]
    rate = other.instances / first_before.instances
    repeated = _repeated(matches)
    alike = sum(
        later.total_ns
        for earlier, later in repeated
        if abs(later.instances - rate * earlier.instances) <= earlier.instances / first_before.instances
    )
    return (first_before, other) if alike >= MOST * sum(later.total_ns for _, later in repeated) else None


def _how_unlike(unlike: Sequence[tuple[TreePart, TreePart]]) -> str | None:
    if not unlike:
        return None
    earlier, later = unlike[0]
    often = f"{later.label} ran {earlier.instances:,} times before and {later.instances:,} times after"
    return f"both windows are equally long but hold different work: {often}"


def _runs(steps: tuple[TreePart, TreePart] | None) -> tuple[int, int]:
    """How many steps each run took, where that differs; else each is one run."""
    if steps is not None and steps[0].instances != steps[1].instances and min(part.instances for part in steps):
        return steps[0].instances, steps[1].instances
    return 1, 1


def _runs_of_devices(steps: tuple[TreePart, TreePart] | None, before: Report, after: Report) -> tuple[float, float]:
    """How many of the steps each device took: where each has threads of its own, each takes its share."""
    runs = _runs(steps)
    if steps is None or runs == (1, 1):
        return runs
    counts = (len(report.devices) for report in (before, after))
    threads = (max((member.threads for member in step.members), default=1) for step in steps)
    own = [many if of_threads >= many > 1 else 1 for many, of_threads in zip(counts, threads, strict=True)]
    return runs[0] / own[0], runs[1] / own[1]


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
    earlier, later = accounts
    return RegionChange(
        before=earlier, after=later, domain="", matched_by=None, similarity=1.0, significance=_NOT_TESTED
    )


def _missing(before: Sequence[Coverage], after: Sequence[Coverage], total_ns: int) -> str | None:
    """Why two devices or regions, of the shorter one's time, cannot be compared: one lacks records of more than a
    little of its time or of its launches."""
    parts = []
    for records, when in ((before, "before"), (after, "after")):
        lost, launches = (sum(getattr(part, name) for part in records) for name in ("launches_lost", "launches"))
        open_ns = sum(part.unrecorded_ns for part in records)
        if max(lost / max(launches, 1), open_ns / max(total_ns, 1)) > LOST:
            parts.append(f"{lost:,} of {launches:,} launches {when} have no work on record")
    return ", ".join(parts) or None


def _pairs(
    before: Sequence[DeviceReport], after: Sequence[DeviceReport]
) -> list[tuple[DeviceReport | None, DeviceReport | None]]:
    if {device.id for device in before} == {device.id for device in after}:
        later = {device.id: device for device in after}
        return [(device, later[device.id]) for device in before]
    longest = max(len(before), len(after))
    return [(before[i] if i < len(before) else None, after[i] if i < len(after) else None) for i in range(longest)]


def _device(device: DeviceReport | None, runs: float) -> Account | None:
    if device is None:
        return None
    return Account(
        name=f"GPU {device.id}",
        instances=runs,
        total_ns=device.window_ns,
        time=device.time,
        sync_count=device.sync.count,
        verdict=device.verdict,
    )


def _host(report: Report, runs: float) -> Account | None:
    if not report.threads:
        return None
    longest: ThreadReport = max(report.threads, key=lambda thread: thread.total_ns)
    time = {key: sum(thread.time.get(key, 0) for thread in report.threads) for key in CAUSE_KEYS}
    total = sum(thread.total_ns for thread in report.threads)
    return Account(name="Host", instances=runs, total_ns=total, time=time, verdict=longest.verdict)


def _regions(matches: Sequence[RegionMatch]) -> list[RegionChange]:
    tested = [_significance(item) for item in matches]
    return [
        RegionChange(
            before=item.before.account() if item.before is not None else None,
            after=item.after.account() if item.after is not None else None,
            domain=(item.after or item.before or TreePart((), "")).domain,
            matched_by=item.how or None,
            similarity=item.score,
            significance=decided,
            why_not=_missing_of(item.before, item.after) if item.before and item.after else None,
        )
        for item, decided in zip(matches, adjust(tested), strict=True)
    ]


def _missing_of(one: TreePart, other: TreePart) -> str | None:
    before, after = ([member.coverage for member in part.members] for part in (one, other))
    return _missing(before, after, min(one.total_ns, other.total_ns))


def _significance(item: RegionMatch) -> tuple[Significance, float | None]:
    stage.check()
    earlier, later = item.before, item.after
    if earlier is None or later is None or not later.path:
        return _NOT_TESTED, None
    if not earlier.series("host") or not later.series("host"):
        return Significance("not_tested", reason="the durations of instances are not in the saved result"), None
    kind = _series(earlier, later)
    return significance(earlier.series(kind), later.series(kind), kind)


def _series(one: TreePart, other: TreePart) -> str:
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


def _distance(part: TreePart, kind: str) -> float:
    values = part.series(kind)
    each = part.total_ns / part.instances if part.instances else 0.0
    mean = sum(values) / len(values)
    return abs(mean - each) / max(mean, each, 1.0)


# Two jobs of many ranks set side by side: their steps, where the ranks' time goes, who holds them up.


def compare_jobs(before: JobReport, after: JobReport) -> JobComparison:
    """What changed. By step where both have steps, else over the whole run."""
    by_step = min(before.steps, after.steps) >= 2
    one, other = (_job_side(job, by_step=by_step) for job in (before, after))
    series = [_step_lengths(job) if by_step else [] for job in (before, after)]
    tested = adjust([significance(series[0], series[1], "projected")])[0]
    if by_step and one.step_ns and other.step_ns:
        change = other.step_ns / one.step_ns - 1
    else:
        tested = Significance("not_tested", reason="no steps were told apart")
        change = after.length_ns / before.length_ns - 1 if before.length_ns else 0.0
    ranks = [_by_number(job) for job in (before, after)]
    per = [_per(job, by_step=by_step) for job in (before, after)]
    return JobComparison(
        before=one,
        after=other,
        change=change,
        significance=tested,
        stragglers=tuple(_stragglers(before, after)),
        ranks=tuple(
            RankChange(
                number,
                *(sum(side[number].own.values()) / parts for side, parts in zip(ranks, per, strict=True)),
                *(side[number].wait_ns / parts for side, parts in zip(ranks, per, strict=True)),
            )
            for number in sorted(ranks[0].keys() & ranks[1].keys())
        ),
        notes=tuple(_notes(before, after)),
    )


def _per(job: JobReport, *, by_step: bool) -> int:
    return max(job.steps * job.steps_together, 1) if by_step else 1


def _job_side(job: JobReport, *, by_step: bool) -> JobSide:
    parts = _per(job, by_step=by_step) * max(len(job.ranks), 1)
    lengths = _step_lengths(job) if by_step else []
    return JobSide(
        path=job.path,
        ranks=len(job.ranks),
        length_ns=job.length_ns,
        step_ns=float(np.median(lengths)) if lengths else None,
        own={key: round(sum(rank.own[key] for rank in job.ranks) / parts) for key in CAUSE_KEYS},
        transfer_ns=sum(rank.transfer_ns for rank in job.ranks) / parts,
        wait_ns=sum(rank.wait_ns for rank in job.ranks) / parts,
        imbalance=job.imbalance,
        bound=job.verdict.bound,
        confidence=job.verdict.confidence,
    )


def _step_lengths(job: JobReport) -> list[int]:
    """How long each step took: the ranks' own work and waits in it, on average. Not the first, in which ranks begin
    at different times, nor the last, of which a part may lack."""
    table = np.array([np.add(rank.steps, rank.step_waits) for rank in job.ranks if len(rank.steps) == job.steps])
    if not len(table):
        return []
    lengths: list[int] = np.round(table.mean(axis=0) / job.steps_together).astype(np.int64).tolist()
    return lengths[1:-1] if len(lengths) > HABIT else lengths


def _by_number(job: JobReport) -> dict[int, RankReport]:
    return {index if rank.rank is None else rank.rank: rank for index, rank in enumerate(job.ranks)}


def _stragglers(before: JobReport, after: JobReport) -> list[StragglerChange]:
    """Matched by what they are, who, and the cause. Their ranks by number."""

    def keyed(job: JobReport) -> dict[tuple[str, tuple[int, ...], str], Straggler]:
        numbers = list(_by_number(job))
        numbered = [
            replace(straggler, ranks=tuple(numbers[index] for index in straggler.ranks)) for straggler in job.stragglers
        ]
        return {(straggler.kind, straggler.ranks, straggler.cause): straggler for straggler in numbered}

    old, new = keyed(before), keyed(after)
    changes = [StragglerChange("resolved", straggler, None) for key, straggler in old.items() if key not in new]
    changes += [StragglerChange("new", None, straggler) for key, straggler in new.items() if key not in old]
    return changes + [StragglerChange("stays", straggler, new[key]) for key, straggler in old.items() if key in new]


def _notes(before: JobReport, after: JobReport) -> Sequence[str]:
    notes = []
    if len(before.ranks) != len(after.ranks):
        notes.append(f"They have {len(before.ranks)} and {units.plural(len(after.ranks), 'rank')}.")
    devices = [sorted({rank.device for rank in job.ranks}) for job in (before, after)]
    if devices[0] != devices[1]:
        notes.append(f"They ran on {', '.join(devices[0]) or 'no GPU'} and on {', '.join(devices[1]) or 'no GPU'}.")
    for job, which in ((before, "first"), (after, "second")):
        if job.missing or job.left_out:
            lacking = units.plural(len(job.missing) + len(job.left_out), "rank")
            notes.append(f"Of the {which} job {lacking} could not be used.")
    return notes
