"""Other threads and processes that run while the GPU idles: who feeds the thread that launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import framework
from boundby.evidence.waits import is_python
from boundby.model.causes import Cause
from boundby.model.intervals import Coverage, IntervalSet, union
from boundby.model.units import percent
from boundby.trace.vocabulary.cuda import blocked_on

if TYPE_CHECKING:
    from boundby.evidence.host import HostPieces

Int = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

# Who runs less than this share of the time does not matter.
LEAST_BUSY = 0.05
# A process feeds the launching thread if it computes for this share of the time in which that thread polls.
FEEDING = 0.5
# From this share on a process has no time left to work faster.
SATURATED = 0.9
# A process that begins this much before a stretch is started for it.
BEFORE_SHARE = 0.05


@dataclass(frozen=True)
class Worker:
    """A thread beside the launching ones, or a process without CUDA calls as a whole."""

    number: int  # process id or thread id
    is_process: bool
    busy: float  # share of the time in which it, or any thread of it, is on a CPU
    threads: tuple[int, ...]


def workers(context: RuleContext, inside: IntervalSet) -> list[Worker]:
    """Who computed in these intervals without making CUDA calls, the busiest first."""
    timeline, total = context.timeline, inside.total
    if not total:
        return []
    callers = set(np.unique(timeline.calls.thread).tolist())
    calling = {timeline.trace.threads[thread].process for thread in callers}
    groups: dict[tuple[bool, int], list[int]] = {}
    for thread in np.unique(timeline.trace.schedule.thread).tolist():
        one = timeline.trace.threads[thread]
        if thread not in callers:
            is_process = one.process not in calling
            groups.setdefault((is_process, one.pid if is_process else one.tid), []).append(thread)
    found = []
    for (is_process, number), threads in groups.items():
        shown = [on for thread in threads if (on := timeline.host_state.evidence(thread).on_cpu) is not None]
        if not shown:
            continue
        runs = union(np.concatenate([on.start for on in shown]), np.concatenate([on.end for on in shown]))
        busy = int(Coverage(runs).within(inside.start, inside.end).sum()) / total
        if busy >= LEAST_BUSY:
            found.append(Worker(number, is_process, busy, tuple(threads)))
    return sorted(found, key=lambda one: (-one.busy, not one.is_process, one.number))


def is_held_by_input(context: RuleContext, waits: Sequence[IntervalSet]) -> bool:
    """Whether the steps take as long as processes that feed them need: the GPU's waits for input, by place, of which
    those with such a process on a CPU nearly all the time are half of the window. What the launching thread is spared
    elsewhere, it then waits longer for its input."""
    held = [
        inside.total
        for inside in waits
        if any(one.is_process and one.busy >= SATURATED for one in workers(context, inside))
    ]
    return sum(held) >= FEEDING * context.longest_window_ns


def named_workers(found: Sequence[Worker]) -> str:
    """``1 worker process (pid 17) runs at 99 %``, ``4 worker processes run at 97 % on average``, threads after them;
    empty without any."""
    parts = []
    for is_process, one, several, name in (
        (True, "worker process", "worker processes", "pid"),
        (False, "thread of the same process", "threads of the same process", "tid"),
    ):
        mine = [worker for worker in found if worker.is_process == is_process]
        if len(mine) == 1:
            parts.append(f"1 {one} ({name} {mine[0].number}) runs at {percent(mine[0].busy)}")
        elif mine:
            mean = sum(worker.busy for worker in mine) / len(mine)
            parts.append(f"{len(mine)} {several} run at {percent(mean)} on average")
    return ", ".join(parts)


def fed_by_processes(context: RuleContext, pieces: HostPieces, rows: Rows) -> Rows:
    """Of these pieces those of regions in which the launching thread mostly polls while a process without CUDA calls
    computes: whatever its ranges are called, it waits for what that process makes."""
    asleep = rows[pieces.cause[rows] == Cause.HOST_BLOCKED]
    chosen: list[int] = []
    for region in np.unique(pieces.region[asleep]).tolist():
        mine = asleep[pieces.region[asleep] == region]
        total = pieces.total_ns(mine)
        if total < context.least_ns or _polled_ns(context, pieces, mine) < FEEDING * total:
            continue
        feeding = [one for one in workers(context, pieces.intervals(mine)) if one.is_process and one.busy >= FEEDING]
        if feeding:
            chosen += rows[pieces.region[rows] == region].tolist()
    return np.array(sorted(chosen), np.intp)


def _polled_ns(context: RuleContext, pieces: HostPieces, rows: Rows) -> int:
    os_calls, names = context.timeline.trace.os_calls, context.timeline.trace.names
    found = 0
    for thread in np.unique(pieces.thread[rows]).tolist():
        mine = rows[pieces.thread[rows] == thread]
        low, high = np.searchsorted(os_calls.thread, [thread, thread + 1])
        polls = np.array([blocked_on(names[name]) == "poll" for name in os_calls.name[low:high].tolist()], bool)
        calls = union(os_calls.start_ns[low:high][polls], os_calls.end_ns[low:high][polls])
        found += int(Coverage(calls).within(pieces.start_ns[mine], pieces.end_ns[mine]).sum())
    return found


def started_processes(context: RuleContext, inside: IntervalSet) -> list[int]:
    """Ids of processes without CUDA calls that first ran in these intervals, or right before one."""
    timeline = context.timeline
    schedule, threads = timeline.trace.schedule, timeline.trace.threads
    if not len(schedule) or not len(inside.start):
        return []
    process = np.array([thread.process for thread in threads], np.int64)
    calling = np.unique(process[np.unique(timeline.calls.thread)])
    found = []
    for number in np.setdiff1d(np.unique(process[schedule.thread]), calling).tolist():
        first = int(schedule.start_ns[process[schedule.thread] == number].min())
        lead = ((inside.end - inside.start) * BEFORE_SHARE).astype(np.int64)
        is_inside = bool(((first >= inside.start - lead) & (first < inside.end)).any())
        if is_inside and first > timeline.trace.span_ns[0]:
            found.append(timeline.trace.processes[number].pid)
    return sorted(found)


def is_python_program(context: RuleContext) -> bool:
    """Whether advice may speak of Python: by the command, the processes, or the libraries of Python that it uses."""
    return is_python(context) or context.once(framework) in ("torch", "cudf")
