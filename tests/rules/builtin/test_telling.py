"""How rules on the host's time tell what they found: who computes meanwhile, which places, who is late."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.evidence.code_lines import PYTHON_CODE, short_symbol
from boundby.evidence.launches import Launches
from boundby.results.report import Finding
from boundby.rules.builtin.host_wait import ADVICE
from boundby.rules.builtin.launch_rules import _sequences
from boundby.simulate.instructions import (
    MS,
    US,
    Instruction,
    Launch,
    Loop,
    Process,
    Program,
    Range,
    Sleep,
    Sync,
    Thread,
    Work,
    program,
)
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.os import MESSAGES, SLEEPS
from tests.rules.builtin.hardware import elementwise
from tests.rules.builtin.harness import Source, as_torch, findings

STEPS = 20


def told(source: Source, rule: str) -> list[Finding]:
    return [item for item in findings(source) if item.rule == rule]


def _polls(worker: Process | None, *, name: str = "evaluate {i}") -> Program:
    """Every step polls for 4 ms, then computes; beside it perhaps another process."""
    step = Range(name, [Sleep(4 * MS, "poll"), Launch("gemm", 1 * MS)])
    main = Process([Thread([Loop(STEPS, [step]), Sync()])])
    return Program((main,) if worker is None else (main, worker))


def test_the_host_waits_on_nothing_without_advice() -> None:
    assert {*ADVICE, MESSAGES} == {"GIL", *SLEEPS}


def test_polling_while_a_process_computes_is_input() -> None:
    busy = as_torch(Source(_polls(Process([Thread([Work(STEPS * 5 * MS)])]))))
    (found,) = told(busy, "host-input")
    assert found.advice[0].startswith("Try DataLoader(num_workers=")
    assert "1 worker process (pid 2000) runs at" in found.advice[0]
    assert "num_workers=2" in found.advice[0]
    assert not told(busy, "host-wait")
    assert found.saving_ns is not None
    idle = found.evidence["idle_ns"]
    assert isinstance(idle, int)
    assert 0.25 * idle <= found.saving_ns[0] <= 0.5 * idle
    assert found.saving_ns[1] <= idle


def test_launches_save_nothing_for_sure_where_workers_set_the_pace() -> None:
    name = "Optimizer.step#Adadelta.step"
    update = [part for _ in range(60) for part in (Work(15 * US), Launch(elementwise("Mul"), 3 * US))]
    step = Range("step {i}", [Sleep(4 * MS, "poll"), Launch("gemm", 100 * US), Range(name, update), Sync()])
    main = Process([Thread([Loop(STEPS, [step]), Sync()])])
    worker = Process([Thread([Work(STEPS * 8 * MS)])])
    (held,) = told(Source(Program((main, worker))), "unfused-optimizer")
    assert held.saving_ns is not None
    assert held.saving_ns[0] == 0
    assert "once the GPU no longer waits for input" in held.title
    (alone,) = told(Source(Program((main,))), "unfused-optimizer")
    assert alone.saving_ns is not None
    assert alone.saving_ns[0] > 0
    assert "input" not in alone.title


def test_work_in_warm_up_is_a_note_that_shows_the_rest() -> None:
    step = Range("step {i}", [Launch("gemm", 1 * MS), Work(900 * US)])
    warm = Range("Warm-up", [item for _ in range(6) for item in (Launch("gemm", 1 * MS), Work(6 * MS))])
    once, later = told(Source(program(warm, Loop(STEPS, [step]), Sync())), "host-work"), "host-work"
    (note,) = [item for item in once if item.severity == "note"]
    assert note.saving_ns is None
    assert note.title.startswith("during set-up or warm-up, the host computes")
    assert "--window 'nvtx:step *'" in note.advice[0]
    assert not any("vectorise" in line for line in note.advice)
    (cost,) = told(Source(program(Loop(STEPS, [replace(step, body=(*step.body, Work(6 * MS)))]), Sync())), later)
    assert cost.saving_ns is not None
    assert not cost.title.startswith("set-up")


def test_a_plain_sleep_comes_from_no_storage() -> None:
    for on, start in (("nanosleep", "Wait for an event or a condition"), ("read", "Prefetch more")):
        step = Range("step {i}", [Range("load data", [Sleep(4 * MS, on)]), Launch("gemm", 1 * MS)])
        (found,) = told(Source(program(Loop(STEPS, [step]), Sync())), "host-input")
        assert found.advice[0].startswith(start)


def test_polling_by_itself_is_a_wait() -> None:
    for alone in (Source(_polls(None)), Source(_polls(Process([Thread([Sleep(STEPS * 5 * MS, "poll")])])))):
        assert not told(alone, "host-input")
        assert told(alone, "host-wait")


def test_a_process_that_starts_is_named() -> None:
    step = Range("step {i}", [Launch("gemm", 1 * MS), Work(900 * US)])
    parts: list[Instruction] = [
        Loop(STEPS, [step]),
        Sync(),
        Range("evaluate", [Sleep(60 * MS, "poll")]),
        Loop(5, [step]),
    ]
    made = Program((Process([Thread([*parts, Sync()])]), Process([Thread([Work(100 * MS)])])))

    def starts_late(trace: Trace) -> Trace:
        """The second process is first seen where the evaluation begins."""
        process = np.array([thread.process for thread in trace.threads])
        name = trace.names.index("evaluate")
        start = int(trace.ranges.start_ns[trace.ranges.name == name][0])
        schedule = trace.schedule
        late = process[schedule.thread] == 1
        begins = np.where(late, np.maximum(schedule.start_ns, start + 1 * MS), schedule.start_ns)
        names = ("pt_main_thread", "pt_data_worker")
        threads = tuple(replace(thread, name=names[thread.process]) for thread in trace.threads)
        return replace(trace, threads=threads, schedule=replace(schedule, start_ns=begins))

    (found,) = told(Source(made).changed(starts_late), "host-phase")
    assert found.remedy == "host_blocked.start-workers-early"  # once: there is no epoch to keep them for
    assert "iter(loader)" in found.advice[0]
    assert "waits for a process that starts" in found.title
    (early,) = told(Source(made), "host-phase")
    assert "persistent_workers" not in early.advice[0]


def test_places_with_the_same_advice_are_one_finding() -> None:
    parts = [
        part
        for name, length in (("tokenize", 4 * MS), ("score", 2 * MS), ("log", 3 * MS))
        for part in (Range(name, [Work(length)]), Launch("gemm", 500 * US), Sync())
    ]
    source = Source(program(Loop(STEPS, [Range("step {i}", parts)])))
    (found,) = told(source, "host-work")
    names = [found.title.index(name) for name in ("tokenize", "log", "score")]
    assert "in 3 places" in found.title
    assert names == sorted(names)
    assert found.region == ("step *",)
    assert len(found.evidence["places"]) == 3  # type: ignore[arg-type]


def test_what_lies_in_no_range_is_told_by_its_neighbours() -> None:
    step = Range("step {i}", [Launch("gemm", 1 * MS)])
    parts = [Range("load", [Launch("fill", 1 * MS)]), Sync(), Work(30 * MS), Loop(STEPS, [step]), Sync()]
    (found,) = told(Source(program(parts)), "host-phase")
    assert 'between load and "step 0"' in found.title


def test_examples_are_whole_intervals() -> None:
    """Two ranges in one interval between two calls: one interval, as long as the title says."""
    step = Range("step {i}", [Launch("gemm", 1 * MS), Work(900 * US)])
    halves = Range("evaluate", [Work(30 * MS), Sleep(30 * MS, "read"), Work(30 * MS)])
    (found,) = told(Source(program(Loop(STEPS, [step]), Sync(), halves, Loop(STEPS, [step]), Sync())), "host-phase")
    assert found.examples[0].duration_ns == found.evidence["idle_ns"]


def test_programs_without_python_get_no_advice_on_it() -> None:
    step = Range("step {i}", [Work(4 * MS), Launch("gemm", 500 * US), Sync()])
    body = [Process([Thread([Loop(STEPS, [step])], name="solver")], name="solver")]
    (native,) = told(Source(Program(body, command=("./solver",))), "host-work")
    assert not [line for line in native.advice if "Python" in line or "torch" in line or "python" in line]
    (python,) = told(Source(program(Loop(STEPS, [step]))), "host-work")
    assert "--python-sampling=true" in python.advice[0]


@pytest.mark.parametrize(("late", "named"), [(True, True), (False, False)])
def test_the_last_to_a_barrier_is_named(late: bool, named: bool) -> None:
    def rank(number: int) -> Process:
        turns: list[Instruction] = []
        for turn in range(STEPS):
            last = number == 0 if late else number == turn % 4
            compute, wait = (5 * MS, 50 * US) if last else (1 * MS, 4 * MS + 50 * US)
            turns += [
                Work(compute),
                Range("MPI_Barrier", [Sleep(wait, "poll")]),
                Launch("gemm", 300 * US, device=number),
            ]
        return Process([Thread([*turns, Sync(device=number)], name="rank")], name="rank")

    found = told(Source(Program([rank(number) for number in range(4)], command=("./rank",))), "host-wait")
    assert found
    assert any("mostly for process" in item.title for item in found) is named
    assert any("before MPI_Barrier, " in item.advice[0] for item in found) is named


def test_symbols_are_short() -> None:
    long = (
        "void ns::(anonymous namespace)::Grid<std::vector<double, std::allocator<double>>>::fill<3>(int, float) const"
    )
    assert short_symbol(long) == "ns::Grid::fill"
    assert short_symbol("main") == "main"
    assert short_symbol(PYTHON_CODE) == "Python code"
    assert len(short_symbol("x" * 500)) == 60


@pytest.mark.parametrize(("launched", "told_of"), [(3844, ""), (15803, ", and others")])
def test_sequences_of_one_kind_do_not_stand_for_all(launched: int, told_of: str) -> None:
    none = np.empty(0, np.int64)
    units = ((897, 3), (36, 12))
    made = Launches(none, none, none.astype(np.int8), none, 15, units, 5, 0.0, none.astype(np.int8))
    assert _sequences(made, launched) == f"3 times the same 897, and 2 times a part of them{told_of}"


def _feeds(workers: int, *, pins: bool = False, name: str = "python3", cores: int | None = None) -> Source:
    """A program whose thread sleeps between steps, of which no OS call tells, while processes compute the next batch;
    ``pins``: a thread of its own copies it meanwhile."""
    step = [Sleep(9 * MS, "poll"), Range("step {i}", [Launch("gemm", 1 * MS), Sync()])]
    threads = [Thread([Loop(STEPS, step), Sync()])]
    if pins:
        threads.append(Thread([Work(STEPS * 11 * MS)]))
    made = Program((Process(threads), *(Process([Thread([Work(STEPS * 11 * MS)])]) for _ in range(workers))))

    def unseen(trace: Trace) -> Trace:
        own = trace.processes[0]
        others = (replace(process, name=name) for process in trace.processes[1:])
        threads = [replace(one, name="pt_main_thread" if one.process == 0 else "") for one in trace.threads]
        return replace(
            trace,
            captured=replace(trace.captured, osrt=False),
            machine=replace(trace.machine, cores=cores),
            os_calls=type(trace.os_calls).empty(),
            processes=(replace(own, name="python3"), *others),
            threads=tuple(threads),
        )

    return Source(made).changed(unseen)


def test_workers_at_their_limit_are_one_finding() -> None:
    found = [item for item in findings(_feeds(2)) if item.rule.startswith("host-")]
    assert [item.rule for item in found] == ["host-input"]
    assert "between one" in found[0].title
    assert "DataLoader(num_workers=4)" in found[0].advice[0]
    assert found[0].evidence["worker_processes"] == 2
    assert found[0].evidence["idle_ns"] >= 150 * MS  # type: ignore[operator]


def test_a_thread_that_pins_is_named() -> None:
    found = [item for item in findings(_feeds(2, pins=True)) if item.rule.startswith("host-")]
    assert [item.rule for item in found] == ["host-input"]
    assert "pin_memory=True has one thread (" in found[0].advice[0]
    assert "num_workers" not in found[0].advice[0]


def test_another_program_beside_it_feeds_nothing() -> None:
    assert not told(_feeds(1, name="nvidia-smi"), "host-input")
    assert told(_feeds(1, name="nvidia-smi"), "input-between-steps")  # what for is not known


def test_behind_its_input_nothing_else_is_sure_to_save() -> None:
    for item in findings(_feeds(2)):
        if item.rule not in ("host-input", "host-phase") and item.saving_ns is not None:
            assert item.saving_ns[0] == 0
            assert "worth it once the GPU no longer waits for input" in item.title


@pytest.mark.parametrize(("cores", "number"), [(64, 10), (4, 4), (1, 2), (None, 4)])
def test_as_many_workers_as_the_wait_asks_for_and_the_cores_allow(cores: int | None, number: int) -> None:
    """Of a step of 10 ms the GPU waits 8 for two workers (another one is the sync's): five times as many do not let it
    wait. Where nothing tells of cores, twice as many are a try."""
    (found,) = [item for item in findings(_feeds(2, cores=cores)) if item.rule == "host-input"]
    asked = re.search(r"num_workers=(\d+)", found.advice[0])
    assert asked is not None
    assert int(asked[1]) == number
