"""Whether a program changes: where the halves of a window are not bound by the same, each has a verdict of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from boundby.attribution.timeline import DeviceTimeline, Timeline, part_of
from boundby.model.causes import CAUSES
from boundby.replay import Predictor, savings_by_cause
from boundby.results.report import Phase, Verdict, Window
from boundby.verdict.bound import CLOSE, Case
from boundby.verdict.verdict import judge

# Halves of which no cause's share is this far from the whole's are alike, unless the verdict is a close call.
ALIKE = 0.03
# A device with less work than this has no halves.
LEAST_OPERATIONS = 5

Describe = Callable[[Timeline, DeviceTimeline, dict[str, int] | None], Case]


def find_phases(
    timeline: Timeline,
    device: DeviceTimeline,
    whole: Case,
    verdict: Verdict,
    predictor: Predictor | None,
    case_of: Describe,
) -> tuple[Phase, ...]:
    """The halves of the device's window, each with its verdict, if one has another than the whole; else nothing.

    ``case_of`` describes a part of the window, as `whole` describes all of it. The replay is that of the whole trace.
    """
    middle = (device.low_ns + device.high_ns) // 2
    if whole.operations < LEAST_OPERATIONS or not device.low_ns < middle < device.high_ns:
        return ()
    parts = [part_of(timeline, device, *span) for span in ((device.low_ns, middle), (middle, device.high_ns))]
    cases = [case_of(part, part.devices[0], None) for part in parts]
    moved = max(abs(case.share(cause) - whole.share(cause)) for case in cases for cause in CAUSES)
    first, second, *_ = [*verdict.savings, None, None]
    lead = (first.saving_ns if first else 0) - (second.saving_ns if second else 0)
    if moved < ALIKE and lead >= CLOSE * whole.window_ns:
        return ()
    if predictor is not None and whole.replayed is not None:
        saved = [savings_by_cause(Predictor(part, predictor.graph))[device.index] for part in parts]
        cases = [case_of(part, part.devices[0], savings) for part, savings in zip(parts, saved, strict=True)]
    verdicts = [judge(case) for case in cases]
    if all(_names(half) & _names(verdict) for half in verdicts):
        return ()
    return tuple(_phases(device.shift.shift_ns, parts, verdicts))


def _names(verdict: Verdict) -> set[str]:
    return {verdict.bound, *(verdict.mixed_of or ())}


def _phases(shift_ns: int, parts: list[Timeline], verdicts: list[Verdict]) -> Iterator[Phase]:
    for part, verdict in zip(parts, verdicts, strict=True):
        span = Window(part.devices[0].low_ns - shift_ns, part.devices[0].high_ns - shift_ns)
        yield Phase(span, verdict.bound, verdict.confidence, verdict.saving_ns)
