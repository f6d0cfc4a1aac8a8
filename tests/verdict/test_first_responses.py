"""Cards: every bound has a page, every response of a page is asked, no verdict is left without a next step."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from benchmarks import first_responses as benchmark
from benchmarks.simulated.counterfactual import Case

from boundby import api
from boundby.claims import patterns
from boundby.claims.counted import COUNTED
from boundby.results.report import DeviceReport, ThreadReport
from boundby.rules import remedies
from boundby.rules.builtin import builtin
from boundby.simulate.kineto import write_kineto
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from boundby.simulate.patterns import PATTERNS
from boundby.trace.program import LIBRARIES, KnownProgram, ProgramKind
from tests.support.traces import analysis_of, kineto_traces, trace_names

_KINDS = {kind.name.lower() for kind in ProgramKind}
_PROGRAMS = [(ProgramKind.TORCH, "torch"), (ProgramKind.CPP, ""), (ProgramKind.DIRECTIVES, "")]


@pytest.mark.skipif(not kineto_traces(), reason="needs real traces")
def test_a_line_stands_with_code_alone() -> None:
    """A bigger GPU or another type of numbers is of no line of the program."""
    (device,) = analysis_of("kineto/h100_qwen_chat.json.gz").report.devices
    lines = {bool(one.code): one.where for one in device.first_responses if one.id != "gpu_compute.fuse"}
    assert lines[False] is None
    assert lines[True] is not None


def test_every_remedy_of_a_page_says_when_it_fits() -> None:
    for key in patterns.KEYS:
        page = patterns.pattern(key)
        assert page.remedies
        assert page.text.count("\n### ") == len(page.remedies)
        assert all(one.needs and one.caution for one in page.remedies)
        assert "$" not in page.text


def test_the_table_is_one_row_a_remedy() -> None:
    keys = [row.key for row in remedies.TABLE]
    assert len({*keys}) == len(keys)
    assert {row.bound for row in remedies.TABLE} <= {*patterns.KEYS, ""}
    numbered = [rule for row in remedies.TABLE for rule in row.rules]
    # Every rule has one, or several that its evidence parts.
    assert {*numbered} == {rule.id for rule in builtin()}, "a rule's id stands in `rules` of its row of the table"
    assert {*COUNTED} <= {*keys}
    for row in remedies.TABLE:
        assert all(len(code.splitlines()) <= 3 for code in row.do.values()), row.key
        assert {*row.do} <= {"amd", "any", *LIBRARIES, *_KINDS}


def test_code_is_of_what_the_program_is_written_in() -> None:
    row = remedies.by_key()["gpu_copy.pinned"]
    told = {kind: row.code(KnownProgram(kind, library), {}) for kind, library in _PROGRAMS}
    assert "DataLoader" in told[ProgramKind.TORCH]
    assert "cudaMallocHost" in told[ProgramKind.CPP]
    assert "gpu=pinned" in told[ProgramKind.DIRECTIVES]
    search = remedies.by_key()["gpu_compute.better-kernels"]
    facts = {"search": "solve", "launches": "--kernel-name solve", "program": "heat 8000"}
    assert search.code(KnownProgram(ProgramKind.CPP), facts).endswith("--kernel-name solve heat 8000")
    assert search.code(KnownProgram(ProgramKind.CPP), facts, is_of_amd=True).startswith("rocprof-compute")
    assert search.code(KnownProgram(ProgramKind.CPP), {}) == ""  # what is not told is not guessed


@pytest.mark.parametrize(
    "word", ["sync", "cuda_api", "cuda-api", "cpu", "gpu_compute", "input", "copy", "comm", "init"]
)
def test_words_for_patterns(word: str) -> None:
    assert patterns.named(word) is not None
    assert patterns.named("sync-call") is None


@pytest.mark.parametrize("name", ["compute", "comm", "copy", "api", "sync", "cpu", "blocked", "init"])
def test_each_pattern_has_a_card_with_numbers(name: str, tmp_path: Path) -> None:
    case = Case(name, PATTERNS[name].make(random.Random(1), 10), Machine(host_jitter=0.05, device_jitter=0.01), 1)
    write_export(case.run(), tmp_path / "run.sqlite", "2023")
    device = api.analyze(tmp_path / "run.sqlite").devices[0]
    assert [card.pattern for card in device.cards] == list(device.verdict.mixed_of or (device.verdict.bound,))
    assert all(card.signs for card in device.cards)
    first = device.first_responses[0]
    assert first.saving_ns is not None or "each 10 % off it saves" in first.because
    assert first.saving_ns is None or 0 <= first.saving_ns[0] <= first.saving_ns[1] <= device.window_ns
    assert all(one.saving_ns or one.because for one in device.first_responses)
    assert len({one.id for one in device.first_responses}) == len(device.first_responses)


@pytest.mark.parametrize("name", [name for name in trace_names() if "partial" not in name])
def test_no_real_device_is_left_without_a_next_step(name: str) -> None:
    report = analysis_of(name).report
    parts: list[DeviceReport | ThreadReport] = [*report.devices, *report.threads]
    for part in parts:
        bounds = part.verdict.mixed_of or (part.verdict.bound,)
        assert part.first_responses, f"{part} is {part.verdict.bound}"
        first = part.first_responses[0]
        assert first.saving_ns or first.because
        # Of the bound's own kind one at least, beside whatever else saves.
        if isinstance(part, DeviceReport) and part.verdict.bound != "unknown":
            told = {one.id.split(".")[0] for one in part.first_responses}
            assert told & {*bounds, "finding"} or first.saving_ns
            assert all(one.saving_ns[1] <= part.window_ns for one in part.first_responses if one.saving_ns)


@pytest.mark.parametrize("story", [*benchmark.stories(), *benchmark.finer()], ids=lambda story: story.response)
def test_what_is_carried_out_saves_what_was_predicted(story: benchmark.Story, tmp_path: Path) -> None:
    """The table of docs/first-responses.md."""
    line, outside = benchmark.row(story, tmp_path)
    assert outside < 0.10, line
    assert line in benchmark.PAGE.read_text(encoding="utf-8")


def test_the_samples_of_each_pattern_are_what_boundby_says_now(tmp_path: Path) -> None:
    """Else: ``python -m benchmarks.first_responses --write``."""
    made = tmp_path / "made"
    benchmark.write_samples(tmp_path, made)
    names = sorted(path.name for path in made.iterdir())
    assert names == sorted(path.name for path in benchmark.SAMPLES.iterdir())
    # By bytes, and named: a page as the text of a failure would fill screens.
    assert [name for name in names if (made / name).read_bytes() != (benchmark.SAMPLES / name).read_bytes()] == []


def test_code_of_which_nothing_is_on_record_gets_no_answer(tmp_path: Path) -> None:
    """A trace of operators alone does not tell what the host does between them."""
    case = Case("cpu", PATTERNS["cpu"].make(random.Random(1), 10), Machine(host_jitter=0.05, device_jitter=0.01), 1)
    write_kineto(case.run(), tmp_path / "run.json", with_stack=False)
    write_export(case.run(), tmp_path / "run.sqlite", "2023")
    told = [
        {one.id for one in api.analyze(tmp_path / f"run.{kind}").devices[0].first_responses}
        for kind in ("json", "sqlite")
    ]
    answers = {"cpu.vectorise", "cpu.fewer-operators"}
    assert [one & answers for one in told] == [set(), set()]
    assert "cpu.find-host-code" in told[1]
