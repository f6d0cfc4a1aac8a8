"""Who woke whom, from sleeps alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.simulated.counterfactual import Case
from msgspec.structs import replace

from boundby.api import Analysis
from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.model.intervals import subtract, union
from boundby.readers import read_trace
from boundby.replay import wakeups
from boundby.replay.predictor import Predictor
from boundby.replay.wakeups import find_hand_overs, find_wakeups
from boundby.simulate.instructions import Await, Launch, Loop, Range, Signal, Sync, Thread, Work, threads
from tests.replay.test_replay import US, launch
from tests.support.program import Program


def timeline_of(program: Program) -> Timeline:
    return build_timeline(program.trace(), parse_window("gpu"))


def feeding(wait: str = "pthread_cond_wait") -> Program:
    """A feeder (thread 1) that loads for 700 us of every 1,000 and rests till the main thread takes the next batch."""
    program = Program(threads=2)
    program.sleep(-800 * US, -600 * US, thread=1, name="read")  # of the first batch
    for step in range(12):
        base = step * 1_000
        program.push(base * US, (base + 20) * US, "data")
        launch(program, base + 30, base + 40, base + 500)
        program.sleep((base + 710) * US, (base + 1_010) * US, thread=1, name=wait)
        # The main thread works on its own otherwise.
        program.sleep((base + 600) * US, (base + 640) * US, thread=0, name="read")
    return program


def test_the_only_thread_awake_did_it() -> None:
    wakes = find_wakeups(timeline_of(feeding()))
    assert set(wakes.thread.tolist()) == {1}
    assert set(wakes.waker.tolist()) == {0}
    assert (wakes.end - wakes.signal == 10 * US).all()


def test_who_has_just_called_may_have_done_it() -> None:
    """It let the other go just before a long call, in which that one wakes up."""
    program = feeding()
    for step in range(12):
        program.api((step * 1_000 + 998) * US, (step * 1_000 + 1_029) * US, "cudaMalloc_v3020")
    wakes = find_wakeups(timeline_of(program))
    assert set(zip(wakes.thread.tolist(), wakes.waker.tolist(), strict=True)) == {(1, 0)}
    assert len(wakes.thread) == 12


def test_who_is_awake_has_not_ended_a_wait_that_times_out() -> None:
    """A logger that polls sleeps as long each time, whoever works meanwhile."""
    assert len(find_wakeups(timeline_of(feeding("pthread_cond_timedwait"))).thread) == 0


def test_one_long_wait_makes_no_coincidences_of_the_short_ones() -> None:
    """A logger that polls falls asleep just before some of the short waits end; the feeder waited long at the start."""
    program = feeding()
    program.threads = 3
    program.sleep(-150_000 * US, -900 * US, thread=1, name="pthread_cond_wait")
    for poll in range(54):
        program.sleep(poll * 230 * US, (poll * 230 + 223) * US, thread=2, name="pthread_cond_timedwait")
    wakes = find_wakeups(timeline_of(program))
    assert set(zip(wakes.thread.tolist(), wakes.waker.tolist(), strict=True)) == {(1, 0)}


def test_a_sleep_for_a_file_has_no_waker() -> None:
    assert len(find_wakeups(timeline_of(feeding("read"))).thread) == 0


def test_who_falls_asleep_has_woken_the_other() -> None:
    program = Program(threads=2)
    for step in range(12):
        base = step * 200
        launch(program, base, base + 8, base + 40)
        program.sleep((base + 20) * US, (base + 117) * US, thread=0, name="pthread_cond_wait")
        launch(program, base + 40, base + 48, base + 80, thread=1)
        program.sleep((base + 110) * US, (base + 227) * US, thread=1, name="pthread_cond_wait")
    wakes = find_wakeups(timeline_of(program))
    main = wakes.thread == 0
    assert (wakes.end - wakes.signal)[main].tolist() == [7 * US] * main.sum()
    assert set(wakes.waker[main].tolist()) == {1}


def test_what_is_taken_must_have_been_made() -> None:
    timeline = timeline_of(feeding())
    given = find_hand_overs(timeline, find_wakeups(timeline))
    assert set(given.maker.tolist()) == {1}
    assert (given.made <= given.taken).all()
    # With kernels and the main thread's own code gone the feeder's 700 us a batch are left.
    (left,) = Predictor(timeline).without(("sync", "gpu_compute", "cuda_api", "host_blocked"))
    assert left >= 9 * 700 * US


def test_a_thread_begun_later_follows_its_beginner() -> None:
    program = Program(threads=2, osrt=True)
    program.sleep(0, 50_000 * US, name="read")
    for step in range(10):
        launch(program, 50_000 + step * 100, 50_008 + step * 100, 50_040 + step * 100)
        launch(program, 50_050 + step * 100, 50_058 + step * 100, 50_080 + step * 100, thread=1)
    launch(program, -100, -90, -80)
    predictor = Predictor(timeline_of(program))
    (measured,), (awake,) = predictor.without(()), predictor.without(("host_blocked",))
    assert measured - awake > 49_000 * US
    assert np.all(predictor.graph.links.follows[np.flatnonzero(np.diff(predictor.graph.links.chain)) + 1] >= 0)


def test_a_lost_record_ties_and_unties_nobody(tmp_path: Path) -> None:
    """One thread ends each second wait of the main thread and goes to sleep, another, which never does, each other: one
    wait less, and that is less than half of all."""
    feeder = Thread((Loop(14, [Await("room"), Work(1_800 * US), Signal("batch")]),))
    engine = Thread((Loop(14, [Await("go"), Launch("b", 50 * US), Work(150 * US), Signal("done")]),))
    step = [Await("batch"), Signal("room"), Launch("a", 50 * US), Signal("go"), Await("done")]
    main = Thread((Signal("room"), Signal("room"), Loop(14, [Range("step {i}", step)]), Sync()))
    trace = read_trace(Case("fed", threads(main, engine, feeder)).export().write(tmp_path / "report.sqlite", "2023"))
    waits = trace.os_calls
    lost = np.flatnonzero(waits.end_ns - waits.start_ns > 1_000 * US)
    pairs = []
    for kept in (np.ones(len(waits), bool), np.arange(len(waits)) != lost[len(lost) // 2]):
        wakes = find_wakeups(build_timeline(replace(trace, os_calls=waits.take(kept)), parse_window("gpu")))
        pairs.append(set(zip(wakes.thread.tolist(), wakes.waker.tolist(), strict=True)))
    assert pairs[0] == pairs[1]
    assert len(pairs[0]) == 3


def taking_turns(signals: bool) -> Program:
    """Two threads launch in turns, as a program and its autograd engine do; each runs 95 us after it is let go, while
    the device still has work."""
    program = Program(threads=2, osrt=True)
    for step in range(12):
        for thread in (0, 1):
            base = (2 * step + thread) * 1_000
            for launched in range(0, 900, 100):
                call = base + 100 + launched
                begin, end = call + (60 if launched == 0 else 10), call + (250 if launched == 800 else 70)
                launch(program, call, begin, end, thread=thread)
            if signals:
                program.sleep((base + 1_000) * US, (base + 1_006) * US, thread=thread, name="pthread_cond_signal")
            program.sleep((base + 1_008) * US, (base + 2_095) * US, thread=thread, name="pthread_cond_wait")
    return program


def test_who_signals_has_woken_the_other() -> None:
    timeline = timeline_of(taking_turns(signals=True))
    wakes = find_wakeups(timeline)
    assert set(zip(wakes.thread.tolist(), wakes.waker.tolist(), strict=True)) == {(0, 1), (1, 0)}
    assert (wakes.end - wakes.signal == 95 * US).all()
    assert len(find_wakeups(timeline_of(taking_turns(signals=False))).thread) == 0
    predictor = Predictor(timeline)
    (awake,) = predictor.without(("host_blocked",))
    assert awake > 0.9 * predictor.measured_ns[0]  # neither has anything to do before the other is done


def test_sleeps_that_no_idle_time_shows_decide_nothing() -> None:
    """Who let the threads go is not on record: without their sleeps both would run at once, which nothing shows."""
    analysis = Analysis(taking_turns(signals=False).trace())
    (device,) = analysis.devices
    (told,) = (item for item in analysis.what_if if item.scenario == "input_free")
    assert told.predicted_ns < 0.95 * told.baseline_ns
    assert (told.high_ns, told.confidence) == (told.baseline_ns, "medium")
    assert device.verdict.bound == "cuda_api"
    assert "host_blocked" not in {saving.cause for saving in device.verdict.savings}


def test_when_each_of_several_threads_is_the_only_one_awake() -> None:
    """As one after the other taken away from each tells."""
    chance = np.random.default_rng(7)
    for _ in range(100):
        begins = [np.sort(chance.integers(0, 40, count)) for count in chance.integers(0, 8, chance.integers(1, 6))]
        awake = [union(begin, begin + int(chance.integers(1, 9))) for begin in begins]
        found = wakeups._alone(awake)
        for place, (mine, alone) in enumerate(zip(awake, found, strict=True)):
            for other in (*awake[:place], *awake[place + 1 :]):
                mine = subtract(mine, other)
            plain = union(mine.start, mine.end)
            assert (plain.start.tolist(), plain.end.tolist()) == (alone.start.tolist(), alone.end.tolist())


def test_a_worker_is_tied_to_who_started_it_though_another_ends_its_later_waits() -> None:
    """Its first wait lasts for the whole start and ends as the main thread lets it go; no batch is made meanwhile."""
    program = feeding()
    program.threads = 3
    program.sleep(-150_000 * US, -60_000 * US, thread=0, name="read")
    program.api(-60_000 * US, -1_200 * US, "cudaMalloc_v3020")
    program.api(-1_190 * US, -20 * US, "cudaMalloc_v3020")
    program.sleep(-150_000 * US, -1_185 * US, thread=2, name="pthread_cond_wait")
    for step in range(12):  # thread 1 goes to sleep just before each of these ends
        program.sleep((step * 1_000 + 50) * US, (step * 1_000 + 720) * US, thread=2, name="pthread_cond_wait")
    wakes = find_wakeups(timeline_of(program))
    own = wakes.thread == 2
    assert wakes.waker[own].tolist() == [0] + [1] * 12


def test_of_two_that_fell_asleep_the_one_at_the_usual_distance_did_it() -> None:
    program = Program(threads=3)
    for step in range(12):
        base = step * 1_000
        launch(program, base, base + 8, base + 40)
        program.sleep((base + 20) * US, (base + 510) * US, thread=0, name="pthread_cond_wait")
        launch(program, base + 300, base + 308, base + 340, thread=1)
        program.sleep((base + 500) * US, (base + 1_250) * US, thread=1, name="pthread_cond_wait")
        poll = base + 505 if step % 4 == 3 else base + 100  # a logger, by chance
        program.sleep((poll - 700) * US, (poll - 2) * US, thread=2, name="pthread_cond_timedwait")
    wakes = find_wakeups(timeline_of(program))
    assert wakes.waker[wakes.thread == 0].tolist() == [1] * 12
