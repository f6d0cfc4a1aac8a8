"""How much memory an analysis may take, and what of a trace must be read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from boundby.model import door
from boundby.model.scale import MOST

#: Without --max-memory an analysis may take this part of the machine's memory, or of its container's.
SHARE_OF_MACHINE = MOST
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class Room(NamedTuple):
    """``from_ns``: all from this instant of the trace's clock on must be read, or nothing is; None: the last part that
    fits will do."""

    most_bytes: int
    from_ns: int | None = None


def machine_bytes() -> int | None:
    """The memory of this machine, or of the container that this runs in; None where neither is told."""
    told = []
    with contextlib.suppress(ValueError, OSError, AttributeError):  # Windows has no sysconf
        told.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in _CONTAINER:
        with contextlib.suppress(ValueError, OSError):  # "max": no limit
            told.append(int(door.read_text(file)))
    return min((number for number in told if number > 0), default=None)
