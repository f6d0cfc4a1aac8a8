"""Constructs of OpenACC and OpenMP and calls of cuDNN and cuBLAS are ranges, named by their place in the source."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export

from boundby.api import Analysis
from boundby.capture.nsys import Nsys
from boundby.readers import read_trace
from boundby.render import terminal
from boundby.simulate.nsys_export import Name, Row
from boundby.trace.program import ProgramKind, program_of
from boundby.trace.vocabulary.range_names import fold_name
from tests.support.nsys import capture
from tests.support.training import US

ACC = "CUPTI_ACTIVITY_KIND_OPENACC_"


def heat(steps: int = 6) -> Export:
    """A program of directives: each step uploads ``u`` (line 51), computes (line 55), waits."""
    export = Export(("./heat",))
    main = export.thread()
    place: Row = {"globalTid": main.global_tid, "srcFile": Name("/src/heat.c"), "funcName": Name("main")}
    for step in range(steps):
        t = step * 100 * US
        names: Row = {"nameId": Name("Enter data"), "DeviceType": 4, "cuDeviceId": 0, "cuContextId": 1, "cuStreamId": 7}
        data: Row = {**place, **names, "bytes": 0}
        export.row(f"{ACC}DATA", start=t, end=t + 40 * US, eventKind=11, lineNo=51, varName=Name("u"), **data)
        export.row(f"{ACC}DATA", start=t + US, end=t + US, eventKind=13, lineNo=51, varName=Name("u"), **data)
        copy = export.api(main, t + 2 * US, t + 35 * US, "cuMemcpyHtoDAsync_v2")
        export.memcpy(copy, t + 4 * US, t + 34 * US, kind="HtoD", bytes=1 << 20)
        construct: Row = {**place, **names, "nameId": Name("Compute construct")}
        export.row(f"{ACC}OTHER", start=t + 41 * US, end=t + 90 * US, eventKind=9, lineNo=55, **construct)
        launch: Row = {**construct, "numGangs": 4, "numWorkers": 1, "vectorLength": 128}
        export.row(f"{ACC}LAUNCH", start=t + 42 * US, end=t + 50 * US, eventKind=4, lineNo=55, **launch)
        kernel = export.api(main, t + 43 * US, t + 49 * US, "cuLaunchKernel")
        export.kernel(kernel, t + 52 * US, t + 85 * US, name="main_55_gpu")
        export.api(main, t + 51 * US, t + 88 * US, "cuStreamSynchronize")
    return export


@pytest.mark.parametrize("schema", ["2022", "2023", "2026"])
def test_constructs_are_regions_by_file_and_line(schema: str, tmp_path: Path) -> None:
    analysis = Analysis(heat().write(tmp_path / "heat.sqlite", schema))
    regions = {region.path[-1]: region for region in analysis.regions if region.path}

    assert {"heat.c:51 enter data (u)", "heat.c:55 compute construct", "heat.c:55 launch"} <= set(regions)
    assert not any("create" in name for name in regions)  # it takes no time
    assert regions["heat.c:51 enter data (u)"].memcpy["HtoD"].bytes == 6 << 20
    assert regions["heat.c:55 launch"].kernels.count == 6
    assert regions["heat.c:55 compute construct"].sync.count == 6
    assert not analysis.trace.captured.nvtx
    assert program_of(analysis.trace).kind == ProgramKind.DIRECTIVES


def test_found_iterations_hold_the_constructs(tmp_path: Path) -> None:
    analysis = Analysis(heat(40).write(tmp_path / "heat.sqlite"))

    paths = [region.path for region in analysis.regions]
    assert any(path[:1] == ("iteration",) and "heat.c:55 compute construct" in path for path in paths)


def test_openmp_and_libraries_beside_nvtx(tmp_path: Path) -> None:
    export = Export()
    main = export.thread()
    export.nvtx(main, 0, 100 * US, "step")
    kernel = export.api(main, 12 * US, 20 * US, "cudaLaunchKernel_v7000")
    export.kernel(kernel, 22 * US, 60 * US)
    common: Row = {"globalTid": main.global_tid, "eventClass": 0}
    export.row("CUDNN_EVENTS", start=10 * US, end=30 * US, nameId=Name("cudnnConvolutionForward"), **common)
    export.row("CUBLAS_EVENTS", start=5 * US, end=5 * US, nameId=Name("cuBLAS profiling started"), **common)
    export.row("OPENMP_EVENT_KIND_PARALLEL", start=70 * US, end=90 * US, nameId=Name("Parallel"), **common)
    trace = read_trace(export.write(tmp_path / "x.sqlite"))
    ranges = trace.ranges
    told = {
        (trace.names[name], trace.domains[domain])
        for name, domain in zip(ranges.name.tolist(), ranges.domain.tolist(), strict=True)
    }

    assert told == {("step", ""), ("cudnnConvolutionForward", "cuDNN"), ("Parallel", "OpenMP")}
    assert trace.captured.nvtx


def test_files_that_are_read(tmp_path: Path) -> None:
    export = Export()
    main = export.thread()
    export.nvtx(main, 0, 100 * US, "step")
    common: Row = {"threadId": main.tid, "eventType": 2, "context": "", "fileAccessId": 7}
    export.row("OSRT_FILE_ACCESS_DESCRIPTORS", fileAccessId=7, processId=main.pid, filePath="/data/train_0.tar")
    for start, call, moved in ((10, "read", 4096), (30, "pwrite64", 512), (50, "close", 0)):
        times: Row = {"startedAt": start * US, "endedAt": (start + 5) * US}
        export.row("OSRT_FILE_ACCESS_EVENTS", apiCallId=Name(call), bytesProcessed=moved, **times, **common)
    trace = read_trace(export.write(tmp_path / "x.sqlite", "2026"))
    table = trace.file_accesses

    assert [trace.names[name] for name in table.name.tolist()] == ["/data/train_0.tar"] * 2
    assert table.bytes.tolist() == [4096, 512]
    assert table.is_write.tolist() == [False, True]


def test_input_names_its_files(tmp_path: Path) -> None:
    """The host reads a file of 100 MB in 80 ms before each step."""
    export = Export()
    main, ms = export.thread(), 1000 * US
    export.row("OSRT_FILE_ACCESS_DESCRIPTORS", fileAccessId=7, processId=main.pid, filePath="/data/train_0.tar")
    for step in range(6):
        t = step * 100 * ms
        export.nvtx(main, t, t + 82 * ms, "data loading")
        export.osrt(main, t + ms, t + 81 * ms, "read")
        common: Row = {"threadId": main.tid, "eventType": 2, "context": "", "fileAccessId": 7}
        times: Row = {"startedAt": t + ms, "endedAt": t + 81 * ms}
        export.row("OSRT_FILE_ACCESS_EVENTS", apiCallId=Name("read"), bytesProcessed=100_000_000, **times, **common)
        export.kernel(export.api(main, t + 84 * ms, t + 85 * ms, "cudaLaunchKernel_v7000"), t + 86 * ms, t + 96 * ms)
    report = Analysis(export.write(tmp_path / "x.sqlite", "2026")).report

    (finding,) = [finding for finding in report.findings if finding.rule == "host-input"]
    assert "train_0.tar at 1.25 GB/s" in finding.title
    assert finding.evidence["files"] == ["/data/train_0.tar"]
    assert finding.evidence["read_bytes"] == 500_000_000  # the first lies before the first GPU work


def test_data_that_moves_at_every_pass(tmp_path: Path) -> None:
    """``u`` goes in and out around the loop's body: the advice is a data region around the loop, by place and name."""
    export = Export(("./heat",))
    main = export.thread()
    place: Row = {"globalTid": main.global_tid, "srcFile": Name("/src/heat.f90"), "funcName": Name("main")}
    what: Row = {"DeviceType": 4, "cuDeviceId": 0, "cuContextId": 1, "cuStreamId": 7, "varName": Name("u"), "bytes": 0}

    def moves(t: int, kind: int, line: int, name: str, way: str) -> None:
        high = t + 450 * US
        export.row(f"{ACC}DATA", start=t, end=high, eventKind=kind, lineNo=line, nameId=Name(name), **place, **what)
        copy = export.api(main, t + 2 * US, high - 5 * US, f"cuMemcpy{way}_v2")
        source, target = ("pageable", "device") if way == "HtoD" else ("device", "pageable")
        export.memcpy(copy, t + 4 * US, high - 6 * US, kind=way, bytes=4 << 20, source=source, target=target)

    for step in range(20):  # calls in order of time, as their correlation ids say: else rows are not believed
        t = step * 1550 * US
        moves(t, 11, 51, "Enter data", "HtoD")
        kernel = export.api(main, t + 480 * US, t + 490 * US, "cuLaunchKernel")
        export.kernel(kernel, t + 500 * US, t + 900 * US, name="main_55_gpu")
        export.api(main, t + 495 * US, t + 905 * US, "cuStreamSynchronize")
        moves(t + 1000 * US, 12, 58, "Exit data", "DtoH")
    report = Analysis(export.write(tmp_path / "heat.sqlite")).report

    (finding,) = [finding for finding in report.findings if finding.rule == "repeated-transfer"]
    assert "heat.f90:51, heat.f90:58" in finding.title
    assert finding.advice[0].startswith("!$acc data copy(u) around the loop that holds heat.f90:51 and heat.f90:58")


def test_payloads_are_told_per_unit(tmp_path: Path) -> None:
    """Steps of unlike sizes that take 10 us a token are even steps."""
    export = Export()
    main, t = export.thread(), 0
    sizes = [100, 400, 200, 800, 100, 300, 500, 900, 200, 600]
    for number in sizes:
        length = number * 10 * US
        export.nvtx(main, t, t + length, "decode", payload=number)
        call = export.api(main, t + 5 * US, t + 10 * US, "cudaLaunchKernel_v7000")
        export.kernel(call, t + 12 * US, t + length - 5 * US)
        t += length + 10 * US
    analysis = Analysis(export.write(tmp_path / "x.sqlite"))
    (region,) = [region for region in analysis.regions if region.path == ("decode",)]

    assert region.payload is not None
    assert (region.payload.count, region.payload.total) == (10, sum(sizes))
    assert (region.payload.least, region.payload.most) == (100, 900)
    assert region.payload.ns_per_unit == pytest.approx(10_000, rel=0.01)
    assert not [finding for finding in analysis.report.findings if finding.rule == "unsteady"]
    assert "time per unit" in terminal.render(analysis.report).lower()


@pytest.mark.parametrize(
    ("payload", "amounts", "name", "total"),
    [
        ([1.5, 2.0, -0.25], None, "", 3.25),
        ([2.0, 3.0, 4.0], None, "", 9.0),  # which SQLite keeps as integers
        ([7, 2.5, 3], None, "", 12.5),
        (None, '{"NCCL communicator ID": 93, "Message size [bytes]": 4096}', "Message size [bytes]", 3 * 4096.0),
        (None, '[{"schema": {"tokens": 12}}]', "tokens", 36.0),
    ],
)
@pytest.mark.parametrize("has_row_numbers", [True, False])
def test_decimals_and_objects_are_payloads(
    tmp_path: Path, payload: list[float] | None, amounts: str | None, name: str, total: float, has_row_numbers: bool
) -> None:
    export = Export()
    main = export.thread()
    for step in range(3):
        number = payload[step] if payload else None
        export.nvtx(main, step * 100 * US, step * 100 * US + 50 * US, "step", payload=number, amounts=amounts)
    path = export.write(tmp_path / "x.sqlite")
    if not has_row_numbers:  # read by SQLite, not from its pages
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(
                "ALTER TABLE NVTX_EVENTS RENAME TO kept; CREATE VIEW NVTX_EVENTS AS SELECT * FROM kept"
            )
    (region,) = [region for region in Analysis(path).regions if region.path == ("step",)]

    assert region.payload is not None
    assert (region.payload.count, region.payload.total, region.payload.name) == (3, total, name)


def test_a_real_capture_of_payloads(nsys: Nsys, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(
        "import nvtx\n"
        "for size in (8, 16, 32):\n"
        "    with nvtx.annotate('step', payload=size):\n"
        "        sum(range(1000 * size))\n"
    )
    trace = Analysis(capture(nsys, tmp_path, str(program)), nsys=nsys.path).trace
    ranges = trace.ranges
    carried = [
        payload
        for name, payload in zip(ranges.name.tolist(), ranges.payload.tolist(), strict=True)
        if trace.names[name] == "step"
    ]

    assert carried == [8, 16, 32]


def test_another_line_is_another_place() -> None:
    assert fold_name("heat.c:51 enter data (u)") != fold_name("heat.c:52 enter data (u)")
    assert fold_name("step 12") == fold_name("step 13")
