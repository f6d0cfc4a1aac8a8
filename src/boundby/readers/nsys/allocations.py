"""Allocations and releases of GPU memory (``--cuda-memory-usage``), and the budget that Windows gives a process."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from boundby.model.arrays import Int32Array, Int64Array, factorize, is_any, translated, unique
from boundby.model.units import size
from boundby.readers.nsys.database import MISSING, Database, Reads
from boundby.readers.nsys.gpu_tables import Gpus, memory_kinds
from boundby.readers.nsys.identity import Identities, process_key
from boundby.readers.sanitize import MOST_BYTES
from boundby.trace.facts import TraceWarning
from boundby.trace.tables import CallTable, MemoryKind, MemoryPoints, ThreadRow

_EVENTS, _BUDGET, _USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS", "GPU_MEMORY_BUDGET_EVENTS", "GPU_MEMORY_USAGE_EVENTS"
_EVENT = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
_RESIDENT = "TOTAL_BYTES_RESIDENT_IN_SEGMENT_EVENTS"
_OF_WINDOWS = ("timestamp", "globalTid", "gpu", "segmentGroup")
DECLARED = (
    Reads(_EVENTS, _EVENT, "allocations of GPU memory: by region, and who held the peak"),
    Reads(_BUDGET, (*_OF_WINDOWS, "newBudget"), "how much GPU memory Windows allows a process"),
    Reads(_USAGE, (*_OF_WINDOWS, "newUsage"), "how much GPU memory a process uses on Windows"),
    Reads(
        _RESIDENT,
        (*_OF_WINDOWS, "segmentId", "totalBytesResident"),
        "how much of the used memory lies in the GPU (Windows may move some to the host)",
    ),
)


class _Change(IntEnum):
    """ENUM_CUDA_DEV_MEM_EVENT_OPER."""

    ALLOCATION = 0
    RELEASE = 1


class _Segments(IntEnum):
    """Of whose memory: segmentGroup."""

    GPU = 0
    HOST = 1


def memory_points(
    database: Database, gpus: Gpus, identities: Identities, api: CallTable, threads: tuple[ThreadRow, ...]
) -> MemoryPoints:
    """What the program held of each device after each allocation and release of device memory."""
    if not database.has(_EVENTS, *_EVENT) or not database.holds(_EVENTS):
        return MemoryPoints.empty()
    raw = database.columns(_EVENTS, _EVENT)
    device = gpus.of(raw)
    kinds = memory_kinds(database)
    kind = translated(raw["memKind"], lambda code: kinds.get(code, -1), np.int8)
    kept = (device >= 0) & (kind == MemoryKind.DEVICE) & (raw["start"] != MISSING)
    kept &= (raw["bytes"] >= 0) & (raw["bytes"] < MOST_BYTES)
    kept &= is_any(raw["memoryOperationType"], tuple(_Change))
    kept &= translated(raw["globalPid"], identities.has_process, np.bool_)
    if not kept.any() or not threads:
        return MemoryPoints.empty()
    raw, device = {column: values[kept] for column, values in raw.items()}, device[kept]
    order = np.lexsort((raw["address"], raw["memoryOperationType"], raw["start"], device))
    raw, device = {column: values[order] for column, values in raw.items()}, device[order]
    process = identities.processes(raw["globalPid"])
    # One number for each address of each process: processes may use the same one.
    _, block = factorize(process_key(raw["globalPid"]), raw["address"])
    block = block.astype(np.int64)
    delta = _deltas(raw, device, block)
    allocated = np.zeros(len(delta), np.int64)
    for gpu in unique(device).tolist():
        is_own = device == gpu
        total = np.cumsum(delta[is_own])
        allocated[is_own] = total - min(int(total.min()), 0)  # what was there before the recording began
    return MemoryPoints(
        device=device,
        start_ns=raw["start"],
        thread=_threads(raw["start"], process, api, threads),
        delta=delta,
        allocated=allocated,
        reserved=np.zeros(len(delta), np.int64),
        address=block,
    ).sorted()


def _deltas(raw: dict[str, Int64Array], device: Int32Array, block: Int64Array) -> Int64Array:
    """Bytes of each event, negative for a release. A release whose own row tells none gives back what the allocation
    before it at that address took."""
    is_release = raw["memoryOperationType"] == _Change.RELEASE
    order = np.lexsort((np.arange(len(block)), block, device))
    follows = np.append(False, (block[order][1:] == block[order][:-1]) & (device[order][1:] == device[order][:-1]))
    before = np.where(follows, np.append(0, raw["bytes"][order][:-1]), 0)
    taken = np.empty(len(block), np.int64)
    taken[order] = before
    released = np.where(raw["bytes"] > 0, raw["bytes"], taken)
    return np.where(is_release, -released, raw["bytes"])


def _threads(start_ns: Int64Array, process: Int32Array, api: CallTable, threads: tuple[ThreadRow, ...]) -> Int32Array:
    """The thread of each event: that of the CUDA call which it lies in; else the first of its process."""
    thread_of = np.full(len(start_ns), -1, np.int32)
    of_thread = np.array([thread.process for thread in threads], np.int64)
    for number in unique(api.thread).tolist():
        rows = api.rows_of(number)
        begin, end = api.start_ns[rows], np.maximum.accumulate(api.end_ns[rows])
        last = np.searchsorted(begin, start_ns, side="right") - 1
        inside = (last >= 0) & (process == of_thread[number]) & (thread_of < 0)
        inside &= end[np.maximum(last, 0)] >= start_ns
        thread_of[inside] = number
    first = np.array(
        [int(np.argmax(of_thread == process_id)) for process_id in range(int(process.max()) + 1)], np.int32
    )
    return np.where(thread_of >= 0, thread_of, first[process]).astype(np.int32)


def paging(database: Database) -> tuple[TraceWarning, ...]:
    """What tells that Windows moved memory of a GPU to the host."""
    return (*over_budget(database), *moved_out(database))


def over_budget(database: Database) -> tuple[TraceWarning, ...]:
    """A warning where a process used more of a GPU's memory than Windows allowed it: the rest is moved to the host."""
    if not database.has(_BUDGET, *_OF_WINDOWS, "newBudget") or not database.has(_USAGE, *_OF_WINDOWS, "newUsage"):
        return ()
    budgets = database.columns(_BUDGET, (*_OF_WINDOWS, "newBudget"))
    usages = database.columns(_USAGE, (*_OF_WINDOWS, "newUsage"))
    if not len(budgets["gpu"]) or not len(usages["gpu"]):
        return ()
    worst = (0, 0, 0)  # how much too much, the usage, the GPU
    for gpu, key in sorted(set(zip(usages["gpu"].tolist(), process_key(usages["globalTid"]).tolist(), strict=True))):
        of_gpu = [
            (table["gpu"] == gpu) & (table["segmentGroup"] == _Segments.GPU) & (process_key(table["globalTid"]) == key)
            for table in (budgets, usages)
        ]
        allowed, used = budgets["newBudget"][of_gpu[0]], usages["newUsage"][of_gpu[1]]
        when = [table["timestamp"][rows] for table, rows in zip((budgets, usages), of_gpu, strict=True)]
        if not len(allowed) or not len(used):
            continue
        order = np.argsort(when[0], kind="stable")
        in_force = allowed[order][np.maximum(np.searchsorted(when[0][order], when[1], side="right") - 1, 0)]
        is_limited = (in_force > 0) & (in_force < MOST_BYTES) & (used >= 0) & (used < MOST_BYTES)
        over = np.where(is_limited, used - in_force, 0)
        row = int(np.argmax(over))
        worst = max(worst, (int(over[row]), int(used[row]), int(gpu)))
    if worst[0] <= 0:
        return ()
    text = (
        f"A process used {size(worst[1])} of GPU {worst[2]}'s memory, {size(worst[0])} more than Windows allowed it: "
        "it then moves the rest to the host's memory (paging)."
    )
    return (TraceWarning("memory-over-budget", text),)


def moved_out(database: Database) -> tuple[TraceWarning, ...]:
    """A warning where less was in a GPU's memory, as Windows counts it, than all programs together used of it."""
    if not database.has(_RESIDENT, "totalBytesResident", "segmentId") or not database.has(_USAGE, "newUsage"):
        return ()
    tables = (
        database.columns(_RESIDENT, (*_OF_WINDOWS, "segmentId", "totalBytesResident")),
        database.columns(_USAGE, (*_OF_WINDOWS, "newUsage")),
    )
    worst = (0, 0, 0)  # how much too little, the usage, the GPU
    for gpu in unique(tables[0]["gpu"]).tolist():
        resident, used = (_of_gpu(table, gpu, *keys) for table, keys in zip(tables, _TOLD_OF, strict=True))
        if not len(resident[0]) or not len(used[0]):
            continue
        # What was used all the time until more or less was resident: which of two events is told first is no paging.
        last = np.searchsorted(used[0], resident[0], side="right") - 1
        until = np.maximum(np.append(last[1:], len(used[0]) - 1), 0)
        for index, held in enumerate(resident[1].tolist()):
            least = int(used[1][max(last[index], 0) : until[index] + 1].min())
            worst = max(worst, (least - held, least, int(gpu))) if last[index] >= 0 else worst
    if worst[0] <= 0:
        return ()
    text = (
        f"Programs used {size(worst[1])} of GPU {worst[2]}'s memory while {size(worst[1] - worst[0])} was there: "
        f"Windows had moved {size(worst[0])} to the host's memory (paging)."
    )
    return (TraceWarning("memory-paged", text),)


_TOLD_OF = (("segmentId", "totalBytesResident"), ("globalTid", "newUsage"))


def _of_gpu(table: dict[str, Int64Array], gpu: int, whose: str, what: str) -> tuple[Int64Array, Int64Array]:
    """When the bytes in a GPU's own memory changed, and how many there were then: each owner's last number counts."""
    rows = np.flatnonzero(
        (table["gpu"] == gpu) & (table["segmentGroup"] == _Segments.GPU) & (table["timestamp"] != MISSING)
    )
    rows = rows[(table[what][rows] >= 0) & (table[what][rows] < MOST_BYTES)]
    rows = rows[np.lexsort((table[what][rows], table["timestamp"][rows]))]
    owner = process_key(table[whose][rows]) if whose == "globalTid" else table[whose][rows]
    change = np.empty(len(rows), np.int64)
    for gpu_id in unique(owner).tolist():
        change[owner == gpu_id] = np.diff(table[what][rows[owner == gpu_id]], prepend=0)
    return table["timestamp"][rows], np.cumsum(change)
