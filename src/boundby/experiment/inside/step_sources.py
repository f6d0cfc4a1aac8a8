"""Where a program's steps begin: by its own words (``boundby.annotate.steps``, ``ProfilerStep``, NVTX ranges), by its
optimizer or by its loader (`feeds`)."""

from __future__ import annotations

import functools
import re
import sys
import threading
from typing import Any

from .conductor import BETWEEN, END, Conductor
from .delayed_device import SpinningCuda

ANNOTATED, PROFILER, OPTIMIZER, LOADER, NVTX = "annotate.steps", "ProfilerStep", "optimizer", "loader", "nvtx:"
_DIGITS = re.compile(r"\d+")
MOST_NAMES = 200


def hook_up(conductor: Conductor, when_imported: Any) -> None:
    """All of them, each as soon as the program imports it."""
    when_imported("nvtx", lambda: _hook_nvtx(conductor))
    when_imported("torch.cuda.nvtx", lambda: _hook_torch_nvtx(conductor))
    when_imported("torch.profiler.profiler", lambda: _hook_profiler(conductor))
    when_imported("torch.optim.optimizer", lambda: _hook_optimizers(conductor))
    when_imported("boundby.annotate.ranges", lambda: _hook_annotated(conductor))
    when_imported("torch.cuda", lambda: _hook_device(conductor))


class _Ranges:
    """The NVTX ranges that are open on each thread: names with numbers folded, and how deep they lie."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._open = threading.local()
        self._names: set[str] = set()

    def push(self, name: str) -> None:
        stack = self._stack()
        source = f"{NVTX}{len(stack)}:{_DIGITS.sub('*', name)}"
        stack.append(source)
        if source in self._names or len(self._names) < MOST_NAMES:
            self._names.add(source)
            self._conductor.boundary(source)

    def pop(self) -> None:
        stack = self._stack()
        if stack and stack.pop() == self._conductor.source:
            self._conductor.place(END)

    def _stack(self) -> list[str]:
        if not hasattr(self._open, "names"):
            self._open.names = []
        names: list[str] = self._open.names
        return names


def _hook_nvtx(conductor: Conductor) -> None:
    nvtx: Any = sys.modules["nvtx"]
    ranges = _Ranges(conductor)

    class annotate(nvtx.annotate):  # type: ignore[misc, name-defined, unused-ignore]  # noqa: N801
        def __init__(self, message: Any = None, *args: Any, **kwargs: Any) -> None:
            super().__init__(message, *args, **kwargs)
            self._boundby_name = "" if message is None else str(message)

        def __enter__(self) -> Any:
            ranges.push(self._boundby_name)
            return super().__enter__()

        def __exit__(self, *raised: Any) -> Any:
            ranges.pop()
            return super().__exit__(*raised)

        def __call__(self, function: Any) -> Any:
            marked = super().__call__(function)
            name = self._boundby_name or function.__name__

            @functools.wraps(function)
            def inner(*args: Any, **kwargs: Any) -> Any:
                ranges.push(name)
                try:
                    return marked(*args, **kwargs)
                finally:
                    ranges.pop()

            return inner

    annotate.__qualname__ = annotate.__name__ = "annotate"
    _replace_ranges(nvtx, ranges, ("push_range", "pop_range"))
    nvtx.annotate = annotate


def _hook_torch_nvtx(conductor: Conductor) -> None:
    _replace_ranges(sys.modules["torch.cuda.nvtx"], _Ranges(conductor), ("range_push", "range_pop"))


def _replace_ranges(module: Any, ranges: _Ranges, names: tuple[str, str]) -> None:
    push, pop = (getattr(module, name) for name in names)

    @functools.wraps(push)
    def pushed(message: Any = None, *args: Any, **kwargs: Any) -> Any:
        ranges.push("" if message is None else str(message))
        return push(message, *args, **kwargs)

    @functools.wraps(pop)
    def popped(*args: Any, **kwargs: Any) -> Any:
        ranges.pop()
        return pop(*args, **kwargs)

    setattr(module, names[0], pushed)
    setattr(module, names[1], popped)


def _hook_profiler(conductor: Conductor) -> None:
    kind: Any = sys.modules["torch.profiler.profiler"].profile
    step = kind.step

    @functools.wraps(step)
    def stepped(self: Any) -> Any:
        result = step(self)
        conductor.boundary(PROFILER)
        return result

    kind.step = stepped


def _hook_optimizers(conductor: Conductor) -> None:
    module: Any = sys.modules["torch.optim.optimizer"]
    torch: Any = sys.modules["torch"]
    first: list[int] = []

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            conductor.place(BETWEEN)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        conductor.place(END)
        if not first:
            first.append(id(optimizer))
        if first[0] == id(optimizer):  # of several, the first one's steps are the program's
            conductor.boundary(OPTIMIZER)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _hook_annotated(conductor: Conductor) -> None:
    iteration: Any = sys.modules["boundby.annotate.ranges"]
    tell = iteration._tell_profiler

    @functools.wraps(tell)
    def told() -> None:
        tell()
        conductor.boundary(ANNOTATED)

    iteration._tell_profiler = told


def _hook_device(conductor: Conductor) -> None:
    """CUDA is the device once the program itself has started it."""
    cuda: Any = sys.modules["torch.cuda"]
    begin = cuda._lazy_init

    @functools.wraps(begin)
    def started() -> Any:
        result = begin()
        if conductor.device is None and cuda.is_initialized():
            conductor.device = SpinningCuda(sys.modules["torch"])
        return result

    cuda._lazy_init = started
