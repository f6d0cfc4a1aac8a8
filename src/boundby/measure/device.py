"""The seam: all that measuring asks of a device. ``HostDevice`` is here, ``CudaDevice`` in ``cuda.py``."""

from __future__ import annotations

import contextlib
import gc
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from boundby.measure import values
from boundby.measure.results import DeviceError, DeviceState
from boundby.model import door

#: A device's event, recorded on its current stream. Only the device that made it knows what is in it.
Mark = Any


class Device(Protocol):
    """A device and the clocks that time it. ``synchronize`` and everything after it may be called at any moment."""

    @property
    def name(self) -> str:
        """``"cpu"``, ``"cuda:0"``."""

    @property
    def label(self) -> str:
        """What it is called by its maker."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether a call can return before its work is done."""

    def now_ns(self) -> int:
        """The host's clock."""

    def synchronize(self) -> None:
        """Wait until all work is done."""

    def mark(self) -> Mark:
        """An event that can be recorded, again and again."""

    def record(self, mark: Mark) -> None:
        """Record it on the current stream."""

    def between_ns(self, begin: Mark, end: Mark) -> int:
        """Device time between two recorded events, once both have happened."""

    def flush_cache(self) -> None:
        """Push everything out of the L2 cache."""

    def watch_syncs(self) -> contextlib.AbstractContextManager[list[str]]:
        """A block in which each wait of the host for the device is noted: file, line and what called it."""

    def replayable(self, call: Callable[[], object]) -> Callable[[], object]:
        """``call`` captured as a graph, and replayed."""

    def memory_in_use_bytes(self) -> int | None: ...

    def peak_memory_bytes(self) -> int | None:
        """Highest use since ``reset_peak_memory``."""

    def reset_peak_memory(self) -> None: ...

    def release_memory(self) -> None:
        """Give back what is held and not used."""

    def is_out_of_memory(self, error: BaseException) -> bool: ...

    def state(self) -> DeviceState | None:
        """Power, temperature, clocks and throttling, where something tells."""


class HostDevice:
    """The CPU: a call returns when its work is done, so the wall clock is all that is needed."""

    name = "cpu"
    is_asynchronous = False

    @property
    def label(self) -> str:
        return processor()

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def synchronize(self) -> None:
        """Nothing runs on after it was asked for."""

    def mark(self) -> Mark:
        return [0]

    def record(self, mark: Mark) -> None:
        mark[0] = time.perf_counter_ns()

    def between_ns(self, begin: Mark, end: Mark) -> int:
        elapsed: int = end[0] - begin[0]
        return elapsed

    def flush_cache(self) -> None:
        """There is no one flush for all CPUs; latency() refuses to ask for it."""

    @contextlib.contextmanager
    def watch_syncs(self) -> Iterator[list[str]]:
        yield []

    def replayable(self, call: Callable[[], object]) -> Callable[[], object]:  # noqa: ARG002
        raise DeviceError("CUDA graphs need a GPU, and this is timed on the CPU.", "Leave out the graph.")

    def memory_in_use_bytes(self) -> int | None:
        return None

    def peak_memory_bytes(self) -> int | None:
        return None

    def reset_peak_memory(self) -> None:
        """Not told on a CPU."""

    def release_memory(self) -> None:
        gc.collect()

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, MemoryError):
            return True
        return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)

    def state(self) -> DeviceState | None:
        return None


def processor() -> str:
    """The CPU's name."""
    with contextlib.suppress(OSError):
        for line in door.read_text(Path("/proc/cpuinfo"), errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "hardware") and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "CPU"


def choose(wanted: str | Device | None, *things: object) -> Device:
    """The device to time on.

    Args:
        wanted: "cpu", "cuda", "cuda:1", a device (torch's too); None takes that of the first tensor or module on a
            GPU among ``things``, else the CPU.

    Raises:
        DeviceError: it is not here, or is of a kind that cannot be timed.
    """
    if wanted is not None and not isinstance(wanted, str) and hasattr(wanted, "now_ns"):
        return wanted
    text = str(wanted).strip().lower() if wanted is not None else found(*things)
    if text == "cpu":
        return HostDevice()
    if not re.fullmatch(r"cuda(:\d+)?", text):
        raise DeviceError(f"Cannot time on {text!r}.", "Choose cpu, cuda, or cuda:N.")
    from boundby.measure.cuda import CudaDevice

    return CudaDevice.open(int(text.partition(":")[2]) if ":" in text else None)


def found(*things: object) -> str:
    """The name of the first device other than the CPU that a tensor or a module's parameter is on, else ``"cpu"``."""
    for thing in things:
        for leaf in values.leaves(thing):
            tensors = leaf.parameters() if values.is_module(leaf) else (leaf,) if values.is_tensor(leaf) else ()
            for tensor in tensors:
                if (name := values.device_of(tensor)) not in ("cpu", "meta"):
                    return name
    return "cpu"
