"""The folder through which the program's processes, and who runs the experiment, tell each other what is done.

``conditions`` is mapped into memory by all: what a batch is delayed by now. Workers (fork, spawn, forkserver) find it
by name. ``fetched-PID`` has the last batches that one process fetched. ``said`` gets a line of JSON for all else.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_DELAY = struct.Struct("q")
_COUNT = struct.Struct("q")
_BATCH = struct.Struct("qqqq")
MOST_BATCHES = 4096


class Batch(NamedTuple):
    """How long it took to fetch, waits for a core then and before it, and its delay."""

    fetch_ns: int
    core_wait_ns: int
    before_ns: int
    delay_ns: int


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

    def add(self, batch: Batch) -> None:
        """This process has fetched a batch."""
        pid = os.getpid()
        if self._own is None or self._own[0] != pid:  # the first time, or in a fork
            file_name = os.path.join(self.folder, f"fetched-{pid}")  # noqa: PTH118
            self._own = pid, _mapped(file_name, _COUNT.size + MOST_BATCHES * _BATCH.size)
        file = self._own[1]
        (count,) = _COUNT.unpack_from(file)
        _BATCH.pack_into(file, _COUNT.size + count % MOST_BATCHES * _BATCH.size, *batch)
        _COUNT.pack_into(file, 0, count + 1)

    def counts(self) -> dict[str, int]:
        """How many batches each process has fetched."""
        return {name: _COUNT.unpack_from(data)[0] for name, data in self._fetched()}

    def batches_since(self, before: Mapping[str, int]) -> list[Batch]:
        """What all processes have fetched since they had those counts."""
        batches = []
        for name, data in self._fetched():
            (count,) = _COUNT.unpack_from(data)
            for number in range(max(before.get(name, 0), count - MOST_BATCHES), count):
                offset = _COUNT.size + number % MOST_BATCHES * _BATCH.size
                batches.append(Batch(*_BATCH.unpack_from(data, offset)))
        return batches

    def _fetched(self) -> Iterator[tuple[str, bytes]]:
        for name in os.listdir(self.folder):  # noqa: PTH208
            if name.startswith("fetched-"):
                with open(os.path.join(self.folder, name), "rb") as file:  # noqa: PTH118, PTH123
                    data = file.read()
                if len(data) > _COUNT.size:
                    yield name, data

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
