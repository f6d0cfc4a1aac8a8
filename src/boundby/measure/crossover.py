"""``devices``: one function at growing sizes on CPU and GPU, and from which size on the GPU pays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from boundby.annotate import nvtx_range
from boundby.measure import device as device_module
from boundby.measure import torch_modes, values
from boundby.measure.device import Device, HostDevice
from boundby.measure.errors import MeasureError
from boundby.measure.latencies import failure, machine, measured, title_of
from boundby.measure.options import Options
from boundby.measure.results import SYNCHRONISED, Devices, Latency, Mistake, SizePoint
from boundby.model.errors import UserError

#: Default sizes: powers of this, until a call on the CPU takes too long.
FACTOR = 4
_MOST_SIZES = 12
#: A call longer than this ends the default sizes: the next would take several seconds.
_LONG_NS = 1_000_000_000
_BUDGET_S = 1.0


def devices(
    fn: Callable[..., object],
    *inputs: Any,
    make_inputs: Callable[[int], Any] | None = None,
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
        build: makes the function for a device ("cpu", "cuda:0") where ``fn`` cannot simply be copied.
        sizes: default: 1, 4, 16, ... until a call takes a second on the CPU, or the budget is used up.
        gpu: default: the current GPU, if the program has loaded torch and there is one.

    Raises:
        MeasureError: there is nothing to make sizes from. TargetError: ``fn`` fails at the first size.
    """
    if make_inputs is None and values.batch_size(inputs) is None:
        raise MeasureError(
            "No input has a first dimension that could grow.",
            "Give inputs that begin with one, or make_inputs, a function from a size to inputs.",
        )
    if sizes is not None and (not sizes or min(sizes) < 1):
        raise MeasureError("Sizes are numbers from 1 on, and there must be one.", "Such as 1 16 256.")
    other = _gpu(gpu)
    title = name or title_of(fn)
    sweep = _Sweep(title, mode, other, rtol, atol, round(budget_s * 1e9), fixed=sizes is not None)
    make = make_inputs or functools.partial(values.resized, inputs)
    functions = (build("cpu"), build(other.name) if other else None) if build else (fn, _on(fn, other))
    with nvtx_range(f"devices {title}"):
        points = tuple(sweep.points(functions, make, sorted(set(sizes)) if sizes else _sizes()))
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
        mistakes=tuple(sweep.mistakes(points)),
    )


def break_even(points: Sequence[tuple[int, float, float | None]]) -> float | None:
    """The size from which on the GPU is quicker, from (size, CPU, GPU) by size; None if it never is.

    Between the last size at which it is not and the next, times are taken for straight on logarithmic axes. It is the
    smallest size measured if the GPU is quicker from there on.
    """
    known = [(size, math.log(cpu / gpu)) for size, cpu, gpu in points if gpu is not None and gpu > 0]
    slower = [place for place, (_, gain) in enumerate(known) if gain < 0]
    if not known or known[-1][1] < 0:
        return None
    if not slower:
        return float(known[0][0])
    (size, loss), (next_size, gain) = known[slower[-1]], known[slower[-1] + 1]
    part = -loss / (gain - loss)
    return math.exp(math.log(size) + part * (math.log(next_size) - math.log(size)))


def _gpu(gpu: str | Device | None) -> Device | None:
    if gpu is not None:
        found = device_module.choose(gpu)
        if not found.is_asynchronous:
            raise MeasureError("The CPU cannot be held against itself.", "Choose a GPU, such as cuda.")
        return found
    torch = torch_modes.loaded()
    return device_module.choose("cuda") if torch is not None and torch.cuda.is_available() else None


def _on(fn: Callable[..., object], gpu: Device | None) -> Callable[..., object] | None:
    if gpu is None:
        return None
    return values.moved(fn, gpu.name) if values.is_module(fn) else fn


def _sizes() -> list[int]:
    return [FACTOR**power for power in range(_MOST_SIZES)]


class _Sweep:
    """The sizes one after the other."""

    def __init__(
        self, title: str, mode: str | None, gpu: Device | None, rtol: float, atol: float, budget_ns: int, *, fixed: bool
    ) -> None:
        self.title, self.mode, self.gpu, self.rtol, self.atol = title, mode, gpu, rtol, atol
        self.budget_ns, self.fixed = budget_ns, fixed
        self.cpu = HostDevice()
        self.stopped_by = "sizes"

    def points(
        self,
        functions: tuple[Callable[..., object], Callable[..., object] | None],
        make: Callable[[int], Any],
        sizes: Sequence[int],
    ) -> Iterator[SizePoint]:
        began = self.cpu.now_ns()
        for number, size in enumerate(sizes):
            try:
                point = self._point(functions, make, size)
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

    def _point(
        self,
        functions: tuple[Callable[..., object], Callable[..., object] | None],
        make: Callable[[int], Any],
        size: int,
    ) -> SizePoint:
        made = values.moved(make(size), "cpu")
        inputs = made if isinstance(made, tuple) else (made,)
        on_cpu, on_gpu = functions
        cpu_ns = self._time(on_cpu, inputs, self.cpu).median_ns
        if self.gpu is None or on_gpu is None:
            return SizePoint(size, cpu_ns, None, None, None, None)
        gpu = self.gpu
        there = values.moved(inputs, gpu.name)
        gpu_ns = self._time(on_gpu, there, gpu).median_ns

        def with_copies(*here: Any) -> object:
            return values.moved(on_gpu(*values.moved(here, gpu.name)), "cpu")

        copies_ns = self._time(with_copies, inputs, gpu, SYNCHRONISED).median_ns
        try:
            compared = values.largest_difference(on_cpu(*inputs), on_gpu(*there), self.rtol, self.atol)
        except Exception as error:
            raise failure(self.title, error) from error
        equal, largest = compared if compared is not None else (None, None)
        gpu.release_memory()
        return SizePoint(size, cpu_ns, gpu_ns, copies_ns, equal, largest)

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
