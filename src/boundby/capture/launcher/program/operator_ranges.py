"""A range for every operator: by ``emit_nvtx`` in a CUDA build, else by a dispatch mode; and where the program loads
data, steps its optimizers, waits for ranks.

``emit_nvtx`` starts only when the program itself has started CUDA (it waits for the device, and a process that
forks after that could not use CUDA any more), and makes way for a profiler that the program opens itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from boundby.annotate import backends, nvtx_range, ranges
from boundby.annotate.backends import Label, Marker

#: Questions about tensors, and the program's own record_function, which does not end with the call.
_NO_OPERATORS = ("prim::", "profiler::")


class RangesOfOperators(Protocol):
    """``ensure`` is called often, by every thread that runs modules, and turns the ranges on where it can."""

    name: str

    def ensure(self) -> None: ...


class NoOperators:
    """Operators get no ranges."""

    name = "none"

    def ensure(self) -> None:
        return None


class EmitNvtx:
    """torch's own operator ranges, forward and backward, with sequence numbers. One switch a thread."""

    name = "emit_nvtx"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._thread = _OpenOperators()
        self._make_way()

    def ensure(self) -> None:
        thread = self._thread
        if thread.is_settled or not self._torch.cuda.is_initialized():
            return
        thread.is_settled = True  # whatever comes of it: a second try would fail too
        emitting = self._torch.autograd.profiler.emit_nvtx(record_shapes=False)
        thread.is_ours = True
        try:
            emitting.__enter__()
        except Exception:  # the program runs a profiler of its own on this thread
            return
        finally:
            thread.is_ours = False
        thread.is_emitting = True
        atexit.register(self._stop)

    def _stop(self) -> None:
        # Not emit_nvtx's own end, which waits for the device: a program may end while that hangs.
        if self._thread.is_emitting:
            self._thread.is_emitting = False
            with contextlib.suppress(Exception):
                self._torch.autograd._disable_profiler()

    def _make_way(self) -> None:
        """torch runs one profiler a thread. When the program starts one, ours stops for that long."""
        profiler = self._torch.autograd.profiler
        started = getattr(profiler, "_run_on_profiler_start", None)
        stopped = getattr(profiler, "_run_on_profiler_stop", None)
        if started is None or stopped is None:
            return
        thread = self._thread

        def start() -> None:
            if not thread.is_ours:
                self._stop()
                thread.is_settled = True
            started()

        def stop() -> None:
            stopped()
            thread.is_settled = False

        profiler._run_on_profiler_start = start
        profiler._run_on_profiler_stop = stop


class DispatchRanges:
    """For builds without CUDA: a mode that sees each operator as it is dispatched. No sequence numbers."""

    name = "dispatch"

    def __init__(self, torch: Any, mode: Any) -> None:
        self._torch = torch
        self._mode = mode
        self._thread = _OpenOperators()

    def ensure(self) -> None:
        thread = self._thread
        # Modes are a stack: below one that the program has open, ours would be in the place of that.
        if thread.is_settled or self._torch._C._len_torch_dispatch_stack() > 0:
            return
        thread.is_settled = True
        self._mode().__enter__()


class _OpenOperators(threading.local):
    def __init__(self) -> None:
        self.is_settled = False
        self.is_emitting = False
        self.is_ours = False


def choose(torch: Any) -> RangesOfOperators:
    """The way that this build of torch has."""
    if getattr(torch._C, "_nvtx", None) is not None:
        return EmitNvtx(torch)
    mode = _dispatch_mode(torch)
    return NoOperators() if mode is None else DispatchRanges(torch, mode)


def _dispatch_mode(torch: Any) -> Any:
    modes = getattr(getattr(torch, "utils", None), "_python_dispatch", None)
    if modes is None or not hasattr(torch._C, "_len_torch_dispatch_stack"):
        return None
    markers: dict[Any, Marker | None] = {}

    def marker_of(function: Any) -> Marker | None:
        name = function._schema.name
        made = None if name.startswith(_NO_OPERATORS) else backends.current().marker(Label(name))
        markers[function] = made
        return made

    class OperatorRanges(modes.TorchDispatchMode):  # type: ignore[misc, name-defined, unused-ignore]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # or torch would load its whole compiler at the first operator

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # or torch.compile would not compile while this is open

        def __torch_dispatch__(
            self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            marker = markers[function] if function in markers else marker_of(function)
            if marker is None:
                return function(*args, **(kwargs or {}))
            owner = object()
            ranges.push(owner, marker)
            try:
                return function(*args, **(kwargs or {}))
            finally:
                ranges.pop(owner)

    return OperatorRanges


# Ranges where a program waits for its DataLoader (``data``), where its optimizers step (``optimizer``), around
# collectives that no device shows (``c10d::all_reduce``), and around the program's own ``record_function`` blocks.

#: Calls of torch.distributed that return when the collective is over, unless they are asked not to wait for it.
_COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "broadcast", "broadcast_object_list", "gather", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "scatter", "send", "recv", "monitored_barrier"),
)
#: What torch itself puts around loaders and optimizers, for which there are ranges here.
_TOLD_ALREADY = ("enumerate(DataLoader)", "Optimizer.")


def mark_loaders(operators: RangesOfOperators) -> None:
    """``data`` around each batch that is waited for, ``data start`` where workers are started."""
    module: Any = sys.modules["torch.utils.data.dataloader"]
    iterator, loader = module._BaseDataLoaderIter, module.DataLoader
    waiting, starting = nvtx_range("data"), nvtx_range("data start")
    get, begin = iterator.__next__, loader.__iter__

    @functools.wraps(get)
    def __next__(self: Any) -> Any:  # noqa: N807
        operators.ensure()
        with waiting:
            return get(self)

    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:  # noqa: N807
        with starting:
            return begin(self)

    iterator.__next__ = __next__
    loader.__iter__ = __iter__


def mark_optimizers() -> None:
    """``optimizer`` around each step. torch's hook for the end of a step is not called when it raises."""
    module: Any = sys.modules["torch.optim.optimizer"]
    torch: Any = sys.modules["torch"]
    marker: Any = backends.current().marker(Label("optimizer"))
    owners: dict[int, object] = {}

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        left = owners.get(id(optimizer))
        if left is not None:  # its last step raised
            ranges.pop(left)
        owner = owners[id(optimizer)] = object()
        ranges.push(owner, marker)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        owner = owners.pop(id(optimizer), None)
        if owner is not None:
            ranges.pop(owner)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def mark_record_functions() -> None:
    """The program's own ``record_function`` names, which ``emit_nvtx`` writes in builds that have it."""
    torch: Any = sys.modules["torch"]
    kind: Any = torch.autograd.profiler.record_function
    enter, leave = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:  # noqa: N807
        result = enter(self)
        if not torch.compiler.is_compiling() and not self.name.startswith(_TOLD_ALREADY):
            self._boundby_owner = object()
            ranges.push(self._boundby_owner, backends.current().marker(Label(self.name)))  # type: ignore[arg-type]
        return result

    @functools.wraps(leave)
    def __exit__(self: Any, *raised: Any) -> Any:  # noqa: N807
        if (owner := self.__dict__.pop("_boundby_owner", None)) is not None:
            ranges.pop(owner)
        return leave(self, *raised)

    kind.__enter__, kind.__exit__ = __enter__, __exit__


def mark_collectives() -> None:
    """``c10d::NAME`` around each collective, or around the wait for it where the call does not wait."""
    public: Any = sys.modules["torch.distributed"]
    if not public.is_available():
        return
    inner: Any = sys.modules["torch.distributed.distributed_c10d"]
    for name in _COLLECTIVES:
        original = getattr(inner, name, None)
        if original is not None:
            marked = _marked(name, original)
            for module in (inner, public):
                setattr(module, name, marked)
    inner.Work.wait = _marked("wait", inner.Work.wait)


def _marked(name: str, function: Any) -> Any:
    around = nvtx_range(f"c10d::{name}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("async_op"):
            return function(*args, **kwargs)
        with around:
            return function(*args, **kwargs)

    return call
