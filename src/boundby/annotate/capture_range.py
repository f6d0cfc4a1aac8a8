"""The part of a run that a profiler shall capture, told in the two ways that nsys listens to."""

from __future__ import annotations

import sys
from typing import Any

from boundby.annotate import backends
from boundby.annotate.backends import Label, Marker

#: For ``nsys profile --capture-range=nvtx --nvtx-capture=boundby.capture@boundby``.
CAPTURE = Label("boundby.capture", domain="boundby")


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
