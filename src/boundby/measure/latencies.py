"""``latency`` and ``methods``: how long one call takes."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from boundby.annotate import nvtx_range
from boundby.measure import device as devices
from boundby.measure import mistakes, sampling, values
from boundby.measure.device import Device
from boundby.measure.results import (
    EVENT,
    METHOD_MEANING,
    METHODS,
    NAIVE,
    SYNCHRONISED,
    WALL,
    DeviceError,
    Latency,
    MeasuredOn,
    MeasureError,
    Methods,
    MethodsBySize,
    MethodsPoint,
    Mistake,
    TargetError,
    next_step,
)
from boundby.measure.sampling import Sampler, TimedCall
from boundby.measure.target import Options
from boundby.model.errors import UserError
from boundby.model.scale import HABIT, QUARTER

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
        self.method = options.spelt_method
        self.modules, self.held = values.modules_of(fn), values.tensors_of(fn)
        self.title = options.name or title_of(fn)
        self.device: Device = devices.choose(options.device, inputs, options.kwargs or {}, self.modules, self.held)
        self.machine = machine()
        self.found: list[Mistake] = []
        self.first_call_ns = 0
        self.calls_before = 0  # the first one, and the one that is watched
        self.stopped_by = "budget"
        self.compiled_before = devices.compiled_graphs()
        self.call = self._call()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The mode asked for, and no garbage collection meanwhile, as in ``timeit``."""
        with devices.entered_mode(self.options.mode, self.modules), no_collection():
            yield

    def start(self) -> None:
        """First call, a look for mistakes, warm-up. Without warm-up the first sample is the first call."""
        if self.options.warmup:
            self._first()
            self.calls_before += 1
        self._refuse()
        if 0 < self.first_call_ns < self.options.budget_ns:
            self._look()
            self.calls_before += 1
        if self.options.graph:
            self._guarded(self._capture)
        method = (self.method or EVENT) if self.device.is_asynchronous else WALL
        self.sampler = Sampler(self.call, self.device, method, self.options, devices.compiled_graphs)
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
        if not self.options.warmup:
            self.first_call_ns = self.sampler.blocks[0]
            if not self.options.graph and self.first_call_ns < self.options.budget_ns:
                self._look()

    def result(self) -> Latency:
        """What came of it."""
        sampler, options = self.sampler, self.options
        compiled = devices.compiled_graphs() - self.compiled_before
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
            confidence=self.options.confidence,
            precision_asked=self.options.precision,
            mode=options.mode,
            graph=options.graph,
            flush_l2=options.flush_l2,
            fresh_inputs=bool(options.fresh_inputs),
            compiled_graphs=compiled or None,
            before=self.before,
            after=self.after,
            machine=self.machine,
        )
        all_mistakes = [
            *mistakes.of_procedure(measured),
            *self.found,
            *mistakes.of_compiler(sampler.recompiled, sampling.MAX_RECOMPILED),
            *mistakes.of_samples(measured),
        ]
        return replace(measured, mistakes=tuple(all_mistakes))

    def _call(self) -> TimedCall:
        fn, inputs, options = self.fn, self.inputs, self.options
        trained = options.mode == devices.TRAINING and values.is_module(fn)
        if trained:
            fn = devices.training_call(fn)
        if options.kwargs:
            fn, inputs = _with_names(fn, len(inputs)), (*inputs, dict(options.kwargs))
        fresh = None
        if callable(options.fresh_inputs):
            fresh = options.fresh_inputs
        elif options.fresh_inputs:
            fresh = functools.partial(values.copied, inputs)
        return TimedCall(fn, inputs, fresh, options.flush_l2, devices.drop_gradients(self.modules) if trained else None)

    def _first(self) -> None:
        call = self.call
        inputs = call.fresh() if call.fresh is not None else call.inputs
        self.device.synchronize()
        had = devices.allocations()
        began = self.device.now_ns()
        result = self._guarded(lambda: call.function(*inputs))
        self._settle_device(result, had)
        self.device.synchronize()
        self.first_call_ns = max(1, self.device.now_ns() - began)

    def _settle_device(self, result: object, had: int) -> None:
        """What nobody said and no input showed, the first call shows: it used a GPU."""
        if self.options.device is None and self.device.name == "cpu":
            device_name = devices.found(result)
            if device_name != "cpu" or devices.was_used_since(had):
                self.device = devices.choose(device_name if device_name != "cpu" else "cuda")

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
        with self.device.watch_syncs() as sites, devices.watch_backward() as backward:
            result = self._guarded(lambda: call.function(*inputs))
        self.device.synchronize()
        gradients = devices.gradient_mistake(result, backward, self.options.mode)
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
    torch = devices.loaded()
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

    A place (file:line) for each wait, in order; ``boundby.measure.device`` says what the CPU cannot tell.
    """
    chosen = devices.choose(device, inputs, named, values.modules_of(fn), values.tensors_of(fn))
    with chosen.watch_syncs() as sites:
        fn(*inputs, **named)
    chosen.synchronize()
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
    calls = min(LOOP, int(QUARTER * chosen.budget_s * 1e9 / latencies[-1].median_ns))
    is_one_by_one = chosen.flush_l2 or chosen.fresh_inputs or chosen.mode == devices.TRAINING
    if is_one_by_one or calls < HABIT:
        return Methods(latencies, copied)
    return Methods(latencies, copied, measured(fn, inputs, replace(rest, method=NAIVE, calls_per_sample=calls)))


#: Calls of a home-made loop, and how often at least it runs.
LOOP = 100


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
    make = values.maker(inputs, make_inputs)
    made = [(size, make(size)) for size in sorted(set(sizes))]
    return MethodsBySize(tuple(MethodsPoint(size, methods(fn, *given, **options)) for size, given in made))


def _with_copy(fn: Callable[..., object], inputs: tuple[Any, ...], options: Options, plain: Latency) -> Latency | None:
    """The latency with inputs that begin on the host; None where none can be copied, or more than the call is timed."""
    given = (inputs, dict(options.kwargs or {}))
    is_plain = not (options.graph or options.fresh_inputs or options.mode == devices.TRAINING)
    if not is_plain or not any(values.is_tensor(leaf) for leaf in values.leaves(given)):
        return None

    def copied_first(*here: Any, **named: Any) -> object:
        return fn(*values.moved(here, plain.device), **values.moved(named, plain.device))

    here, named = values.moved(given, "cpu")
    return measured(copied_first, here, replace(options, kwargs=named, name=plain.name))
