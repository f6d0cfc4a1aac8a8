"""A range for every operator: by ``emit_nvtx`` in a CUDA build, else by a dispatch mode.

``emit_nvtx`` starts only when the program itself has started CUDA (it waits for the device, and a process that
forks after that could not use CUDA any more), and makes way for a profiler that the program opens itself.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

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
    from boundby.annotate import backends, ranges
    from boundby.annotate.backends import Label, Marker

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
