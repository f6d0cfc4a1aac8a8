"""``throughput``: the batch size with the most samples per second, found up to where memory or latency ends it."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import repeat
from typing import Any

from msgspec import Struct, field

from boundby.annotate import nvtx_range
from boundby.measure import device as devices
from boundby.measure import mistakes, values
from boundby.measure.device import Device
from boundby.measure.latencies import LatencyRun, machine, title_of
from boundby.measure.results import (
    METHOD_MEANING,
    SYNCHRONISED,
    WALL,
    BatchPoint,
    MeasuredOn,
    MeasureError,
    Mistake,
    TargetError,
    Throughput,
)
from boundby.measure.sampling import MAX_CALLS_PER_SAMPLE, MIN_SAMPLING_NS
from boundby.measure.target import Options
from boundby.model.scale import HABIT, NOTABLE, SLIGHT, SMALL
from boundby.model.units import S, duration

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
    limit is then closed in on by bisection to a sixteenth, and the best size by trying between its neighbours.
    Throughput is (batches x size) / time of batches run back to back, from an idle device to an idle device; latency is
    that of one batch. Running out of memory is no error: what was held is given back, and the search goes on below.

    Args:
        inputs: those of one batch; their first dimension is repeated to make other sizes.
        make_inputs: makes the inputs of a batch of a given size instead (a tuple, or a single one).
        latency_limit_ms: the longest that one batch may take (median).
        stop_at_plateau: stop when two doublings have not gained 2 %. Default: on the CPU, where nothing else ends it.

    Raises:
        TargetError: ``fn`` fails at the first size. MeasureError: there is nothing to make sizes from.
    """
    if start < 1 or (max_batch is not None and max_batch < start):
        raise MeasureError(
            "Batch sizes begin at 1, and end where they begin or above.", "Such as start=1, max_batch=64."
        )
    make = values.maker(inputs, make_inputs)
    found = devices.choose(
        device, inputs, values.modules_of(fn), values.tensors_of(fn), make(start) if not inputs else ()
    )
    limit = round(latency_limit_ms * 1e6) if latency_limit_ms is not None else None
    plateau = stop_at_plateau if stop_at_plateau is not None else not found.is_asynchronous
    options = Options(
        name=name or title_of(fn), device=found, mode=mode, min_samples=5, precision=0.02, budget_s=_LATENCY_BUDGET_S
    )
    search = _BatchSearch(fn, make, options, found, limit, plateau, max_batch or MAX_BATCH, round(budget_s * 1e9))
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
        place = sizes.index(best)
        for other in (*sizes[max(0, place - 1) : place], *sizes[place + 1 : place + 2]):
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
            told = ("host-sync", "cpu-inputs", "cpu-parameters", "gradient-mode", "lazy-result", "unused-result")
            self.mistakes = tuple(mistake for mistake in result.mistakes if mistake.code in told)
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
            PLATEAU: "two more doublings gained less than 2 %",
            LARGEST: f"{self.largest} was the largest size asked for",
            BUDGET: "the time budget was used up",
            ERROR: f"a batch of {self.limit} fails: {self.error}",
        }[self.stopped_by]
