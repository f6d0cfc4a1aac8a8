"""Whether a program changes: where what lies before and after a change, the halves of a window, or what follows its
first steps are not bound by the same as the whole, the parts have verdicts of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import DeviceTimeline, Timeline, part_of
from boundby.claims.bound import CLOSE, BoundCase
from boundby.claims.verdict import judge
from boundby.model.causes import CAUSES
from boundby.model.scale import HABIT, HALF, NOTABLE, SLIGHT, SMALL
from boundby.replay.counterfactuals import savings_by_cause
from boundby.replay.predictor import Predictor
from boundby.results.report import Phase, Verdict, Window
from boundby.structure.steps import PORTIONS, count_warm_up

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
