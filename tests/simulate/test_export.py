"""Exports of runs: what they hold, that nsys itself reads them as we do, and that they are written with care."""

from __future__ import annotations

import csv
import io
import random
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import Case
from benchmarks.simulated.generate import generate
from msgspec.structs import replace

from boundby.capture.nsys import Nsys
from boundby.model.errors import OutputError
from boundby.readers import read_trace
from boundby.simulate.instructions import US, GraphLaunch, Launch, Loop, Node, Record, Sleep, Sync, WaitEvent, program
from boundby.simulate.machine import CALLS, Do, Machine, Run, StepKind
from boundby.simulate.nsys_export import GENERATIONS, OSRT_THRESHOLD_NS, PRODUCT, Capture, write_export
from boundby.simulate.patterns import PATTERNS

TIMEOUT_S = 120


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module", params=["autograd", "healthy", "sync", "streams", "graphs", "two_gpus", 3, 18])
def ran(request: pytest.FixtureRequest) -> Run:
    if isinstance(request.param, int):
        case = generate(request.param)
        return replace(case, machine=replace(case.machine, clock_noise_ns=0)).run()
    machine = Machine(host_jitter=0.05, device_jitter=0.02)
    return Case("", PATTERNS[request.param].make(random.Random(1), 5), machine).run()


def stats(nsys: Nsys, path: Path, report: str) -> list[dict[str, str]]:
    """The rows of one report of ``nsys stats``; none where it finds no data for it."""
    answer = subprocess.run(
        [str(nsys.path), "stats", f"--report={report}", "--format=csv", "--output=-", "--force-export=false", path],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert "ERROR" not in answer.stdout + answer.stderr
    _, header, table = answer.stdout.partition("Time (%)")
    return list(csv.DictReader(io.StringIO((header + table).strip() + "\n")))


@pytest.mark.nsys
def test_nsys_counts_as_the_simulation_does(ran: Run, nsys: Nsys, tmp_path: Path) -> None:
    path = write_export(ran, tmp_path / "run.sqlite", capture=Capture(graph_nodes=False))
    steps = [
        (step, start, end)
        for thread, starts, ends in zip(ran.script.threads, ran.start_ns, ran.end_ns, strict=True)
        for step, start, end in zip(thread.steps, starts, ends, strict=True)
    ]
    calls, call_ns = Counter[str](), Counter[str]()
    for step, start, end in steps:
        if step.do in CALLS:
            calls[step.call] += 1
            call_ns[step.call] += end - start
    found = {row["Name"].removesuffix("_v10000"): row for row in stats(nsys, path, "cuda_api_sum")}
    assert {name: int(row["Num Calls"]) for name, row in found.items()} == calls
    assert {name: int(row["Total Time (ns)"]) for name, row in found.items()} == call_ns

    kernels, kernel_ns = Counter[str](), Counter[str]()
    for one in ran.operations:
        if one.spec.kind in (StepKind.KERNEL, StepKind.COMM):
            kernels[one.spec.name] += 1
            kernel_ns[one.spec.name] += one.end_ns - one.start_ns
    found = {row["Name"]: row for row in stats(nsys, path, "cuda_gpu_kern_sum")}
    assert {name: int(row["Instances"]) for name, row in found.items()} == kernels
    assert {name: int(row["Total Time (ns)"]) for name, row in found.items()} == kernel_ns

    pushed = Counter(step.text for step, _, _ in steps if step.do == Do.PUSH)
    found = {row["Range"].removeprefix(":"): row for row in stats(nsys, path, "nvtx_pushpop_sum")}
    assert {name: int(row["Instances"]) for name, row in found.items()} == pushed
    assert sum(int(row["Total Time (ns)"]) for row in found.values()) == sum(
        end if step.do == Do.POP else -start for step, start, end in steps if step.do in (Do.PUSH, Do.POP)
    )

    slept = Counter(
        step.text if step.do == Do.SLEEP else "pthread_cond_wait"
        for step, start, end in steps
        if step.do in (Do.SLEEP, Do.AWAIT) and end - start >= OSRT_THRESHOLD_NS
    )
    assert {row["Name"]: int(row["Num Calls"]) for row in stats(nsys, path, "osrt_sum")} == slept


@pytest.mark.parametrize("schema", GENERATIONS)
def test_the_reader_gets_back_what_ran(ran: Run, schema: str, tmp_path: Path) -> None:
    trace = read_trace(write_export(ran, tmp_path / "run.sqlite", schema))
    graphs = sum(one.spec.kind == StepKind.GRAPH for one in ran.operations) if schema == "2019" else 0
    assert len(trace.operations) == len(ran.operations) - graphs  # schema 2019 knows no graphs
    if not graphs:
        assert sorted(trace.operations.start_ns.tolist()) == sorted(one.start_ns for one in ran.operations)
        assert sorted(trace.operations.end_ns.tolist()) == sorted(one.end_ns for one in ran.operations)
    steps = [step for thread in ran.script.threads for step in thread.steps]
    assert len(trace.api) == sum(step.do in CALLS for step in steps)
    assert len(trace.ranges) == sum(step.do == Do.PUSH for step in steps)
    assert len(trace.threads) >= len(ran.script.threads)


def test_it_says_that_it_is_simulated(ran: Run, tmp_path: Path) -> None:
    path = write_export(ran, tmp_path / "run.sqlite")
    about = {str(name): value for name, value in rows(path, "SELECT name, value FROM META_DATA_EXPORT")}
    assert about["EXPORT_PRODUCT_NAME"] == PRODUCT
    assert "SIMULATED" in about
    assert {name for (name,) in rows(path, "SELECT name FROM TARGET_INFO_GPU")} == {"Simulated GPU"}


def test_graphs_node_by_node(tmp_path: Path) -> None:
    ran = Case("", program(Loop(3, [GraphLaunch((Node("a", 10 * US), Node("b", 20 * US)))]))).run()
    path = write_export(ran, tmp_path / "nodes.sqlite", capture=Capture(graph_nodes=True))
    kernels = rows(path, "SELECT end - start, graphNodeId, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert kernels == [(length, node, call) for call in (1, 2, 3) for length, node in ((10 * US, 1), (20 * US, 2))]
    whole = write_export(ran, tmp_path / "whole.sqlite")
    assert rows(whole, "SELECT end - start FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE") == [(30_500,)] * 3


def test_events_are_named_by_records_and_waits(tmp_path: Path) -> None:
    ran = Case("", program(Launch("a", 10, 1), Record("x", 1), Record("y", 1), WaitEvent("x"), Launch("b", 10))).run()
    path = write_export(ran, tmp_path / "events.sqlite")
    record = "SELECT streamId, eventId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT"
    assert rows(path, record) == [(13, 1), (13, 2)]
    wait = "SELECT streamId, eventId, syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    assert rows(path, wait) == [(7, 1, 2)]


def test_what_was_not_captured_is_not_there(tmp_path: Path) -> None:
    ran = generate(1).run()
    path = write_export(ran, tmp_path / "run.sqlite", capture=Capture(nvtx=False, osrt=False, sched=False))
    tables = {name for (name,) in rows(path, "SELECT name FROM sqlite_master")}
    assert not tables & {"NVTX_EVENTS", "OSRT_API", "SCHED_EVENTS"}


def test_device_clocks_can_be_off(tmp_path: Path) -> None:
    made, skew = program(Loop(20, [Launch("a", 10 * US)])), -5_000_000
    machines = Machine(), Machine(clock_skew_ns=skew, clock_noise_ns=100)
    runs = [Case("", made, machine).run() for machine in machines]
    assert runs[0].operations == runs[1].operations  # the program knows nothing of it
    starts = [
        rows(write_export(ran, tmp_path / f"{number}.sqlite"), "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL")
        for number, ran in enumerate(runs)
    ]
    errors = [int(str(b)) - int(str(a)) - skew for (a,), (b,) in zip(*starts, strict=True)]
    assert 0 < max(map(abs, errors)) <= 100


def test_nothing_is_written_over(tmp_path: Path) -> None:
    ran, path = generate(0).run(), tmp_path / "there.sqlite"
    path.write_text("mine")
    with pytest.raises(OutputError, match="already there"):
        write_export(ran, path)
    assert path.read_text() == "mine"
    dangling = tmp_path / "link.sqlite"
    dangling.symlink_to(tmp_path / "elsewhere.sqlite")
    with pytest.raises(OutputError, match="already there"):
        write_export(ran, dangling)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["link.sqlite", "there.sqlite"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("boundby.simulate.nsys_export.write_tables", fail)
    with pytest.raises(OutputError, match="No space left"):
        write_export(generate(0).run(), tmp_path / "run.sqlite")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="schema"):
        write_export(generate(0).run(), tmp_path / "run.sqlite", "1999")
    with pytest.raises(OutputError, match="Cannot write"):
        write_export(generate(0).run(), tmp_path / "absent" / "run.sqlite")


def test_between_one_sleep_and_another_the_thread_is_back(tmp_path: Path) -> None:
    ran = Case("", program(Launch("a", 10), Sleep(50 * US, "read"), Sleep(30 * US, "poll"), Launch("b", 10))).run()
    path = write_export(ran, tmp_path / "sleeps.sqlite")
    assert rows(path, "SELECT count(*) FROM OSRT_API") == [(2,)]
    switches = rows(path, "SELECT start, isSchedIn FROM SCHED_EVENTS ORDER BY start")
    assert [is_in for _, is_in in switches] == [1, 0, 1, 0, 1, 0]
    back, gone = switches[2][0], switches[3][0]
    assert isinstance(back, int)
    assert gone == back + 1


def test_kernels_have_the_shape_of_their_share(tmp_path: Path) -> None:
    ran = Case("", program(Launch("whole", 10), Launch("half", 10, 1, share=0.5), Sync("stream", 1))).run()
    path = write_export(ran, tmp_path / "shapes.sqlite")
    assert rows(path, "SELECT gridX * gridY * gridZ, blockX FROM CUPTI_ACTIVITY_KIND_KERNEL") == [
        (800, 256),
        (400, 256),
    ]
    assert rows(path, "SELECT smCount, maxWarpsPerSm FROM TARGET_INFO_GPU") == [(100, 64)]
    assert rows(path, "SELECT streamId, flag FROM TARGET_INFO_CUDA_STREAM ORDER BY 1") == [(7, 3), (13, 2)]
