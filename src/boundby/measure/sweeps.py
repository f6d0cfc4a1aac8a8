"""The sweeps over sizes. ``throughput``: the batch size with the most samples per second, found up to where memory or
latency ends it. ``devices``: CPU and GPU at growing sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from msgspec import Struct, field

from boundby.annotate import nvtx_range
from boundby.measure import device as device_module
from boundby.measure import mistakes, values
from boundby.measure.device import Device, HostDevice, loaded
from boundby.measure.latencies import LatencyRun, failure, machine, measured, title_of
from boundby.measure.results import (
    METHOD_MEANING,
    SYNCHRONISED,
    WALL,
    BatchPoint,
    Devices,
    Latency,
    MeasuredOn,
    MeasureError,
    Mistake,
    SizePoint,
    TargetError,
    Throughput,
)
from boundby.measure.sampling import MAX_CALLS_PER_SAMPLE, MIN_SAMPLING_NS
from boundby.measure.target import Options, factory
from boundby.model.errors import UserError
from boundby.model.scale import HABIT, NOTABLE, SLIGHT, SMALL
from boundby.model.units import S, duration, percent

#: A size gains if it has this much more throughput; two doublings without gain are a plateau.
GAIN = 1 + SLIGHT
#: Doubling ends here where nothing else ends it: the function's memory does not grow with its inputs.
MAX_BATCH = MAX_CALLS_PER_SAMPLE
#: What a size gets for its latency, and for its batches back to back; the best one again, for longer.
_LATENCY_BUDGET_S = 0.4
_BATCHES_NS = MIN_SAMPLING_NS
_BEST_NS = S
_LEAST_BATCHES = HABIT
#: The best size's longer run and the search's shorter one agree within this; else it is run again, so often in all, and
#: the middle one counts: a run that something disturbed is no headline.
AGREE = NOTABLE

MEMORY, LATENCY, PLATEAU, LARGEST, BUDGET, ERROR = "memory", "latency", "plateau", "max_batch", "budget", "error"


def throughput(
    fn: Callable[..., object],
    *inputs: Any,
    make_inputs: Callable[[int], Any] | None = None,
    name: str | None = None,
    device: str | Device | None = None,
    mode: str | None = None,
    start: int = 1,
    max_batch: int | None = None,
    latency_limit_ms: float | None = None,
    stop_at_plateau: bool | None = None,
    budget_s: float = 60.0,
) -> Throughput:
    """Find the batch size at which ``fn`` handles the most samples per second, and measure it.

    Sizes double from ``start`` until memory, the latency limit, a plateau, ``max_batch`` or the budget ends it; the
    limit is then found by bisection to 5 %, and the best size by trying between its neighbours.
    Throughput is (batches x size) / time of batches run back to back, from an idle device to an idle device; latency is
    that of one batch. Running out of memory is no error: what was held is given back, and the search goes on below.

    Args:
        inputs: those of one batch; their first dimension is repeated to make other sizes.
        make_inputs: makes the inputs of a batch of a given size instead (a tuple, or a single one).
        latency_limit_ms: the longest that one batch may take (median).
        stop_at_plateau: stop when two doublings have not gained 3 %. Default: on the CPU, where nothing else ends it.

    Raises:
        TargetError: ``fn`` fails at the first size. MeasureError: there is nothing to make sizes from.
    """
    if start < 1 or (max_batch is not None and max_batch < start):
        raise MeasureError("start is below 1, or max_batch is below start.", "Such as start=1, max_batch=64.")
    make = values.maker(inputs, make_inputs)
    chosen = device_module.choose(
        device, inputs, values.modules_of(fn), values.tensors_of(fn), make(start) if not inputs else ()
    )
    limit = round(latency_limit_ms * 1e6) if latency_limit_ms is not None else None
    plateau = stop_at_plateau if stop_at_plateau is not None else not chosen.is_asynchronous
    options = Options(
        name=name or title_of(fn), device=chosen, mode=mode, min_samples=5, precision=0.02, budget_s=_LATENCY_BUDGET_S
    )
    search = _BatchSearch(fn, make, options, chosen, limit, plateau, max_batch or MAX_BATCH, round(budget_s * 1e9))
    with nvtx_range(f"throughput {options.name}"):
        return search.run(start)


class _BatchSearch(Struct, dict=True):
    fn: Callable[..., object]
    make: Callable[[int], tuple[Any, ...]]
    options: Options
    device: Device
    latency_limit_ns: int | None
    plateau: bool
    largest: int
    budget_ns: int
    points: dict[int, BatchPoint] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()
    stopped_by: str = ""
    limit: int | None = None
    error: str = ""
    held_bytes: int | None = None
    machine: MeasuredOn = field(default_factory=machine)

    def run(self, start: int) -> Throughput:
        self._began, before = self.device.now_ns(), self.device.state()
        self._double(start)
        if self.stopped_by in (MEMORY, LATENCY, ERROR):
            self._bisect()
        if not self.points:
            self._nothing(start)
        if not self._good():
            least = min(self.points.values(), key=lambda point: point.size)
            raise MeasureError(
                f"Even a batch of {least.size} takes {duration(least.median_ns)}, more than the latency limit.",
                "Raise the limit, or begin with a smaller batch.",
            )
        for _ in range(2):
            self._refine()
        size = self._best().size
        best = self._final(size)
        after = self.device.state()
        self._release()
        held = self.device.memory_in_use_bytes()
        return Throughput(
            name=str(self.options.name),
            device=self.device.name,
            device_name=self.device.label,
            clock=METHOD_MEANING[SYNCHRONISED if self.device.is_asynchronous else WALL],
            points=tuple(self.points[size] for size in sorted(self.points)),
            best=best,
            stopped_by=self.stopped_by,
            limit=self.limit,
            latency_limit_ns=self.latency_limit_ns,
            reason=self._reason(),
            memory_returned_bytes=held - self.held_bytes if held is not None and self.held_bytes is not None else None,
            mode=self.options.mode,
            machine=self.machine,
            mistakes=(*self.mistakes, *mistakes.of_states(before, after)),
            after=after,
        )

    def _final(self, size: int) -> BatchPoint:
        """The best size for longer; again where that disagrees with the search."""
        table = self.points[size]
        runs: list[BatchPoint] = []
        for _ in range(HABIT):
            if (point := self._trial(size, _BEST_NS)) is None:
                break
            runs.append(point)
            if abs(point.samples_per_s / table.samples_per_s - 1) <= AGREE:
                return point
        if not runs:
            return table
        middle = sorted(runs, key=lambda point: point.samples_per_s)[(len(runs) - 1) // 2]
        self.mistakes += (
            Mistake(
                "throughput-disagrees",
                f"At batch size {size:,} the search measured {table.samples_per_s:,.3g} samples/s, {len(runs)} longer "
                f"runs {', '.join(f'{point.samples_per_s:,.3g}' for point in runs)}: the middle one is reported.",
                "Something else uses the machine, or its clocks are not steady: measure again when it is quiet.",
            ),
        )
        return middle

    def _double(self, start: int) -> None:
        size = start
        while True:
            if not self._try(size):
                return
            if size >= self.largest:
                self.stopped_by = LARGEST
            elif self.plateau and self._is_flat():
                self.stopped_by = PLATEAU
            elif self._is_late():
                self.stopped_by = BUDGET
            else:
                size = min(2 * size, self.largest)
                continue
            return

    def _bisect(self) -> None:
        """Between the largest size that does and the smallest that does not."""
        while self.limit is not None:
            low = max((point.size for point in self._good()), default=0)
            if low == 0 or self.limit - low <= max(1, SMALL * low) or self._is_late():
                return
            self._try((low + self.limit) // 2)

    def _refine(self) -> None:
        """Half-way from the best size to its neighbours."""
        sizes = sorted(point.size for point in self._good())
        best = self._best().size
        index = sizes.index(best)
        for other in (*sizes[max(0, index - 1) : index], *sizes[index + 1 : index + 2]):
            if abs(other - best) > max(1, SMALL * best) and not self._is_late():
                self._try((best + other) // 2, searching=False)

    def _try(self, size: int, *, searching: bool = True) -> bool:
        """Measure a size; whether it does. If not, it is the new limit (of a search)."""
        point = self._trial(size, _BATCHES_NS)
        if point is not None:
            self.points[size] = point
            if self.latency_limit_ns is None or point.median_ns <= self.latency_limit_ns:
                return True
        if searching:
            self.limit = size
            self.stopped_by = LATENCY if point is not None else ERROR if self.error else MEMORY
        return False

    def _trial(self, size: int, batches_ns: int) -> BatchPoint | None:
        """A batch size, measured; None where it does not fit. Holds nothing afterwards."""
        self.device.reset_peak_memory()
        point: BatchPoint | None = None
        try:
            point = self._measured(size, batches_ns)
        except TargetError as error:
            if not self.points:
                raise
            self.error = error.message
        except Exception as error:
            if not self.device.is_out_of_memory(error):
                raise
        # Here the error is gone, and with its traceback the frames that held the tensors.
        self._release()
        if self.held_bytes is None and point is not None:
            self.held_bytes = self.device.memory_in_use_bytes()  # libraries have taken their workspace by now
        return point

    def _measured(self, size: int, batches_ns: int) -> BatchPoint:
        run = LatencyRun(self.fn, self.make(size), self.options, memory_errors=True)
        with run.entered():
            run.start()
            run.sample()
            run.finish()
            result = run.result()
            number = max(_LEAST_BATCHES, math.ceil(batches_ns / max(1.0, result.median_ns)))
            total = self._back_to_back(run, number)
        if not self.points:
            codes = ("host-sync", "cpu-inputs", "cpu-parameters", "gradient-mode", "lazy-result", "unused-result")
            self.mistakes = tuple(mistake for mistake in result.mistakes if mistake.code in codes)
        interval = result.interval
        low, high = (interval.low_ns, interval.high_ns) if interval else (result.median_ns, result.median_ns)
        return BatchPoint(size, result.median_ns, low, high, number, total, self.device.peak_memory_bytes())

    def _back_to_back(self, run: LatencyRun, number: int) -> int:
        function, inputs, prepare = run.call.function, run.call.inputs, run.call.prepare
        self.device.synchronize()
        began = self.device.now_ns()
        if prepare is None:
            for _ in repeat(None, number):
                function(*inputs)
        else:
            for _ in repeat(None, number):
                prepare()
                function(*inputs)
        self.device.synchronize()
        return self.device.now_ns() - began

    def _release(self) -> None:
        self.device.release_memory()

    def _good(self) -> list[BatchPoint]:
        limit = self.latency_limit_ns
        return [point for point in self.points.values() if limit is None or point.median_ns <= limit]

    def _best(self) -> BatchPoint:
        return max(self._good(), key=lambda point: (point.samples_per_s, -point.size))

    def _is_flat(self) -> bool:
        rates = [self.points[size].samples_per_s for size in sorted(self.points)]
        return len(rates) > 3 and max(rates[-2:]) < GAIN * max(rates[:-2])

    def _is_late(self) -> bool:
        return self.device.now_ns() - self._began > self.budget_ns

    def _nothing(self, start: int) -> None:
        raise MeasureError(
            f"Even a batch of {start} does not fit into the memory of {self.device.name}.",
            "Begin with a smaller batch, or use a smaller model.",
        )

    def _reason(self) -> str:
        good = max(point.size for point in self._good())
        return {
            MEMORY: f"the memory of {self.device.name} ends between {good} and {self.limit}",
            LATENCY: f"the latency limit of {duration(self.latency_limit_ns)} lies between {good} and {self.limit}",
            PLATEAU: f"two more doublings gained less than {percent(SLIGHT)}",
            LARGEST: f"{self.largest} was the largest size asked for",
            BUDGET: "the time budget was used up",
            ERROR: f"a batch of {self.limit} fails: {self.error}",
        }[self.stopped_by]


# ``devices``: one function at growing sizes on CPU and GPU, and from which size on the GPU pays.

#: Default sizes: powers of this, until a call on the CPU takes too long.
FACTOR, LARGEST_POWER = 4, 11
#: A call longer than this ends the default sizes: the next would take several seconds.
_LONG_NS = S
_BUDGET_S = 1.0


class SizeCase(NamedTuple):
    """What is timed at one size on one device."""

    fn: Callable[..., object]
    inputs: tuple[Any, ...]


#: (size) -> what is timed on the CPU and on the GPU, and whether results are to be alike.
Cases = Callable[[int], tuple[SizeCase, SizeCase | None]]


def devices(
    fn: Callable[..., object] | None = None,
    *inputs: Any,
    make_inputs: Callable[[int], Any] | None = None,
    make: Callable[[int, str], Any] | None = None,
    quality: Callable[[Any], float] | None = None,
    build: Callable[[str], Callable[..., object]] | None = None,
    sizes: Sequence[int] | None = None,
    gpu: str | Device | None = None,
    mode: str | None = None,
    name: str | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    budget_s: float = 60.0,
) -> Devices:
    """Time ``fn`` on the CPU and on the GPU at growing sizes.

    On the GPU twice: with inputs that are there already, and with their copy there and the result's copy back. Results
    are held against each other: equal where |cpu - gpu| <= atol + rtol |cpu|. Without a GPU the CPU's times alone.

    Args:
        fn: a function that works where its inputs are, or a module, which is copied to the GPU.
        inputs: those of one batch; their first dimension is repeated to make other sizes.
        make_inputs: makes the inputs of a given size instead (a tuple, or a single one), on the CPU.
        make: instead of ``fn`` and inputs, for sizes that are no batch (a model's width, a training loop's length):
            makes what is timed for a size and a device ("cpu", "cuda:0"), a callable, or one and its inputs (fn, (x,)).
        quality: says how good a result is (a loss, an accuracy); shown beside the times, for results that need not be
            equal.
        build: makes the function for a device ("cpu", "cuda:0") where ``fn`` cannot simply be copied.
        sizes: default: 1, 4, 16, ... until a call takes a second on the CPU, or the budget is used up.
        gpu: default: the current GPU, if the program has loaded torch and there is one.

    Raises:
        MeasureError: there is nothing to make sizes from. TargetError: ``fn`` fails at the first size.
    """
    every = _every_size(sizes)
    other = _gpu(gpu)
    cases = _cases(fn, inputs, make_inputs, make, build, other)
    title = name or title_of(make if fn is None else fn)
    sweep = _Sweep(title, mode, other, rtol, atol, round(budget_s * 1e9), quality, fixed=sizes is not None)
    with nvtx_range(f"devices {title}"):
        before = other.state() if other else None
        points = tuple(sweep.points(cases, every))
        after = other.state() if other else None
    return Devices(
        name=title,
        cpu_name=HostDevice().label,
        gpu=other.name if other else None,
        gpu_name=other.label if other else None,
        points=points,
        break_even=break_even([(point.size, point.cpu_ns, point.gpu_ns) for point in points]),
        break_even_with_copies=break_even([(p.size, p.cpu_ns, p.gpu_with_copies_ns) for p in points]),
        rtol=rtol,
        atol=atol,
        stopped_by=sweep.stopped_by,
        mode=mode,
        machine=machine(),
        mistakes=(*sweep.mistakes(points), *mistakes.of_states(before, after)),
        quality=None if quality is None else title_of(quality),
        after=after,
    )


def _every_size(wanted: Sequence[int] | None) -> list[int]:
    """In order; powers, where none is asked for."""
    if wanted is None:
        return [FACTOR**power for power in range(LARGEST_POWER + 1)]
    if not wanted or min(wanted) < 1:
        raise MeasureError("Sizes are numbers from 1 on, and there must be one.", "Such as 1 16 256.")
    return sorted(set(wanted))


def _cases(
    fn: Callable[..., object] | None,
    inputs: Sequence[Any],
    make_inputs: Callable[[int], Any] | None,
    make: Callable[[int, str], Any] | None,
    build: Callable[[str], Callable[..., object]] | None,
    gpu: Device | None,
) -> Cases:
    """What is timed at each size: what ``make`` makes, else ``fn``."""
    if (fn is None) == (make is None):
        raise MeasureError("Either fn or make says what is timed.", "Give fn and inputs, or make(size, device).")
    if make is not None:
        return _made(make, gpu)
    assert fn is not None
    functions = (build("cpu"), build(gpu.name) if gpu else None) if build else (fn, _on(fn, gpu))
    return _of_inputs(functions, values.maker(inputs, make_inputs), gpu)


def _made(make: Callable[[int, str], Any], gpu: Device | None) -> Cases:
    def case(size: int, device: str) -> SizeCase:
        made = factory(f"size {size}", make(size, device))
        if made is None or made.kwargs:
            raise TargetError(
                f"make gives no callable for size {size}.", "Return one, or one and its inputs: fn, (x,)."
            )
        return SizeCase(made.fn, made.inputs)

    return lambda size: (case(size, "cpu"), None if gpu is None else case(size, gpu.name))


def _of_inputs(
    functions: tuple[Callable[..., object], Callable[..., object] | None],
    make: Callable[[int], tuple[Any, ...]],
    gpu: Device | None,
) -> Cases:
    on_cpu, on_gpu = functions

    def cases(size: int) -> tuple[SizeCase, SizeCase | None]:
        inputs = values.moved(make(size), "cpu")
        there = None if gpu is None or on_gpu is None else SizeCase(on_gpu, values.moved(inputs, gpu.name))
        return SizeCase(on_cpu, inputs), there

    return cases


def break_even(points: Sequence[tuple[int, float, float | None]]) -> float | None:
    """The size from which on the GPU is quicker, from (size, CPU, GPU) by size; None if it never is.

    Between the last size at which it is not and the next, times are taken for straight on logarithmic axes. It is the
    smallest size measured if the GPU is quicker from there on.
    """
    ratios = [(size, math.log(cpu / gpu)) for size, cpu, gpu in points if gpu is not None and gpu > 0]
    slower = [index for index, (_, gain) in enumerate(ratios) if gain < 0]
    if not ratios or ratios[-1][1] < 0:
        return None
    if not slower:
        return float(ratios[0][0])
    (size, loss), (next_size, gain) = ratios[slower[-1]], ratios[slower[-1] + 1]
    part = -loss / (gain - loss)
    return math.exp(math.log(size) + part * (math.log(next_size) - math.log(size)))


def _gpu(gpu: str | Device | None) -> Device | None:
    if gpu is not None:
        device = device_module.choose(gpu)
        if not device.is_asynchronous:
            raise MeasureError("The CPU cannot be compared with itself.", "Choose a GPU, such as cuda.")
        return device
    torch = loaded()
    return device_module.choose("cuda") if torch is not None and torch.cuda.is_available() else None


def _on(fn: Callable[..., object], gpu: Device | None) -> Callable[..., object] | None:
    if gpu is None:
        return None
    return values.moved(fn, gpu.name) if values.is_module(fn) else fn


class _Sweep:
    """The sizes one after the other."""

    def __init__(
        self,
        title: str,
        mode: str | None,
        gpu: Device | None,
        rtol: float,
        atol: float,
        budget_ns: int,
        quality: Callable[[Any], float] | None,
        *,
        fixed: bool,
    ) -> None:
        self.title, self.mode, self.gpu, self.rtol, self.atol = title, mode, gpu, rtol, atol
        self.budget_ns, self.quality, self.fixed = budget_ns, quality, fixed
        self.cpu = HostDevice()
        self.stopped_by = "sizes"

    def points(self, cases: Cases, sizes: Sequence[int]) -> Iterator[SizePoint]:
        began = self.cpu.now_ns()
        for number, size in enumerate(sizes):
            try:
                point = self._point(cases, size)
            except UserError as error:
                if number == 0:
                    raise
                self.stopped_by = f"size {size}: {error.message}"
                return
            yield point
            if not self.fixed and point.cpu_ns > _LONG_NS:
                self.stopped_by = "a call on the CPU takes more than a second"
                return
            if self.cpu.now_ns() - began > self.budget_ns:
                self.stopped_by = "the time budget was used up"
                return

    def _cases(self, cases: Cases, size: int) -> tuple[SizeCase, SizeCase | None]:
        try:
            return cases(size)
        except UserError:
            raise
        except Exception as error:
            raise failure(self.title, error) from error

    def _results(
        self, on_cpu: SizeCase, on_gpu: SizeCase | None
    ) -> tuple[list[float | None], tuple[bool | None, float | None]]:
        """How good both results are; or whether they are equal, and how far apart."""
        try:
            results = [None if case is None else case.fn(*case.inputs) for case in (on_cpu, on_gpu)]
            if self.quality is None:
                same = values.largest_difference(results[0], results[1], self.rtol, self.atol) if on_gpu else None
                return [None, None], same or (None, None)
            is_there = (True, on_gpu is not None)
            return [
                float(self.quality(result)) if there else None for result, there in zip(results, is_there, strict=True)
            ], (None, None)
        except Exception as error:
            raise failure(self.title, error) from error

    def _point(self, cases: Cases, size: int) -> SizePoint:
        on_cpu, on_gpu = self._cases(cases, size)
        gpu, timed = self.gpu, {"cpu_ns": self._time(*on_cpu, self.cpu)}
        if gpu is not None and on_gpu is not None:
            timed["gpu_ns"] = self._time(*on_gpu, gpu)
            if on_gpu.inputs:
                timed["gpu_with_copies_ns"] = self._with_copies(on_gpu, gpu)
        judged, (equal, apart) = self._results(on_cpu, on_gpu)
        if gpu is not None:
            gpu.release_memory()
        ns = {name: latency.median_ns for name, latency in timed.items()}
        intervals = {name: latency.interval for name, latency in timed.items()}
        return SizePoint(
            size,
            ns["cpu_ns"],
            ns.get("gpu_ns"),
            ns.get("gpu_with_copies_ns"),
            equal,
            apart,
            judged[0],
            judged[1],
            {name: (interval.low_ns, interval.high_ns) for name, interval in intervals.items() if interval is not None},
        )

    def _with_copies(self, case: SizeCase, gpu: Device) -> Latency:
        """With inputs that begin on the CPU and a result that is needed there."""

        def with_copies(*here: Any) -> object:
            return values.moved(case.fn(*values.moved(here, gpu.name)), "cpu")

        return self._time(with_copies, values.moved(case.inputs, "cpu"), gpu, SYNCHRONISED)

    def _time(
        self, fn: Callable[..., object], inputs: tuple[Any, ...], device: Device, method: str | None = None
    ) -> Latency:
        options = Options(
            name=self.title,
            device=device,
            method=method,
            mode=self.mode,
            min_samples=10,
            precision=0.02,
            budget_s=_BUDGET_S,
        )
        return measured(fn, inputs, options)

    def mistakes(self, points: Sequence[SizePoint]) -> Iterator[Mistake]:
        """Results that differ."""
        apart = [point for point in points if point.equal is False]
        if apart:
            sizes = ", ".join(str(point.size) for point in apart)
            worst = max(point.largest_difference or 0.0 for point in apart)
            yield Mistake(
                "results-differ",
                f"CPU and GPU do not give the same at size {sizes}: they differ by up to {worst:.3g} "
                f"(allowed: {self.atol:g} + {self.rtol:g} of the value).",
                "Random numbers, another precision (TF32, fp16), or a mistake: times of different work do not compare.",
            )
