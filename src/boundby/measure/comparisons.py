"""``compare``: do two results of one kind differ, or does it only look so?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from msgspec.structs import replace

from boundby.measure.latencies import LatencyRun
from boundby.measure.results import (
    SWEEPS,
    Compared,
    Devices,
    DeviceState,
    Latency,
    LatencyComparison,
    MeasuredOn,
    MeasureError,
    Methods,
    MethodsBySize,
    Mistake,
    Result,
    SizeChange,
    SizesComparison,
    StageChange,
    StagesComparison,
    StagesResult,
    StageTimes,
    Sweep,
    SweepSummary,
    Throughput,
    TimeOf,
)
from boundby.measure.sampling import MIN_SAMPLING_NS
from boundby.measure.target import Options
from boundby.model import statistics, units
from boundby.model.scale import NOTABLE, PLENTY

#: Resamples of the bootstrap: the ends of a 95 % interval then wobble by about a tenth of its width.
RESAMPLES = PLENTY
#: Turns that two functions take: what changes slowly (clocks, heat, other programs) then meets both.
ROUNDS = statistics.FEWEST
#: A turn takes at least this long, so that it does not consist of what the other one left in the caches.
_ROUND_NS = MIN_SAMPLING_NS

Measurable = tuple[Callable[..., object], tuple[Any, ...], Options]


@overload
def compare(a: StagesResult, b: StagesResult, *, confidence: float = ...) -> StagesComparison: ...
@overload
def compare(a: Latency | Methods, b: Latency | Methods, *, confidence: float = ...) -> LatencyComparison: ...
@overload
def compare(a: Sweep, b: Sweep, *, confidence: float = ...) -> SizesComparison: ...
@overload
def compare(a: Result, b: Result, *, confidence: float = ...) -> Compared: ...
def compare(a: Result, b: Result, *, confidence: float = 0.95) -> Compared:
    """Two latencies, measured or loaded: the ratio of their medians, its interval, and whether they differ.

    They differ significantly if both agree: the Mann-Whitney U test (two-sided, p below 1 - ``confidence``), which asks
    whether a sample of one tends to be larger, and the interval of the ratio of medians by a bootstrap of blocks, which
    does not take neighbouring samples for independent. Both see the spread within a measurement, and not what changes
    from one process to the next.

    Two pipelines are compared stage by stage; two results over sizes (of ``throughput``, ``devices`` or
    ``methods_by_size``) size by size, where two times differ if their intervals do not meet.

    Raises:
        MeasureError: they are of different kinds, or have nothing in common.
    """
    if isinstance(a, StagesResult) and isinstance(b, StagesResult):
        return _stages_compared(a, b, confidence)
    if isinstance(a, SWEEPS) and isinstance(b, SWEEPS) and type(a) is type(b):
        return _sizes_compared(a, b)
    latency_a, other = _latency(a), _latency(b)
    if latency_a is None or other is None:
        raise MeasureError(
            f"A result of kind {a.kind} and one of kind {b.kind} cannot be compared.",
            "Compare two that the same command saved: boundby measure latency, stages, throughput or devices.",
        )
    return _compared(latency_a, other, confidence, 0)


def _sizes_compared(a: Sweep, b: Sweep) -> SizesComparison:
    of_a, of_b = a.times, b.times
    changes = tuple(_size_change(*key, of_a[key], of_b[key]) for key in of_b if key in of_a)
    if not changes:
        raise MeasureError("The two have no size in common.", "Measure both at the same sizes, such as --size 16.")
    return SizesComparison(a.kind, _in_short(a), _in_short(b), changes, tuple(_unlike(a, b)))


def _in_short(sweep: Sweep) -> SweepSummary:
    if isinstance(sweep, Throughput):
        return SweepSummary(sweep.name, f"{sweep.device_name} ({sweep.device})", sweep.best, after=sweep.after)
    if isinstance(sweep, Devices):
        where = " and ".join(filter(None, (sweep.cpu_name, sweep.gpu_name)))
        has_gpu = sweep.gpu is not None
        return SweepSummary(sweep.name, where, break_even=sweep.break_even, has_gpu=has_gpu, after=sweep.after)
    last = sweep.points[-1].methods.best
    return SweepSummary(last.name, f"{last.device_name} ({last.device})", after=last.after)


def _size_change(size: int, what: str, one: TimeOf, other: TimeOf) -> SizeChange:
    """Two times differ if their intervals do not meet, which is less often than a test of both together would say."""
    low = high = differs = None
    if one.low_ns and one.high_ns and other.low_ns and other.high_ns:
        low, high = other.low_ns / one.high_ns, other.high_ns / one.low_ns
        differs = not low <= 1 <= high
    return SizeChange(size, what, one.median_ns, other.median_ns, low, high, differs)


def _stages_compared(a: StagesResult, b: StagesResult, confidence: float) -> StagesComparison:
    of_a, of_b = ({stage.name: stage for stage in side.stages} for side in (a, b))
    changes = tuple(_stage_change(of_a[name], of_b[name], confidence) for name in of_b if name in of_a)
    if not changes:
        raise MeasureError("The two pipelines have no stage in common.", "Give stages that do the same the same name.")
    mistakes = list(_unlike(a, b))
    if apart := [name for name in (*of_a, *of_b) if not (name in of_a and name in of_b)]:
        message = f"Only one of them has {', '.join(apart)}."
        mistakes.append(Mistake("not-alike", message, "Its time is in the whole only."))
    return StagesComparison(a, b, changes, confidence, tuple(mistakes))


def _stage_change(one: StageTimes, other: StageTimes, confidence: float) -> StageChange:
    """By the device's times where both spend any there, else by the host's."""
    times = [[float(ns) for ns in stage.device_ns or (0,)] for stage in (one, other)]
    on_device = min(map(statistics.median, times)) > 0
    if not on_device:
        times = [[float(ns) for ns in stage.host_ns] for stage in (one, other)]
    ratio, low, high, _, significant = _ratio(times[0], times[1], confidence)
    return StageChange(one.name, "device" if on_device else "host", ratio, low, high, significant)


def _ratio(
    first: Sequence[float], second: Sequence[float], confidence: float
) -> tuple[float, float, float, float | None, bool | None]:
    """The ratio of medians, its interval's ends, the test's p, and whether both say that they differ."""
    middle = statistics.median(first)
    ratio = statistics.median(second) / middle if middle else math.inf
    blocks = (math.isqrt(len(first)), math.isqrt(len(second)))
    low, high = statistics.median_ratio_interval(first, second, confidence, blocks, RESAMPLES) or (0.0, math.inf)
    enough = min(len(first), len(second)) >= statistics.MIN_FOR_TEST
    p_value = statistics.mann_whitney(first, second)[1] if enough else None
    return ratio, low, high, p_value, None if p_value is None else p_value < 1 - confidence and not low <= 1 <= high


def compare_in_turns(
    a: Measurable, b: Measurable, *, confidence: float = 0.95, rounds: int = ROUNDS
) -> LatencyComparison:
    """Measure two functions in turns, A B A B ..., and compare them. Each is (function, inputs, options).

    Each gets its first call and warm-up, then an equal part of its samples and its budget in every round.
    """
    runs = [LatencyRun(*a), LatencyRun(*b)]
    for run in runs:
        with run.entered():
            run.start()
    for _ in range(rounds):
        for run in runs:
            part = run.options.budget_ns // rounds
            with run.entered():
                run.take(math.ceil(run.options.least_samples / rounds), min(_ROUND_NS, part), part)
    for run in runs:
        with run.entered():
            run.finish()
    return _compared(runs[0].result(), runs[1].result(), confidence, rounds)


def _latency(result: Result) -> Latency | None:
    if isinstance(result, Methods):
        return result.latencies[-1]
    return result if isinstance(result, Latency) else None


def _compared(a: Latency, b: Latency, confidence: float, rounds: int) -> LatencyComparison:
    ratio, low, high, p_value, significant = _ratio(a.samples_ns, b.samples_ns, confidence)
    comparison = LatencyComparison(
        a=a,
        b=b,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        confidence=confidence,
        p_value=p_value,
        significant=significant,
        interleaved_rounds=rounds,
    )
    return replace(comparison, mistakes=tuple(_mistakes(comparison)))


def _mistakes(comparison: LatencyComparison) -> Iterator[Mistake]:
    a, b = comparison.a, comparison.b
    if comparison.significant is None:
        yield Mistake(
            "few-samples",
            f"{len(a.block_ns)} and {len(b.block_ns)} samples are too few for a test.",
            f"Take at least {statistics.MIN_FOR_TEST} of each.",
        )
    elif not comparison.significant:
        difference = units.change(comparison.ratio - 1).lstrip("+-")
        yield Mistake(
            "not-significant",
            f"The two do not differ significantly: the difference of {difference} is within the samples' own spread.",
            "Do not report it as a gain or a loss. More samples may tell (a larger budget).",
        )
    yield from _unlike(a, b)


def _unlike(a: Result, b: Result) -> Iterator[Mistake]:
    """Circumstances that are not the same: the machine, how it was measured, and the GPU's state."""
    of_a, of_b = _circumstances(a), _circumstances(b)
    for what, value_a in of_a.items():
        other = of_b.get(what, value_a)
        is_far = isinstance(value_a, float) and isinstance(other, float) and abs(other - value_a) > NOTABLE * value_a
        if value_a != other and (is_far or not isinstance(value_a, float)):
            shown = [f"{value:g}" if isinstance(value, float) else value for value in (value_a, other)]
            yield Mistake(
                "not-alike",
                f"They were measured with different {what} ({shown[0]} and {shown[1]}).",
                "Is that what you meant to compare?",
            )


def _circumstances(result: Result) -> dict[str, str | float]:
    """What it was measured on, and how: all that is told. What only one of two tells says nothing about them."""
    if isinstance(result, MethodsBySize):
        return _circumstances(result.points[-1].methods.best)
    machine: MeasuredOn | None = getattr(result, "machine", None)
    state: DeviceState | None = getattr(result, "after", None)
    facts: dict[str, str | float | None] = {
        "devices": getattr(result, "device_name", None),
        "CPUs": getattr(result, "cpu_name", None),
        "GPUs": getattr(result, "gpu_name", None),
        "methods": getattr(result, "method", None),
        "clocks": None if isinstance(result, Latency) else getattr(result, "clock", None),
        "modes": result.mode or "as found" if isinstance(result, Latency | Throughput | Devices) else None,
        "machines": machine.processor if machine else None,
        "versions of torch": str(machine.torch) if machine else None,
        "throttling": ", ".join(state.throttling or ()) or "none" if state else None,
        **{what: getattr(state, field, None) for what, field in STATE_FIGURES.items()},
    }
    return {what: value for what, value in facts.items() if value is not None}


#: Of a GPU's state: what it is called where two differ in it.
STATE_FIGURES: Mapping[str, str] = {
    "SM clocks, in MHz,": "sm_clock_mhz",
    "memory clocks, in MHz,": "memory_clock_mhz",
    "power limits, in W,": "power_limit_w",
    "performance states": "performance_state",
    "persistence modes": "persistence_mode",
}
