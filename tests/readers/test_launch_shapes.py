"""Launch shapes, hardware and page faults: what rules on kernels need beside their times."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby.readers import read_trace
from boundby.trace.tables import GpuFacts, OpKind, Trace
from tests.support.traces import trace_path

FACTS = {"smCount": 108, "computeMajor": 8, "computeMinor": 0, "maxWarpsPerSm": 64, "maxRegistersPerSm": 65_536}


def _export(shapes: list[tuple[int, int, int]]) -> Export:
    export = Export()
    main = export.thread(pid=1, tid=1)
    export.gpu(0, "NVIDIA A100-SXM4-80GB", {**FACTS, "maxShmemPerSm": 167_936})
    for number, shape in enumerate(shapes):
        at = number * 100_000
        call = export.api(main, at, at + 5_000, "cudaLaunchKernel")
        export.kernel(call, at + 9_000, at + 20_000, shape=shape)
    call = export.api(main, 10**7, 10**7 + 5_000, "cudaMemcpyAsync")
    export.memcpy(call, 10**7 + 6_000, 10**7 + 9_000)
    return export


def _shapes(trace: Trace) -> list[tuple[int, ...] | None]:
    table, shapes = trace.operations, trace.shapes
    columns = (shapes.blocks, shapes.threads, shapes.registers)
    return [None if row < 0 else tuple(int(column[row]) for column in columns) for row in table.shape.tolist()]


def test_kernels_have_the_shape_of_their_launch(tmp_path: Path) -> None:
    told = [(640, 128, 122), (1, 1, 16), (640, 128, 122)]
    trace = read_trace(_export(told).write(tmp_path / "r.sqlite"))
    assert _shapes(trace) == [*told, None]  # a copy has none
    assert len(trace.shapes) == 2


def test_the_order_of_rows_does_not_count(tmp_path: Path) -> None:
    export = _export([(n + 1, 32 * (n % 7 + 1), 16) for n in range(40)])
    plain = read_trace(export.write(tmp_path / "a.sqlite"))
    mixed = read_trace(export.write(tmp_path / "b.sqlite", shuffle=3))
    assert _shapes(plain) == _shapes(mixed)


@pytest.mark.parametrize("column", ["gridX", "blockY", "registersPerThread", "staticSharedMemory"])
def test_absent_columns_tell_nothing(tmp_path: Path, column: str) -> None:
    path = _export([(640, 128, 122)]).write(tmp_path / "r.sqlite", drop=[f"CUPTI_ACTIVITY_KIND_KERNEL.{column}"])
    trace = read_trace(path)
    assert len(trace.operations) == 2
    (shape,) = [found for found in _shapes(trace) if found is not None]
    expected = {"gridX": (0, 128, 122), "blockY": (640, 0, 122), "registersPerThread": (640, 128, 0)}
    assert shape == expected.get(column, (640, 128, 122))


def test_impossible_values_tell_nothing(tmp_path: Path) -> None:
    path = _export([(640, 128, 122), (1, 64, 16)]).write(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = -5, blockX = 9223372036854775807 WHERE rowid = 1"
        )
    database.close()
    assert _shapes(read_trace(path)) == [(0, 0, 122), (1, 64, 16), None]


def test_hardware_is_read(tmp_path: Path) -> None:
    trace = read_trace(_export([(1, 1, 1)]).write(tmp_path / "r.sqlite", "2026"))
    assert trace.gpu_facts == (GpuFacts(108, (8, 0), 64, 65_536, 167_936),)
    trace = read_trace(_export([(1, 1, 1)]).write(tmp_path / "s.sqlite", drop=["TARGET_INFO_GPU"]))
    assert trace.gpu_facts == (GpuFacts(),)


def test_page_faults_are_counted(tmp_path: Path) -> None:
    path = _export([(1, 1, 1)]).write(tmp_path / "r.sqlite")
    assert read_trace(path).page_faults == {}
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS (start INTEGER, numberOfPageFaults INTEGER)")
        database.executemany("INSERT INTO CUDA_UM_GPU_PAGE_FAULT_EVENTS VALUES (?, ?)", [(1, 3), (2, 4), (3, None)])
        database.execute("CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INTEGER)")
        database.executemany("INSERT INTO CUDA_UM_CPU_PAGE_FAULT_EVENTS VALUES (?)", [(1,), (2,)])
    database.close()
    assert read_trace(path).page_faults == {"cpu": 2, "gpu": 7}


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("transformer_2_7b_nvtx.sqlite", GpuFacts(108, (8, 0), 64, 65_536, 167_936)),
        ("rapids_cudf_old_schema.sqlite", GpuFacts(72, (7, 5), 32, 65_536, 65_536)),
        ("openacc_mpi_4_processes_4_gpus.sqlite", GpuFacts(80, (7, 0), 64, 65_536, 98_304)),
    ],
)
def test_real_exports_tell_their_hardware(name: str, facts: GpuFacts) -> None:
    trace = read_trace(trace_path(name))
    assert trace.gpu_facts[0] == facts
    kernels = trace.operations.shape[trace.operations.kind == OpKind.KERNEL]
    assert (kernels >= 0).all()
    assert (trace.shapes.blocks[kernels] > 0).all()
