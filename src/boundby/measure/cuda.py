"""A CUDA device through torch. The only file that calls torch.cuda."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from boundby.measure import nvml
from boundby.measure.results import DeviceError, DeviceState, MeasureError

#: Written through to flush L2: larger than that of any GPU so far (126 MB on a B200).
FLUSH_BYTES = 256 * 1024 * 1024
#: Calls on a side stream before a capture, as torch asks for: lazy initialisation must not be captured.
GRAPH_WARM_UP = 3
#: The text of the warning that torch gives in its synchronisation debug mode.
_SYNC_WARNING = "synchronizing CUDA operation"
#: Beside torch's own error: what libraries say when their workspace does not fit.
_OUT_OF_MEMORY = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
)
_THIS = str(Path(__file__))


class CudaDevice:
    """One GPU, its current stream, and its caching allocator."""

    is_asynchronous = True

    def __init__(self, torch: Any, index: int) -> None:
        self._torch, self._index = torch, index
        self._device = torch.device("cuda", index)
        self._flushed: Any = None

    @classmethod
    def open(cls, index: int | None) -> CudaDevice:
        """The GPU with that index, or the current one. Raises DeviceError if it is not there."""
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            raise DeviceError(
                "To time on a GPU, PyTorch is needed, and it is not installed here.", "Install torch."
            ) from None
        if not torch.cuda.is_available():
            why = "this build of PyTorch has no CUDA" if torch.version.cuda is None else "PyTorch finds no GPU"
            raise DeviceError(
                f"There is no CUDA device here: {why}.", "Run it where there is one, or with the device cpu."
            )
        count = torch.cuda.device_count()
        if index is not None and index >= count:
            raise DeviceError(f"There is no device cuda:{index} here.", f"There are {count}, from cuda:0 on.")
        return cls(torch, torch.cuda.current_device() if index is None else index)

    @property
    def name(self) -> str:
        return f"cuda:{self._index}"

    @property
    def label(self) -> str:
        return str(self._torch.cuda.get_device_name(self._index))

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._index)

    def mark(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def record(self, mark: Any) -> None:
        mark.record(self._torch.cuda.current_stream(self._index))

    def between_ns(self, begin: Any, end: Any) -> int:
        milliseconds: float = begin.elapsed_time(end)
        return round(milliseconds * 1e6)

    def flush_cache(self) -> None:
        if self._flushed is None:
            self._flushed = self._torch.empty(FLUSH_BYTES, dtype=self._torch.int8, device=self._device)
        self._flushed.zero_()

    @contextlib.contextmanager
    def watch_syncs(self) -> Iterator[list[str]]:
        """torch's debug mode tells of waits inside operators and of Stream.synchronize; others are watched here.

        Neither tells of waits that the driver makes by itself (cudaMalloc, cudaFree), of copies from pageable memory
        that are meant not to block, nor of what other libraries do.
        """
        cuda = self._torch.cuda
        sites: list[str] = []
        before = cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as undo:
            warnings.simplefilter("always")
            for owner in (cuda, cuda.Event):
                undo.callback(setattr, owner, "synchronize", owner.synchronize)
                owner.synchronize = _noting(owner.synchronize, sites)
            undo.callback(cuda.set_sync_debug_mode, before)
            cuda.set_sync_debug_mode("warn")
            try:
                yield sites
            finally:
                cuda.set_sync_debug_mode(before)
                sites.extend(f"{one.filename}:{one.lineno}" for one in caught if _SYNC_WARNING in str(one.message))

    def replayable(self, call: Callable[[], object]) -> Callable[[], object]:
        torch = self._torch
        try:
            side, current = torch.cuda.Stream(self._index), torch.cuda.current_stream(self._index)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                for _ in range(GRAPH_WARM_UP):
                    call()
            current.wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            raise MeasureError(
                f"This cannot be captured as a CUDA graph: {first}",
                "A captured function must not wait for the device, and must run the same kernels at every call.",
            ) from error
        replay: Callable[[], object] = graph.replay
        return replay

    def memory_in_use_bytes(self) -> int | None:
        return int(self._torch.cuda.memory_allocated(self._index))

    def peak_memory_bytes(self) -> int | None:
        return int(self._torch.cuda.max_memory_allocated(self._index))

    def reset_peak_memory(self) -> None:
        self._torch.cuda.reset_peak_memory_stats(self._index)

    def release_memory(self) -> None:
        gc.collect()
        self._torch.cuda.empty_cache()

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, self._torch.cuda.OutOfMemoryError | MemoryError):
            return True
        return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)

    def state(self) -> DeviceState | None:
        properties = self._torch.cuda.get_device_properties(self._index)
        uuid = getattr(properties, "uuid", None)  # torch >= 2.4; the index alone may be another GPU to NVML
        return nvml.state(str(uuid)) if uuid is not None else None


def was_started() -> bool:
    """Whether the program itself has used CUDA by now. Starts nothing and imports nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def allocations() -> int:
    """How many blocks of GPU memory the program has taken so far: nearly every operator on a GPU takes one."""
    if not was_started():
        return -1
    return int(sys.modules["torch"].cuda.memory_stats().get("allocation.all.allocated", 0))


def was_used_since(before: int) -> bool:
    """Whether the current GPU was, since ``allocations`` gave ``before``: memory was taken, or it works right now."""
    if not was_started():
        return False
    return allocations() != before or not sys.modules["torch"].cuda.current_stream().query()


def wait_if_started() -> None:
    """Wait for the current GPU, if the program uses one."""
    if was_started():
        sys.modules["torch"].cuda.synchronize()


def _noting(wait: Callable[..., Any], sites: list[str]) -> Callable[..., Any]:
    """``wait``, which notes who called it."""

    @functools.wraps(wait)
    def noted(*arguments: Any, **options: Any) -> Any:
        caller = next((f for f in reversed(traceback.extract_stack()[:-1]) if f.filename != _THIS), None)
        if caller is not None:
            sites.append(f"{caller.filename}:{caller.lineno}")
        return wait(*arguments, **options)

    return noted
