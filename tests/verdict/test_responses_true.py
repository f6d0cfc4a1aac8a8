"""First responses that were false or vague on real traces: none promises what cannot be, or what others deny."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.simulated.counterfactual import Case
from msgspec.structs import replace

from boundby import api
from boundby.claims import counted, first_responses
from boundby.claims.counted import Subject, Told
from boundby.cli.main import main as cli
from boundby.document import sentences, view
from boundby.document.sentences import window
from boundby.evidence.transfers import BesideCopies
from boundby.evidence.waits import Link, WaitChain
from boundby.model.causes import CAUSES
from boundby.model.intervals import IntervalSet
from boundby.render import screen
from boundby.results.report import DeviceReport, Finding, Report
from boundby.rules import remedies
from boundby.rules.builtin import input_rules
from boundby.simulate.instructions import (
    MS,
    US,
    Instruction,
    Launch,
    Loop,
    Process,
    Program,
    Range,
    Sync,
    Thread,
    Work,
    program,
)
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from boundby.trace.facts import Captured
from boundby.trace.program import KnownProgram, ProgramKind
from tests.rules.builtin import case_small_chunks
from tests.rules.builtin.harness import Source, as_torch, context_of, findings
from tests.support.headlines import headline


def analyzed(folder: Path, *body: Instruction) -> Report:
    write_export(Case("read", program(*body), Machine(), 1).run(), folder / "run.sqlite", "2023")
    return api.analyze(folder / "run.sqlite")


def subject(*found: Finding, **time: int) -> Subject:
    part = SimpleNamespace(time={cause.key: 0 for cause in CAUSES} | time, memcpy={})
    trace = SimpleNamespace(captured=Captured(kernels=True))
    context = SimpleNamespace(least_ns=MS, program=KnownProgram(ProgramKind.TORCH, "torch"), trace=trace)
    return Subject(context=context, predictor=None, findings=found, part=part, wholes=None)  # type: ignore[arg-type]


def finding(rule: str, remedy: str, saving_ns: tuple[int, int] | None = None, **evidence: object) -> Finding:
    severity = "note" if saving_ns is None else "medium"
    return Finding(rule, severity, f"what {rule} found", (), evidence, saving_ns, docs=f"rules/{rule}", remedy=remedy)


def test_the_host_hides_behind_no_more_than_the_device_works(tmp_path: Path) -> None:
    report = analyzed(tmp_path, Loop(20, [Range("step {i}", [Work(10 * MS), Launch("a", 1 * MS), Sync()])]))
    (device,) = report.devices
    (overlap,) = [one for one in device.first_responses if one.id == "cpu.overlap"]
    assert overlap.saving_ns is not None
    assert overlap.saving_ns[1] <= device.busy_ns


def test_a_librarys_call_comes_before_a_profiler_of_kernels(tmp_path: Path) -> None:
    body = [Loop(10, [Launch("matmul_naive(const float *, int)", 20 * MS)]), Sync()]
    solver = Program((Process([Thread(body, name="solver")], name="solver"),), command=("./solver",))
    write_export(Case("read", solver, Machine(), 1).run(), tmp_path / "run.sqlite", "2023")
    first, second, *_ = api.analyze(tmp_path / "run.sqlite").devices[0].first_responses
    assert (first.id, second.id) == ("gpu_compute.library-kernel", "gpu_compute.better-kernels")
    assert first.code.startswith("cublasSgemm(handle,")
    assert "each 10 % off it saves 19.0-20.0 ms" in first.because  # no more than a tenth of 200 ms
    assert "// in place of matmul_naive" in first.code
    assert first.is_search
    assert first.saving_ns is None
    assert "each 10 % off it saves " in first.because
    (hot,) = [one for one in api.analyze(tmp_path / "run.sqlite").findings if one.rule == "hot-kernel"]
    assert (hot.remedy, hot.saving_ns) == (first.id, None)


@pytest.mark.parametrize(
    ("gpu", "first"),
    [
        ("NVIDIA GeForce RTX 3090", "gpu_compute.single-precision"),
        ("NVIDIA A100-SXM4-40GB", "gpu_compute.better-kernels"),
    ],
)
def test_double_precision_is_slow_on_cards_for_games(gpu: str, first: str, tmp_path: Path) -> None:
    body = [Loop(10, [Launch("relax(double *, int)", 20 * MS)]), Sync()]
    solver = Program((Process([Thread(body, name="solver")], name="solver"),), command=("./solver",))
    write_export(Case("read", solver, Machine(), 1).run(), tmp_path / "run.sqlite", "2023")
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as database, database:
        database.execute("UPDATE TARGET_INFO_GPU SET name = ?", (gpu,))
    responses = api.analyze(tmp_path / "run.sqlite").devices[0].first_responses
    assert responses[0].id == first
    assert ("FP64" in responses[0].because) == ("GeForce" in gpu)


def test_what_only_moves_time_is_not_sold_as_a_saving(tmp_path: Path) -> None:
    loads = [Launch(f"kernel_{number}", 100 * US, load_ns=30 * MS) for number in range(4)]
    report = analyzed(tmp_path, Launch("first", 100 * US), *loads, Loop(20, [Launch("kernel_0", 100 * US)]), Sync())
    (found,) = [one for one in report.findings if one.rule == "lazy-initialization"]
    assert found.saving_ns is not None
    assert found.saving_ns[1] > 0
    assert not sentences.saves(found)
    (told,) = [one for one in report.devices[0].first_responses if one.id == "init.warm-up"]
    assert sentences.saves_of(told, report.devices[0].window_ns).startswith("what you time gets shorter by ")
    assert "(saves" not in screen.render(report)


def test_a_phase_is_overlapped_where_the_device_works_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subject, "replayed", lambda *_, **__: Told("", (0, 9 * MS)))
    phase = finding("host-phase", "cpu.overlap", (100 * MS, 200 * MS))
    hides = counted._overlap(subject(phase, gpu_compute=500 * MS))
    assert hides is not None
    assert hides.saving_ns == (100 * MS, 200 * MS)
    assert counted._overlap(subject(gpu_compute=0)) is None


def test_copies_and_kernels_hide_no_more_than_the_shorter_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subject, "replayed", lambda *_, **__: Told("", (10 * MS, 500 * MS)))
    for compute, copy in ((300 * MS, 80 * MS), (80 * MS, 300 * MS)):
        beside = BesideCopies(copies_ns=copy, kernels_alone_ns=compute)
        monkeypatch.setattr(counted, "beside_copies", lambda _, found=beside: (found,))
        told = counted._overlap_copies(subject(gpu_compute=compute, gpu_copy=copy))
        assert told is not None
        assert told.saving_ns == (0, 80 * MS)


def test_work_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a phase holds is nothing to look for as well."""
    monkeypatch.setattr(Subject, "replayed", lambda *_, **__: Told("", (0, 210 * MS)))
    monkeypatch.setattr(counted, "is_in_operators", lambda _: False)
    phase = finding("host-phase", "cpu.overlap", (100 * MS, 200 * MS))
    told = counted._find_host_code(subject(phase))
    assert told is not None
    assert told.saving_ns == (0, 10 * MS)
    assert counted._find_host_code(subject(replace(phase, saving_ns=(0, 210 * MS)))) is None


def test_no_queue_is_long_enough_for_workers_that_never_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subject, "replayed", lambda *_, **__: Told("", (0, 9 * MS)))
    for busy, applies in ((0.99, False), (0.5, True)):
        starved = finding("host-input", "host_blocked.workers", (0, MS), worker_processes_cpu_utilization_fraction=busy)
        assert (counted._prefetch(subject(starved)) is not None) is applies


@pytest.mark.parametrize(("bound", "most"), [("host_blocked", 5 * MS), ("cpu", 9 * MS)])
def test_a_deeper_queue_saves_no_more_than_the_verdict_that_it_is_for(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(Subject, "what_if", lambda *_: "")
    of = subject()
    predicted = SimpleNamespace(scenario="input_free", device=-1, saving_ns=(2 * MS, 9 * MS))
    part = SimpleNamespace(verdict=SimpleNamespace(bound=bound, saving_range_ns=(0, 5 * MS)))
    context = SimpleNamespace(program=of.context.program, what_if=(predicted,))
    told = counted._prefetch(replace(of, predictor=object(), part=part, context=context))
    assert told is not None
    assert told.saving_ns == (0, most)


def test_a_program_that_warms_up_is_not_told_to() -> None:
    warm = finding("lazy-initialization", "init.after-warm-up", warm_up_of_window_fraction=0.9)
    told = counted._after_warm_up(subject(warm))
    assert told is not None
    assert told.saving_ns is None
    assert told.because.startswith("regions named as set-up or warm-up take 90 % of the window")
    assert counted._warm_up(subject(warm)) is None


def test_nothing_is_said_of_batches_where_nothing_tells_of_any() -> None:
    context = SimpleNamespace(least_ns=MS, program=KnownProgram(ProgramKind.DIRECTIVES))
    wait = finding("host-wait", "host_blocked.messages-ahead", (0, MS))
    of = replace(subject(wait), context=context)
    assert counted._prefetch(of) is None
    assert counted._decode(of) is None
    loop = remedies.by_key()["cuda_api.compiled-loop"]
    assert not loop.is_for(context.program)


@pytest.mark.parametrize("saved", [0, 200 * MS])
def test_waits_whose_place_copies_take_are_not_free(monkeypatch: pytest.MonkeyPatch, saved: int) -> None:
    chain = WaitChain((), 0, (Link("cudaStreamSynchronize", 12, 57 * MS, 0),))
    monkeypatch.setattr(first_responses, "wait_chain", lambda _: chain)
    of = subject()
    context = SimpleNamespace(
        least_ns=MS, regions=(), saving=lambda _: (saved, saved), timeline=SimpleNamespace(devices=(0,))
    )
    (note,) = first_responses._harmless_waits(replace(of, context=context))
    assert (" nothing: the GPU works meanwhile" in note) is (saved == 0)
    assert ("would wait elsewhere instead, as in copies" in note) is (saved > 0)
    assert note.startswith("12 cudaStreamSynchronize calls block the host for 57.0 ms. ")


@pytest.mark.parametrize(("sync", "end"), [(0, " nothing: the GPU works meanwhile"), (2 * MS, " nothing")])
def test_the_gpu_works_meanwhile_only_where_it_does_not_idle_for_waits(
    monkeypatch: pytest.MonkeyPatch, sync: int, end: str
) -> None:
    chain = WaitChain((), 0, (Link("cudaStreamSynchronize", 1, 50 * MS, 0),))
    monkeypatch.setattr(first_responses, "wait_chain", lambda _: chain)
    context = SimpleNamespace(least_ns=MS, saving=lambda _: None, timeline=SimpleNamespace(devices=(0,)))
    (note,) = first_responses._harmless_waits(replace(subject(sync=sync), context=context))
    assert note.endswith(f". Removing this wait alone saves{end}")


@pytest.mark.parametrize(("each", "told"), [(6, "(1.00 ms); the GPU takes 6.00 ms for it"), (2, None)])
def test_a_timer_is_held_against_what_a_step_makes_the_program_longer(
    monkeypatch: pytest.MonkeyPatch, each: int, told: str | None
) -> None:
    monkeypatch.setattr(first_responses, "wait_chain", lambda _: WaitChain((), 0, ()))
    region = SimpleNamespace(
        path=("step",),
        instances=10,
        share=1.0,
        host=SimpleNamespace(median_ns=MS),
        projected=SimpleNamespace(median_ns=9 * MS),  # of which neighbours share a part
        total_ns=10 * each * MS,
        devices_each=1,
    )
    of = replace(subject(), context=SimpleNamespace(least_ns=MS, regions=(region,), saving=lambda _: None))
    notes = list(first_responses._mistimed(of))
    assert told in notes[0] if told else notes == []


def test_steps_of_operators_repeat(tmp_path: Path) -> None:
    """Ranges of a launch or two each are parts of a step, and a graph holds many of them."""
    ops = [Range(f"aten::op{n}", [Work(40 * US), Launch(f"k{n}", 4 * US)]) for n in range(30)]
    found = [item for item in findings(as_torch(Source(program(Loop(25, ops), Sync())))) if item.rule == "cuda-graphs"]
    assert found
    (device,) = analyzed(tmp_path, Loop(25, ops), Sync()).devices
    assert found[0].saving_ns is not None
    assert found[0].saving_ns[1] <= device.idle_ns


def test_what_is_lost_is_not_idle(tmp_path: Path) -> None:
    """Launches without their work: neither idleness nor a matter of OS calls."""
    body = Loop(40, [Range("step {i}", [Work(100 * US), Launch("a", 2 * MS), Launch("b", 2 * MS), Sync()])])
    analyzed(tmp_path, body)
    with sqlite3.connect(tmp_path / "run.sqlite") as export:
        (middle,) = export.execute("SELECT AVG(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        export.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > ?", (middle,))
    report = api.analyze(tmp_path / "run.sqlite")
    (note,) = [item for item in report.findings if item.rule == "trace-incomplete"]
    reading = {check.name: check.reading for check in report.devices[0].checklist}
    assert "not on record whether it works" in reading["GPU utilization"]
    assert "of them work may be missing" in reading["Gaps"]
    assert window(report).endswith("of this without records")
    assert "launches are on record without their work" in note.title
    assert "idle" not in note.title


@pytest.mark.parametrize(("workers", "waits_ns", "taken"), [(8, 300, True), (8, 10, False), (1, 300, False)])
def test_workers_that_take_the_cores(workers: int, waits_ns: int, taken: bool) -> None:
    """Eight at a sixth of a core each fill one and more; one at a third on a machine that others use does not."""

    def of(ns: int) -> IntervalSet:
        return IntervalSet(np.array([0], np.int64), np.array([ns], np.int64))

    host = SimpleNamespace(evidence=lambda _: SimpleNamespace(on_cpu=of(100), preempted=of(waits_ns)))
    timeline = SimpleNamespace(threads=(SimpleNamespace(thread=0, covered=of(1_000)),), host_state=host)
    context = SimpleNamespace(timeline=timeline, trace=SimpleNamespace(span_ns=(0, 1_000)))
    runs = [SimpleNamespace(busy=0.16 if workers > 1 else 0.38, waiting=0.0) for _ in range(workers)]
    assert input_rules._are_cores_taken(context, runs) is taken  # type: ignore[arg-type]


def test_kinds_of_findings_are_named_rightly(tmp_path: Path) -> None:
    """A finding of the verdict's own cause is not "of another kind"."""
    report = analyzed(tmp_path, Loop(20, [Range("step {i}", [Work(10 * MS), Launch("a", 1 * MS), Sync()])]))
    device: DeviceReport = report.devices[0]
    assert device.verdict.bound == "cpu"
    assert not [one for one in device.first_responses if "another kind" in one.because and "host" in one.id]


def test_a_surer_change_of_another_cause_is_tried_first_and_the_headline_names_both(tmp_path: Path) -> None:
    """Without `nonzero` the loss computes most of the time, and its next wait still costs most that can be changed."""
    assert cli(["simulate", "--pattern", "segmentation_no_nonzero", "-o", str(tmp_path / "loss.sqlite")]) == 0
    report = api.analyze(tmp_path / "loss.sqlite")
    first, *rest = report.devices[0].first_responses
    assert (report.devices[0].verdict.bound, first.other) == ("gpu_compute", "sync")
    assert first.saving_ns is not None
    assert all(first.saving_ns[0] > one.saving_ns[0] for one in rest if one.saving_ns and one.is_search)
    assert str(view.accounts(report)[0].headline) == headline("gpu_compute", begin_with="sync")


def test_a_change_that_saves_more_than_its_cause_takes_says_what_else_goes() -> None:
    report = api.Analysis(context_of(case_small_chunks.CASES.positive()).trace).report
    first, larger = report.devices[0].first_responses[0], report.devices[0].first_responses[2]
    (cause,) = [item for item in report.what_if if item.scenario == "no_launch_overhead"]
    assert first.saving_ns is not None
    assert larger.saving_ns is not None
    assert first.saving_ns[1] > cause.saving_ns[1] > larger.saving_ns[1]
    assert first.because.endswith("; this change shortens compute and copies, too")
    assert "shortens" not in larger.because


@pytest.mark.parametrize(
    ("code", "call", "extends"),
    [
        ('model = torch.compile(model, mode="reduce-overhead")', "model = torch.compile(model)", True),
        ("model = torch.compile(model)", "model = torch.compile(model)", True),
        ("model = torch.compile(model)", 'model = torch.compile(model, mode="reduce-overhead")', False),
        (
            "cudaMemcpyAsync(device, host, half, kind, stream);",
            "cudaMemcpyAsync(device, host, all, kind, stream);",
            False,
        ),
        ("step = torch.compile(step)", "", False),
    ],
)
def test_one_call_is_told_once(code: str, call: str, extends: bool) -> None:
    assert first_responses._extends(code, call) is extends
