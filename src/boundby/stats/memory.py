"""What a framework's allocator, or CUDA's in nsys reports, held of each device over the recording, by region, where
the trace tells it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import unique
from boundby.model.scale import CURVE, LIST
from boundby.results.report import Memory, MemoryHeld, MemoryPoint, RegionMemory
from boundby.stats.instances import ByPlace
from boundby.trace.tables import MemoryPoints
from boundby.trace.vocabulary.range_names import fold_name

Int = npt.NDArray[np.int64]

#: Points kept of each device: of each stretch the one with most memory.
MOST_POINTS = CURVE
#: Regions named for the peak.
MOST_HELD = LIST
_NEVER = np.iinfo(np.int64).max


def memory_of(timeline: Timeline) -> ByPlace[Memory, RegionMemory]:
    """What was held where."""
    tree, points = timeline.ownership.regions, timeline.trace.memory
    nothing: list[RegionMemory | None] = [None] * len(tree)
    region = np.full(len(points), ROOT, np.int64)
    for thread in unique(points.thread).tolist():
        mine = points.thread == thread
        region[mine] = timeline.ownership.at(thread, points.start_ns[mine])
    devices: dict[int, Memory] = {}
    # Allocated, kept, at most in use, held at the peak.
    columns = np.zeros((len(tree), 4), np.int64)
    for device in unique(points.device[points.device >= 0]).tolist():
        rows = np.flatnonzero(points.device == device)
        in_use = _in_use(points, rows)
        peak = int(np.argmax(in_use))
        held = _held(points, rows, peak)
        np.add.at(columns[:, 0], region[rows], np.maximum(points.delta[rows], 0))
        np.add.at(columns[:, 1], region[rows], points.delta[rows])
        np.maximum.at(columns[:, 2], region[rows], in_use)
        np.add.at(columns[:, 3], region[rows[held]], points.delta[rows[held]])
        devices[device] = _device(timeline, rows, region[rows], in_use, peak, held)
    if not devices:
        return ByPlace(devices, nothing)
    allocated, kept, held_bytes = (tree.accumulate(np.ascontiguousarray(columns[:, place])) for place in (0, 1, 3))
    most = columns[:, 2]
    for number in range(len(tree) - 1, ROOT, -1):  # parents stand before their children
        most[tree.parent[number]] = max(most[tree.parent[number]], most[number])
    of_region = [
        RegionMemory(*(int(column[number]) for column in (allocated, kept, most, held_bytes)))
        if allocated[number] or kept[number]
        else None
        for number in range(len(tree))
    ]
    return ByPlace(devices, of_region)


def _in_use(points: MemoryPoints, rows: npt.NDArray[np.intp]) -> Int:
    """Bytes in use after each event; where totals are not told (2021), from the least on."""
    if points.allocated[rows].any():
        return points.allocated[rows]
    total = np.cumsum(points.delta[rows])
    found: Int = total - min(int(total.min()), 0)
    return found


def _held(points: MemoryPoints, rows: npt.NDArray[np.intp], peak: int) -> npt.NDArray[np.intp]:
    """Places of the allocations that are in use at the peak: not released between."""
    address, delta = points.address[rows], points.delta[rows]
    order = np.lexsort((np.arange(len(rows)), address))
    alike = np.append(address[order][1:] == address[order][:-1], False)
    released = np.full(len(rows), _NEVER, np.int64)
    released[order] = np.where(alike, np.append(order[1:], 0), _NEVER)  # by whatever comes next at this address
    place = np.arange(len(rows))
    return np.flatnonzero((delta > 0) & (place <= peak) & (released > peak))


def _device(
    timeline: Timeline, rows: npt.NDArray[np.intp], region: Int, in_use: Int, peak: int, held: npt.NDArray[np.intp]
) -> Memory:
    points, tree = timeline.trace.memory, timeline.ownership.regions
    delta, time, reserved = points.delta[rows], points.start_ns[rows], points.reserved[rows]
    own = _outside_operators(timeline)
    by_region = np.zeros(len(tree), np.int64)
    np.add.at(by_region, own[region[held]], delta[held])
    largest = np.lexsort((np.arange(len(tree)), -by_region))[:MOST_HELD]
    parts = np.array_split(np.arange(len(rows)), min(MOST_POINTS, len(rows)))
    chosen = [int(part[np.argmax(in_use[part])]) for part in parts]
    return Memory(
        first_bytes=int(in_use[0] - delta[0]),
        last_bytes=int(in_use[-1]),
        peak_bytes=int(in_use[peak]),
        peak_ns=int(time[peak]),
        peak_path=tree.path(int(own[region[peak]])),
        peak_reserved_bytes=int(reserved.max()),
        before_bytes=max(int(in_use[peak]) - int(delta[held].sum()), 0),
        held=tuple(MemoryHeld(tree.path(number), int(by_region[number])) for number in largest if by_region[number]),
        points=tuple(MemoryPoint(int(time[row]), int(in_use[row]), int(reserved[row])) for row in chosen),
    )


def _outside_operators(timeline: Timeline) -> Int:
    """The region itself, or of an operator's the innermost one around it that is none (the outermost operator, where
    all are)."""
    tree = timeline.ownership.regions
    operators = {fold_name(name) for name in timeline.trace.operator_names}
    found = np.arange(len(tree))
    for number in range(len(tree)):  # parents stand before their children
        parent = int(tree.parent[number])
        if number != ROOT and parent != ROOT and tree.name[number] in operators:
            found[number] = found[parent]
    return found
