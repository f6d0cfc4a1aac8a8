"""What ranges are written with: torch's profiler where it records, torch's NVTX, the nvtx package, or nothing.
Chosen once, at the first range."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

#: Set to one of OFF, it turns every range off.
SWITCH = "BOUNDBY_NVTX"
OFF = frozenset({"off", "0", "no", "false"})
#: Loaded in programs that ``boundby profile --with torch`` records.
PROFILER = "_boundby_launcher.torch_profile"
#: Markers kept for names in use. Names that are made up as the program runs push each other out.
MARKERS_KEPT = 4096


class Label(NamedTuple):
    """What identifies a range in the trace."""

    name: str
    domain: str | None = None
    color: int | None = None
    category: str | int | None = None


class Marker(NamedTuple):
    """A label made ready, so that opening a range costs a call and no look-up.

    ``push`` and ``pop`` nest on the calling thread; ``start`` gives a handle that ``end`` takes on any thread.
    """

    push: Callable[[], object]
    pop: Callable[[], object]
    start: Callable[[], Any]
    end: Callable[[Any], object]


class Backend(Protocol):
    """Makes markers. ``marker`` gives None where nothing is written."""

    @property
    def name(self) -> str: ...

    def marker(self, label: Label) -> Marker | None: ...


class NoBackend:
    """Writes nothing, at the cost of two method calls a range."""

    name = "none"

    def marker(self, label: Label) -> None:  # noqa: ARG002
        return None


class NvtxBackend:
    """The nvtx package. It knows domains, colours and categories, and works without a GPU."""

    name = "nvtx"

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx
        self.marker = functools.lru_cache(MARKERS_KEPT)(self._marker)

    def _marker(self, label: Label) -> Marker:
        attributes = {"color": label.color, "domain": label.domain, "category": label.category}
        annotation = self._nvtx.annotate(label.name, **attributes)
        return Marker(
            push=annotation.__enter__,
            pop=functools.partial(annotation.__exit__, None, None, None),
            start=functools.partial(self._nvtx.start_range, label.name, **attributes),
            end=self._nvtx.end_range,
        )


class TorchBackend:
    """torch's own NVTX, part of its CUDA builds. It knows names only: ranges in a domain go to the nvtx package if
    that is installed, else to the default domain."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._nvtx = torch.cuda.nvtx
        self.marker = functools.lru_cache(MARKERS_KEPT)(self._marker)

    def _marker(self, label: Label) -> Marker | None:
        if label.domain is not None and (other := _nvtx_backend()) is not None:
            return other.marker(label)
        return Marker(
            push=functools.partial(self._nvtx.range_push, label.name),
            pop=self._nvtx.range_pop,
            start=functools.partial(self._nvtx.range_start, label.name),
            end=self._nvtx.range_end,
        )


class ProfilerBackend:
    """``record_function`` of torch, for its own profiler, which does not see NVTX. It knows names only."""

    name = "torch.profiler"

    def __init__(self, torch: Any) -> None:
        self._record = torch.autograd.profiler.record_function
        self._open = threading.local()
        self.marker = functools.lru_cache(MARKERS_KEPT)(self._marker)

    def _marker(self, label: Label) -> Marker:
        start = functools.partial(self._start, label.name)
        return Marker(push=lambda: self._stack().append(start()), pop=self._pop, start=start, end=_end)

    def _start(self, name: str) -> Any:
        return self._record(name).__enter__()

    def _pop(self) -> None:
        if stack := self._stack():
            _end(stack.pop())

    def _stack(self) -> list[Any]:
        if not hasattr(self._open, "ranges"):
            self._open.ranges = []
        ranges: list[Any] = self._open.ranges
        return ranges


def _end(recorded: Any) -> None:
    recorded.__exit__(None, None, None)


#: The backend in use; None until the first range, or ``backend()``, asks for one.
chosen: Backend | None = None


def current() -> Backend:
    """The backend in use, chosen now if this is the first time it is needed."""
    global chosen
    if chosen is None:
        chosen = _choose()
    return chosen


def backend() -> str:
    """What ranges are written with: ``"torch.profiler"``, ``"torch"``, ``"nvtx"``, or ``"none"``."""
    return current().name


def reconsider() -> Backend:
    """The backend in use; chosen again if nothing was there before, since torch may have been imported since."""
    global chosen
    if isinstance(chosen, NoBackend):
        chosen = None
    return current()


@contextlib.contextmanager
def using(replacement: Backend) -> Iterator[None]:
    """Write with another backend for a while (tests and measurements)."""
    global chosen
    before, chosen = chosen, replacement
    try:
        yield
    finally:
        chosen = before


def _choose() -> Backend:
    if os.environ.get(SWITCH, "").strip().lower() in OFF:
        return NoBackend()
    torch = sys.modules.get("torch")
    if torch is not None and getattr(sys.modules.get(PROFILER), "_running", None) is not None:
        return ProfilerBackend(torch)
    # Is it a CUDA build? torch.cuda.is_available() would start the driver, and processes forked after that
    # could not use CUDA any more: too high a price for a name in a trace.
    if torch is not None and getattr(getattr(torch, "_C", None), "_nvtx", None) is not None:
        return TorchBackend(torch)
    return _nvtx_backend() or NoBackend()


@functools.cache
def _nvtx_backend() -> NvtxBackend | None:
    try:
        import nvtx  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return NvtxBackend(nvtx) if nvtx.enabled() else None
