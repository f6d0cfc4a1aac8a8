"""What makes programs untidy, each worked out by hand on the small machine; and all of it, drawn."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from benchmarks.simulated.contended import contended
from benchmarks.simulated.counterfactual import CostRemoval, Truths
from benchmarks.simulated.generate import drawn_features, generate
from benchmarks.simulated.untidy import FEATURES

from boundby.readers import read_trace
from boundby.simulate.instructions import (
    MS,
    US,
    Await,
    Call,
    Copy,
    GraphLaunch,
    Launch,
    Loop,
    NewStream,
    Node,
    Process,
    Program,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    program,
    threads,
)
from boundby.simulate.nsys_export import Capture, to_export
from boundby.trace.tables import OpKind
from tests.simulate.small import SMALL, device, host, run


def test_of_managed_memory_the_host_waits_in_page_faults_that_are_no_calls(tmp_path: Path) -> None:
    """Each page takes 3 to arrive at the device and 50 to move; without copies nobody waits, without waits all do."""
    made = program(Launch("fills", 1), Loop(3, [Copy(25, "DtoH", "managed", stream=1), Work(200_000)]))
    truths = Truths(made, SMALL)
    assert truths.window() - truths.window(CostRemoval.COPIES) == pytest.approx(3 * 50, abs=10)
    assert truths.window(CostRemoval.WAITS | CostRemoval.CPU) == pytest.approx(truths.window(CostRemoval.CPU), abs=10)
    trace = read_trace(to_export(run(made), Capture()).write(tmp_path / "faults.sqlite", "2023"))
    assert sum(trace.operations.kind == OpKind.MIGRATION) == 3
    assert len(trace.api) == 1


def test_kernels_that_run_together_slow_each_other_down() -> None:
    ran = run([Launch("a", 100, 0, share=0.5), Launch("b", 100, 1, share=0.5)], contended(SMALL, contention=1.0))
    # a alone 8-13 (5 done), both at two thirds of the speed until a's 95 are done, then b's last 5 alone.
    assert device(ran) == [("a", 8, 13 + 143), ("b", 13, 161)]
    assert device(run([Launch("a", 100), Launch("b", 100)], contended(SMALL, contention=1.0))) == [
        ("a", 8, 108),
        ("b", 109, 209),
    ]


def test_processes_take_turns() -> None:
    one, other = (Process((Thread((Launch(name, 100),)),)) for name in "ab")
    ran = run(Program((one, other)), contended(SMALL, slice_ns=30))
    # a runs 8-38, b 38-68, a 68-98, b 98-128, a 128-158 and b 158-188, a 188-198, b 198-208
    assert device(ran) == [("a", 8, 198), ("b", 38, 208)]
    alone = run(Program((one,)), contended(SMALL, slice_ns=30))
    assert device(alone) == [("a", 8, 108)]


def test_a_new_stream_waits_for_nothing_of_the_old() -> None:
    pass_ = [NewStream(1), Launch("a", 100, 1, share=0.4), Call(1, "cudaStreamDestroy")]
    ran = run([Loop(2, pass_), Sync("stream", 1)])
    # create 0-2, launch 2-7, a 10-110, destroy until 8; create until 10, launch until 15, a 18-118
    assert device(ran) == [("a", 10, 110), ("a", 18, 118)]
    assert host(ran)[-1] == ("StreamSynchronize", 16, 123)
    trace_streams = {row["streamId"] for row in to_export(ran).rows["CUPTI_ACTIVITY_KIND_KERNEL"]}
    assert len(trace_streams) == 2


def test_a_daemon_ends_with_the_others() -> None:
    polls = Loop(100, [Sleep(20, "poll"), Call(5, "cudaEventQuery")])
    ran = run(threads(Thread((Launch("a", 10), Work(95))), Thread((polls,), daemon=True)))
    assert host(ran, 1)[-1] == ("EventQuery", 95, 100)
    waiting = run(threads(Thread((Work(5),)), Thread((Await("never"),), daemon=True)))
    assert host(waiting, 1) == []


def test_somebody_elses_process_is_in_no_export_and_changes_with_nothing() -> None:
    mine = Process((Thread((Loop(5, [Launch("a", 100 * US)]), Sync())),))
    theirs = Process((Thread((Loop(1000, [Launch("b", 100 * US), Sync("stream")]),), daemon=True),), traced=False)
    known = Truths(Program((mine, theirs)), contended(SMALL, slice_ns=50 * US))
    export = to_export(known.run)
    assert len(export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]) == 5
    assert len(export.rows["PROCESSES"]) == 1
    assert known.devices() == (0,)
    alone = Truths(Program((mine,)), SMALL)
    assert known.window() > 1.5 * alone.window()
    # Without its kernels, what is left is waiting for a turn.
    assert 50 * US < known.window(CostRemoval.KERNELS) < known.window()


def test_rows_that_the_capture_loses() -> None:
    ran = run([Loop(50, [Launch("a", 10), Record("e"), WaitEvent("e", 1), Sync("event", event="e")])])
    tables = ("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    counts = [
        [len(to_export(ran, capture).rows.get(table, ())) for table in tables]
        for capture in (Capture(), Capture(event_records=False), Capture(syncs=False), Capture(lost=0.5))
    ]
    assert counts[:3] == [[50, 100], [0, 100], [50, 0]]
    assert 10 < counts[3][0] < 40
    assert 25 < counts[3][1] < 75


def test_a_clock_that_drifts() -> None:
    ran = run([Work(1 * MS), Launch("a", 1 * MS)], clock_drift=1e-3)
    [row] = to_export(ran).rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert (row["start"], row["end"]) == (1_000_008 + 1_000, 2_000_008 + 2_000)


def test_nodes_of_a_graph_that_is_held_up_stay_inside_it() -> None:
    graph = GraphLaunch((Node("n", 50), Node("m", 50)), share=0.5)
    ran = run([graph, Launch("b", 1_000, 1, share=0.5)], contended(SMALL, contention=1.0))
    rows = to_export(ran, Capture(graph_nodes=True)).rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    [whole] = [one for one in ran.operations if one.spec.nodes]
    assert max(int(row["end"] or 0) for row in rows if row["graphNodeId"]) == whole.end_ns


def test_a_helper_that_waits_for_the_device_holds_the_step_up() -> None:
    main = Thread((Loop(4, [Await("batch"), Launch("a", 500 * US), Record("used"), Signal("room")]),))
    copy = [Await("room"), Sync("event", event="used"), Launch("load", 5, 1, share=0), Signal("batch")]
    known = Truths(threads(Thread((Signal("room"), *main.body)), Thread((Loop(4, copy),))), SMALL)
    assert known.window() > 4 * 500 * US
    assert known.window(CostRemoval.KERNELS) < 500 * US


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_runs_and_can_be_read(name: str, tmp_path: Path) -> None:
    case = generate(random.Random(name).randrange(1000), (name,))
    assert case.features == (name,)
    trace = read_trace(case.export().write(tmp_path / "made.sqlite"))
    ran = case.run()
    traced = [one for one in ran.operations if ran.script.threads[one.thread].traced]
    assert len(trace.operations) >= len(traced)
    assert case.truths.truth(device=0).window_ns > 0


def test_features_are_drawn_by_share() -> None:
    drawn = [drawn_features(seed, 0.5) for seed in range(400)]
    assert 150 < sum(bool(features) for features in drawn) < 250
    assert {name for features in drawn for name in features} == set(FEATURES)
    assert not any(drawn_features(seed, 0.0) for seed in range(50))
