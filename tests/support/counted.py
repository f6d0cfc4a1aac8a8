"""A program whose export holds the GPU's counters and its allocations, and damage to these tables alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from benchmarks.simulated.full_export import Export

from boundby.simulate.nsys_export import ExportedThread
from tests.support.damaged_sqlite import damage_tables

MS, US, MB = 1_000_000, 1_000, 1_000_000
#: Of the counters: typeId of GPU 0 in a real export, and the numbers of these names there or thereabouts.
TYPE = 281479271677952
NAMES = {
    "SM Active": 0,
    "SM Issue": 1,
    "Tensor Active": 2,
    "DRAM Read Throughput": 3,
    "DRAM Write Throughput": 4,
    "GPC Clock Frequency": 5,
}
STEPS, STEP_NS, BUSY_NS, SAMPLE_NS = 10, 10 * MS, 9 * MS, 100 * US
ALLOCATION, RELEASE = 0, 1
PINNED, DEVICE = 1, 2
TABLES = (
    *("GPU_METRICS", "TARGET_INFO_GPU_METRICS", "CUDA_GPU_MEMORY_USAGE_EVENTS"),
    *("GPU_MEMORY_BUDGET_EVENTS", "GPU_MEMORY_USAGE_EVENTS"),
)


def sampled(percent: Mapping[str, int], *, idle: Mapping[str, int] | None = None, allocates: bool = False) -> Export:
    """Ten kernels of 9 ms, 1 ms apart, under samples of 100 us: one value while busy, one while idle. ``allocates``:
    a buffer of 50 MB in each step, under a budget."""
    export = Export()
    main = export.thread()
    for step in range(STEPS):
        at = step * STEP_NS
        launch = export.api(main, at - 50 * US, at - 40 * US, "cudaLaunchKernel_v7000")
        export.kernel(launch, at, at + BUSY_NS, name="void busy(float*)")
        if allocates:
            export.nvtx(main, at - 60 * US, at + BUSY_NS, f"step {step}")
            allocation(export, main, at + MS, 0x2000, 50 * MB)
            allocation(export, main, at + 8 * MS, 0x2000, 50 * MB, RELEASE)
            for table, column, size in (("BUDGET", "newBudget", 6_000), ("USAGE", "newUsage", 5_000)):
                values = {"timestamp": at, "globalTid": main.global_tid, "gpu": 0, column: size * MB, "segmentGroup": 0}
                export.row(f"GPU_MEMORY_{table}_EVENTS", **values)
    for name, number in NAMES.items():
        export.row("TARGET_INFO_GPU_METRICS", typeId=TYPE, sourceId=TYPE, typeName="", metricId=number, metricName=name)
    for at in range(0, STEPS * STEP_NS - STEP_NS + BUSY_NS, SAMPLE_NS):
        now = percent if at % STEP_NS < BUSY_NS else idle or {}
        for name, number in NAMES.items():
            value = now.get(name, 0)
            export.row("GPU_METRICS", timestamp=at, rawTimestamp=at, typeId=TYPE, metricId=number, value=value)
    return export


def allocation(
    export: Export,
    thread: ExportedThread,
    at: int,
    address: int,
    size: int,
    what: int = ALLOCATION,
    kind: int = DEVICE,
    length: int = 10 * US,
) -> None:
    """An allocation or release inside its call, in the middle of it."""
    name = "cudaMalloc_v3020" if what == ALLOCATION else "cudaFree_v3020"
    export.api(thread, at - length // 2, at + length // 2, name)
    export.row(
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        start=at,
        globalPid=thread.global_pid,
        deviceId=0,
        contextId=1,
        address=address,
        pc=0,
        bytes=size,
        memKind=kind,
        memoryOperationType=what,
    )


#: What `counted_program` is bound by.
COUNTED_BOUND = "mixed"


def counted_program() -> Export:
    """Counters, allocations and a budget in one export."""
    busy = {"SM Active": 90, "SM Issue": 30, "DRAM Read Throughput": 50, "DRAM Write Throughput": 25}
    return sampled(busy, allocates=True)


def damage_counted(path: Path, chance: random.Random) -> None:
    """Damage to values, rows, columns or the whole of these tables, and to nothing else."""
    damage_tables(path, chance, TABLES)
