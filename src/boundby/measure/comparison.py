"""``compare``: do two latencies differ, or does it only look so?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from boundby.measure.latencies import LatencyRun
from boundby.measure.results import Comparison, Latency, MeasureError, Methods, Mistake, Result
from boundby.measure.target import Options
from boundby.model import statistics, units

#: Resamples of the bootstrap: the ends of a 95 % interval then wobble by about a tenth of its width.
RESAMPLES = 2000
#: Turns that two functions take: what changes slowly (clocks, heat, other programs) then meets both.
ROUNDS = 5
#: A turn takes at least this long, so that it does not consist of what the other one left in the caches.
_ROUND_NS = 100_000_000

Measurable = tuple[Callable[..., object], tuple[Any, ...], Options]


def compare(a: Result, b: Result, *, confidence: float = 0.95) -> Comparison:
    """Two latencies, measured or loaded: the ratio of their medians, its interval, and whether they differ.

    They differ significantly if both agree: the Mann-Whitney U test (two-sided, p below 1 - ``confidence``), which asks
    whether a sample of one tends to be larger, and the interval of the ratio of medians by a bootstrap of blocks, which
    does not take neighbouring samples for independent. Both see the spread within a measurement, and not what changes
    from one process to the next.

    Raises:
        MeasureError: they are no latencies.
    """
    return _compared(_latency(a), _latency(b), confidence, 0)


def compare_in_turns(a: Measurable, b: Measurable, *, confidence: float = 0.95, rounds: int = ROUNDS) -> Comparison:
    """Measure two functions in turns, A B A B ..., and compare them. Each is (function, inputs, options).

    Each gets its first call and warm-up, then an equal part of its samples and its budget in every round.
    """
    runs = [LatencyRun(*a), LatencyRun(*b)]
    for run in runs:
        with run.entered():
            run.start()
    for _ in range(rounds):
        for run in runs:
            part = run.plan.budget_ns // rounds
            with run.entered():
                run.take(math.ceil(run.plan.min_samples / rounds), min(_ROUND_NS, part), part)
    for run in runs:
        with run.entered():
            run.finish()
    return _compared(runs[0].result(), runs[1].result(), confidence, rounds)


def _latency(result: Result) -> Latency:
    if isinstance(result, Methods):
        return result.latencies[-1]
    if isinstance(result, Latency):
        return result
    raise MeasureError(f"Only latencies can be compared, not {type(result).__name__}.", "Compare two latencies.")


def _compared(a: Latency, b: Latency, confidence: float, rounds: int) -> Comparison:
    first, second = a.samples_ns, b.samples_ns
    blocks = (math.isqrt(len(first)), math.isqrt(len(second)))
    low, high = statistics.median_ratio_interval(first, second, confidence, blocks, RESAMPLES) or (0.0, math.inf)
    enough = min(len(first), len(second)) >= statistics.MIN_FOR_TEST
    test = statistics.mann_whitney(first, second) if enough else None
    significant = None if test is None else test[1] < 1 - confidence and not low <= 1 <= high
    comparison = Comparison(
        a=a,
        b=b,
        ratio=b.median_ns / a.median_ns,
        ratio_low=low,
        ratio_high=high,
        confidence=confidence,
        p_value=None if test is None else test[1],
        significant=significant,
        interleaved_rounds=rounds,
    )
    return replace(comparison, mistakes=tuple(_mistakes(comparison)))


def _mistakes(comparison: Comparison) -> Iterator[Mistake]:
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
    alike = (
        ("devices", f"{a.device_name} and {b.device_name}", a.device_name != b.device_name),
        ("methods", f"{a.method} and {b.method}", a.method != b.method),
        ("machines", f"{a.machine.processor} and {b.machine.processor}", a.machine.processor != b.machine.processor),
        ("modes", f"{a.mode or 'as found'} and {b.mode or 'as found'}", a.mode != b.mode),
        ("versions of torch", f"{a.machine.torch} and {b.machine.torch}", a.machine.torch != b.machine.torch),
    )
    for what, which, differ in alike:
        if differ:
            yield Mistake(
                "not-alike",
                f"They were measured with different {what} ({which}).",
                "Is that what you meant to compare?",
            )
