"""The host sleeps in the operating system while the GPU idles: locks, the GIL, files, the network, other processes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.diagnose.case import Case
from boundby.diagnose.devicework import scaled
from boundby.diagnose.rule import Match, Remedy, Rule, Threshold
from boundby.diagnose.rules._host import (
    MESSAGE_NAME,
    WAIT,
    HostPieces,
    Rows,
    examples,
    host_pieces,
    places,
    saving,
    slept_on,
    times,
)
from boundby.model.stacks import StackSource
from boundby.timeline.intervals import contains

# Functions of CPython in which a thread waits for the interpreter's lock.
GIL_FUNCTIONS = ("take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyGILState_Ensure")

ADVICE = {
    "messages of other ranks": "Another rank comes late, or messages are small and many: overlap them with GPU work "
    "(MPI_Irecv before the kernels, MPI_Wait after), join small ones, hand device pointers to a CUDA-aware MPI",
    "GIL": "Another Python thread holds the interpreter's lock: move its work to a process (multiprocessing, "
    "DataLoader workers), or to code that releases the lock (NumPy, torch, Numba nogil)",
    "lock": "A lock is held by another thread: hold it for less, or split what it guards; a logging handler, an "
    "allocator and a queue are the usual ones",
    "condition": "The launching thread waits for another thread or a queue to hand it something: let that run ahead "
    "(a deeper queue, more producers)",
    "file": "File input or output on the launching thread: do it in another thread, buffer it, write less often",
    "network": "The launching thread waits for the network: prefetch, batch requests, do it in another thread",
    "sleep": "The program sleeps on purpose (sleep, nanosleep): polling with a pause costs the GPU that pause. Wait "
    "for an event instead",
    "poll": "The launching thread polls file descriptors (a pipe or queue of another process, a socket): what it waits "
    "for comes too late; let the other side run ahead",
    "thread or process": "The launching thread waits for a thread or process to end: keep it alive and hand it work, "
    "or join it later",
    "queue": "The launching thread waits for a message queue: let the producer run ahead",
}
UNNAMED = (
    "The thread was scheduled out and no OS call says why: more runnable threads than cores (too many workers, "
    "OMP_NUM_THREADS, "
    "another job), page faults, or a call that was not traced (capture with --trace=osrt)"
)


def _check(case: Case) -> Iterator[Match]:
    pieces = case.once(host_pieces)
    captured = case.timeline.setting.trace.captured
    for place in places(case, pieces, pieces.of_kind(WAIT)):
        slept = slept_on(case, pieces, place.rows) if captured.osrt else {}
        gil = _gil_share(case, pieces, place.rows)
        named = sum(slept.values()) >= case.threshold(RULE, "named_fraction") * place.total_ns
        is_mpi = bool(MESSAGE_NAME.search((case.path(place.region) or ("",))[-1]))
        what = (
            "messages of other ranks"
            if is_mpi
            else "GIL"
            if gil >= case.threshold(RULE, "gil_fraction")
            else next(iter(slept))
            if named and slept
            else None
        )
        evidence: dict[str, object] = {
            "idle_ns": place.total_ns,
            "count": place.times,
            "share_of_window_fraction": round(place.total_ns / max(case.window_ns, 1), 4),
        }
        if slept:
            evidence["slept_on_ns"] = slept
        if gil:
            evidence["waits_with_gil_in_backtrace_fraction"] = round(gil, 3)
        on = "the interpreter's lock (GIL)" if what == "GIL" else what
        does = "waits" if is_mpi else "sleeps"
        yield Match(
            region=place.region,
            title=f"the host {does} while the GPU idles{f', on {on}' if on else ''}: {times(place)}",
            evidence=evidence,
            saving_ns=scaled(saving(case, pieces, place), case.threshold(RULE, "removed_least"), 1.0),
            advice=(ADVICE[what] if what else UNNAMED,),
            examples=examples(case, pieces, place.rows),
            instances=place.times,
        )


def _gil_share(case: Case, pieces: HostPieces, rows: Rows) -> float:
    """Of the OS calls with a backtrace that began in these pieces, the fraction that waited for the GIL."""
    trace = case.timeline.setting.trace
    if not trace.captured.backtraces:
        return 0.0
    stacks, waits, of_gil = trace.backtraces.load(), 0, 0
    inside = pieces.intervals(rows)
    is_gil = np.array([name in GIL_FUNCTIONS for name in stacks.names] or [False], bool)
    for thread in np.unique(pieces.thread[rows]).tolist():
        mine = stacks.rows(StackSource.OS, thread)
        within = contains(inside, stacks.events.start_ns[mine]) >= 0
        for stack in stacks.events.stack[mine][within].tolist():
            waits += 1
            of_gil += bool(is_gil[stacks.frames.symbol[stacks.frames_of(stack)]].any())
    return of_gil / waits if waits else 0.0


RULE = Rule(
    id="host-wait",
    title="The host sleeps while the GPU idles",
    group="host",
    picture="""\
host  |launch|zzz lock, file, queue zzz|launch|zzz lock, file, queue zzz|
GPU          |#kernels#|                      |#kernels#|
""",
    meaning="""\
The launching thread, and every thread that works for it, sleeps in the operating system, and the GPU has run out of
work. What it sleeps on comes from the traced OS calls: a lock, a condition, a file, a socket, a sleep, a child
process. Where these carry backtraces, waits for CPython's interpreter lock (GIL) are told apart. Waiting for input,
in ranges named so, is `host-input`; one single long stretch is `host-phase`.
""",
    remedies=(
        Remedy(
            "GIL: run Python work in processes, or in code that releases the lock.",
            """
            pool = concurrent.futures.ProcessPoolExecutor(4)      # not ThreadPoolExecutor
            future = pool.submit(score, batch)                    # while the GPU works
            """,
            caution="arguments and results are pickled; large arrays belong in shared memory.",
        ),
        Remedy("Locks and queues: let producers run ahead, hold locks for less, take logging off the step."),
        Remedy(
            "Files and network: another thread reads ahead and writes behind.",
            """
            writer = concurrent.futures.ThreadPoolExecutor(1)
            writer.submit(np.save, path, array)
            """,
        ),
        Remedy("Scheduled out without a call: fewer threads (OMP_NUM_THREADS, torch.set_num_threads) than cores."),
    ),
    disproof="The thread's sleep is seen in the trace; that the GPU's work depends on it is proved by leaving "
    "it out of one run.",
    check=_check,
    needs=("cuda_api",),
    thresholds=(
        Threshold("named_fraction", 0.5, "fraction", "What covers less than half of the sleep does not explain it."),
        Threshold("gil_fraction", 0.5, "fraction", "Most of the waits must be for the lock before it is blamed."),
        Threshold("removed_least", 0.5, "fraction", "Some of a wait usually stays."),
    ),
    see_also=("host-input", "host-phase", "host-work"),
)
