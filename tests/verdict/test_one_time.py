"""What a program does once, and the steps that it repeats: simulated programs with known answers, and real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.document import sentences, view
from boundby.model import units
from boundby.render import screen
from boundby.results.report import DeviceReport, Report
from boundby.simulate.instructions import MS, US, Copy, Init, Instruction, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine, realise, simulate
from boundby.simulate.nsys_export import write_export
from tests.support.traces import analysis_of, traces_folder

STEP = Range("step {i}", [Launch("gemm", 2 * MS), Sync(), Work(300 * US)])
UPLOAD = Copy(120_000_000, "HtoD", "pageable", blocking=True)


def analyzed(folder: Path, *body: Instruction) -> Report:
    path = folder / f"{len(list(folder.iterdir()))}.sqlite"
    write_export(simulate(realise(program(*body), Machine(), 0)), path)
    return boundby.analyze(path)


def device(report: Report) -> DeviceReport:
    (one,) = report.devices
    return one


def test_uploads_then_a_warm_up_then_steps(tmp_path: Path) -> None:
    first = Range("step first", [Init(30 * MS), Launch("gemm", 2 * MS), Sync()])
    report = analyzed(tmp_path, UPLOAD, Work(60 * MS), first, Loop(40, [STEP]))
    found = device(report)
    assert found.steady is not None
    assert found.steady.steps == 40
    assert found.steady.step_ns == pytest.approx(2.31 * MS, rel=0.01)
    assert found.steady.bound == "gpu_compute"
    assert sum(part.ns for part in found.one_time) == found.steady.window.start_ns - found.window.start_ns
    lengths = {part.name: part.ns for part in found.one_time}
    uploaded = found.memcpy["HtoD"].total_ns
    assert lengths["uploads"] == pytest.approx(uploaded, rel=0.01)
    assert lengths["initialization"] == pytest.approx(30 * MS, rel=0.01)
    shown = " ".join(screen.render(report, width=100).split())
    assert sentences.steady(found, 100) in shown
    assert "Steady: 2.31 ms a step (median), compute bound. One-time work:" in shown


def test_what_the_first_step_loads_comes_once(tmp_path: Path) -> None:
    first = Range("step {i}", [Init(40 * MS), Launch("gemm", 2 * MS), Sync(), Work(300 * US)])
    found = device(analyzed(tmp_path, Loop(1, [first]), Loop(29, [Range("step {i}", STEP.body)])))
    assert found.steady is not None
    assert (found.steady.region, found.steady.steps) == (("step *",), 30)  # all do the same work
    assert found.one_time[0].name == "initialization"
    assert found.one_time[0].ns == pytest.approx(40 * MS, rel=0.01)


@pytest.mark.parametrize(
    "body",
    [
        [Loop(40, [STEP])],  # nothing but steps
        [UPLOAD, Loop(3, [STEP])],  # too few of them
        [UPLOAD, *[UPLOAD] * 40, Loop(6, [Range("step {i}", [Launch("gemm", 100 * US), Sync()])])],  # a tenth
        [UPLOAD, Launch("gemm", 80 * MS), Sync()],  # nothing repeats
        [Launch("before", 9 * MS), Loop(10, [STEP]), UPLOAD, *[UPLOAD] * 9],  # something else follows for longer
    ],
)
def test_better_no_line_than_a_wrong_one(tmp_path: Path, body: list[Instruction]) -> None:
    found = device(analyzed(tmp_path, *body))
    assert (found.steady, found.one_time, sentences.steady(found)) == (None, (), "")


@pytest.mark.parametrize(
    ("name", "steps", "bound", "part", "ns"),
    [
        ("upload_blocking_idle_logger.sqlite", 127, "gpu_compute", "uploads", 4_460 * MS),
        ("openmp_heat_final.sqlite", 50, "gpu_compute", "uploads", 213 * MS),
        ("first_launch_is_the_window.sqlite", 88, None, "initialization", 15_900 * US),
    ],
)
def test_real_programs(name: str, steps: int, bound: str | None, part: str, ns: int) -> None:
    if traces_folder() is None:
        pytest.skip("no real traces to test on")
    found = device(analysis_of(name).report)
    assert found.steady is not None
    assert found.steady.steps == steps
    assert bound in (None, found.steady.bound)
    assert found.one_time[0].name == part
    assert found.one_time[0].ns == pytest.approx(ns, rel=0.01)


def test_what_lies_around_the_window_stands_on_the_second_line() -> None:
    if traces_folder() is None:
        pytest.skip("no real traces to test on")
    told = {
        "cpp_checks_on_host_after.sqlite": "analysed 146 ms of the 40.8 s on record (0.4 %); "
        "2.37 s before, 38.3 s after",
        "kineto/h100_step_begins_on_host.json.gz": "383 ms, all that was recorded",
        "pair_dali_bf16.sqlite": "9.02 s, all that was recorded",
    }
    assert {name: sentences.window(analysis_of(name).report) for name in told} == told


def test_a_mean_that_holds_a_first_instance_says_so(tmp_path: Path) -> None:
    first = Range("step {i}", [Launch("gemm", 2 * MS), Init(90 * MS), Launch("relu", 1 * MS), Sync()])
    slow, even = Loop(1, [first]), Loop(29, [STEP])
    (told,) = [note for note in view.select(analyzed(tmp_path, slow, even)).notes if "the first time" in note]
    assert told.startswith('"step *" took 9')
    usual = told.removesuffix(" usually.").rpartition(", ")[2]
    assert usual in {units.duration(ns) for ns in others_ns(analyzed(tmp_path, slow, even))}
    assert not [note for note in view.select(analyzed(tmp_path, even)).notes if "the first time" in note]
    twice = view.select(analyzed(tmp_path, slow, Loop(1, [STEP]))).notes  # two instances have no "usually"
    assert not [note for note in twice if "the first time" in note]


def others_ns(report: Report) -> tuple[int, ...]:
    """How long each instance but the first takes."""
    (step,) = [region for region in report.regions if region.path == ("step *",)]
    return step.instance_ns.host_ns[1:]


WARM_UP = Range("warm up", [Init(60 * MS), Launch("gemm", 2 * MS), Sync(), Launch("gemm", 2 * MS), Sync()])
FOUND_START = [Init(60 * MS), Launch("gemm", 2 * MS), Sync()]
LAUNCHES = Range("step {i}", [*[Launch("tiny", 2 * US)] * 40, Sync()])


def test_a_warm_up_by_name_is_told_like_one_that_was_found(tmp_path: Path) -> None:
    report = analyzed(tmp_path, Launch("first", 10 * US), WARM_UP, Loop(40, [LAUNCHES]))
    found = device(report)
    assert found.steady is not None
    assert found.steady.region == ("step *",)
    assert found.one_time[0].name == "warm up"
    assert sum(part.ns for part in found.one_time) == found.steady.window.start_ns - found.window.start_ns
    assert "(warm up)" in sentences.steady(found)


def test_a_warm_up_by_name_without_steps_is_told_by_its_length(tmp_path: Path) -> None:
    found = device(analyzed(tmp_path, Launch("first", 10 * US), WARM_UP, Launch("gemm", 90 * MS), Sync()))
    assert found.steady is not None
    assert (found.steady.region, found.steady.steps, found.steady.step_ns) == ((), 0, None)
    assert found.steady.bound == "gpu_compute"
    assert sentences.steady(found).startswith("Steady: the last 90")


def test_hardly_anything_but_a_warm_up_is_told_as_well(tmp_path: Path) -> None:
    found = device(analyzed(tmp_path, Launch("first", 10 * US), WARM_UP, Launch("gemm", 1 * MS), Sync()))
    assert found.steady is None
    assert found.one_time[0].name == "warm up"
    assert sentences.steady(found).startswith("One-time work: 6")


@pytest.mark.parametrize("start", [[WARM_UP], FOUND_START])
def test_what_comes_after_is_first_where_it_has_another_bound(tmp_path: Path, start: list[Instruction]) -> None:
    """However the one-time work is known."""
    found = device(analyzed(tmp_path, Launch("first", 10 * US), *start, Loop(40, [LAUNCHES])))
    assert found.verdict.bound == "init"
    assert found.steady is not None
    assert found.steady.bound != "init"
    assert found.first_responses[0].id == "init.after-warm-up"
    assert f"--window {found.steady.window.start_ns / 1e9:.3f}" in found.first_responses[0].code


def test_what_is_larger_in_the_bar_than_the_verdict_is_told_with_its_saving() -> None:
    if traces_folder() is None:
        pytest.skip("no real traces to test on")
    (one,) = analysis_of("pair_lm_bf16.sqlite").report.devices
    assert one.verdict.bound == "init"
    assert one.verdict.because.endswith("compute takes 36 %, but removing it alone would save up to 12 %")
