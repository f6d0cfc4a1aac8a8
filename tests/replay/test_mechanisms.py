"""One mechanism at a time: predictions from the export of a small program against the program run without the cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import Case
from benchmarks.simulated.full_export import export_of
from msgspec.structs import replace

from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.model.causes import SCENARIOS
from boundby.readers import read_trace
from boundby.replay.predictor import Predictor
from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Await,
    Call,
    Copy,
    Instruction,
    Launch,
    Loop,
    Program,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    item,
    program,
    threads,
)
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import to_export

RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"


def steps(*body: Instruction, count: int = 12) -> Program:
    """These instructions in a range, so many times, and a wait for all at the end."""
    return program(Loop(count, [Range("step {i}", body)]), Sync())


def feeding(load: Instruction, step: list[Instruction], *, rooms: int = 1, count: int = 12) -> Program:
    """A thread that loads batches, up to ``rooms`` ahead, and one that takes them."""
    feeder = Loop(count, [Await("room"), load, Signal("batch")])
    body = [Range("data", [Await("batch"), Signal("room")]), Range("compute", step)]
    main = Thread((*([Signal("room")] * rooms), Loop(count, [Range("step {i}", body)]), Sync()))
    return threads(main, Thread((feeder,), "feeder"))


def autograd(count: int = 12) -> Program:
    """Two threads that take turns, each with a value read back."""
    ops = [Loop(5, [Launch("small", 8 * US), Work(20 * US)]), Launch("large", 200 * US), *item()]
    body = [*ops, Range("backward", [Signal("go"), Await("done")])]
    helper = Loop(count, [Await("go"), *ops, Signal("done")])
    return threads(
        Thread((Loop(count, [Range("step {i}", body)]), Sync())), Thread((helper,), "pt_autograd_0", delegate=True)
    )


def watched(count: int = 20) -> Program:
    """The helper waits inside a call; a third thread polls and never has to do with either of them."""
    body = [Launch("small", 8 * US), Sleep(1_100 * US, "futex"), Range("backward", [Signal("go"), Await("done")])]
    copy = Copy(60_000, "HtoD", "pageable", blocking=True)
    helper = [Await("go"), Launch("large", 700 * US), copy, Work(5 * US), Signal("done")]
    polls = Loop(1_000, [Sleep(310 * US, "pthread_cond_timedwait"), Call(2 * US, "cudaEventQuery")])
    return threads(
        Thread((Loop(count, [Range("step {i}", body)]), Sync())),
        Thread((Loop(count, helper),), "pt_autograd_0", delegate=True),
        Thread((polls,), "pt_nccl_watchdg", daemon=True),
    )


def two_streams(share: float) -> Program:
    """A long kernel and four short ones on streams of their own, each read back in turn."""
    return steps(
        Launch("long", 300 * US, share=share),
        Loop(4, [Launch("short", 60 * US, 1, share=share), Sync("stream", 1)]),
        Sync("stream"),
        Work(40 * US),
    )


CROSSED = steps(
    Launch("producer", 200 * US),
    Record("ready"),
    WaitEvent("ready", 1),
    Launch("consumer", 100 * US, 1, share=0.4),
    Launch("beside", 150 * US, share=0.4),
    Record("read", 1),
    Sync("event", event="read"),
    Work(30 * US),
)
NULL_STREAM = steps(
    Launch("first", 100 * US, 1, share=0.2),
    Launch("second", 100 * US, share=0.2),
    Launch("third", 100 * US, 2, share=0.2),
    Sync("stream", 2),
    Work(50 * US),
)
LIMITED = program(
    Launch("warm_up", 5 * US), Loop(1_500, [Launch("kernel", 20 * US)]), Work(2 * MS), Launch("last", 5 * US)
)

PROGRAMS: dict[str, tuple[Program, Machine]] = {
    "events": (CROSSED, Machine()),
    "null stream": (NULL_STREAM, Machine(legacy_default_stream=True)),
    "independent streams": (NULL_STREAM, Machine()),
    "kernels that fill the device": (two_streams(1.0), Machine()),
    "kernels that fit beside each other": (two_streams(0.3), Machine()),
    "stalled allocation": (
        steps(Launch("gemm", 300 * US), Alloc(40 * US, waits=True), Work(20 * US), Launch("relu", 50 * US), *item()),
        Machine(),
    ),
    "allocation that does not wait": (
        steps(Launch("gemm", 300 * US), Alloc(40 * US), Launch("relu", 50 * US), Work(150 * US), *item()),
        Machine(),
    ),
    "pageable copies": (
        steps(Launch("gemm", 200 * US), Copy(2_000_000, "DtoH", "pageable"), Copy(900_000, "HtoD", "pageable")),
        Machine(),
    ),
    "autograd": (autograd(), Machine()),
    "watchdog": (watched(), Machine(sync_spins=False)),
    "steps with a head and a tail on the host": (
        steps(Work(700 * US), Launch("gemm", 300 * US), Sync(), Work(400 * US), count=24),
        Machine(),
    ),
    "slow feeder": (feeding(Work(900 * US), [Launch("gemm", 200 * US), Work(50 * US)]), Machine()),
    "sleeping feeder": (feeding(Sleep(900 * US, "read"), [Launch("gemm", 200 * US), *item()]), Machine()),
    "quick feeder": (
        feeding(Work(300 * US), [Launch("gemm", 200 * US), *item(), Work(700 * US)], rooms=2, count=20),
        Machine(),
    ),
    "full queue": (LIMITED, Machine()),
}


def errors(made: Program, machine: Machine, folder: Path, drop: tuple[str, ...] = ()) -> dict[str, float]:
    """Predicted minus true window as a fraction of the true one (of 1 % of the measured one at least)."""
    case = Case("", made, machine)
    path = export_of(to_export(case.run())).write(folder / "x.sqlite", "2023", drop=drop)
    timeline = build_timeline(read_trace(path), parse_window("gpu"))
    predictor, truth = Predictor(timeline), case.truths.truth()
    assert predictor.without(()) == [truth.window_ns]
    found = {}
    for name, scenario in SCENARIOS.items():
        (predicted,), true = predictor.without(scenario.causes), truth.scenarios[name]
        found[name] = (predicted - true) / max(true, 0.01 * truth.window_ns)
    return found


# A record takes its time to reach the device, which the replay does not know: it shows where kernels take none.
KNOWN = {("events", "infinite_gpu"): 0.16}


@pytest.mark.parametrize("name", PROGRAMS)
def test_predictions_are_true(name: str, tmp_path: Path) -> None:
    for scenario, error in errors(*PROGRAMS[name], tmp_path).items():
        assert abs(error) <= KNOWN.get((name, scenario), 0.025), scenario


def test_events_without_their_records(tmp_path: Path) -> None:
    """What was recorded is then inferred from the order of calls."""
    found = errors(CROSSED, Machine(), tmp_path, (RECORDS,))
    assert max(abs(error) for scenario, error in found.items() if scenario != "infinite_gpu") < 0.025


def test_waits_of_which_nothing_is_told(tmp_path: Path) -> None:
    found = errors(*PROGRAMS["kernels that fill the device"], tmp_path, (SYNCS, RECORDS))
    assert max(abs(error) for error in found.values()) < 0.05


def test_an_interrupted_launch_is_no_delay_of_the_device(tmp_path: Path) -> None:
    machine = replace(Machine(), hiccup_chance=0.05, hiccup_ns=300_000)
    made = steps(Loop(10, [Launch("gemm", 50 * US), Work(10 * US)]))
    assert max(abs(error) for error in errors(made, machine, tmp_path).values()) < 0.02
