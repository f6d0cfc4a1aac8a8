"""Other threads and processes that run while the GPU idles: who feeds the thread that launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from boundby.evidence.context import RuleContext, once
from boundby.model.arrays import group_sums, ranked, unique, without
from boundby.model.intervals import CoveredTime, IntervalSet, intersect, union
from boundby.model.late import expression
from boundby.model.scale import HABIT, HALF, NEARLY_ALL, NOTABLE, SMALL
from boundby.model.units import bandwidth, percent, plural, size
from boundby.trace.stacks import file_name
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.range_names import FEEDER_NAME

# Which files are read while the GPU waits, and how fast, where file accesses are on record.


class FilesRead(Struct, frozen=True):
    """What was read inside some intervals: bytes, time in which at least one read ran, files with most bytes first."""

    bytes: int
    reading_ns: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        """``reads 1.2 GB of train_0.tar and 3 more files at 85.1 MB/s``."""
        more = f" and {plural(len(self.paths) - 1, 'more file')}" if len(self.paths) > 1 else ""
        rate = bandwidth(self.bytes / max(self.reading_ns, 1) * 1e9)
        return f"reads {size(self.bytes)} of {file_name(self.paths[0])}{more} at {rate}"


def files_read(context: RuleContext, inside: IntervalSet) -> FilesRead | None:
    """What any thread of the trace reads in these intervals; None where nothing is on record. Of a read that lies only
    partly inside, as large a part of its bytes."""
    table = context.trace.file_accesses
    overlap_ns = CoveredTime(inside).within(table.start_ns, table.end_ns)
    rows = np.flatnonzero((overlap_ns > 0) & ~table.is_write)
    if not len(rows):
        return None
    length_ns = np.maximum(table.end_ns[rows] - table.start_ns[rows], 1)
    moved = np.rint(table.bytes[rows] * (overlap_ns[rows] / length_ns)).astype(np.int64)
    names, of_row = ranked(table.name[rows])
    total = group_sums(of_row, moved, len(names))
    order = np.lexsort((names, -total))
    reads = union(table.start_ns[rows], table.end_ns[rows])
    reading_ns = int(CoveredTime(inside).within(reads.start, reads.end).sum())
    return FilesRead(
        int(moved.sum()), reading_ns, tuple(context.trace.names[names[number]] for number in order.tolist())
    )


_LOADER = expression(r"DataLoader|^pt_data_worker|^pt_pin_mem|_MultiProcessing\w*Iter")
# Who runs less than this share of the time does not matter.
LEAST_BUSY = SMALL
# A process feeds the launching thread if it computes for this share of the time in which that thread polls.
FEEDING = HALF
# From this share on a process has no time left to work faster.
SATURATED = NEARLY_ALL
# Who waits for a core for less of the time is on a machine that is used, not on one that is full.
MUCH_WAITING = NOTABLE
# A process that begins this much before a stretch is started for it.
BEFORE_SHARE = SMALL


class FeedingWorker(Struct, frozen=True):
    """A thread beside the launching ones, or a process without CUDA calls as a whole."""

    number: int  # process id or thread id
    is_process: bool
    busy: float  # share of the time in which it, or any thread of it, is on a CPU or waits for one
    threads: tuple[int, ...]
    waiting: float = 0.0  # of that: no thread of it is on a CPU, but one could run
    is_feeder: bool = False  # of the name of one that launches: forked from it, as a loader's workers are; or a decoder


def _who_else(trace: Trace, callers: set[int], calling: set[int]) -> dict[tuple[bool, int], list[int]]:
    """Threads of other processes by these, others by themselves: whether it is a process, and its number."""
    groups: dict[tuple[bool, int], list[int]] = {}
    ranks = set(trace.process_of_thread[unique(trace.messages.thread)].tolist()) - calling
    for thread in unique(trace.schedule.thread).tolist():
        info = trace.threads[thread]
        if thread not in callers and info.process not in ranks:
            is_process = info.process not in calling
            groups.setdefault((is_process, info.pid if is_process else info.tid), []).append(thread)
    return groups


def workers(context: RuleContext, inside: IntervalSet) -> list[FeedingWorker]:
    """Who computed in these intervals without making CUDA calls, the busiest first. Ranks of MPI feed nobody: they are
    peers."""
    trace, hosts = context.trace, context.timeline.host_state
    if not inside.total:
        return []
    callers = set(unique(context.calls.thread).tolist()) or {account.thread for account in context.timeline.threads[:1]}
    calling = {trace.threads[thread].process for thread in callers}
    workers_found = []
    for (is_process, number), threads in _who_else(trace, callers, calling).items():
        shown = [on for thread in threads if (on := hosts.evidence(thread).on_cpu) is not None]
        if not shown:
            continue
        could = [*shown, *(hosts.evidence(thread).preempted for thread in threads)]
        runs, busy = (
            int(CoveredTime(union(*sides)).within(inside.start, inside.end).sum()) / inside.total
            for sides in (
                tuple(np.concatenate([getattr(part, side) for part in parts]) for side in ("start", "end"))
                for parts in (shown, could)
            )
        )
        if busy >= LEAST_BUSY:
            info = trace.threads[threads[0]]
            is_twin = is_process and any(is_child(trace, info.process, number) for number in calling)
            is_feeder = is_twin or bool(FEEDER_NAME.search(info.name))
            workers_found.append(FeedingWorker(number, is_process, busy, tuple(threads), busy - runs, is_feeder))
    return sorted(workers_found, key=lambda worker: (-worker.busy, not worker.is_process, worker.number))


def is_child(trace: Trace, process: int, of: int) -> bool:
    """Whether a process looks like one that another started of itself: it has the same program's name, or that of a
    worker of PyTorch's loader."""
    name, parent = (file_name(trace.processes[number].name) for number in (process, of))
    return process != of and bool(name) and (name == parent or bool(_LOADER.search(name)))


def keeps_up_with_steps(context: RuleContext, waits: IntervalSet) -> bool:
    """Whether a thread that launches no kernels (DALI's ``RunCPU``, a decoder) works through all of these waits on what
    it does once for each of the program's steps."""
    timeline, ranges = context.timeline, context.trace.ranges
    step, of_range = timeline.step_region, timeline.ownership.regions.of_range
    if step is None:
        return False
    steps = int(np.count_nonzero(of_range == step))
    rows = np.flatnonzero(~timeline.host_state.launches_kernels[ranges.thread])
    key = of_range[rows].astype(np.int64) * len(context.trace.threads) + ranges.thread[rows]
    keys, count = np.unique(key, return_counts=True)
    for key_value in keys[(count >= HABIT) & (np.abs(count - steps) <= NOTABLE * steps)].tolist():
        own = rows[key == key_value]
        works = union(ranges.start_ns[own], ranges.end_ns[own])
        if intersect(works, waits).total >= SATURATED * waits.total:
            return True
    return False


def is_held_by_input(context: RuleContext, waits: Sequence[IntervalSet]) -> bool:
    """Whether the steps take as long as processes that feed them need: the GPU's waits for input, by place, of which
    those with such a process on a CPU nearly all the time are half of the window. What the launching thread is spared
    elsewhere, it then waits longer for its input."""
    held = [
        inside.total
        for inside in waits
        if any(worker.is_process and worker.busy >= SATURATED for worker in workers(context, inside))
    ]
    return sum(held) >= FEEDING * context.longest_window_ns


@once
def has_loader(context: RuleContext) -> bool:
    """Whether anything shows that a DataLoader of PyTorch feeds the program: its ranges, or its threads' names."""
    trace = context.trace
    named = [thread.name for thread in trace.threads]
    named += [trace.names[number] for number in unique(trace.ranges.name).tolist()]
    return any(map(_LOADER.search, named))


@once
def loader_processes(context: RuleContext) -> int:
    """How many worker processes of PyTorch's loader are on record, whether they run or sleep."""
    threads = context.trace.threads
    return len({thread.process for thread in threads if thread.name.startswith("pt_data_worker")})


def named_workers(found: Sequence[FeedingWorker]) -> str:
    """``1 worker process (pid 17) runs at 99 %``, ``4 worker processes run at 22 % on average and wait for a core for
    70 %``, threads after them; empty without any."""
    parts = []
    for is_process, singular, several, name in (
        (True, "worker process", "worker processes", "pid"),
        (False, "other thread of the program", "other threads of the program", "tid"),
    ):
        alike = [worker for worker in found if worker.is_process == is_process]
        if not alike:
            continue
        waiting = waiting_share(alike)
        runs = percent(sum(worker.busy for worker in alike) / len(alike) - waiting)
        is_one = len(alike) == 1
        text = (
            f"1 {singular} ({name} {alike[0].number}) runs at {runs}"
            if is_one
            else f"{len(alike)} {several} run at {runs}"
        )
        if not is_one:
            text += " on average"
        if waiting >= MUCH_WAITING:
            text += f" and {'waits' if is_one else 'wait'} for a core for {percent(waiting)}"
        parts.append(text)
    return ", ".join(parts)


def waiting_share(found: Sequence[FeedingWorker]) -> float:
    """The share of the time in which they could run and wait for a core, on average."""
    return sum(worker.waiting for worker in found) / max(len(found), 1)


def started_processes(context: RuleContext, inside: IntervalSet) -> list[int]:
    """Ids of processes without CUDA calls that first ran in these intervals, or right before one."""
    trace, schedule = context.trace, context.trace.schedule
    if not len(schedule) or not len(inside.start):
        return []
    process = trace.process_of_thread
    calling = unique(process[unique(context.calls.thread)])
    started = []
    for number in without(process[schedule.thread], calling).tolist():
        first = int(schedule.start_ns[process[schedule.thread] == number].min())
        lead = ((inside.end - inside.start) * BEFORE_SHARE).astype(np.int64)
        is_inside = bool(((first >= inside.start - lead) & (first < inside.end)).any())
        if is_inside and first > trace.span_ns[0]:
            started.append(trace.processes[number].pid)
    return sorted(started)
