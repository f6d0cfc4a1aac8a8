"""Blocks of calls, timed: by which clock, how many calls each, after how much warm-up (settled by change detection),
and how many blocks.

Every sample begins on an idle device, as a caller that waits for its result finds it. What a program gains by running
ahead of its device belongs to throughput (``sweeps.py``) and to ``stages``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from msgspec import Struct, field

from boundby.measure.device import Device
from boundby.measure.results import EVENT, NAIVE, SYNCHRONISED
from boundby.model import statistics
from boundby.model.scale import MANY, NEGLIGIBLE, NOTABLE, QUARTER
from boundby.model.statistics import Numbers

# When has a series of times settled? Change detection, instead of a fixed number of warm-up calls.
#
# The rule is the marginal standard error rule (MSER; White, "An effective truncation heuristic for bias reduction in
# simulation output", 1997): leave out the first d values, for the d that makes the squared standard error of the mean
# of the rest smallest. As long as values at the start differ from the later ones, leaving them out lowers the variance
# by more than the loss of values raises it. Two additions for times:
#
# - single slow values (a page fault, another process) are clipped, or the rule would cut after each of them; -
# differences of less than ``TOLERANCE`` do not matter, so a drift of a thousandth does not warm up for ever.

#: Fewer values show nothing: every second of them would have to be alike by chance.
MIN_STEADY = statistics.MIN_FOR_TEST
#: Fraction of the median below which a difference between early and late values does not matter.
TOLERANCE = NEGLIGIBLE
#: Values further from the median of the later half than this many of its deviations are clipped, but none within
#: ``CLIP_LEAST`` of it: the deviation of four values can be small by chance.
CLIP_DEVIATIONS = statistics.OUTLYING


def cut(series: Numbers) -> int:
    """How many values at the start to leave out: 0 where they are like the rest."""
    values = np.asarray(series, dtype=np.float64)
    number = len(values)
    if number < 2:
        return 0
    late = values[number // 2 :]
    middle = float(np.median(late))
    deviation = float(np.median(np.abs(late - middle))) * statistics.MAD_TO_STD
    reach = max(CLIP_DEVIATIONS * deviation, NOTABLE * abs(middle))
    clipped = np.clip(values - middle, -reach, reach)
    left = np.arange(number, 0, -1)  # how many remain when the first d are left out
    sums = np.cumsum(clipped[::-1])[::-1]
    squares = np.cumsum((clipped**2)[::-1])[::-1]
    variance = np.maximum(squares / left - (sums / left) ** 2, 0.0) + (TOLERANCE * middle) ** 2
    errors = variance / left
    # The last values are too few to have a variance worth the name.
    searched = max(1, number - max(2, number // 8))
    return int(np.argmin(errors[:searched]))


def steady_from(series: Numbers) -> int | None:
    """The index from which ``series`` is steady, or None if it is not, or not yet known.

    It is when at least ``MIN_STEADY`` values are left after the cut, and no fewer than were cut off.
    """
    number = len(series)
    if number < MIN_STEADY:
        return None
    index = cut(series)
    left = number - index
    return index if left >= MIN_STEADY and left >= index else None


Function = Callable[..., object]

#: A block takes at least this long: the clock costs about 100 ns, which is then a two-thousandth.
MIN_BLOCK_NS = 200_000
#: How far a block's size may be off after warm-up before it is chosen again.
MAX_CALLS_PER_SAMPLE = 1_000_000
#: Inputs made ahead for one block, where each call gets its own.
MAX_FRESH_PER_SAMPLE = 64
#: Clocks of a CPU that was idle need some milliseconds to come up, however short a call is.
MIN_WARMUP_NS = 20_000_000
#: Sampling goes on at least for this long, however soon the interval is narrow: a few milliseconds see one state
#: of the machine only. It is the least that Timer.blocked_autorange takes too.
MIN_SAMPLING_NS = 200_000_000
#: Samples in which torch.compile worked are warm-up, but not for ever: some programs compile at every call.
MAX_RECOMPILED = MANY
#: Samples at the start that are slower than the rest by this factor are warm-up that was not seen in time.
LATE_WARMUP = 1 + QUARTER
#: The samples are looked at again when there are this many times as many.
_GROWTH = 1 + QUARTER


class SamplingPlan(Struct, frozen=True, kw_only=True):
    """How much is measured, and when it is enough."""

    min_samples: int = 30
    max_samples: int = 10_000
    confidence: float = 0.95
    precision: float = 0.01  # half width of the median's interval, as a fraction of it
    budget_s: float = 5.0
    warmup: bool | int = True  # True: until steady; a number: so many calls
    calls_per_sample: int | None = None  # None: as many as fill MIN_BLOCK_NS

    @property
    def budget_ns(self) -> int:
        return round(self.budget_s * 1e9)

    @property
    def least_samples(self) -> int:
        return min(self.min_samples, self.max_samples)


class TimedCall(Struct):
    """A function with its inputs, and what is done before each call but not timed."""

    function: Function
    inputs: tuple[Any, ...]
    fresh: Callable[[], tuple[Any, ...]] | None = None  # makes the inputs of one call
    flush: bool = False
    prepare: Callable[[], object] | None = None  # such as dropping gradients

    @property
    def one_by_one(self) -> bool:
        """Whether something must happen between two calls, so that a sample can hold one only."""
        return self.flush or self.prepare is not None


class Warmup(Struct):
    """What warm-up took."""

    ns: list[float] = field(default_factory=list)
    calls: int = 0
    is_steady: bool | None = None


class Sampler(Struct, dict=True):
    """Times blocks of one call on one device. ``compiled`` counts torch.compile's graphs; a block in which one was
    made belongs to warm-up."""

    call: TimedCall
    device: Device
    method: str
    plan: SamplingPlan
    compiled: Callable[[], int] = int
    calls_per_sample: int = 1
    blocks: list[int] = field(default_factory=list)
    host_blocks: list[int] = field(default_factory=list)
    warmup: Warmup = field(default_factory=Warmup)
    recompiled: int = 0  # samples that became warm-up

    def __post_init__(self) -> None:
        self._begin, self._end = self.device.mark(), self.device.mark()
        self._call_ns = 0.0  # one call with everything it waits for, as far as known

    def warm_up(self) -> None:
        """Choose the block's size and call until times have settled, or as often as the plan says."""
        plan = self.plan
        if plan.warmup is True:
            self._choose_calls(plan.budget_ns // 4)
            self._until_steady(plan.budget_ns // 2)
            return
        for _ in range(int(plan.warmup)):
            self._warm(self._block(1, self._patient)[0], 1)
        if plan.warmup:  # with none at all, the first sample shall be the first call
            self._choose_calls(plan.budget_ns // 4)
        else:
            self.calls_per_sample = plan.calls_per_sample or 1

    def sample(self) -> str:
        """Add samples until there are enough, and say what ended it: "precision", "max_samples" or "budget"."""
        plan, began, check = self.plan, self.device.now_ns(), self.plan.least_samples
        try:
            while True:
                self._one_sample()
                number, spent = len(self.blocks), self._spent(began, len(self.blocks))
                if spent >= plan.budget_ns and number:
                    return "budget"
                if number >= check and spent >= min(MIN_SAMPLING_NS, plan.budget_ns):
                    if not self._trim() and self._is_precise():
                        return "precision"
                    check = max(plan.least_samples, math.ceil(len(self.blocks) * _GROWTH))
                if number >= plan.max_samples:
                    return "max_samples"
        finally:
            self.device.synchronize()  # the naive method leaves work behind

    def take(self, least: int, least_ns: int, most_ns: int) -> str:
        """One turn of several: ``least`` samples, more until ``least_ns`` have passed, fewer if ``most_ns`` have."""
        began, had = self.device.now_ns(), len(self.blocks)
        try:
            while True:
                self._one_sample()
                taken = len(self.blocks) - had
                spent = self._spent(began, taken)
                if taken and spent >= most_ns:
                    return "budget"
                if (taken >= least and spent >= least_ns) or len(self.blocks) >= self.plan.max_samples:
                    return "rounds"
        finally:
            self.device.synchronize()

    @property
    def _patient(self) -> str:
        """A method that waits for the device: naive times would let warm-up run ahead of it."""
        return SYNCHRONISED if self.method == NAIVE else self.method

    def _spent(self, began: int, samples: int) -> int:
        elapsed = self.device.now_ns() - began
        if self.method != NAIVE:
            return elapsed
        # What was sent to the device and not waited for has to be waited for in the end.
        return max(elapsed, round(samples * self.calls_per_sample * self._call_ns))

    def _one_sample(self) -> None:
        before = self.compiled()
        block, host = self._block(self.calls_per_sample, self.method)
        if self.compiled() != before and self.plan.warmup and self.recompiled < MAX_RECOMPILED:
            self.recompiled += 1
            self._warm(block, self.calls_per_sample)
            return
        self.blocks.append(block)
        self.host_blocks.append(host)

    def _trim(self) -> bool:
        """Give samples at the start that belong to warm-up back to it: a first plateau can outlast its detection."""
        if self.plan.warmup is not True:
            return False
        index = steady_from(self.blocks)
        if not index or statistics.median(self.blocks[:index]) < LATE_WARMUP * statistics.median(self.blocks[index:]):
            return False
        for block in self.blocks[:index]:
            self._warm(block, self.calls_per_sample)
        del self.blocks[:index], self.host_blocks[:index]
        return True

    def _is_precise(self) -> bool:
        interval = statistics.median_interval(self.blocks, self.plan.confidence)
        if interval is None:
            return False
        low, high, reached = interval
        middle = statistics.median(self.blocks)
        return reached >= self.plan.confidence and (high - low) / 2 <= self.plan.precision * middle

    def _warm(self, block_ns: int, calls: int) -> None:
        self.warmup.ns.append(block_ns / calls)
        self.warmup.calls += calls

    def _choose_calls(self, budget_ns: int) -> None:
        """Let the number of calls grow until a block is long enough for the clock."""
        number = self.plan.calls_per_sample
        most = 1 if self.call.one_by_one else MAX_FRESH_PER_SAMPLE if self.call.fresh else MAX_CALLS_PER_SAMPLE
        number = min(number, most) if number else 1
        began = self.device.now_ns()
        while True:
            block, _ = self._block(number, self._patient)
            self.warmup.calls += number
            self._call_ns = block / number
            if self.plan.calls_per_sample or block >= MIN_BLOCK_NS or number >= most:
                break
            if self.device.now_ns() - began > budget_ns:
                break
            number = min(most, max(2 * number, min(10 * number, self._fitting(block / number))))
        self.calls_per_sample = number

    def _fitting(self, call_ns: float) -> int:
        return math.ceil(1.1 * MIN_BLOCK_NS / max(call_ns, 1.0))

    def _until_steady(self, budget_ns: int) -> None:
        """Blocks until the series of their times has settled, for at most ``budget_ns``."""
        began = self.device.now_ns()
        series: list[float] = []
        check = MIN_STEADY
        while True:
            before = self.compiled()
            block, _ = self._block(self.calls_per_sample, self._patient)
            self._warm(block, self.calls_per_sample)
            series.append(block / self.calls_per_sample)
            elapsed = self.device.now_ns() - began
            if self.compiled() != before:  # what came before was another program
                series, check = [], MIN_STEADY
            elif len(series) >= check and elapsed >= min(MIN_WARMUP_NS, budget_ns):
                if steady_from(series) is not None:
                    self.warmup.is_steady = True
                    break
                check = math.ceil(len(series) * _GROWTH)
            if elapsed >= budget_ns:
                self.warmup.is_steady = steady_from(series) is not None
                break
        if series:
            self._adjust(statistics.median(series[len(series) // 2 :]))

    def _adjust(self, call_ns: float) -> None:
        """Warm calls may be far quicker than those that chose the block's size."""
        self._call_ns = call_ns
        fixed = self.plan.calls_per_sample is not None or self.call.one_by_one or self.call.fresh is not None
        fitting = max(1, self._fitting(call_ns))
        if not fixed and not 1 / 2 <= self.calls_per_sample / fitting <= 2:
            self.calls_per_sample = min(fitting, MAX_CALLS_PER_SAMPLE)

    def _block(self, number: int, method: str) -> tuple[int, int]:
        """(time of ``number`` calls, time until they had returned to the host), in nanoseconds."""
        device, call = self.device, self.call
        inputs = [call.fresh() for _ in range(number)] if call.fresh is not None else repeat(call.inputs, number)
        if call.prepare is not None:
            call.prepare()
        if call.flush:
            device.flush_cache()
        if method == NAIVE:
            return _wall(device, call.function, inputs)
        device.synchronize()
        if method == EVENT:
            return self._events(inputs)
        begin = device.now_ns()
        _run(call.function, inputs)
        returned = device.now_ns()
        device.synchronize()
        end = device.now_ns() if device.is_asynchronous else returned
        return end - begin, returned - begin

    def _events(self, inputs: Sequence[tuple[Any, ...]] | repeat[tuple[Any, ...]]) -> tuple[int, int]:
        device = self.device
        begin = device.now_ns()
        device.record(self._begin)
        _run(self.call.function, inputs)
        device.record(self._end)
        returned = device.now_ns()
        device.synchronize()
        return device.between_ns(self._begin, self._end), returned - begin


def _run(function: Function, inputs: Sequence[tuple[Any, ...]] | repeat[tuple[Any, ...]]) -> None:
    """The loop that is timed. Results are dropped at once, as ``timeit`` drops them."""
    for arguments in inputs:
        function(*arguments)


def _wall(
    device: Device, function: Function, inputs: Sequence[tuple[Any, ...]] | repeat[tuple[Any, ...]]
) -> tuple[int, int]:
    begin = device.now_ns()
    _run(function, inputs)
    elapsed = device.now_ns() - begin
    return elapsed, elapsed
