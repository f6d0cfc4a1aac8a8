"""What a run took: the window of a device, and how long it was busy with what, each instant counted once."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect, bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from boundby.simulate.engine import Executed, Run
from boundby.simulate.script import Do, Kind, Path

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
    """From the first operation's start, or the begin on the host of the first step that launched anything on the
    device, to the last one's end, or that of the last such step; 0 where there was no operation."""
    mine = operations_on(run, device)
    if not mine:
        return 0
    steps = _steps(run, mine)
    low = min(one.start_ns for one in mine)
    high = max(one.end_ns for one in mine)
    return max(high, *(end for _, end in steps)) - min(low, *(begin for begin, _ in steps)) if steps else high - low


def _step_path(run: Run) -> Path:
    """The outermost region that repeats and holds most of the launches; () if none does."""
    steps = [step for thread in run.script.threads if thread.traced for step in thread.steps]
    launches = Counter(step.path[:depth] for step in steps if step.operation for depth in range(1, len(step.path) + 1))
    instances = Counter(step.path for step in steps if step.do == Do.PUSH)
    total = sum(step.operation is not None for step in steps)
    found = [path for path, count in launches.items() if 2 * count > total and instances[path] > 1]
    return min(found, key=len, default=())


def _steps(run: Run, operations: Iterable[Executed]) -> list[tuple[int, int]]:
    """When the first and the last of the program's steps that launched any of these operations begin and end on the
    host."""
    path = _step_path(run)
    if not path:
        return []
    threads = run.script.threads
    within = [one for one in operations if threads[one.thread].steps[one.step].path[: len(path)] == path]
    found = []
    for thread, script in enumerate(threads):
        launched = sorted(one.step for one in within if one.thread == thread)
        lent = sorted(run.start_ns[one.thread][one.step] for one in within if one.thread != thread)
        done = range(len(run.end_ns[thread]))
        own = [at for at in done if script.steps[at].path == path and script.steps[at].do in (Do.PUSH, Do.POP)]
        for push, pop in zip(own[::2], own[1::2], strict=False):
            begin, end = run.start_ns[thread][push], run.end_ns[thread][pop]
            if bisect(launched, push) < bisect(launched, pop) or bisect_left(lent, begin) < bisect(lent, end):
                found.append((begin, end))
    return [min(found), max(found)] if found else []


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
