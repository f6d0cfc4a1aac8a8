"""``latency``, ``methods`` and ``compare``: how long one call takes, and whether two latencies differ."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from msgspec.structs import replace

from boundby.annotate import nvtx_range
from boundby.measure import device as devices
from boundby.measure import mistakes, sampling, values
from boundby.measure.device import (
    TRAINING,
    Device,
    allocations,
    compiled_graphs,
    drop_gradients,
    entered_mode,
    gradient_mistake,
    loaded,
    training_call,
    was_used_since,
    watch_backward,
)
from boundby.measure.results import (
    EVENT,
    METHOD_MEANING,
    METHODS,
    NAIVE,
    SYNCHRONISED,
    WALL,
    Comparison,
    DeviceError,
    Latency,
    MeasuredOn,
    MeasureError,
    Methods,
    MethodsBySize,
    MethodsPoint,
    Mistake,
    Result,
    StageChange,
    StagesComparison,
    StagesResult,
    StageTimes,
    TargetError,
    next_step,
)
from boundby.measure.sampling import Sampler, TimedCall
from boundby.measure.target import Options
from boundby.model import statistics, units
from boundby.model.errors import UserError
from boundby.model.scale import HABIT, NOTABLE

T = TypeVar("T")


class LatencyRun:
    """``start``, then ``sample`` or several times ``take``, then ``finish``, all of it ``entered``; then ``result``."""

    sampler: Sampler

    def __init__(
        self,
        fn: Callable[..., object],
        inputs: tuple[Any, ...],
        options: Options,
        *,
        memory_errors: bool = False,
    ) -> None:
        """``memory_errors``: let errors of running out of memory through as they are."""
        if not callable(fn):
            raise MeasureError(f"{fn!r} cannot be called.", "Give a function or a module, and its inputs.")
        self.fn, self.inputs, self.options = fn, inputs, options
        self.memory_errors = memory_errors
        self.plan, self.method = options.plan, options.spelt_method
        self.modules, self.held = values.modules_of(fn), values.tensors_of(fn)
        self.title = options.name or title_of(fn)
        self.device: Device = devices.choose(options.device, inputs, options.kwargs or {}, self.modules, self.held)
        self.machine = machine()
        self.found: list[Mistake] = []
        self.first_call_ns = 0
        self.calls_before = 0  # the first one, and the one that is watched
        self.stopped_by = "budget"
        self.compiled_before = compiled_graphs()
        self.call = self._call()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The mode asked for, and no garbage collection meanwhile, as in ``timeit``."""
        with entered_mode(self.options.mode, self.modules), no_collection():
            yield

    def start(self) -> None:
        """First call, a look for mistakes, warm-up. Without warm-up the first sample is the first call."""
        if self.plan.warmup:
            self._first()
            self.calls_before += 1
        self._refuse()
        if 0 < self.first_call_ns < self.plan.budget_ns:
            self._look()
            self.calls_before += 1
        if self.options.graph:
            self._guarded(self._capture)
        method = (self.method or EVENT) if self.device.is_asynchronous else WALL
        self.sampler = Sampler(self.call, self.device, method, self.plan, compiled_graphs)
        self.before = self.device.state()
        with nvtx_range(f"warm-up {self.title}"):
            self._guarded(self.sampler.warm_up)

    def sample(self) -> None:
        """Take samples until there are enough."""
        with nvtx_range(f"samples {self.title}"):
            self.stopped_by = self._guarded(self.sampler.sample)

    def take(self, least: int, least_ns: int, most_ns: int) -> None:
        """Take some more samples: see ``Sampler.take``."""
        with nvtx_range(f"samples {self.title}"):
            self.stopped_by = self._guarded(lambda: self.sampler.take(least, least_ns, most_ns))

    def finish(self) -> None:
        """The state after it, and the look that a measurement without warm-up must not begin with."""
        self.after = self.device.state()
        if not self.plan.warmup:
            self.first_call_ns = self.sampler.blocks[0]
            if not self.options.graph and self.first_call_ns < self.plan.budget_ns:
                self._look()

    def result(self) -> Latency:
        """What came of it."""
        sampler, options = self.sampler, self.options
        compiled = compiled_graphs() - self.compiled_before
        waited = self.device.is_asynchronous and sampler.method != NAIVE
        measured = Latency(
            name=self.title,
            method=sampler.method,
            device=self.device.name,
            device_name=self.device.label,
            clock=METHOD_MEANING[sampler.method],
            block_ns=tuple(sampler.blocks),
            calls_per_sample=sampler.calls_per_sample,
            host_block_ns=tuple(sampler.host_blocks) if waited else None,
            first_call_ns=self.first_call_ns,
            warmup_ns=tuple(sampler.warmup.ns),
            warmup_calls=sampler.warmup.calls + self.calls_before,
            is_steady=sampler.warmup.is_steady,
            stopped_by=self.stopped_by,
            confidence=self.plan.confidence,
            precision_asked=self.plan.precision,
            mode=options.mode,
            graph=options.graph,
            flush_l2=options.flush_l2,
            fresh_inputs=bool(options.fresh_inputs),
            compiled_graphs=compiled or None,
            before=self.before,
            after=self.after,
            machine=self.machine,
        )
        found = [
            *mistakes.of_procedure(measured),
            *self.found,
            *mistakes.of_compiler(sampler.recompiled, sampling.MAX_RECOMPILED),
            *mistakes.of_samples(measured),
        ]
        return replace(measured, mistakes=tuple(found))

    def _call(self) -> TimedCall:
        fn, inputs, options = self.fn, self.inputs, self.options
        trained = options.mode == TRAINING and values.is_module(fn)
        if trained:
            fn = training_call(fn)
        if options.kwargs:
            fn, inputs = _with_names(fn, len(inputs)), (*inputs, dict(options.kwargs))
        fresh = None
        if callable(options.fresh_inputs):
            fresh = options.fresh_inputs
        elif options.fresh_inputs:
            fresh = functools.partial(values.copied, inputs)
        return TimedCall(fn, inputs, fresh, options.flush_l2, drop_gradients(self.modules) if trained else None)

    def _first(self) -> None:
        call = self.call
        inputs = call.fresh() if call.fresh is not None else call.inputs
        self.device.synchronize()
        had = allocations()
        began = self.device.now_ns()
        result = self._guarded(lambda: call.function(*inputs))
        self._settle_device(result, had)
        self.device.synchronize()
        self.first_call_ns = max(1, self.device.now_ns() - began)

    def _settle_device(self, result: object, had: int) -> None:
        """What nobody said and no input showed, the first call shows: it used a GPU."""
        if self.options.device is None and self.device.name == "cpu":
            place = devices.found(result)
            if place != "cpu" or was_used_since(had):
                self.device = devices.choose(place if place != "cpu" else "cuda")

    def _refuse(self) -> None:
        options = self.options
        if self.device.is_asynchronous:
            if self.method == WALL:
                self.method = SYNCHRONISED
            return
        for wanted, what in (
            (options.graph, "CUDA graphs need"),
            (options.flush_l2, "Flushing L2 needs"),
            (self.method == EVENT, "CUDA events need"),
        ):
            if wanted:
                raise DeviceError(f"{what} a GPU, and this is timed on the CPU.", "Leave it out.")

    def _look(self) -> None:
        """One more call, watched."""
        call = self.call
        inputs = call.fresh() if call.fresh is not None else call.inputs
        if call.prepare is not None:
            call.prepare()
        with self.device.watch_syncs() as sites, watch_backward() as backward:
            result = self._guarded(lambda: call.function(*inputs))
        self.device.synchronize()
        gradients = gradient_mistake(result, backward, self.options.mode)
        self.found += [
            *mistakes.of_placement(self.device, self.modules, (self.inputs, self.options.kwargs or {}), self.held),
            *mistakes.of_syncs(sites, self.device),
            *([gradients] if gradients is not None else []),
            *mistakes.of_result(result),
        ]

    def _capture(self) -> None:
        function, inputs, prepare = self.call.function, self.call.inputs, self.call.prepare

        def whole() -> object:
            if prepare is not None:
                prepare()
            return function(*inputs)

        replay = self.device.replayable(whole)
        self.call.function, self.call.inputs, self.call.prepare = replay, (), None

    def _guarded(self, work: Callable[[], T]) -> T:
        """``work()``; what the measured function raises becomes one sentence."""
        try:
            return work()
        except UserError:
            raise
        except Exception as error:
            if self.device.is_out_of_memory(error):
                if self.memory_errors:
                    raise
                raise TargetError(
                    f"{self.title} ran out of memory on {self.device.name}.", "Use smaller inputs, or another device."
                ) from error
            raise failure(self.title, error) from error


def failure(title: str, error: BaseException) -> TargetError:
    """The sentence for an error that was raised by what is measured."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    if "same device" in str(error) or "should be the same" in str(error):
        return TargetError(
            f"{title} mixes devices: {what.rstrip('.')}.", "Put the inputs and the parameters on the same device."
        )
    return TargetError(f"{title} raised {what.rstrip('.')}.", next_step(error))


def title_of(fn: object) -> str:
    """A name for people."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    return str(name).replace("<locals>.", "")


def _with_names(fn: Callable[..., object], positional: int) -> Callable[..., object]:
    def call(*inputs: Any) -> object:
        return fn(*inputs[:positional], **inputs[positional])

    return call


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Without Python's cyclic garbage collector, as ``timeit`` measures."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def machine() -> MeasuredOn:
    """Where this runs."""
    torch = loaded()
    try:
        load = round(os.getloadavg()[0], 2)
    except OSError:
        load = None
    return MeasuredOn(
        python=platform.python_version(),
        platform=platform.platform(),
        processor=devices.processor(),
        logical_cores=os.cpu_count(),
        load_average=load,
        torch=str(torch.__version__) if torch is not None else None,
        torch_threads=int(torch.get_num_threads()) if torch is not None else None,
    )


def latency(
    fn: Callable[..., object],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    device: str | Device | None = None,
    method: str | None = None,
    mode: str | None = None,
    graph: bool = False,
    flush_l2: bool = False,
    fresh_inputs: bool | Callable[[], tuple[Any, ...]] = False,
    warmup: bool | int = True,
    calls_per_sample: int | None = None,
    min_samples: int = 30,
    max_samples: int = 10_000,
    confidence: float = 0.95,
    precision: float = 0.01,
    budget_s: float = 5.0,
) -> Latency:
    """Time ``fn(*inputs, **kwargs)``.

    The first call is timed apart, one more is watched for mistakes. Then calls are made until their times have
    settled, then samples are taken until the confidence interval of the median is narrow enough, at least
    ``min_samples``, for at most ``budget_s`` (and half of that for warm-up). On a GPU every sample begins on an idle
    device.

    Args:
        fn: any callable. A ``torch.nn.Module`` in ``mode="training"`` is timed forward and backward.
        name: what the result is called. Default: the function's own name.
        device: "cpu", "cuda", "cuda:1". Default: the GPU that the inputs, the model or the result are on, else the CPU.
        method: on a GPU "event" (default), "synchronised", or "naive"; the CPU has the wall clock only.
        mode: "inference" or "training" puts the model and gradients into that mode; None leaves them as they are.
        graph: capture the call as a CUDA graph and time its replay.
        flush_l2: push everything out of the GPU's L2 cache before each call; one call per sample then.
        fresh_inputs: True gives each call its own copy of the inputs, made before the clock starts; a function that
            takes nothing makes them instead.
        warmup: True warms up until steady; a number makes so many calls; 0 or False none.
        calls_per_sample: calls timed together. Default: as many as take 0.2 ms.
        precision: half width of the interval at which it is enough, as a fraction of the median.

    Raises:
        DeviceError: the device is not here. MeasureError: choices that do not go together.
        TargetError: ``fn`` raised (its error is the cause), or ran out of memory.
    """
    options = Options(
        kwargs=kwargs,
        name=name,
        device=device,
        method=method,
        mode=mode,
        graph=graph,
        flush_l2=flush_l2,
        fresh_inputs=fresh_inputs,
        warmup=warmup,
        calls_per_sample=calls_per_sample,
        min_samples=min_samples,
        max_samples=max_samples,
        confidence=confidence,
        precision=precision,
        budget_s=budget_s,
    )
    return measured(fn, inputs, options)


def waits(fn: Callable[..., object], *inputs: Any, device: str | Device | None = None, **named: Any) -> tuple[str, ...]:
    """Where one call of ``fn`` makes the host wait for the GPU, or, on the CPU, would make it wait for one.

    A place (file:line) for each wait, in order; ``boundby.measure.would_wait`` says what the CPU cannot tell.
    """
    found = devices.choose(device, inputs, named, values.modules_of(fn), values.tensors_of(fn))
    with found.watch_syncs() as sites:
        fn(*inputs, **named)
    found.synchronize()
    return tuple(sites)


def measured(fn: Callable[..., object], inputs: tuple[Any, ...], options: Options) -> Latency:
    """``latency`` with its options in one."""
    run = LatencyRun(fn, inputs, options)
    with run.entered():
        run.start()
        run.sample()
        run.finish()
    return run.result()


def methods(fn: Callable[..., object], *inputs: Any, **options: Any) -> Methods:
    """``latency`` by every method that the device knows: naive, synchronised, event; on the CPU the wall clock.

    And what the inputs' copy to the device costs where it is inside the timed part, as in many a home-made benchmark.

    Takes what ``latency`` takes, but ``method``. The device is found by the first one for all of them.
    """
    chosen = Options(**options)
    first = measured(fn, inputs, replace(chosen, method=None))
    if first.method not in METHODS:
        return Methods((first,))
    rest = replace(chosen, device=chosen.device if chosen.device is not None else first.device)
    others = [
        # Only the first call of all of them is a first call.
        replace(measured(fn, inputs, replace(rest, method=method)), first_call_ns=first.first_call_ns)
        for method in METHODS
        if method != first.method
    ]
    latencies = tuple(sorted((*others, first), key=lambda result: METHODS.index(result.method)))
    copied = _with_copy(fn, inputs, replace(rest, method=latencies[-1].method), latencies[-1])
    # A home-made loop of as many calls as the budget has room for: it is warmed up, too, and its work is waited for.
    calls = min(LOOP, int(chosen.budget_s * 1e9 / LOOP_RUNS / latencies[-1].median_ns))
    is_one_by_one = chosen.flush_l2 or chosen.fresh_inputs or chosen.mode == TRAINING
    if is_one_by_one or calls < HABIT:
        return Methods(latencies, copied)
    return Methods(latencies, copied, measured(fn, inputs, replace(rest, method=NAIVE, calls_per_sample=calls)))


#: Calls of a home-made loop, and how often at least it runs.
LOOP, LOOP_RUNS = 100, 5


def methods_by_size(
    fn: Callable[..., object],
    *inputs: Any,
    sizes: Sequence[int],
    make_inputs: Callable[[int], Any] | None = None,
    **options: Any,
) -> MethodsBySize:
    """``methods`` at several sizes of the inputs' first dimension (or what ``make_inputs`` makes of a size).

    Raises:
        MeasureError: there is nothing to make sizes from.
    """
    if make_inputs is None and values.batch_size(inputs) is None:
        raise MeasureError(
            "No input has a first dimension that could grow.",
            "Give inputs that begin with one, or make_inputs, a function from a size to inputs.",
        )
    made = [(size, (make_inputs or functools.partial(values.resized, inputs))(size)) for size in sorted(set(sizes))]
    return MethodsBySize(
        tuple(
            MethodsPoint(size, methods(fn, *(given if isinstance(given, tuple) else (given,)), **options))
            for size, given in made
        )
    )


def _with_copy(fn: Callable[..., object], inputs: tuple[Any, ...], options: Options, plain: Latency) -> Latency | None:
    """The same with inputs that begin on the host; None where none can be copied, or more than the call is timed."""
    given = (inputs, dict(options.kwargs or {}))
    is_plain = not (options.graph or options.fresh_inputs or options.mode == TRAINING)
    if not is_plain or not any(values.is_tensor(leaf) for leaf in values.leaves(given)):
        return None

    def copied_first(*here: Any, **named: Any) -> object:
        return fn(*values.moved(here, plain.device), **values.moved(named, plain.device))

    here, named = values.moved(given, "cpu")
    return measured(copied_first, here, replace(options, kwargs=named, name=plain.name))


# ``compare``: do two latencies differ, or does it only look so?

#: Resamples of the bootstrap: the ends of a 95 % interval then wobble by about a tenth of its width.
RESAMPLES = 2000
#: Turns that two functions take: what changes slowly (clocks, heat, other programs) then meets both.
ROUNDS = 5
#: A turn takes at least this long, so that it does not consist of what the other one left in the caches.
_ROUND_NS = 100_000_000

Measurable = tuple[Callable[..., object], tuple[Any, ...], Options]


@overload
def compare(a: StagesResult, b: StagesResult, *, confidence: float = ...) -> StagesComparison: ...
@overload
def compare(a: Latency | Methods, b: Latency | Methods, *, confidence: float = ...) -> Comparison: ...
@overload
def compare(a: Result, b: Result, *, confidence: float = ...) -> Comparison | StagesComparison: ...
def compare(a: Result, b: Result, *, confidence: float = 0.95) -> Comparison | StagesComparison:
    """Two latencies, measured or loaded: the ratio of their medians, its interval, and whether they differ.

    They differ significantly if both agree: the Mann-Whitney U test (two-sided, p below 1 - ``confidence``), which asks
    whether a sample of one tends to be larger, and the interval of the ratio of medians by a bootstrap of blocks, which
    does not take neighbouring samples for independent. Both see the spread within a measurement, and not what changes
    from one process to the next.

    Two pipelines are compared stage by stage.

    Raises:
        MeasureError: they are neither.
    """
    if isinstance(a, StagesResult) and isinstance(b, StagesResult):
        return _stages_compared(a, b, confidence)
    return _compared(_latency(a), _latency(b), confidence, 0)


def _stages_compared(a: StagesResult, b: StagesResult, confidence: float) -> StagesComparison:
    of_a, of_b = ({stage.name: stage for stage in one.stages} for one in (a, b))
    changes = tuple(_stage_change(of_a[name], of_b[name], confidence) for name in of_b if name in of_a)
    if not changes:
        raise MeasureError("The two pipelines have no stage in common.", "Give stages that do the same the same name.")
    found = list(_unlike(a, b))
    if apart := [name for name in (*of_a, *of_b) if not (name in of_a and name in of_b)]:
        told = f"Only one of them has {', '.join(apart)}."
        found.append(Mistake("not-alike", told, "Its time is in the whole only."))
    return StagesComparison(a, b, changes, confidence, tuple(found))


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
    raise MeasureError(
        f"Only two latencies or two pipelines can be compared, not {type(result).__name__}.",
        "Compare what boundby measure latency or boundby measure stages saved.",
    )


def _compared(a: Latency, b: Latency, confidence: float, rounds: int) -> Comparison:
    ratio, low, high, p_value, significant = _ratio(a.samples_ns, b.samples_ns, confidence)
    comparison = Comparison(
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
    yield from _unlike(a, b)


def _unlike(a: Latency | StagesResult, b: Latency | StagesResult) -> Iterator[Mistake]:
    """Circumstances that are not the same: the machine, how it was measured, and the GPU's state."""
    for what, one, other in _circumstances(a, b):
        is_far = isinstance(one, float) and isinstance(other, float) and abs(other - one) > NOTABLE * one
        if one != other and (is_far or not isinstance(one, float)):
            shown = [f"{value:g}" if isinstance(value, float) else value for value in (one, other)]
            yield Mistake(
                "not-alike",
                f"They were measured with different {what} ({shown[0]} and {shown[1]}).",
                "Is that what you meant to compare?",
            )


def _circumstances(
    a: Latency | StagesResult, b: Latency | StagesResult
) -> Iterator[tuple[str, str | float, str | float]]:
    """(what, of a, of b), of all that both tell."""
    yield "devices", a.device_name, b.device_name
    if isinstance(a, StagesResult) or isinstance(b, StagesResult):
        yield "clocks", a.clock, b.clock
    else:
        yield "methods", a.method, b.method
        yield "modes", a.mode or "as found", b.mode or "as found"
    if a.machine is not None and b.machine is not None:
        yield "machines", a.machine.processor, b.machine.processor
        yield "versions of torch", str(a.machine.torch), str(b.machine.torch)
    one, other = a.after, b.after
    if one is None or other is None:
        return
    held = [", ".join(state.throttling or ()) or "none" for state in (one, other)]
    yield "throttling", held[0], held[1]
    for what, field in STATE_FIGURES.items():
        values = (getattr(one, field), getattr(other, field))
        if None not in values:
            yield what, *values


#: Of a GPU's state: what it is called where two differ in it.
STATE_FIGURES: Mapping[str, str] = {
    "SM clocks, in MHz,": "sm_clock_mhz",
    "memory clocks, in MHz,": "memory_clock_mhz",
    "power limits, in W,": "power_limit_w",
    "performance states": "performance_state",
    "persistence modes": "persistence_mode",
}
