"""Collectives of several devices side by side: who is late to them, and how long the others wait inside theirs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import Int, RuleContext, once

# Where more of them end before all devices began, they are no collectives of these devices, or the clocks differ.
IMPOSSIBLE_SHARE = 0.02


@dataclass(frozen=True)
class Collectives:
    """The n-th communication kernel of each device, side by side. ``start_ns``: shape (devices, collectives)."""

    devices: tuple[int, ...]
    start_ns: Int
    end_ns: Int
    row: npt.NDArray[np.intp]  # of ``context.operations``

    @property
    def waited_ns(self) -> Int:
        """How long each device's kernel ran until the last device came, shape (devices, collectives)."""
        waited: Int = np.clip(np.minimum(self.start_ns.max(axis=0), self.end_ns) - self.start_ns, 0, None)
        return waited


@once
def collectives(context: RuleContext) -> Collectives | None:
    """Communication kernels matched across devices by their order; None where they do not match (other counts, other
    names, one device, or starts so far apart that the clocks cannot be the same)."""
    table = context.operations
    of_device: dict[int, npt.NDArray[np.intp]] = {}
    for device in context.timeline.devices:
        in_window = (table.start_ns >= device.low_ns) & (table.start_ns < device.high_ns)
        rows = np.flatnonzero((table.device == device.index) & table.is_communication & in_window)
        if len(rows):
            of_device[device.index] = rows[np.argsort(table.start_ns[rows], kind="stable")]
    if len(of_device) < 2 or len({len(rows) for rows in of_device.values()}) != 1:
        return None
    rows = np.stack(list(of_device.values()))
    if (table.name[rows] != table.name[rows][0]).any():
        return None
    matched = Collectives(tuple(of_device), table.start_ns[rows], table.end_ns[rows], rows)
    # A collective ends on no device before the last one has begun it.
    if (matched.end_ns.min(axis=0) < matched.start_ns.max(axis=0)).mean() > IMPOSSIBLE_SHARE:
        return None
    return matched


def waited_ns(context: RuleContext) -> int:
    """Time of all devices inside collectives before the last device came; 0 where that cannot be told."""
    matched = collectives(context)
    return 0 if matched is None else int(matched.waited_ns.sum())
