"""What a run took: the window of a device, and how long it was busy with what, each instant counted once."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping

from boundby.simulate.engine import Executed, Run
from boundby.simulate.script import Kind, Path

#: kind of operation -> the cause that it stands for, in the order in which they hide each other
_CLASS = {
    Kind.KERNEL: "gpu_compute",
    Kind.GRAPH: "gpu_compute",
    Kind.COMM: "gpu_comm",
    Kind.COPY: "gpu_copy",
    Kind.SET: "gpu_copy",
}
GPU_CAUSES = ("gpu_compute", "gpu_comm", "gpu_copy")


def devices(run: Run) -> tuple[int, ...]:
    """The devices on which the program did anything."""
    return tuple(sorted({_device(run, operation) for operation in run.operations if _is_traced(run, operation)}))


def window_ns(run: Run, device: int = 0) -> int:
    """From the first operation's start to the last one's end; 0 where there was none."""
    mine = operations_on(run, device)
    return max((one.end_ns for one in mine), default=0) - min((one.start_ns for one in mine), default=0)


def operations_on(run: Run, device: int) -> list[Executed]:
    """The program's operations on one device, in launch order."""
    return [one for one in run.operations if _device(run, one) == device and _is_traced(run, one)]


def exposed(run: Run, device: int, paths: Mapping[tuple[int, int], Path]) -> dict[tuple[Path, str], int]:
    """Busy time by (path, cause): each instant goes to the highest class that runs, of that to the operation that
    started first. ``paths``: the region of each (thread, step) that launched an operation."""
    classes = [(GPU_CAUSES.index(_CLASS[one.spec.kind]), one) for one in operations_on(run, device)]
    found: dict[tuple[Path, str], int] = {}
    for start, end, rank, one in _sweep(classes):
        key = paths[one.thread, one.step], GPU_CAUSES[rank]
        found[key] = found.get(key, 0) + end - start
    return found


def _sweep(operations: Iterable[tuple[int, Executed]]) -> Iterable[tuple[int, int, int, Executed]]:
    """Pieces (start, end, rank, operation) that cover the busy time once."""
    order = sorted(operations, key=lambda entry: entry[1].start_ns)
    cuts = sorted({time for _, one in order for time in (one.start_ns, one.end_ns)})
    running: list[tuple[int, int, int, Executed]] = []
    place = 0
    for low, high in itertools.pairwise(cuts):
        while place < len(order) and order[place][1].start_ns <= low:
            rank, one = order[place]
            heapq.heappush(running, (rank, one.start_ns, place, one))
            place += 1
        while running and running[0][3].end_ns <= low:
            heapq.heappop(running)
        if running:
            yield low, high, running[0][0], running[0][3]


def _is_traced(run: Run, operation: Executed) -> bool:
    return run.script.threads[operation.thread].traced


def _device(run: Run, operation: Executed) -> int:
    return run.script.threads[operation.thread].steps[operation.step].device
