"""A device that exists in virtual time: launches cost the host, the device works later, memory ends somewhere.

Nothing here sleeps. The host's clock moves when something costs host time; the device's work is a queue of one stream.
"""

from __future__ import annotations

import contextlib
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundby.measure.results import DeviceState

LAUNCH_HOST_NS = 5_000
LAUNCH_LATENCY_NS = 4_000
SYNC_NS = 8_000
GRAPH_LAUNCH_NS = 9_000


class ModelOutOfMemoryError(RuntimeError):
    """What the model's allocator raises."""


@dataclass
class Event:
    at_ns: int | None = None


class Memory:
    """An allocation that goes when nobody holds it."""

    def __init__(self, device: ModelDevice, size: int) -> None:
        device.take(size)
        self._finalizer = weakref.finalize(self, device.give, size)


@dataclass
class ModelDevice:
    """One stream of a GPU, and the host beside it. ``jitter`` is a fraction of every kernel's time."""

    memory_bytes: int = 1 << 40
    jitter: float = 0.0
    name: str = "cuda:0"
    label: str = "Model GPU"
    is_asynchronous: bool = True
    host_ns: int = 0
    free_ns: int = 0  # when the stream has done all its work
    in_use: int = 0
    peak: int = 0
    flushes: int = 0
    released: int = 0
    synchronised: int = 0
    is_cold: bool = False
    throttling: tuple[str, ...] = ()
    _sites: list[str] | None = None
    _captured: list[int] | None = None
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    # What programs do with it.

    def launch(self, device_ns: int, host_ns: int = LAUNCH_HOST_NS) -> None:
        """Start a kernel: costs host time now and device time later."""
        if self._captured is not None:
            self._captured.append(device_ns)
            return
        self.host_ns += host_ns
        self._queue(device_ns)

    def _queue(self, device_ns: int) -> None:
        length = device_ns * (1 + self.jitter * self._random.random())
        if self.is_cold:
            length, self.is_cold = 1.5 * length, False
        self.free_ns = max(self.host_ns + LAUNCH_LATENCY_NS, self.free_ns) + round(length)

    def work(self, host_ns: int) -> None:
        """Host code."""
        self.host_ns += host_ns

    def item(self) -> float:
        """A host sync, as ``.item()`` makes."""
        if self._sites is not None:
            frame = sys._getframe(1)
            self._sites.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        self.host_ns = max(self.host_ns, self.free_ns) + SYNC_NS
        return 1.0

    def take(self, size: int) -> None:
        if self.in_use + size > self.memory_bytes:
            raise ModelOutOfMemoryError("out of memory")
        self.in_use += size
        self.peak = max(self.peak, self.in_use)

    def give(self, size: int) -> None:
        self.in_use -= size

    def tensor(self, *shape: int) -> ModelTensor:
        return ModelTensor(np.ones(shape), self.name, Memory(self, 8 * int(np.prod(shape))))

    # What measuring asks of it.

    def now_ns(self) -> int:
        self.host_ns += 50  # reading a clock takes a while, and time goes on
        return self.host_ns

    def synchronize(self) -> None:
        self.synchronised += 1
        self.host_ns = max(self.host_ns, self.free_ns) + SYNC_NS

    def mark(self) -> Event:
        return Event()

    def record(self, mark: Any) -> None:
        self.host_ns += 500
        self.free_ns = max(self.host_ns + LAUNCH_LATENCY_NS, self.free_ns)
        mark.at_ns = self.free_ns

    def between_ns(self, begin: Any, end: Any) -> int:
        elapsed: int = end.at_ns - begin.at_ns
        return elapsed

    def flush_cache(self) -> None:
        self.flushes += 1
        self._queue(100_000)
        self.is_cold = True

    @contextlib.contextmanager
    def watch_syncs(self) -> Iterator[list[str]]:
        self._sites = []
        try:
            yield self._sites
        finally:
            self._sites = None

    def replayable(self, call: Callable[[], object]) -> Callable[[], object]:
        self._captured = []
        try:
            call()
            kernels = self._captured
        finally:
            self._captured = None

        def replay() -> None:
            self.host_ns += GRAPH_LAUNCH_NS
            for kernel in kernels:
                self._queue(kernel)

        return replay

    def memory_in_use_bytes(self) -> int | None:
        return self.in_use

    def peak_memory_bytes(self) -> int | None:
        return self.peak

    def reset_peak_memory(self) -> None:
        self.peak = self.in_use

    def release_memory(self) -> None:
        self.released += 1

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, ModelOutOfMemoryError)

    def state(self) -> DeviceState | None:
        return DeviceState("model", 250.0, 400.0, 61.0, 1410.0, 1980.0, 1593.0, self.throttling)


@dataclass
class ModelTensor:
    """What measuring sees of a tensor."""

    data: NDArray[Any]
    device: str = "cpu"
    memory: Memory | None = None
    requires_grad: bool = False
    grad_fn: object = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def to(self, device: str) -> ModelTensor:
        return ModelTensor(self.data, str(device))

    def clone(self) -> ModelTensor:
        return ModelTensor(self.data.copy(), self.device)

    def detach(self) -> ModelTensor:
        return self

    def __getitem__(self, rows: Any) -> ModelTensor:
        return ModelTensor(self.data[rows], self.device)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.data if dtype is None else self.data.astype(dtype)


class ModelModule:
    """A module with one parameter."""

    def __init__(self, device: str = "cpu", gpu: ModelDevice | None = None) -> None:
        self.gpu = gpu  # what a call launches on: a call that costs a virtual clock nothing could go on for ever
        self.weight = ModelTensor(np.ones(3), device)
        self.training = True

    def parameters(self) -> Iterator[ModelTensor]:
        yield self.weight

    def modules(self) -> Iterator[ModelModule]:
        yield self

    def to(self, device: str) -> ModelModule:
        self.weight = self.weight.to(device)
        return self

    def __deepcopy__(self, memo: object) -> ModelModule:
        return ModelModule(self.weight.device, self.gpu)

    def __call__(self, x: ModelTensor) -> ModelTensor:
        if self.gpu is not None:
            self.gpu.launch(1_000_000)
        return ModelTensor(x.data * 2, x.device)
