"""Ranges for loops: the steps of a program, and where it waits for data."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

from boundby.annotate import backends, open_ranges
from boundby.annotate.backends import Label
from boundby.annotate.capture_range import CaptureRange
from boundby.annotate.open_ranges import Owner
from boundby.annotate.ranges import nvtx_range

T = TypeVar("T")

#: The nvtx package keeps every name for ever (0.6 kB each). Steps from here on share one name, ``step *``, which is
#: also what boundby folds the numbered ones to.
NUMBERED_STEPS = 20_000
WARMUP = "warmup"
_END: Any = object()


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
                open_ranges.release(opened)
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
    label = Label(f"{name} {number if number < NUMBERED_STEPS else '*'}")
    # torch's profiler draws its own steps
    marker = None if isinstance(backend, backends.ProfilerBackend) else backend.marker(label)
    if marker is None:
        owner.is_open = False
    else:
        open_ranges.push(owner, marker)
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
