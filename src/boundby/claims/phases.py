"""Parts of a window that have verdicts of their own: before and after a change of what bounds the program, and the
steady steps, with what the program does once before them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.regions import ROOT, Regions
from boundby.attribution.timeline import DeviceTimeline, Timeline, part_of
from boundby.claims.bound import CLOSE, BoundCase
from boundby.claims.verdict import judge
from boundby.correlation.starting import find_searches
from boundby.evidence.initialization import WARM_NAME
from boundby.model.arrays import Int64Array, group_counts, group_sums, median, merged, unique
from boundby.model.causes import CAUSES, Cause
from boundby.model.intervals import cut, inside
from boundby.model.scale import HABIT, HALF, NOTABLE, SLIGHT, SMALL
from boundby.model.statistics import FEWEST
from boundby.replay.counterfactuals import savings_by_cause
from boundby.replay.predictor import Predictor
from boundby.results.report import OneTimePart, Phase, Steady, Verdict, Window
from boundby.structure.steps import PORTIONS, Candidate, count_warm_up, find_steps
from boundby.trace.tables import Direction, OpKind

# Halves of which no cause's share is this far from the whole's are alike, unless the verdict is a close call.
ALIKE = SLIGHT
# A device with less work than this has no halves.
LEAST_OPERATIONS = HABIT
# The account over time, in which a change is looked for, is of so many pieces; neither part is shorter than this share.
PIECES, LEAST_PART = PORTIONS, NOTABLE
# A change moves a cause's share by so much, and at least this part of that within so much of the window around it.
CHANGES, AT_ONCE, NEAR = NOTABLE, HALF, SMALL
# A program of fewer steps is told by its halves alone.
LEAST_STEPS = HABIT

Float64Array = npt.NDArray[np.float64]
Describe = Callable[[Timeline, DeviceTimeline, dict[str, int] | None], BoundCase]


def find_phases(
    timeline: Timeline,
    device: DeviceTimeline,
    whole: BoundCase,
    verdict: Verdict,
    predictor: Predictor | None,
    case_of: Describe,
) -> tuple[Phase, ...]:
    """What lies before and after the device's work changes, each with its verdict, if one has another than the whole;
    else so its halves; else its first steps and the rest, if that has another; else nothing.

    ``case_of`` describes a part of the window, as `whole` describes all of it. The replay is that of the whole trace.
    """
    if whole.operations < LEAST_OPERATIONS:
        return ()
    middle, rest = (device.low_ns + device.high_ns) // 2, _after_first_steps(timeline, device)
    describe = (timeline, device, whole, verdict, predictor, case_of)
    for cut_ns in filter(None, (change_of(device), middle)):
        if phases := _parts(cut_ns, *describe, either=True):
            return phases
    return _parts(rest, *describe) if rest is not None else ()


def change_of(device: DeviceTimeline) -> int | None:
    """Where the device's account changes most: the cut that best parts the causes' shares, if they change right there.
    None: nowhere, or bit by bit."""
    low, high = float(device.low_ns), float(device.high_ns)
    piece = (high - low) / PIECES
    cut = _best_cut(device, np.linspace(low, high, PIECES + 1))
    near = np.linspace(max(cut - piece, low), min(cut + piece, high), PIECES + 1)
    cut = _best_cut(device, np.concatenate(([low], near[1:-1], [high])))
    if min(cut - low, high - cut) < LEAST_PART * (high - low):
        return None
    moved = np.abs(_shares(device, low, cut) - _shares(device, cut, high)).max()
    width = NEAR * (high - low)
    before, after = _shares(device, max(low, cut - width), cut), _shares(device, cut, min(high, cut + width))
    return round(cut) if moved >= CHANGES and np.abs(before - after).max() >= AT_ONCE * moved else None


def _best_cut(device: DeviceTimeline, edges: Float64Array) -> float:
    """The one of these times, from the window's start to its end, before and after which the causes' shares differ most
    for the lengths of both: what is left of their variance is least."""
    pieces = [device.segments.by_cause_between(round(a), round(b)) for a, b in itertools.pairwise(edges.tolist())]
    until_ns = np.cumsum(pieces, axis=0, dtype=np.float64)
    length, whole = (edges[1:-1] - edges[0])[:, None], edges[-1] - edges[0]
    differ = until_ns[:-1] / length - (until_ns[-1] - until_ns[:-1]) / (whole - length)
    gain = (differ**2).sum(axis=1) * (length * (whole - length))[:, 0]
    return float(edges[1:-1][np.argmax(gain)])


def _shares(device: DeviceTimeline, low: float, high: float) -> Float64Array:
    shares: Float64Array = device.segments.by_cause_between(round(low), round(high)) / max(high - low, 1)
    return shares


def _after_first_steps(timeline: Timeline, device: DeviceTimeline) -> int | None:
    """When those of the program's steps begin on the device that are no warm-up, all but the first one at the most."""
    step = timeline.step_region
    ranges, begins = timeline.trace.ranges, timeline.projected_start_ns
    if step is None:
        return None
    rows = np.flatnonzero((timeline.ownership.regions.of_range == step) & (begins < timeline.projected_end_ns))
    rows = rows[(begins[rows] >= device.low_ns) & (begins[rows] < device.high_ns)]
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    if len(rows) < LEAST_STEPS:
        return None
    return int(begins[rows[max(count_warm_up((ranges.end_ns - ranges.start_ns)[rows]), 1)]])


def _parts(
    cut_ns: int,
    timeline: Timeline,
    device: DeviceTimeline,
    whole: BoundCase,
    verdict: Verdict,
    predictor: Predictor | None,
    case_of: Describe,
    *,
    either: bool = False,
) -> tuple[Phase, ...]:
    """What lies before and after this time, if the later part (or either) is not bound by what the whole is."""
    if not device.low_ns < cut_ns < device.high_ns:
        return ()
    spans = [(device.low_ns, cut_ns), (cut_ns, device.high_ns)]
    judged = slice(0 if either else 1, None)
    saved_ns = [*(saving.saving_ns for saving in verdict.savings), 0, 0]
    may_be_alike = saved_ns[0] - saved_ns[1] >= CLOSE * whole.window_ns
    if may_be_alike and all(_most_moved(device, whole, *span) < ALIKE for span in spans[judged]):
        return ()  # without their accounts
    parts = [part_of(timeline, device, *span) for span in spans]
    cases = [case_of(part, part.devices[0], None) for part in parts]
    moved = max(abs(case.share(cause) - whole.share(cause)) for case in cases[judged] for cause in CAUSES)
    if moved < ALIKE and may_be_alike:
        return ()
    cases = [replayed_case(part, case, predictor, case_of) for part, case in zip(parts, cases, strict=True)]
    verdicts = [judge(case) for case in cases]
    if all(_names(part) & _names(verdict) for part in verdicts[judged] if part.bound != "unknown"):
        return ()
    return tuple(_phases(device.shift.shift_ns, parts, verdicts))


def replayed_case(part: Timeline, case: BoundCase, predictor: Predictor | None, case_of: Describe) -> BoundCase:
    """The case of a part with what its replay says, if that can be trusted; else as it is."""
    if predictor is None:
        return case
    of_part, (device,) = Predictor(part, predictor.graph), part.devices
    if of_part.unreliable is not None:  # as where the cut lies in a gap of which no replay knows anything
        return case
    return case_of(part, device, savings_by_cause(of_part)[device.index])


def _most_moved(device: DeviceTimeline, whole: BoundCase, low_ns: int, high_ns: int) -> float:
    """How far a cause's share of a part may be from the whole's, at most: the account is the whole's but for a gap at
    either end of the part, which is divided anew."""
    segments, gaps, own_ns = device.segments, device.gaps, high_ns - low_ns
    if 2 * own_ns <= device.high_ns - device.low_ns:
        time_ns = segments.by_cause_between(low_ns, high_ns)
    else:  # of all time less than the rest takes to look at
        time_ns = segments.by_cause() - segments.by_cause_between(device.low_ns, low_ns)
        time_ns -= segments.by_cause_between(high_ns, device.high_ns)
    unsure_ns = 0
    for bound in (low_ns, high_ns):
        at = int(np.searchsorted(gaps.start_ns, bound)) - 1
        if at >= 0 and gaps.end_ns[at] > bound:
            unsure_ns += min(int(gaps.end_ns[at]), high_ns) - max(int(gaps.start_ns[at]), low_ns)
    return max(abs(int(time_ns[cause]) / own_ns - whole.share(cause)) for cause in CAUSES) + unsure_ns / own_ns


def _names(verdict: Verdict) -> set[str]:
    return {verdict.bound, *(verdict.mixed_of or ())}


def _phases(shift_ns: int, parts: list[Timeline], verdicts: list[Verdict]) -> Iterator[Phase]:
    for part, verdict in zip(parts, verdicts, strict=True):
        span = Window(part.devices[0].low_ns - shift_ns, part.devices[0].high_ns - shift_ns)
        yield Phase(span, verdict.bound, verdict.confidence, verdict.saving_ns)


# Fewer steps than this are no pace.
LEAST_STEADY_STEPS = FEWEST
# What lies before the steady steps is worth a line if it takes so much of the window; they are if they take so much.
LEAST_ONCE, LEAST_STEADY = SMALL, NOTABLE
_NAMES = {
    Cause.INIT: "initialization",
    Cause.CPU: "host code",
    Cause.HOST_BLOCKED: "blocked",
    Cause.GPU_COMPUTE: "kernels",
}
_OTHER = "other"


class Split(Struct, frozen=True):
    """A device's window, cut where its steady part begins. Times are on the host's clock."""

    region: int  # the step's; ROOT: none is known to repeat
    begin_ns: int
    steady_ns: int
    end_ns: int
    period_ns: Int64Array  # of the steady steps, from one begin on the device to the next
    is_judged: bool  # the steady part is long enough for a verdict of its own


def split_off_steady(timeline: Timeline, device: DeviceTimeline) -> Split | None:
    """Where the steady part begins: behind what the program calls set-up or warm-up, and behind the first of its steps
    that take longer; None: it has neither, or nothing before it that counts, or does something else for longer after
    its steps."""
    named_ns = _named_until(timeline, device)
    region = timeline.step_region if named_ns is None else _step_after(timeline, named_ns)
    since_ns = device.low_ns if named_ns is None else named_ns
    steady_ns, end, period = _steady_steps(timeline, device, region, since_ns)
    if named_ns is None and not len(period):
        return None
    window_ns = device.high_ns - device.low_ns
    is_judged = end - steady_ns >= LEAST_STEADY * window_ns
    if steady_ns - device.low_ns < LEAST_ONCE * window_ns or not (is_judged or named_ns is not None):
        return None
    step = ROOT if region is None or not len(period) else region
    return Split(step, device.low_ns, steady_ns, end, period, is_judged)


def _steady_steps(
    timeline: Timeline, device: DeviceTimeline, region: int | None, since_ns: int
) -> tuple[int, int, Int64Array]:
    """When the steps of ``region`` are warm, when the last one ends, and how long each of them takes; without enough of
    them, or with something else for longer after them, all since ``since_ns``, and no step."""
    if region is not None:
        begins, last_ns = _steps(timeline, device, region, since_ns)
        periods = np.diff(np.append(begins, last_ns))
        first = count_warm_up(periods)
        if len(periods) - first >= LEAST_STEADY_STEPS and device.high_ns - last_ns <= last_ns - int(begins[first]):
            return int(begins[first]), last_ns, periods[first:]
    return since_ns, device.high_ns, np.empty(0, np.int64)


def _named_until(timeline: Timeline, device: DeviceTimeline) -> int | None:
    """When the last ends on the device that the program calls set-up or warm-up; None: nothing is, or most of what lies
    before that is something else."""
    warm = timeline.ownership.regions.where(WARM_NAME.search)
    rows = np.flatnonzero(warm[device.segments.region])
    if not len(rows):
        return None
    until_ns = int(device.segments.end_ns[rows[-1]])
    is_most = int(device.segments.length_ns[rows].sum()) > HALF * (until_ns - device.low_ns)
    return until_ns if is_most else None


def _step_after(timeline: Timeline, since_ns: int) -> int | None:
    """The region that is plainly the step of what is launched from an instant on; None: none is."""
    tree, ranges = timeline.ownership.regions, timeline.trace.ranges
    begun = timeline.projected_start_ns >= since_ns
    begun &= timeline.projected_start_ns < timeline.projected_end_ns
    late = timeline.trace.operations.start_ns >= since_ns
    instances = np.bincount(tree.of_range[begun], minlength=len(tree))
    time_ns = group_sums(tree.of_range[begun], ranges.end_ns[begun], len(tree), ranges.start_ns[begun])
    launches = tree.accumulate(group_counts(timeline.launch_region[late], len(tree)))
    columns = zip(instances.tolist(), time_ns.tolist(), launches.tolist(), strict=True)
    candidates = [Candidate(tree.path(number), *each) for number, each in enumerate(columns)]
    return find_steps(candidates, candidates[ROOT])


def _steps(timeline: Timeline, device: DeviceTimeline, step: int, since_ns: int) -> tuple[Int64Array, int]:
    """When each of the program's steps begins on the device from an instant on, in order, and when the last one ends;
    of several processes that work on it none."""
    begin, end = timeline.projected_start_ns, timeline.projected_end_ns
    rows = np.flatnonzero((timeline.ownership.regions.of_range == step) & (begin < end))
    rows = rows[(begin[rows] >= since_ns) & (end[rows] <= device.high_ns)]
    process = timeline.trace.process_of_thread[timeline.trace.ranges.thread[rows]]
    if not len(rows) or len(unique(process)) > 1 or process[0] not in unique(device.operations.table.process):
        return np.empty(0, np.int64), since_ns
    return merged(begin[rows]), int(end[rows].max())


def judge_steady(
    timeline: Timeline, device: DeviceTimeline, found: Split, predictor: Predictor | None, case_of: Describe
) -> Steady:
    """The steady part, with a verdict of its own; ``case_of`` describes a part of the window."""
    part = part_of(timeline, device, found.steady_ns, found.end_ns)
    verdict = judge(replayed_case(part, case_of(part, part.devices[0], None), predictor, case_of))
    shift_ns, steps = device.shift.shift_ns, len(found.period_ns)
    step_ns = round(float(median(found.period_ns))) if steps else None
    span = Window(found.steady_ns - shift_ns, found.end_ns - shift_ns)
    path = timeline.ownership.regions.path(found.region)
    return Steady(path, span, steps, step_ns, verdict.bound, verdict.confidence, verdict.saving_ns)


def one_time_parts(timeline: Timeline, device: DeviceTimeline, found: Split) -> tuple[OneTimePart, ...]:
    """What lies before the steady part, by what the program calls it, else by what it is, longest first; the parts sum
    to it."""
    low, high = found.begin_ns, found.steady_ns
    account = device.segments.between(low, high)
    searches = find_searches(timeline.trace, timeline.calls, timeline.call_range)
    start, end, row, searched = cut(account.start_ns, account.end_ns, inside(searches))
    names = {**_NAMES, Cause.GPU_COPY: "uploads" if _all_uploads(device, low, high) else "copies"}
    of_cause = np.array([names.get(cause, _OTHER) for cause in Cause], object)[account.cause[row]]
    of_region = _names_of(timeline.ownership.regions)[account.region[row]]
    name = np.where(of_region != "", of_region, np.where(searched >= 0, "autotuning", of_cause))
    parts = [(one, np.flatnonzero(name == one)) for one in sorted(set(name.tolist()))]
    shift_ns = device.shift.shift_ns
    told = [
        OneTimePart(
            one, Window(int(start[rows[0]]) - shift_ns, int(end[rows[-1]]) - shift_ns), _total(start, end, rows)
        )
        for one, rows in parts
    ]
    return tuple(sorted(told, key=lambda part: (part.name == _OTHER, -part.ns, part.name)))


def _total(start: Int64Array, end: Int64Array, rows: npt.NDArray[np.intp]) -> int:
    return int((end[rows] - start[rows]).sum())


def _names_of(regions: Regions) -> npt.NDArray[np.object_]:
    """Of each region the outermost name around it that says set-up or warm-up; empty: none does."""
    found = [""]
    for parent, name in zip(regions.parent[1:].tolist(), regions.name[1:], strict=True):
        found.append(found[parent] or (name if WARM_NAME.search(name) else ""))
    return np.array(found, object)


def _all_uploads(device: DeviceTimeline, low: int, high: int) -> bool:
    """Whether all copies in this span go to the device."""
    table = device.operations.table
    copies = (table.kind >= OpKind.MEMCPY) & (table.start_ns < high) & (table.end_ns > low)
    up = (table.direction[copies] == Direction.HTOD) & (table.kind[copies] == OpKind.MEMCPY)
    return bool(up.all())
