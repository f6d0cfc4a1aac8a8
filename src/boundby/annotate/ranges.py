"""``nvtx_range``: a block, a function, a coroutine function or a generator as a range, which ranges are open, and
ranges for loops."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import re
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from boundby.annotate import backends
from boundby.annotate.backends import Backend, Label, Marker

# Which push/pop ranges are open on each thread, so that every one of them gets closed, and in order.
#
# NVTX pops whatever was pushed last. A range that was left open (by an exception that passed a hook, by a loop that
# was left while its iterator lives on) would make every later pop close the wrong one. Here each range has an owner,
# and closing a range closes what is still open inside it first.


class Owner:
    """Owns one range, which ``release`` can close."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        self.is_open = True


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[object, Marker]] = []


_thread = _Thread()
#: Owners that have released their range while it was not the innermost one. Mostly empty.
_late: set[object] = set()


def push(owner: object, marker: Marker) -> None:
    """Open a range on this thread."""
    stack = _thread.open
    if _late:
        _sweep(stack)
    marker.push()
    stack.append((owner, marker))


def pop(owner: object) -> None:
    """Close the innermost range of this owner on this thread, and what was left open inside it. It may be closed."""
    stack = _thread.open
    if stack and stack[-1][0] is owner:
        stack.pop()[1].pop()
    else:
        _pop_through(stack, owner)
    if _late:
        _sweep(stack)


def release(owner: Owner) -> None:
    """Close a range from anywhere, at any time: at once if it is the innermost one here, else when it becomes that.

    For ranges whose end is not tied to a block, such as those of an iterator that is collected as garbage later, on
    another thread, or while its consumer has opened ranges of its own.
    """
    if owner.is_open:
        _late.add(owner)
        _sweep(_thread.open)


def depth() -> int:
    """How many ranges are open on this thread."""
    return len(_thread.open)


def _pop_through(stack: list[tuple[object, Marker]], owner: object) -> None:
    if not any(other is owner for other, _ in stack):
        return
    while _close_innermost(stack) is not owner:
        pass


def _sweep(stack: list[tuple[object, Marker]]) -> None:
    while stack and stack[-1][0] in _late:
        _close_innermost(stack)


def _close_innermost(stack: list[tuple[object, Marker]]) -> object:
    owner, marker = stack.pop()
    marker.pop()
    if isinstance(owner, Owner):
        owner.is_open = False
        _late.discard(owner)
    return owner


def _forget() -> None:
    for owner, _ in _thread.open:
        if isinstance(owner, Owner):
            owner.is_open = False
    _thread.open.clear()
    _late.clear()


# A forked child has none of its parent's ranges open: closing them there would close what the child opens itself.
os.register_at_fork(after_in_child=_forget)

# Mark every stretch of a function that runs: functions, coroutine functions, generators, async generators.

Marked = AbstractContextManager[object]
"""Entered and left around each stretch, many times, nested in itself where a function calls itself."""


def decorate(function: Any, marked: Marked) -> Any:
    """A callable of the kind of ``function``, marked.

    Raises:
        TypeError: it is no function or method.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(decorate(function.__func__, marked))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"nvtx_range decorates functions and methods, and not {function!r}.")
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator_function(function, marked)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine_function(function, marked)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator_function(function, marked)
    else:
        wrapper = _function(function, marked)
    return functools.wraps(function)(wrapper)


def _function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with marked:
            return function(*args, **kwargs)

    return wrapper


def _generator_function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _drive(function(*args, **kwargs), marked))

    return wrapper


def _coroutine_function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await _Resumed(function(*args, **kwargs), marked)

    return wrapper


def _async_generator_function(function: Callable[..., Any], marked: Marked) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        step = inner.asend(None)
        while True:
            try:
                produced = await _Resumed(step, marked)
            except StopAsyncIteration:
                return
            try:
                sent = yield produced
            except GeneratorExit:
                await _Resumed(inner.aclose(), marked)
                raise
            except BaseException as error:
                step = inner.athrow(error)
            else:
                step = inner.asend(sent)

    return wrapper


class _Resumed:
    """Awaits another awaitable, marked while that runs and not while it waits."""

    __slots__ = ("_awaited", "_marked")

    def __init__(self, awaited: Coroutine[Any, Any, Any], marked: Marked) -> None:
        self._awaited = awaited
        self._marked = marked

    def __await__(self) -> Generator[Any, Any, Any]:
        return _drive(self._awaited.__await__(), self._marked)


def _drive(inner: Generator[Any, Any, Any], marked: Marked) -> Generator[Any, Any, Any]:
    """``yield from inner``, marked while ``inner`` runs."""
    resume: Callable[[Any], Any] = inner.send
    value: Any = None
    while True:
        try:
            with marked:
                produced = resume(value)
        except StopIteration as stop:
            return stop.value
        finally:
            value = None  # an error in here would hold its own frame, and with that all locals, until collected
        try:
            value = yield produced
            resume = inner.send
        except GeneratorExit:
            with marked:
                inner.close()
            raise
        except BaseException as error:
            value = error
            resume = inner.throw


P = ParamSpec("P")
R = TypeVar("R")

#: Colours of ranges, the same for every backend.
OPAQUE = 0xFF000000
NAMES = {
    "black": 0x000000,
    "blue": 0x0000FF,
    "cyan": 0x00FFFF,
    "gray": 0x808080,
    "green": 0x008000,
    "magenta": 0xFF00FF,
    "orange": 0xFFA500,
    "purple": 0x800080,
    "red": 0xFF0000,
    "white": 0xFFFFFF,
    "yellow": 0xFFFF00,
}
_HEX = re.compile(r"#([0-9a-fA-F]{6})")

#: Start/end ranges that ``async with`` has open in this task, innermost last.
_started: ContextVar[tuple[tuple[nvtx_range, Marker | None, Any], ...]] = ContextVar("boundby_started", default=())


class nvtx_range:  # noqa: N801 (it reads as a function: with nvtx_range("x"), @nvtx_range("x"))
    """A range in the trace: ``with nvtx_range("load"):`` or ``@nvtx_range("load")``. It may be used many times.

    It closes however the block ends. As a decorator it takes functions, methods, class and static methods, and:

    - coroutine functions, generators, async generators: **one range for each stretch that runs**, closed while the
      function is suspended. A push/pop range that stayed open would swallow whatever else the thread does meanwhile
      (other tasks, the consumer of the generator), and the pops of two tasks would get crossed. A start/end range
      for the whole call would belong to the process instead of a thread, where two tasks at once blur into each
      other. So a region's instances are stretches, and its time is the time that its own code took.
    - ``async with nvtx_range("request"):`` is a start/end range, from entry to exit with all waiting in it: nobody
      is told when a block gets suspended. It owns only time that no push/pop range owns.
    - a plain ``with`` is a push/pop range; in a coroutine keep ``await`` out of it.

    Args:
        name: what the trace shows. Numbers at its end fold: ``batch 1`` and ``batch 2`` are one region.
        domain: an NVTX domain to keep these ranges apart (torch's NVTX has none: the nvtx package serves then).
        color: a common name, "#rrggbb", or 0xAARRGGBB.
        category: an NVTX category, by name or number.
    """

    __slots__ = ("_backend", "_label", "_marker")

    def __init__(
        self,
        name: str,
        *,
        domain: str | None = None,
        color: str | int | None = None,
        category: str | int | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"nvtx_range needs a name, as in nvtx_range('load'), and not {name!r}.")
        self._label = Label(name, domain, argb(color), category)
        self._backend: Backend | None = None
        self._marker: Marker | None = None

    @property
    def name(self) -> str:
        """What the trace shows."""
        return self._label.name

    def __repr__(self) -> str:
        return f"nvtx_range({self._label.name!r})"

    def __reduce__(self) -> tuple[Callable[..., nvtx_range], tuple[Label]]:
        return _from_label, (self._label,)

    def __enter__(self) -> nvtx_range:
        marker = self._marker
        if self._backend is None or self._backend is not backends.chosen:
            marker = self._prepare()
        if marker is not None:
            push(self, marker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._marker is not None:
            pop(self)

    async def __aenter__(self) -> nvtx_range:
        marker = self._prepare()
        handle = marker.start() if marker is not None else None
        _started.set((*_started.get(), (self, marker, handle)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        started = _started.get()
        for index in reversed(range(len(started))):
            owner, marker, handle = started[index]
            if owner is self:
                _started.set((*started[:index], *started[index + 1 :]))
                if marker is not None:
                    marker.end(handle)
                return

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate: every call of ``function`` is a range of this name."""
        decorated: Callable[P, R] = decorate(function, self)
        return decorated

    def _prepare(self) -> Marker | None:
        self._backend = backends.current()
        self._marker = self._backend.marker(self._label)
        return self._marker


def _from_label(label: Label) -> nvtx_range:
    return nvtx_range(label.name, domain=label.domain, color=label.color, category=label.category)


def argb(color: str | int | None) -> int | None:
    """A colour as 0xAARRGGBB. Takes a name of NAMES, "#rrggbb", or the number itself."""
    if color is None or isinstance(color, int):
        return color
    if color.lower() in NAMES:
        return OPAQUE | NAMES[color.lower()]
    if match := _HEX.fullmatch(color):
        return OPAQUE | int(match[1], 16)
    raise ValueError(f"{color!r} is not a colour known here. Use one of {', '.join(NAMES)}, or '#rrggbb'.")


# Ranges for loops: the steps of a program, where it waits for data, and the part that a profiler shall capture.

T = TypeVar("T")

#: The nvtx package keeps every name for ever (0.6 kB each). Steps from here on share one name, ``step *``, which is
#: also what boundby folds the numbered ones to.
WARMUP = "warmup"
_END: Any = object()
#: For ``nsys profile --capture-range=nvtx --nvtx-capture=boundby.capture@boundby``.
CAPTURE = Label("boundby.capture", domain="boundby")


def steps(
    iterable: Iterable[T], *, warmup: int = 0, active: int | None = None, name: str = "step"
) -> Generator[T, None, None]:
    """Iterate, with a range around each iteration, and tell the profiler which of them to capture.

    Iteration ``i`` is the range ``step i``; the first ``warmup`` ones are ``warmup i`` instead, a region of their own.
    The capture range is open for the ``active`` iterations after those (None: up to the end), so that
    ``boundby profile --capture-range`` leaves out the rest. Without such an option all are captured.

    A range goes from one item's body to the next item's arrival: waiting for data is part of a step, and the last
    item needs no guess whether another one follows. Waiting for the first item comes before the first range.
    """
    if warmup < 0 or (active is not None and active < 0):
        raise ValueError("steps: warmup and active are numbers of iterations, 0 or more.")
    return _steps(iterable, warmup, None if active is None else warmup + active, name)


def _steps(iterable: Iterable[T], first: int, stop: int | None, name: str) -> Generator[T, None, None]:
    capture = CaptureRange()
    items = iter(iterable)
    item = next(items, _END)
    try:
        for number in itertools.count():
            if item is _END:
                return
            if number == first and stop != first:
                capture.open()
            opened = _open(WARMUP if number < first else name, number)
            try:
                yield item
                item = next(items, _END)
            finally:
                # The loop may be left at the yield, and this iterator live on for a while.
                release(opened)
            _tell_profiler()
            if number + 1 == stop:
                capture.close()
    finally:
        capture.close()


def _tell_profiler() -> None:
    """A step is over: ``boundby profile --with torch`` counts them."""
    launcher = sys.modules.get(backends.PROFILER)
    if launcher is not None:
        launcher.step()


def _open(name: str, number: int) -> Owner:
    owner = Owner()
    backend = backends.current()
    label = Label(f"{name} {number if number < backends.MARKERS_KEPT else '*'}")
    # torch's profiler draws its own steps
    marker = None if isinstance(backend, backends.ProfilerBackend) else backend.marker(label)
    if marker is None:
        owner.is_open = False
    else:
        push(owner, marker)
    return owner


class AnnotatedLoader(Generic[T]):
    """A loader with a range around each ``next()``. Everything else is the loader's own."""

    def __init__(self, loader: Iterable[T], name: str) -> None:
        self._loader = loader
        self._start = nvtx_range(f"{name} start")
        self._next = nvtx_range(name)

    def __iter__(self) -> Iterator[T]:
        with self._start:
            items = iter(self._loader)
        return _marked_items(items, self._next)

    def __len__(self) -> int:
        loader: Any = self._loader
        return len(loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # not there yet, as while it is copied: looking it up would not end
            raise AttributeError(name)
        return getattr(self._loader, name)


def annotate_loader(loader: Iterable[T], name: str = "data") -> AnnotatedLoader[T]:
    """Mark where a program waits for data: a range ``data`` around each ``next()`` of every pass over ``loader``.

    ``data start`` is the range around ``iter(loader)``, where a DataLoader starts its workers. The ``next()`` that
    finds no more items is one of the ranges too.
    """
    return AnnotatedLoader(loader, name)


def _marked_items(items: Iterator[T], marked: nvtx_range) -> Generator[T, None, None]:
    while True:
        with marked:
            item = next(items, _END)
        if item is _END:
            return
        yield item


class CaptureRange:
    """Opens and closes the captured part: cudaProfilerStart and -Stop where CUDA is there, and an NVTX range.

    That is a start/end range in a domain of its own: a push/pop range would become the parent of every region.
    """

    def __init__(self) -> None:
        self._opened: tuple[Marker | None, Any, Any] | None = None

    def open(self) -> None:
        """Begin to capture."""
        backend = backends.current()
        if self._opened is not None or isinstance(backend, backends.NoBackend | backends.ProfilerBackend):
            return  # torch's profiler has a schedule of its own
        cuda = _cuda()
        if cuda is not None:
            _wait(cuda)
            cuda.cudart().cudaProfilerStart()
        marker = backend.marker(CAPTURE)
        self._opened = (marker, marker.start() if marker is not None else None, cuda)

    def close(self) -> None:
        """End it, if it is open. The device's work up to here belongs to it."""
        if self._opened is None:
            return
        (marker, handle, cuda), self._opened = self._opened, None
        if cuda is not None:
            _wait(cuda)
        if marker is not None:
            marker.end(handle)
        if cuda is not None:
            cuda.cudart().cudaProfilerStop()


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def _wait(cuda: Any) -> None:
    if cuda.is_initialized():
        cuda.synchronize()
