"""Ranges of predictions, and what they hold: by hand."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.replay.engine import replay, replay_otherwise
from boundby.replay.predictor import Predictor, ReplayStep
from boundby.replay.questions import answer
from boundby.replay.removals import Without
from boundby.replay.trust import OpenRange
from boundby.trace.tables import Direction, MemoryKind, MessageTable
from tests.replay.test_replay import US, launch, predictor_of, steps_with_sync
from tests.support.program import Program


def with_ranks(ranks: int = 1) -> Predictor:
    """Ten rounds of 3 ms of each rank: its kernel takes 900 us, the host waits for it, then for a message of another
    rank, which comes 2.9 ms after the round began."""
    program = Program(processes=ranks, threads=ranks)
    waits = []
    for rank in range(ranks):
        for step in range(10):
            base = step * 3_000
            launch(program, base, base + 10, base + 910, thread=rank)
            program.api((base + 6) * US, (base + 920) * US, "cudaStreamSynchronize", rank)
            waits.append(((base + 930) * US, (base + 2_900) * US, rank, program.name("MPI_Waitall")))
    start, end, thread, name = np.array(waits, np.int64).T
    untold = np.full(len(waits), -1)
    calls = MessageTable(
        start_ns=start,
        end_ns=end,
        thread=thread.astype(np.int32),
        name=name.astype(np.int32),
        communicator=untold,
        peer=untold,
        tag=untold,
        sent_bytes=untold,
        received_bytes=untold,
        is_open=np.zeros(len(waits), bool),
    )
    return Predictor(build_timeline(replace(program.trace(), messages=calls), parse_window("gpu")))


def test_who_comes_sooner_to_wait_for_a_message_waits_for_longer() -> None:
    predictor = with_ranks()
    [measured] = predictor.measured_ns
    for what in ("no_sync", "infinite_gpu", "kernels=2"):
        [found] = answer(predictor, what)
        assert found.predicted_ns > measured - 1_000 * US, what  # the last round alone has no message after it
        assert "ranks" in [one.kind for one in found.uncertainties], what
    [without_waits] = answer(predictor, "no_sync")
    assert without_waits.ends_ns[0] < measured - 7_000 * US  # as soon as the others come sooner, too
    [without_messages] = answer(predictor, "input_free")
    assert without_messages.predicted_ns < measured - 9 * 1_900 * US


def test_what_changes_all_ranks_on_record_changes_when_their_messages_come() -> None:
    predictor = with_ranks(2)
    assert not predictor.awaits_ranks
    [found, *_] = answer(predictor, "no_sync")
    assert found.predicted_ns < predictor.measured_ns[0] - 7_000 * US


def test_a_narrow_range_is_of_high_confidence() -> None:
    ranges = [OpenRange(low).reaching("model", low, high) for low, high in ((95, 105), (90, 110), (50, 100))]
    assert [found.confidence for found in ranges] == ["high", "medium", "low"]


def test_what_is_known_is_narrow_and_holds_its_prediction() -> None:
    [found] = answer(predictor_of(steps_with_sync()), "kernels=2")
    assert found.ends_ns[0] <= found.predicted_ns <= found.ends_ns[1]
    assert found.confidence == "high"


def test_initialization_before_the_window_widens_no_range() -> None:
    program = Program()
    program.api(-900_000 * US, -100 * US, "cudaMalloc")
    for step in range(20):
        launch(program, step * 300, step * 300 + 8, step * 300 + 100)
    [found] = answer(predictor_of(program), "no_sync")
    assert found.ends_ns[0] >= 0.94 * found.predicted_ns


def test_a_delay_without_a_reason_is_left_open() -> None:
    program = Program()
    for step in range(20):
        base = step * 300
        launch(program, base, base + (8 if step % 2 else 150), base + 290)
        program.api((base + 6) * US, (base + 294) * US, "cudaStreamSynchronize")
    predictor = predictor_of(program)
    assert predictor.open_share > 0.05
    [found] = answer(predictor, "kernels=2")
    assert found.ends_ns[0] < 0.85 * found.predicted_ns
    assert found.confidence != "high"
    [doubt] = predictor.doubts[0]
    assert (doubt.kind, doubt.tid) == ("delays", None)


def test_a_call_that_returns_a_little_before_its_wait_is_over_waits_all_the_same() -> None:
    """Clocks drift: the sync seems to return 3 us before the kernel that it waits for has begun to end."""
    program = Program()
    for step in range(10):
        base = step * 300
        launch(program, base, base + 8, base + 200)
        copy = program.api((base + 6) * US, (base + 203) * US, "cudaMemcpyAsync")
        program.copy((base + 205) * US, (base + 206) * US, copy, Direction.DTOH, MemoryKind.PAGEABLE)
    predictor = Predictor(build_timeline(program.trace(), parse_window("gpu")))
    graph = predictor.graph
    start, _ = replay(graph, graph.costs)
    assert np.array_equal(start, graph.links.start_ns)
    [found] = answer(predictor, "infinite_gpu")  # nothing but launches, copies and the host's own time is left
    assert found.predicted_ns < 10 * 115 * US


def test_what_seems_to_begin_before_its_predecessor_has_ended_comes_after_it() -> None:
    """Clocks err, and kernels are allowed to begin early: no dependency is denied by 1 us of overlap."""
    program = Program()
    for step in range(20):
        launch(program, step * 10, step * 10 + 8 if step == 0 else 8 + step * 100 - step, 108 + step * 99)
    predictor = predictor_of(program)
    assert predictor.graph.contradictions.streams == 0
    [left] = predictor.without(("sync", "cuda_api", "cpu"))
    assert left >= 0.98 * predictor.measured_ns[0]
    assert not predictor.broken


def test_which_work_comes_first_is_left_open() -> None:
    """Two streams share the device, and the one whose work was ready last comes first: by no rule that is known."""
    program = Program()
    for step in range(10):
        base = step * 1_000
        launch(program, base, base + 8, base + 300)
        call = program.api((base + 310) * US, (base + 315) * US, "cudaLaunchKernel")
        program.kernel((base + 600) * US, (base + 900) * US, call, stream=8)
        launch(program, base + 320, base + 330, base + 600)
        program.api((base + 340) * US, (base + 903) * US, "cudaDeviceSynchronize")
    predictor = predictor_of(program)
    graph = predictor.graph
    assert not graph.takes_turns
    change = ReplayStep(Without(("sync", "cuda_api", "cpu")), predictor.everywhere)
    costs = change.change(graph, graph.costs, change.scope)
    otherwise, unchanged = (replay_otherwise(graph, each, predictor._windows) for each in (costs, graph.costs))
    assert otherwise is not None
    assert unchanged is not None
    [predicted] = predictor.windows(change)
    [found] = predictor.between([predicted], change)
    lengths = [int(one.last[0] - one.first[0]) for one in (otherwise, unchanged)]
    other = predicted + (lengths[0] - predicted) - (lengths[1] - predictor.measured_ns[0])
    assert found.low_ns <= max(other, predictor.devices[0].busy.total)
    assert min(other, predictor.measured_ns[0]) <= found.high_ns
    assert OpenRange(100).reaching("order", 100, 101).confidence == "high"
    assert OpenRange(100).reaching("order", 100, 101, steps=1).confidence == "medium"


def test_migrations_make_a_replay_unreliable_by_their_time() -> None:
    """By what they take, what the device idles before them, and kernels that may wait for them: not by their number."""

    def steps(migrations: int, first: int) -> str | None:
        program = Program()
        for step in range(20):
            base = step * 300
            launch(program, base, base + 8, base + 200)
            program.api((base + 6) * US, (base + 206) * US, "cudaStreamSynchronize")
            for number in range(migrations if step % 20 == 0 else 0):
                program.migration((base + first + 2 * number) * US, (base + first + 2 * number + 1) * US)
        return predictor_of(program).unreliable

    assert steps(10, first=220) is None
    assert steps(10, first=50) is None  # one kernel of twenty
    program = Program()
    launch(program, 0, 8, 6_000)
    program.migration(3_000 * US, 3_001 * US)
    launch(program, 6_010, 6_020, 6_030)
    told = "the trace does not show how long kernels wait for pages of managed memory: perhaps all of the time"
    assert predictor_of(program).unreliable == told
    program = Program()  # the device idles before the pages come, and runs nothing while they do
    launch(program, 0, 8, 200)
    program.migration(3_000 * US, 3_001 * US)
    launch(program, 3_100, 3_110, 3_300)
    assert (
        predictor_of(program).unreliable
        == "managed memory moves between host and GPU, and the trace does not show which code waits for it"
    )
