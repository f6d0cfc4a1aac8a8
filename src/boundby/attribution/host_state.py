"""What each host thread does at each instant: in a CUDA call, waiting for the device, running, or asleep."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.correlation.correlate import Calls
from boundby.correlation.cpu_evidence import CpuEvidence, gather_evidence, lifetime, sleep_kinds
from boundby.correlation.logical_threads import LogicalThreads
from boundby.correlation.starting import CompilationSpans, LibraryStarts, captured_once
from boundby.model.arrays import (
    BoolArray,
    Int32Array,
    Int64Array,
    blank,
    compact,
    group_counts,
    group_sums,
    is_any,
    is_even,
    is_in,
    marked,
    median,
    merged,
    pick,
    places,
    queue_depth,
    spread,
    unique,
)
from boundby.model.causes import Cause
from boundby.model.intervals import (
    EMPTY,
    NOTHING,
    CoveredTime,
    IntervalSet,
    StepFunction,
    any_of,
    contains,
    cut,
    during,
    first_of,
    intersect,
    otherwise,
    subtract,
    union,
)
from boundby.model.late import once
from boundby.model.library import int64
from boundby.model.scale import DISPATCH_NS, HALF, LAUNCH_NS, NEARLY_ALL, NOTABLE
from boundby.model.units import FURTHEST_NS
from boundby.native.passes import FIRST_INSTANT, LAST_INSTANT, Layer, states
from boundby.trace.tables import OpKind, Paging, Trace
from boundby.trace.vocabulary.cuda import CallClass, OverheadClass
from boundby.trace.vocabulary.os import ONCE, SLEEPS
from boundby.trace.vocabulary.range_names import FEEDER_NAME, INPUT_NAME

# Frameworks need some host time from one call to the next: that much of every interval counts as dispatch.
DISPATCH_LIMIT_NS = DISPATCH_NS

# An operation that starts within this time of its launch was simply on its way; one that takes longer waited.
LAUNCH_LIMIT_NS = LAUNCH_NS

# A launch that takes this many times the median of all, with this many operations queued before it, waits for
# room in the queue (real traces: 1,020 or 880 queued, and milliseconds in cudaLaunchKernel instead of 6 us).
FULL_QUEUE_FACTOR = 5
FULL_QUEUE_DEPTH = 128

# A call that the driver holds while another thread waits is as long as no hiccup, and is late by so much of that time.
# (Measured: 29 calls of 200 ms, 55 to 68 us late.)
LEAST_HELD_NS, MOST_LATE_FRACTION = 2 * DISPATCH_NS, NOTABLE

# A thread on a CPU for more than this fraction of its time spins.
SPINNING_FRACTION = NEARLY_ALL

# Internal states beside the causes: no evidence about this thread, and another of its logical thread has called since;
# at work on what another takes.
ELSEWHERE, INPUT = len(Cause), len(Cause) + 1

# What a thread sleeps on that no other thread of its process ends by what it computes.
_OUTSIDE = tuple(SLEEPS.index(what) for what in ("file", "network", "poll", "sleep"))


class _Who(Enum):
    """Threads whose work is the input of another one."""

    NOBODY = auto()
    FEEDERS = auto()  # their name says so
    LAUNCH_NOTHING = auto()
    MAKERS = auto()  # either of the two
    EVERYBODY = auto()  # for one that waits for something outside of its process


_CAUSE_OF_CLASS = {
    CallClass.OTHER: Cause.CUDA_API,
    CallClass.LAUNCH: Cause.CUDA_API,
    CallClass.SYNC: Cause.SYNC,
    CallClass.BLOCKING_COPY: Cause.CUDA_API,
    CallClass.ALLOC: Cause.INIT,
    CallClass.INIT: Cause.INIT,
}


class HostState:
    """Host state per thread, built when first asked for."""

    def __init__(self, trace: Trace, calls: Calls, logical_threads: LogicalThreads) -> None:
        self._trace = trace
        self._calls = calls
        self._logical_threads = logical_threads
        self._compilations, self._library_starts = CompilationSpans(trace, calls), LibraryStarts(trace, calls)
        copies = _pageable_rows(trace, calls)
        self._waits_until = _implicit_waits(trace, calls, copies)
        self._stalls = compact(stalled_allocations(calls, self._busy_of, trace))
        self.copies_pageable = compact(marked(calls.of_operation[copies], len(calls)))
        self.held_with = self._held_with()
        self.queue_full = compact(_queue_full(trace, calls) & (self.held_with < 0))

    @once
    def evidence(self, thread: int) -> CpuEvidence:
        """What the capture knows of the thread's scheduling. While another runs with which it takes turns, it waits for
        that one, not for a core."""
        evidence = gather_evidence(self._trace, thread)
        if len(evidence.preempted.start):
            running = self._any_on_cpu(int(self._logical_threads.leader[thread]))
            evidence = replace(evidence, preempted=subtract(evidence.preempted, running))
        return evidence

    @once
    def lifetime(self, thread: int) -> tuple[int, int] | None:
        """First and last instant at which a thread shows itself; None if it never does."""
        return lifetime(self._trace, thread)

    @once
    def _any_on_cpu(self, leader: int) -> IntervalSet:
        """When any of the threads that take turns with this one is on a CPU."""
        on_cpu = (
            gather_evidence(self._trace, member).on_cpu for member in self._logical_threads.members(leader).tolist()
        )
        return any_of(intervals for intervals in on_cpu if intervals is not None)

    @once
    def compiling(self, thread: int) -> IntervalSet:
        """When the thread compiles code, or sleeps until a compiler is done, and does not launch."""
        return self._compilations.of(thread, self.evidence(thread).asleep)

    @once
    def starting(self, thread: int) -> IntervalSet:
        """When the thread sets a library up, and does not compile."""
        return subtract(self._library_starts.of(thread), self.compiling(thread))

    def initializing(self, thread: int) -> IntervalSet:
        """When the thread compiles, sets a library up, captures graphs for later, or starts or ends message passing,
        beside what its CUDA calls say."""
        of_messages = self._trace.in_messages(thread, ONCE)
        return any_of((self.compiling(thread), self.starting(thread), self.capturing(thread), of_messages))

    def capturing(self, thread: int) -> IntervalSet:
        """When the thread captures CUDA graphs that are launched later, if it is one that calls meanwhile."""
        captures = self._captures.get(self._trace.threads[thread].process)
        rows = self._calls.rows_of(thread)
        if captures is None or not len(captures.start) or rows.start == rows.stop:
            return EMPTY
        inside = contains(captures, self._calls.start_ns[rows])
        own = unique(inside[inside >= 0])
        return IntervalSet(captures.start[own], captures.end[own])

    @cached_property
    def _captures(self) -> dict[int, IntervalSet]:
        return captured_once(self._trace, self._calls)

    def compiling_for(self, thread: int) -> IntervalSet:
        """When the thread compiles, or may do so for one of its process that sleeps until a compiler is done."""
        return any_of((self.compiling(thread), self._awaited_by(self._trace.threads[thread].process, self.compiling)))

    @once
    def _initialization_awaited(self, process: int) -> IntervalSet:
        """When a thread of the process that calls CUDA sleeps until something is initialized, by a compiler's pool of
        threads say: whoever of the process works meanwhile initializes it."""
        return self._awaited_by(process, self.initializing)

    def _awaited_by(self, process: int, of_thread: Callable[[int], IntervalSet]) -> IntervalSet:
        callers = unique(self._calls.thread)
        threads = callers[self._trace.process_of_thread[callers] == process].tolist()
        return any_of(intersect(of_thread(thread), self.evidence(thread).asleep) for thread in threads)

    @once
    def blocked(self, thread: int) -> IntervalSet:
        """Times in which the thread waits for the device: blocking syncs and copies, and, while the process's
        devices are busy, allocation calls and pageable copies up to where the copy itself begins."""
        calls, rows = self._calls, self._calls.rows_of(thread)
        kind, start, end = calls.kind[rows], calls.start_ns[rows], calls.end_ns[rows]
        is_explicit = is_any(kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))
        explicit, waits = np.flatnonzero(is_explicit), EMPTY
        others = np.flatnonzero(self._may_wait[rows])
        if len(others):
            until, last = self._waits_until[rows][others], end[others]
            until = np.where(self._stalls[rows][others], last, np.minimum(until, last))
            waits = intersect(union(start[others], until), self._busy_of(self._trace.threads[thread].process))
        held = rows.start + np.flatnonzero(self.held_with[rows] >= 0)
        if len(held):
            waits = any_of((waits, union(calls.start_ns[held], calls.end_ns[self.held_with[held]])))
        return any_of((waits, union(start[explicit], end[explicit])))

    @cached_property
    def _may_wait(self) -> BoolArray:
        """Calls that wait for the device though they are neither a sync nor a blocking copy."""
        is_explicit = is_any(self._calls.kind, (CallClass.SYNC, CallClass.BLOCKING_COPY))
        if self._waits_until is self._calls.start_ns:
            return self._stalls & ~is_explicit
        return ((self._waits_until > self._calls.start_ns) | self._stalls) & ~is_explicit

    def _held_with(self) -> Int32Array:
        """Per call: the call of another thread with whose wait for the device the driver held it, or NOTHING. It begins
        in that call and returns as soon as that one does; both take long."""
        calls = self._calls
        if len(calls) == 0 or is_even(calls.thread):
            return spread(NOTHING, len(calls), np.int32)
        waited_for = np.full(len(calls), NOTHING, np.int32)
        long = np.flatnonzero((calls.end_ns - calls.start_ns >= LEAST_HELD_NS) & ~calls.is_first_load)
        long = long[calls.kind[long] != CallClass.INIT]
        waits = is_any(calls.kind[long], (CallClass.SYNC, CallClass.BLOCKING_COPY)) | self._may_wait[long]
        works = ~waits & (calls.kind[long] != CallClass.ALLOC)
        process = self._trace.process_of_thread[calls.thread[long]]
        for number in unique(process[works]).tolist():
            rows, held = long[waits & (process == number)], long[works & (process == number)]
            rows = rows[np.argsort(calls.end_ns[rows], kind="stable")]
            last = places(calls.end_ns[rows], calls.end_ns[held], side="right") - 1
            held, waited = held[last >= 0], rows[last[last >= 0]]
            inside_ns, late_ns = calls.end_ns[waited] - calls.start_ns[held], calls.end_ns[held] - calls.end_ns[waited]
            good = (calls.start_ns[waited] < calls.start_ns[held]) & (late_ns <= MOST_LATE_FRACTION * inside_ns)
            waited_for[held[good]] = waited[good]
        return compact(waited_for)

    def waiting(self, thread: int) -> IntervalSet:
        """``blocked``, and besides the time in which the thread is held by the device without a sync: inside
        pageable copies while the copy itself runs, in launches for which the queue has no room, and while pages of
        managed memory that it touched move to the host."""
        calls, rows = self._calls, self._calls.rows_of(thread)
        start, end = calls.start_ns[rows], calls.end_ns[rows]
        held = self.copies_pageable[rows] | self.queue_full[rows]
        pages = self._read_back[self._touching == thread]
        if not held.any() and not len(pages):
            return self.blocked(thread)
        waits = intersect(union(start[held], end[held]), self._busy_of(self._trace.threads[thread].process))
        table = self._trace.operations
        return any_of((self.blocked(thread), waits, union(table.start_ns[pages], table.end_ns[pages])))

    @cached_property
    def _read_back(self) -> npt.NDArray[np.intp]:
        """Migrations to the host that came because it touched the pages."""
        return self._trace.migrations(Paging.READ_BACK)

    @cached_property
    def _touching(self) -> Int32Array:
        """The thread that touched the pages of each of ``_read_back``; NOTHING where nothing shows which."""
        table, rows = self._trace.operations, self._read_back
        return self.at_work(table.process[rows], table.start_ns[rows])

    @once
    def _busy_of(self, process: int) -> IntervalSet:
        operations = self._trace.operations
        is_own = operations.process == process
        if is_own.all():  # which keeps it itself
            return operations.busy
        return union(operations.start_ns[is_own], operations.end_ns[is_own])

    @once
    def logical_thread_blocked(self, thread: int) -> IntervalSet:
        """When all threads that take turns with this one are blocked."""
        return any_of(self.blocked(member) for member in self._logical_threads.members(thread).tolist())

    @once
    def idle(self, thread: int) -> IntervalSet:
        """When a thread waits for the device or sleeps: its last state goes on for ever."""
        states, waits = self.states(thread), self.waiting(thread)
        resting = is_any(states.value, (Cause.HOST_BLOCKED, ELSEWHERE, Cause.SYNC))
        until = np.append(states.time[1:], np.iinfo(np.int64).max)
        return any_of((waits, union(states.time[resting], until[resting])))

    def running_elsewhere(self, thread: int) -> list[int]:
        """Threads of the same process that may run while this one sleeps, its own logical thread first: those that call
        CUDA or open ranges, then those whose context switches or frames show them at work at times (data feeding)."""
        leader = self._logical_threads.leader
        others = self._may_run(self._trace.threads[thread].process)
        others = others[others != thread]
        is_own = leader[others] == leader[thread]
        return [*others[is_own].tolist(), *others[~is_own].tolist()]

    @once
    def _may_run(self, process: int) -> Int64Array:
        """Of a process the threads that call CUDA or open ranges, then those that are seen at work at times."""
        marked, watched = self._seen
        quiet = [t for t in watched.get(process, ()) if not self._spins(t)]
        return np.array([*marked.get(process, ()), *quiet], np.int64)

    @cached_property
    def _seen(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """By process: the threads that call CUDA or open ranges, and the others of which it is known when they run."""
        trace = self._trace
        marked = {*unique(self._calls.thread).tolist(), *unique(trace.ranges.thread).tolist()}
        watched = {*unique(trace.schedule.thread).tolist(), *unique(trace.python_frames.thread).tolist()} - marked
        of_process: tuple[dict[int, list[int]], dict[int, list[int]]] = {}, {}
        for threads, by_process in zip((marked, watched), of_process, strict=True):
            for thread in sorted(threads):
                by_process.setdefault(trace.threads[thread].process, []).append(thread)
        return of_process

    def at_work(self, process: npt.NDArray[np.integer], time_ns: Int64Array) -> Int32Array:
        """The thread of each of these processes that calls CUDA and runs code of its own at that instant, as one does
        that touches managed memory; NOTHING where none or several do."""
        thread_at, many = np.full(len(time_ns), NOTHING, np.int32), np.zeros(len(time_ns), np.int64)
        for thread in unique(self._calls.thread).tolist():
            is_open = process == self._trace.process_of_thread[thread]
            is_open[is_open] = is_any(self.states(thread).at(time_ns[is_open]), (Cause.CPU, Cause.CUDA_API))
            thread_at[is_open] = thread
            many += is_open
        return np.where(many == 1, thread_at, np.int32(NOTHING))

    def running(self, thread: int, sleeper: int) -> StepFunction:
        """A thread's states where it can be shown to run while the ``sleeper`` does not, and not to make its input;
        NOTHING elsewhere."""
        return self._first_running((thread,), sleeper)

    def _first_running(self, threads: tuple[int, ...], sleeper: int) -> StepFunction:
        """Who runs while ``sleeper`` sleeps: at each instant the first of these threads that can, in their order."""
        outside, is_fed = self._waits_outside(sleeper), bool(self._is_fed[sleeper])
        is_known = self.evidence(sleeper).is_known
        running = self._shown_first(threads, is_known, _Who.FEEDERS if is_fed else _Who.NOBODY)
        if is_fed and not self.launches_kernels[list(threads)].all():  # what others do for one that feeds is its work
            running = during(self._hungry(sleeper), self._shown_first(threads, is_known, _Who.MAKERS), running)
        if len(outside.start):
            running = during(outside, self._shown_first(threads, is_known, _Who.EVERYBODY), running)
        return running

    @once
    def _shown_first(self, threads: tuple[int, ...], is_known: bool, makers: _Who) -> StepFunction:
        """Of the first of these that can be shown to run while another one does not, its states; what ``makers``
        compute aside. ``is_known``: whether it is known when the other one sleeps."""
        shown = ((self._shown_to_run(thread, is_known), self._who[makers][thread]) for thread in threads)
        return first_of([_renamed(states, Cause.CPU, NOTHING) if is_maker else states for states, is_maker in shown])

    def _others_compute(self, sleeper: int, makers: _Who) -> IntervalSet:
        """When any of these threads of its process can be shown to compute while the ``sleeper`` does not."""
        process = self._trace.threads[sleeper].process
        return self._shown_to_compute(process, self.evidence(sleeper).is_known, makers)

    @once
    def _shown_to_compute(self, process: int, is_known: bool, makers: _Who) -> IntervalSet:
        chosen = [thread for thread in self._may_run(process).tolist() if self._who[makers][thread]]
        return any_of(where(self._shown_to_run(worker, is_known), Cause.CPU) for worker in chosen)

    @cached_property
    def _who(self) -> dict[_Who, BoolArray]:
        """Which threads these are."""
        named = np.array([FEEDER_NAME.search(thread.name) is not None for thread in self._trace.threads], bool)
        return {
            _Who.NOBODY: np.zeros_like(named),
            _Who.FEEDERS: named,
            _Who.LAUNCH_NOTHING: ~self.launches_kernels,
            _Who.MAKERS: named | ~self.launches_kernels,
            _Who.EVERYBODY: np.ones_like(named),
        }

    @once
    def _waits_outside(self, thread: int) -> IntervalSet:
        """When the thread waits for a file, the network, another process or the clock: no thread of its own process
        ends that by what it computes."""
        calls = self._trace.os_calls.of_thread(thread)
        rows = is_in(sleep_kinds(self._trace, thread), _OUTSIDE)
        return union(calls.start_ns[rows], calls.end_ns[rows])

    @cached_property
    def _kernels(self) -> Int64Array:
        """By thread: how many kernels it launches."""
        call = self._calls.of_operation[self._trace.operations.kind <= OpKind.GRAPH]
        return group_counts(self._calls.thread[call[call >= 0]], len(self._trace.threads))

    @property
    def launches_kernels(self) -> BoolArray:
        """Threads that do."""
        return self._kernels > 0

    @cached_property
    def _is_fed(self) -> BoolArray:
        """Threads of which none of their process launches more kernels, those counted as one that take turns."""
        leader, process = self._logical_threads.leader, self._trace.process_of_thread
        together = group_sums(leader, self._kernels, len(leader))[leader]
        most = np.zeros(len(self._trace.processes), np.int64)
        np.maximum.at(most, process, together)
        is_fed: BoolArray = together == most[process]
        return is_fed

    @cached_property
    def _takes_batch(self) -> BoolArray:
        """Per name: whether ranges so named take a batch. One more entry: -1 is no name."""
        used, shapes = self._trace.range_names
        takes = np.zeros(len(self._trace.names) + 1, bool)
        takes[used] = shapes.told(lambda name: INPUT_NAME.search(name) is not None)
        return takes

    @once
    def _hungry(self, thread: int) -> IntervalSet:
        """Sleeps of a thread in which those of its process that launch no kernels make its input: in ranges that take
        a batch, and wherever they, too, sleep for most of the time. Who waits for such a one waits for what that one
        waits for: a loader's workers, files."""
        asleep, ranges = self.evidence(thread).asleep, self._trace.ranges.of_thread(thread)
        works = CoveredTime(self._others_compute(thread, _Who.LAUNCH_NOTHING))
        is_taking = self._takes_batch[ranges.name]
        takes = contains(union(ranges.start_ns[is_taking], ranges.end_ns[is_taking]), asleep.start) >= 0
        fed = takes | (works.within(asleep.start, asleep.end) < HALF * (asleep.end - asleep.start))
        return IntervalSet(asleep.start[fed], asleep.end[fed])

    def fed(self, thread: int) -> IntervalSet:
        """Sleeps of a thread while others of its process make its input: they may have to, however soon the rest of it
        is there."""
        parts = [(self._waits_outside(thread), _Who.EVERYBODY)]
        asleep = self.evidence(thread).asleep
        if self._is_fed[thread] and self._who[_Who.MAKERS].any():
            parts += [(asleep, _Who.FEEDERS), (self._hungry(thread), _Who.LAUNCH_NOTHING)]
        made = any_of(intersect(self._others_compute(thread, who), when) for when, who in parts if len(when.start))
        return intersect(made, asleep)

    @once
    def makes_input(self, thread: int) -> bool:
        """Whether a thread makes what the one that launches takes, as the sleeps of that one show, or its own name: its
        work is input, also while nobody waits for it."""
        process = self._trace.process_of_thread
        takers = np.flatnonzero(self._is_fed & self.launches_kernels & (process == process[thread])).tolist()
        return thread not in takers and any(self._makes_for(taker, thread) for taker in takers)

    def _makes_for(self, taker: int, thread: int) -> bool:
        if self._who[_Who.FEEDERS][thread]:
            return True
        if self.launches_kernels[thread]:
            return False
        asleep = self._asleep_for_makers(taker)
        ways = self._shown_to_run(thread, self.evidence(taker).is_known), self.running(thread, taker)
        of_all, beside = (intersect(where(way, Cause.CPU), asleep).total for way in ways)
        return of_all - beside > HALF * of_all

    @once
    def _asleep_for_makers(self, taker: int) -> IntervalSet:
        """Sleeps of a thread while no other one of its process that launches kernels is at work: it may sleep for that
        one as well."""
        process = self._trace.process_of_thread
        launching = np.flatnonzero(self.launches_kernels & (process == process[taker])).tolist()
        others = any_of(self._at_work(other) for other in launching if other != taker)
        return subtract(self.evidence(taker).asleep, others)

    def _at_work(self, thread: int) -> IntervalSet:
        """When a thread neither sleeps nor is away for another one."""
        return _intervals(self.states(thread), lambda value: ~is_any(value, (Cause.HOST_BLOCKED, ELSEWHERE)))

    @once
    def _shown_to_run(self, thread: int, is_known: bool) -> StepFunction:
        """A thread's states where it can be shown to run while another one does not, of which it is known or not when
        it sleeps; NOTHING elsewhere.

        Being outside every CUDA call shows nothing unless context switches were captured for the thread, or nothing
        is known of either of the two but when they call: a thread of which nothing is known has no say in the sleep
        of one that is known to sleep, but for its calls.
        """
        evidence, states = self.evidence(thread), self.states(thread)
        if is_known and not evidence.is_known and evidence.shown is None:
            calls, rows = self._calls, self._calls.rows_of(thread)
            bounds = IntervalSet(calls.start_ns[rows], calls.end_ns[rows])
            time = merged(bounds.start, bounds.end)
            return StepFunction(time, np.where(contains(bounds, time) >= 0, states.at(time), NOTHING))
        shows_cpu = evidence.on_cpu is not None or evidence.shown is not None or not evidence.is_known
        silent = is_any(states.value, (Cause.HOST_BLOCKED, Cause.UNATTRIBUTED, ELSEWHERE))
        silent |= (states.value == Cause.CPU) & (not shows_cpu)
        return StepFunction(states.time, np.where(silent, NOTHING, states.value))

    def responsible(self, thread: int) -> StepFunction:
        """The states of a thread for which a device waits: the work of one that makes input is ``INPUT``."""
        states = self.states(thread)
        return _renamed(states, Cause.CPU, INPUT) if self.makes_input(thread) else states

    def doing(self, thread: int, apart: Collection[int] = ()) -> StepFunction:
        """What is done for the thread at any instant, as Cause numbers: its own state; while it sleeps, the state of
        the first of ``running_elsewhere`` that runs. ``apart``: threads whose part in its sleep is known otherwise.
        Work of one that makes input is what those wait for that take it."""
        doings = self.responsible(thread)
        resting = is_any(doings.value, (Cause.HOST_BLOCKED, ELSEWHERE))
        others = {*self._may_run(self._trace.threads[thread].process).tolist()} - {thread, *apart}
        if others and resting.any():
            until = np.append(doings.time[1:], LAST_INSTANT)
            start, end, _, state = cut(doings.time[resting], until[resting], self._running_but(thread, apart))
            runs = state != NOTHING
            layers = Layer(doings.time, until, int64(doings.value)), Layer(start[runs], end[runs], int64(state[runs]))
            doings = states(layers, self.awake, EMPTY.start)
        return _renamed(_renamed(doings, ELSEWHERE, self.awake), INPUT, Cause.HOST_BLOCKED)

    def _running_but(self, thread: int, apart: Collection[int]) -> StepFunction:
        """What the first of ``running_elsewhere`` does that runs, but for these. A thread does not run while it rests:
        it may be among those that are asked, which are then the same for all threads of a process."""
        may_run, leader = self._may_run(self._trace.threads[thread].process), self._logical_threads.leader
        own = may_run[leader[may_run] == leader[thread]].tolist() if (leader == leader[thread]).sum() > 1 else []
        first, rest = (tuple(member for member in part if member not in apart) for part in (own, may_run.tolist()))
        return otherwise(self._first_running(first, thread), self._first_running(rest, thread))

    @property
    def awake(self) -> Cause:
        """What a thread does that neither sleeps nor calls, where no more is known."""
        return Cause.UNATTRIBUTED if self._trace.is_told_by_frames else Cause.CPU

    def _spins(self, thread: int) -> bool:
        """True for a thread that never leaves the CPU: it polls, and says nothing about what others wait for."""
        evidence = self.evidence(thread)
        off = evidence.off_cpu or evidence.in_blocking_call
        on = evidence.on_cpu or (None if evidence.shown is None or off is None else subtract(evidence.shown, off))
        return on is None or off is None or on.total > SPINNING_FRACTION * (on.total + off.total)

    @once
    def states(self, thread: int) -> StepFunction:
        """The thread's state over time as Cause numbers (or ELSEWHERE), as if the device had been idle."""
        calls, rows = self._calls, self._calls.rows_of(thread)
        start, end = calls.start_ns[rows], calls.end_ns[rows]
        evidence = self.evidence(thread)
        asleep = evidence.asleep
        dispatch_end = end + DISPATCH_LIMIT_NS
        np.minimum(dispatch_end[:-1], start[1:], out=dispatch_end[:-1])
        shown = EMPTY if evidence.shown is None else evidence.shown
        is_silent = evidence.shown is not None or not evidence.is_known
        elsewhere = subtract(self._partner_took_over(thread, start, end), shown) if is_silent else EMPTY
        overhead = self._overhead(thread, OverheadClass.PROFILER)
        loading = self._overhead(thread, OverheadClass.INIT)
        initializing = self.initializing(thread)
        awaited = self._initialization_awaited(self._trace.threads[thread].process) if evidence.is_known else EMPTY
        life = self.lifetime(thread)
        alive = life if evidence.is_known else None  # before and after it, nothing shows that the thread exists
        bounds = np.array([_LONG_AGO, *(life or ())], np.int64)
        cause_of_class = np.array([int(_CAUSE_OF_CLASS[kind]) for kind in CallClass])
        cause = pick(cause_of_class, calls.kind[rows].astype(np.int32), NOTHING)
        cause[np.flatnonzero(calls.is_first_load[rows])] = Cause.INIT
        cause[np.flatnonzero(self.held_with[rows] >= 0)] = Cause.SYNC
        otherwise = Cause.CPU if evidence.shown is None else Cause.UNATTRIBUTED
        # Later ones override earlier ones.
        layers = (
            Layer(*shown, Cause.CPU),
            Layer(*awaited, Cause.INIT),
            *((Layer(*_outside(*alive), ELSEWHERE),) if alive is not None else ()),
            Layer(*elsewhere, ELSEWHERE),
            Layer(end, dispatch_end, Cause.CUDA_API, Cause.INIT),
            Layer(*asleep, Cause.HOST_BLOCKED),
            Layer(*initializing, Cause.INIT),
            Layer(start, end, cause),
            Layer(*self.capturing(thread), Cause.INIT),
            Layer(*loading, Cause.INIT, Cause.SYNC),
            Layer(*overhead, Cause.PROFILER, Cause.SYNC),
        )
        time, value = states(layers, otherwise, bounds)
        return StepFunction(time, value.astype(np.int8))

    def _partner_took_over(self, thread: int, start: Int64Array, end: Int64Array) -> IntervalSet:
        """Parts of the intervals between this thread's calls that begin when another of its logical thread calls."""
        theirs = self._issued_together(int(self._logical_threads.leader[thread]))  # its own end such parts as well
        if not len(theirs):
            return EMPTY
        begin = np.append(self._trace.span_ns[0], end)
        until = np.append(start, max(self._trace.span_ns[1], int(end[-1]) if len(end) else 0) + 1)
        position = places(theirs, begin)
        took = np.where(position < len(theirs), theirs[np.minimum(position, len(theirs) - 1)], until)
        return union(np.minimum(took, until), until)

    @once
    def _issued_together(self, leader: int) -> Int64Array:
        """When the threads begin calls that take turns with this one, in order."""
        rows = [self._calls.rows_of(member) for member in self._logical_threads.members(leader).tolist()]
        return merged(*(self._calls.start_ns[row] for row in rows))

    def _overhead(self, thread: int, kind: OverheadClass) -> IntervalSet:
        rows = self._trace.overhead.of_thread(thread)
        chosen = self._trace.overhead_class[rows.name] == kind
        return union(rows.start_ns[chosen], rows.end_ns[chosen])


def where(states: StepFunction, cause: Cause) -> IntervalSet:
    """When states are of a cause."""
    return _intervals(states, lambda value: value == cause)


def _intervals(states: StepFunction, is_so: Callable[[npt.NDArray[np.integer]], BoolArray]) -> IntervalSet:
    """When this holds of a state."""
    until, is_chosen = np.append(states.time[1:], LAST_INSTANT), is_so(states.value)
    return union(states.time[is_chosen], until[is_chosen])


def _renamed(states: StepFunction, old: int, new: int) -> StepFunction:
    """States with another number for one of them."""
    those = states.value == old
    return StepFunction(states.time, np.where(those, int(new), states.value)) if those.any() else states


#: Where states begin: a device's clock that is moved lets a window begin before the trace. Differences stay in range.
_LONG_AGO = -FURTHEST_NS


def _outside(low: int, high: int) -> tuple[Int64Array, Int64Array]:
    """All time before one instant and from another on."""
    return np.array([FIRST_INSTANT, high], np.int64), np.array([low, LAST_INSTANT], np.int64)


def _pageable_rows(trace: Trace, calls: Calls) -> npt.NDArray[np.intp]:
    """Operations that copy from or to pageable memory and whose call is known."""
    operations = trace.operations
    copies = np.flatnonzero(operations.kind == OpKind.MEMCPY)
    is_joined: BoolArray = calls.of_operation[copies] != NOTHING
    return copies[operations.take(copies).is_pageable & is_joined]


def _implicit_waits(trace: Trace, calls: Calls, copies: npt.NDArray[np.intp]) -> Int64Array:
    """Per call: until when it may wait for the device before doing its own work; its start if it does not.

    A call that copies from or to pageable memory (``copies``: operations) waits for what was launched before, then
    copies. The copy is the device's time, not a wait.
    """
    if not len(copies):
        return calls.start_ns
    until: Int64Array = calls.start_ns.copy()
    np.maximum.at(until, calls.of_operation[copies], trace.operations.start_ns[copies])
    return until


def _queue_full(trace: Trace, calls: Calls) -> BoolArray:
    """Launches held up because too many operations are queued already."""
    operations = trace.operations
    held: BoolArray = (calls.kind == CallClass.LAUNCH) & ~calls.is_first_load
    if not held.any():
        return held
    duration = calls.end_ns - calls.start_ns
    lengths = blank(duration, ~held)
    least = max(-(-int(lengths.max()) // FULL_QUEUE_FACTOR), 1)
    if 2 * np.count_nonzero(lengths >= least) > np.count_nonzero(held):  # the median is so long, too
        return np.zeros_like(held)
    held &= duration > FULL_QUEUE_FACTOR * median(duration[held])
    if not held.any():
        return held
    depth = np.zeros(len(calls), np.int64)
    for device in unique(operations.device).tolist():
        rows = np.flatnonzero((operations.device == device) & (calls.of_operation != NOTHING))
        call = calls.of_operation[rows]
        np.maximum.at(depth, call, queue_depth(calls.launched_ns[rows], operations.start_ns[rows]))
    held &= depth >= FULL_QUEUE_DEPTH
    return held


def stalled_allocations(calls: Calls, busy_of: Callable[[int], IntervalSet], trace: Trace) -> BoolArray:
    """Allocation calls that waited for the device, as far as their lengths tell.

    A call that ran while the device was busy waited for it if it took longer than its like on an idle device, by
    half of that time or more. Without a like to compare, it waited if it returned soon after the device was done.
    """
    is_stalled = np.zeros(len(calls), bool)
    rows = np.flatnonzero(calls.kind == CallClass.ALLOC)
    process = trace.process_of_thread[calls.thread[rows]]
    group = calls.name[rows].astype(np.int64) * (len(trace.processes) + 1) + process
    for number in unique(group).tolist():
        inside = rows[group == number]
        start, end = calls.start_ns[inside], calls.end_ns[inside]
        busy = busy_of(int(process[group == number][0]))
        overlap = CoveredTime(busy).within(start, end)
        position = places(busy.end, end, side="right") - 1
        never = np.iinfo(np.int64).min // 2  # the device was not done before the call returned
        done = (
            np.where(position >= 0, busy.end[np.maximum(position, 0)], never)
            if len(busy.end)
            else np.full(len(inside), never)
        )
        lag = end - done
        alone = overlap == 0
        own = median((end - start)[alone]) if alone.any() else None
        waited = overlap > 0
        is_stalled[inside] = waited & ((end - start - own >= overlap / 2) if own is not None else (lag <= overlap))
    return is_stalled
