"""What measuring asks of a device: of torch's CUDA (the only file that calls torch.cuda), of NVML, of torch's modes."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import platform
import re
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from boundby.measure import values
from boundby.measure.results import DeviceError, DeviceState, MeasureError, Mistake, TargetError
from boundby.measure.values import is_tensor, leaves
from boundby.model import door
from boundby.model.scale import GRACE_S, HABIT
from boundby.trace.vocabulary.python import Frame

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
        """A block in which each wait of the host for the device is noted (on the CPU each that a GPU would make): file
        and line."""

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

    def watch_syncs(self) -> contextlib.AbstractContextManager[list[str]]:
        return would_wait()

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


# The state of an NVIDIA GPU: from NVML where the package nvidia-ml-py is installed, else from nvidia-smi.
#
# What a driver does not tell is None. Nothing here raises: a measurement does not fail because its circumstances are
# not known.

#: NVML's bits of nvmlClocksEventReasons -> words. Idle and applications-clock settings are no throttling.
REASONS: Mapping[int, str] = {
    0x0000000000000004: "software power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
_FIELDS = (
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks_throttle_reasons.active",
    "pstate",
    "persistence_mode",
)


def nvml_state(uuid: str) -> DeviceState | None:
    """The GPU with this UUID (with or without ``GPU-`` before it), or None where nothing tells."""
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return _from_nvml(name) or _from_smi(name)


def reasons(bits: int | None) -> tuple[str, ...] | None:
    """The words for a bit mask of clock event reasons."""
    return None if bits is None else tuple(text for bit, text in REASONS.items() if bits & bit)


def _from_nvml(uuid: str) -> DeviceState | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # not installed, or no driver
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

        def told(read: Callable[[], Any]) -> Any:
            with contextlib.suppress(Exception):  # nvml.NVMLError_NotSupported and its like
                return read()
            return None

        def milliwatts(value: Any) -> float | None:
            return None if value is None else value / 1000

        return DeviceState(
            "NVML",
            power_w=milliwatts(told(lambda: nvml.nvmlDeviceGetPowerUsage(handle))),
            power_limit_w=milliwatts(told(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))),
            temperature_c=told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            sm_clock_mhz=told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            max_sm_clock_mhz=told(lambda: float(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_clock_mhz=told(lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            throttling=reasons(told(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
            performance_state=told(lambda: int(nvml.nvmlDeviceGetPerformanceState(handle))),
            persistence_mode=told(lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle))),
        )
    except Exception:
        return None
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def _from_smi(uuid: str) -> DeviceState | None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    query = [smi, f"--id={uuid}", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=GRACE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parsed(done.stdout)


def parsed(line: str) -> DeviceState | None:
    """One line of ``nvidia-smi --query-gpu`` for the fields above; what is "[N/A]" is None."""
    cells = [cell.strip() for cell in line.strip().split(",")]
    if len(cells) != len(_FIELDS):
        return None
    *figures, mask, state, mode = cells
    numbers = [_number(cell) for cell in figures]
    bits: int | None = None
    with contextlib.suppress(ValueError):
        bits = int(mask, 16)
    level = int(state[1:]) if state[:1] == "P" and state[1:].isdigit() else None
    persistence = {"Enabled": True, "Disabled": False}.get(mode)
    power, limit, temperature, clock, highest, memory = numbers
    return DeviceState(
        "nvidia-smi", power, limit, temperature, clock, highest, memory, reasons(bits), level, persistence
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# A CUDA device through torch. The only file that calls torch.cuda.

#: Written through to flush L2: larger than that of any GPU so far (126 MB on a B200).
FLUSH_BYTES = 256 * 1024 * 1024
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
                sites.extend(
                    f"{warning.filename}:{warning.lineno}"
                    for warning in caught
                    if _SYNC_WARNING in str(warning.message)
                )

    def replayable(self, call: Callable[[], object]) -> Callable[[], object]:
        torch = self._torch
        try:
            side, current = torch.cuda.Stream(self._index), torch.cuda.current_stream(self._index)
            side.wait_stream(current)
            with torch.cuda.stream(side):
                for _ in range(HABIT):
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
        return nvml_state(str(uuid)) if uuid is not None else None


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


# What torch, where it is loaded, is asked for besides CUDA: modes, gradients, torch.compile's counters.

INFERENCE, TRAINING = "inference", "training"
MODES = (INFERENCE, TRAINING)


def loaded() -> Any | None:
    """torch, if the program has imported it."""
    return sys.modules.get("torch")


def compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process: a recompilation makes one more."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0


@contextlib.contextmanager
def entered_mode(mode: str | None, modules: Sequence[Any]) -> Iterator[None]:
    """Run a block in inference mode (``eval()``, no gradients) or training mode (``train()``, gradients); put back
    every module's own mode and gradients afterwards. ``None``: everything stays as it is."""
    if mode is None:
        yield
        return
    if mode not in MODES:
        raise MeasureError(f"There is no mode {mode!r}.", f"Choose one of {', '.join(MODES)}, or none.")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise MeasureError(f"The mode {mode} needs PyTorch, which is not installed.", "Leave out the mode.") from None
    parts = [part for module in modules for part in module.modules()]
    were = [(part, part.training) for part in parts]
    gradients = [(weight, weight.grad) for module in modules for weight in module.parameters()]
    try:
        for module in modules:
            module.train(mode == TRAINING)
        with torch.inference_mode() if mode == INFERENCE else torch.enable_grad():
            yield
    finally:
        for part, was in were:
            part.training = was
        for weight, gradient in gradients:
            weight.grad = gradient


def training_call(module: Any) -> Callable[..., object]:
    """Forward through ``module``, then backward from the sum of the results that require gradients."""

    def forward_and_backward(*inputs: Any) -> object:
        results = [leaf for leaf in values.leaves(_opened(module(*inputs))) if getattr(leaf, "requires_grad", False)]
        if not results:
            raise TargetError(
                "No result of the module requires gradients, so it cannot be timed in training.",
                "Time it in inference mode, or give a function that does the whole step.",
            )
        sum(result.sum() for result in results).backward()
        return results

    return forward_and_backward


def _opened(result: Any) -> Any:
    """Results that are objects with fields (a dataclass of outputs) as a mapping of them."""
    fields = getattr(result, "__dataclass_fields__", None)
    return {name: getattr(result, name) for name in fields} if fields and not isinstance(result, type) else result


def drop_gradients(modules: Sequence[Any]) -> Callable[[], None]:
    """Sets every parameter's gradient to None, as ``zero_grad`` does before each step."""
    weights = [weight for module in modules for weight in module.parameters()]

    def drop() -> None:
        for weight in weights:
            weight.grad = None

    return drop


@contextlib.contextmanager
def watch_backward() -> Iterator[list[str]]:
    """A block in which calls of torch.autograd are noted."""
    torch = loaded()
    seen: list[str] = []
    if torch is None:
        yield seen
        return
    autograd: Any = torch.autograd
    with contextlib.ExitStack() as undo:
        for name in ("backward", "grad"):
            original = getattr(autograd, name)
            undo.callback(setattr, autograd, name, original)
            setattr(autograd, name, _noting_compiles(original, name, seen))
        yield seen


def _noting_compiles(original: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    def noted(*arguments: Any, **options: Any) -> Any:
        seen.append(name)
        return original(*arguments, **options)

    return noted


def gradient_mistake(result: object, backward: Sequence[str], mode: str | None) -> Mistake | None:
    """Gradient mode on by accident: a result that carries its graph, with nobody who goes back through it."""
    if mode is not None or backward:
        return None
    if not any(getattr(leaf, "grad_fn", None) is not None for leaf in values.leaves(_opened(result))):
        return None
    return Mistake(
        "gradient-mode",
        "Gradient mode is on: the result keeps its graph, and nothing goes backward through it.",
        "For inference use mode='inference' (--mode inference); for training time the whole step.",
    )


# Where a program of torch on the CPU would wait for a GPU, if its tensors were there.
#
# torch itself marks operators whose result the host must read before it can go on: their output's shape, or a value,
# depends on data. A mode sees every operator as it is dispatched, those inside others too; another one sees what never
# becomes an operator on the CPU (``.cpu()``, ``.tolist()``).
#
# What is told is of tensors that would be on the GPU: those that the watched function is given or makes there. Tensors
# that it makes without naming a device, or brought to the host, are on the host on a GPU too. On the CPU ``.to("cpu")``
# cannot be told from ``.to(device)``, nor a copy to the device from one that is none: neither is noted.

#: What becomes no operator on the CPU and waits on a GPU.
_READS = ("cpu", "tolist")
#: Checks every value on the CPU only: on a GPU it reads the largest one, where it is not told the number of classes.
_CHECKED_HERE = "one_hot"
#: Optimizers count their steps in tensors on the host.
_OPTIMIZERS = "torch.optim."


@contextlib.contextmanager
def would_wait() -> Iterator[list[str]]:
    """A block in which each operator that would wait for a GPU is noted: file and line."""
    sites: list[str] = []
    torch: Any = sys.modules.get("torch")
    may_compile = "torch._dynamo" in sys.modules  # what was called compiled with modes around it stays eager for ever
    stance: Any = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if torch is None or (may_compile and stance is None):
        yield sites
        return
    with contextlib.ExitStack() as modes:
        if may_compile:
            modes.enter_context(stance("force_eager"))
        for mode in _modes(torch, sites):
            modes.enter_context(mode)
        yield sites


def _are_here(here: Any, args: Any, named: Any) -> bool:
    """Whether all that is given would be on the host."""
    given = [leaf for leaf in leaves((args, named)) if is_tensor(leaf)]
    return all(tensor in here for tensor in given) and (bool(given) or named.get("device") is None)


def _placed(here: Any, name: str, result: Any, *, is_here: bool) -> Any:
    """The result, noted as on the host where it would be."""
    if name == "cpu" and not is_here:
        result = result.view_as(result)  # the same tensor would be both here and there
    if name == "cpu" or (is_here and name not in ("to", "cuda")):
        here.update((leaf, True) for leaf in leaves(result) if is_tensor(leaf))
    elif is_here and is_tensor(result):
        here.pop(result, None)
    return result


def _modes(torch: Any, sites: list[str]) -> Iterator[Any]:
    dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
    overrides: Any = importlib.import_module("torch.overrides")
    reading = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    weak: Any = importlib.import_module("torch.utils.weak")
    here = weak.WeakTensorKeyDictionary()  # tensors that would be on the host anyway
    quiet = [False]

    def note() -> None:
        if not quiet[0] and (site := _site()):
            sites.append(site)

    class WatchedOperators(dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if (reading.intersection(func.tags) and _reads(func, args)) or _writes_by_mask(func, args):
                note()
            return func(*args, **(kwargs or {}))

    class WatchedCalls(overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            name = getattr(func, "__name__", "")
            is_here = _are_here(here, args, named)
            before, quiet[0] = quiet[0], is_here
            try:
                if name in _READS or (name == _CHECKED_HERE and _classes(args, named) < 0):
                    note()
                quiet[0] = is_here or name == _CHECKED_HERE
                result = func(*args, **named)
            finally:
                quiet[0] = before
            return _placed(here, name, result, is_here=is_here)

    yield WatchedOperators()
    yield WatchedCalls()


def _classes(args: tuple[Any, ...], named: dict[str, Any]) -> int:
    return int(args[1] if len(args) > 1 else named.get("num_classes", -1))


def _reads(func: Any, args: tuple[Any, ...]) -> bool:
    """An index waits for a mask only: its size is how many elements are true."""
    return not str(func).startswith("aten.index.") or _masks(args[1])


def _writes_by_mask(func: Any, args: tuple[Any, ...]) -> bool:
    """``x[mask] = values``; of a single value it is masked_fill, which knows its size."""
    if "index_put" not in str(func) or not _masks(args[1]):
        return False
    return bool(args[2].numel() != 1 or (len(args) > 3 and args[3]))


def _masks(indices: Any) -> bool:
    return any(index is not None and str(index.dtype) in ("torch.bool", "torch.uint8") for index in indices)


def _site() -> str | None:
    """The innermost line of the program itself; None for what an optimizer reads of itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_OPTIMIZERS):
            return None
        code = frame.f_code
        if Frame(code.co_name, code.co_filename, frame.f_lineno).distance == 0:
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None
