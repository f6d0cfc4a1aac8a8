"""Ranges for loops: the steps of a program, where it waits for data, and the part that a profiler shall capture."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

from boundby.annotate import backends, ranges
from boundby.annotate.backends import Label, Marker
from boundby.annotate.ranges import Owner, nvtx_range

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
                ranges.release(opened)
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
        ranges.push(owner, marker)
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
