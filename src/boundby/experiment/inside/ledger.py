"""The folder through which the program's processes, and who runs the experiment, tell each other what is done.

``conditions`` is mapped into memory by all: what a batch is delayed by now. Workers (fork, spawn, forkserver) find it
by name. ``fetched-PID`` is one process's own count of what it fetched. ``said`` gets a line of JSON for all else.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
from typing import Any, NamedTuple

_DELAY = struct.Struct("q")
_COUNTS = struct.Struct("qqqqq")


class Fetched(NamedTuple):
    """Batches that were fetched, how long that took, waits for a core then and between two of them, their delays."""

    batches: int = 0
    fetch_ns: int = 0
    core_wait_ns: int = 0
    between_ns: int = 0
    delay_ns: int = 0

    def since(self, before: Fetched) -> Fetched:
        """What came after ``before``."""
        return Fetched(*(now - then for now, then in zip(self, before, strict=True)))


class Ledger:
    """One process's view of the folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._conditions = _mapped(os.path.join(folder, "conditions"), _DELAY.size)  # noqa: PTH118
        self._own: tuple[int, mmap.mmap] | None = None

    @property
    def input_delay_ns(self) -> int:
        """How long to delay each batch where it is fetched."""
        return int(_DELAY.unpack_from(self._conditions)[0])

    @input_delay_ns.setter
    def input_delay_ns(self, ns: int) -> None:
        _DELAY.pack_into(self._conditions, 0, ns)

    def add(self, *of_a_batch: int) -> None:
        """This process has fetched a batch."""
        pid = os.getpid()
        if self._own is None or self._own[0] != pid:  # the first time, or in a fork
            self._own = pid, _mapped(os.path.join(self.folder, f"fetched-{pid}"), _COUNTS.size)  # noqa: PTH118
        counts = _COUNTS.unpack_from(self._own[1])
        _COUNTS.pack_into(self._own[1], 0, *(had + more for had, more in zip(counts, (1, *of_a_batch), strict=True)))

    def fetched(self) -> Fetched:
        """All processes together."""
        totals = [0] * len(Fetched._fields)
        for name in os.listdir(self.folder):  # noqa: PTH208
            if name.startswith("fetched-"):
                with open(os.path.join(self.folder, name), "rb") as file:  # noqa: PTH118, PTH123
                    data = file.read(_COUNTS.size)
                if len(data) == _COUNTS.size:
                    totals = [total + part for total, part in zip(totals, _COUNTS.unpack(data), strict=True)]
        return Fetched(*totals)

    def claim(self) -> bool:
        """Whether this is the first process that has steps: only one conducts."""
        try:
            os.close(os.open(os.path.join(self.folder, "claim"), os.O_CREAT | os.O_EXCL))  # noqa: PTH118
        except OSError:
            return False
        return True

    def say(self, kind: str, **told: Any) -> None:
        """One line, appended at once."""
        with contextlib.suppress(OSError):
            handle = os.open(os.path.join(self.folder, "said"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)  # noqa: PTH118
            with os.fdopen(handle, "w") as file:
                file.write(json.dumps({"kind": kind, **told}) + "\n")

    def plan(self) -> dict[str, Any] | None:
        """What is to be done, once that is decided."""
        try:
            with open(os.path.join(self.folder, "plan"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
                return dict(json.load(file))
        except (OSError, ValueError):
            return None


def _mapped(path: str, size: int) -> mmap.mmap:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size < size:
            os.ftruncate(handle, size)
        return mmap.mmap(handle, size)
    finally:
        os.close(handle)
