"""A command that is printed with a number gives that number: of every sample report and real trace, run in process."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import Case

from boundby import api
from boundby.api import Analysis
from boundby.cli.what_if import what_if
from boundby.model.units import duration
from boundby.options import AnalysisOptions
from boundby.replay.predictor import MODEL_ERROR
from boundby.replay.questions import Answer, answer
from boundby.results.report import FirstResponse
from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from boundby.simulate.patterns import PATTERNS
from tests.support.traces import analysis_of, programs, trace_names, trace_path

SAMPLES = Path(__file__).parents[2] / "sample_reports"
ROUNDING_NS = 2


def asked_of(words: list[str]) -> tuple[str, AnalysisOptions]:
    """The scenario and the options of a command, as the command line reads them."""
    assert words[:2] == ["boundby", "what-if"]
    params = what_if.make_context("what-if", words[2:]).params
    given = {name: params[name] for name in ("window", "skip_first", "devices", "processes", "region")}
    (scenario,) = params["scenarios"]
    return scenario, AnalysisOptions(**given)


def printed(analysis: Analysis) -> Iterator[tuple[int | None, FirstResponse]]:
    """Every first response with a command of its own, and its GPU (None: a region's, or a thread's)."""
    report = analysis.report
    parts: list[tuple[int | None, tuple[FirstResponse, ...]]] = [
        (one.id, one.first_responses) for one in report.devices
    ]
    parts += [(None, one.first_responses) for one in report.regions]
    parts += [(None, one.first_responses) for one in report.threads]
    for device, responses in parts:
        for told in responses:
            assert shlex.split(told.command)[0] == "boundby"
            if "what-if" in told.command:
                yield device, told


def holds(analysis: Analysis) -> int:
    """Run what is printed; how many commands that were."""
    number = 0
    for device, told in printed(analysis):
        words = shlex.split(told.command)
        scenario, options = asked_of(words)
        assert words[2] == analysis.trace.path
        for name in ("window", "skip_first", "devices", "processes", "region"):
            assert getattr(options, name) == getattr(analysis.options, name), told.command
        assert device is not None
        found = answer(analysis.predictor, scenario, tells_next=False)
        (one,) = [one for one in found if one.device == device]
        if told.saving_ns is not None:
            assert_gives(one, told)
        number += 1
    return number


def assert_gives(one: Answer, told: FirstResponse) -> None:
    """The number of the command lies in the range that is told, which promises no more than the command's range."""
    assert told.saving_ns is not None
    low, high = told.saving_ns
    saved, most = one.saved_ns, one.saving_ns[1]
    assert low - ROUNDING_NS <= saved <= high + ROUNDING_NS, told
    assert high <= max(most, saved * (1 + MODEL_ERROR)) + ROUNDING_NS, told


@pytest.mark.parametrize("name", programs() if trace_names()[0].endswith(".sqlite") else trace_names())
def test_commands_of_real_traces(name: str) -> None:
    holds(analysis_of(name))


@pytest.mark.parametrize("name", ["mi300_torch_compile_triton", "b200_eager"])
def test_commands_of_the_profilers_traces(name: str) -> None:
    assert holds(Analysis(trace_path(f"kineto/{name}.json.gz")))


def test_commands_of_samples() -> None:
    reports = [*SAMPLES.glob("*.sqlite"), *SAMPLES.glob("*.json.gz")]
    assert reports
    for report in reports:
        holds(Analysis(report))


@pytest.mark.parametrize("name", ["compute", "comm", "copy", "api", "sync", "cpu", "blocked", "init"])
def test_commands_of_patterns(name: str, tmp_path: Path) -> None:
    case = Case(name, PATTERNS[name].make(random.Random(1), 10), Machine(host_jitter=0.05, device_jitter=0.01), 1)
    write_export(case.run(), tmp_path / "run.sqlite", "2023")
    holds(Analysis(tmp_path / "run.sqlite"))


@pytest.mark.parametrize(
    "kernel",
    [
        "void (anonymous namespace)::kernel<float>(fprop_indexed)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
        "kernel",
        "it's_a_kernel",
        "one+another",
    ],
)
def test_a_command_names_the_kernel_it_is_about_and_keeps_the_options(kernel: str, tmp_path: Path) -> None:
    """Others have its name in theirs, or the same beginning."""
    others = ["my_kernel_of_mine", "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x64_MI16x16x1_SN_LDSB1"]
    body = [Work(20 * US), Launch(kernel, 4 * MS), *(Launch(other, MS) for other in others)]
    run = Case("read", program(Loop(8, [Range("step {i}", body)]), Sync()), Machine(), 1).run()
    write_export(run, tmp_path / "a run.sqlite", "2023")
    analysis = Analysis(tmp_path / "a run.sqlite", skip_first=2, devices=(0,))
    assert holds(analysis) >= (0 if "+" in kernel else 1)
    (device,) = analysis.report.devices
    (told,) = [one for one in device.first_responses if one.id == "gpu_compute.better-kernels"]
    assert ("what-if" in told.command) == ("+" not in kernel)
    assert told.saving_ns is None  # how much faster it can be nobody knows
    assert f"takes {duration(6 * 4 * MS)}" in told.because  # this kernel, no other
    assert "each 10 % off it saves 2." in told.because


def test_each_gpu_is_told_of_its_own_kernels(tmp_path: Path) -> None:
    body = [Launch("both", 2 * MS, device=0), Launch("both", 4 * MS, device=1), Launch("alone", 2 * MS, device=1)]
    write_export(
        Case("read", program(Loop(8, body), Sync(device=0), Sync(device=1)), Machine(), 1).run(),
        tmp_path / "a.sqlite",
        "2023",
    )
    analysis = Analysis(tmp_path / "a.sqlite")
    holds(analysis)
    told = [one for device in analysis.report.devices for one in device.first_responses if "better-kernels" in one.id]
    assert ["100 % of kernel time" in one.because for one in told] == [True, False]
    assert all("each 10 % off it saves " in one.because for one in told)


def test_a_program_without_a_gpu_is_not_told_to_work_beside_one() -> None:
    for name in ("numpy_only_before", "sync_loop_before"):
        report = api.analyze(SAMPLES / f"{name}.sqlite")
        told = [one for thread in report.threads for one in thread.first_responses]
        assert told[0].id == "cpu.cheaper-code"
        assert told[0].code.startswith("py-spy record ")
        assert "cpu.overlap" not in {one.id for one in told}


def test_input_that_sleeps_is_prepared_elsewhere_not_waited_for_by_an_event_of_the_gpu() -> None:
    (thread, *_) = api.analyze(SAMPLES / "input_before.sqlite").threads
    assert thread.first_responses[0].id == "host_blocked.load-beside"
