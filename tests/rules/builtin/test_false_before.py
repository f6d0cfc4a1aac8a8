"""Findings that were false on real traces, each as a small program; what they said of it they say no more."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from boundby.claims import findings as findings_of_rules
from boundby.claims.laws import ClaimedSaving
from boundby.evidence.code_lines import PYTHON_CODE, Hotspot
from boundby.results.report import Finding
from boundby.rules.builtin import host_rules
from boundby.simulate.instructions import MS, US, Alloc, Call, Instruction, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.case_gpu_balance import uneven
from tests.rules.builtin.harness import Source, findings


def of(rule: str, *body: Instruction) -> list[Finding]:
    return [item for item in findings(Source(program(*body))) if item.rule == rule]


def test_who_asks_now_and_then_does_not_poll() -> None:
    """The allocator of pinned memory asks for its events once a batch: 130 queries over a minute are no loop."""
    asks = Loop(130, [Call(8 * US, "cudaEventQuery"), Work(20 * MS)])
    assert not of("sync-polling", Launch("a", 100 * US), asks, Launch("b", 100 * US), Sync())
    polls = Loop(300, [Call(8 * US, "cudaEventQuery"), Work(50 * US)])
    assert of("sync-polling", Launch("a", 100 * US), polls, Launch("b", 100 * US), Sync())


def test_an_elimination_that_shrinks_has_no_warm_up() -> None:
    def step(number: int, ns: int) -> Range:
        return Range(f"column {number}", [Launch("eliminate", ns), Sync()])

    shrinking = [step(number, round(60 * MS * (1 - number / 40) ** 3) + 50 * US) for number in range(40)]
    assert not of("warm-up", *shrinking)
    warms_up = [step(number, (60 if number == 0 else 5) * MS) for number in range(40)]
    assert of("warm-up", *warms_up)


def test_a_wait_for_the_slower_gpu_is_not_to_be_removed() -> None:
    for item in findings(uneven()):
        if item.rule == "sync-call":
            assert "unequal work" in item.advice[0]
            assert not any(line.startswith("Remove the wait") for line in item.advice)
    assert [item for item in findings(uneven()) if item.rule == "gpu-balance"]


def test_what_only_moves_time_is_low_however_long_it_takes() -> None:
    runtime = [
        Launch("nvkernel_a", 1 * MS),
        Alloc(60 * MS, call="cuMemAllocManaged"),
        Launch("nvkernel_a", 40 * MS),
        Sync(),
    ]
    (found,) = of("lazy-initialization", *runtime, Sync())
    assert found.saving_ns is not None
    assert found.saving_ns[1] >= 50 * MS
    assert found.severity == "low"  # the run is no shorter for a warm-up


@pytest.mark.parametrize(
    ("asked", "is_elsewhere", "severity"), [("low", True, "low"), ("high", True, "low"), ("low", False, "medium")]
)
def test_nothing_else_that_may_save_a_tenth_is_low(asked: str, is_elsewhere: bool, severity: str) -> None:
    """Whatever a rule thinks of its remedy."""
    context = SimpleNamespace(longest_window_ns=100 * MS, is_replayed=True)
    found = SimpleNamespace(severity=asked, is_unsure=False)
    told = findings_of_rules._severity(
        context,  # type: ignore[arg-type]
        found,  # type: ignore[arg-type]
        ClaimedSaving(0, 20 * MS),
        is_narrowed=False,
        is_told=True,
        is_elsewhere=is_elsewhere,
    )
    assert told == severity


def _loads(*first: Instruction) -> list[Instruction]:
    """A start of a tenth of a second, code that loads, then many short kernels."""
    return [Launch("a", 100 * US), *first, Launch("b", 100 * US, load_ns=30 * MS), Loop(200, [Launch("b", 100 * US)])]


def test_what_comes_once_is_left_out_on_the_trace_s_own_clock() -> None:
    (found,) = of("lazy-initialization", Call(200 * MS, "cuInit"), *_loads(), Sync())
    end_ns = found.examples[0].start_ns + found.examples[0].duration_ns
    (after,) = re.findall(r"--window ([0-9.]+)s:", found.advice[-1])
    assert end_ns > 200 * MS
    assert abs(float(after) * 1e9 - end_ns) < 500 * US


def test_nothing_is_left_of_a_program_that_ends_with_its_start() -> None:
    (found,) = of("lazy-initialization", Launch("a", 1 * MS), Work(20 * MS), Launch("b", 100 * US, load_ns=30 * MS))
    assert found.advice[-1] == "A longer run pays this once"


def test_turning_the_profiler_off_loads_no_code() -> None:
    (found,) = of("lazy-initialization", *_loads(Call(20 * MS, "cudaProfilerStop")), Sync())
    assert found.title.startswith("1 cudaLaunchKernel loads code")


def _phase(*, work_ns: int) -> list[Instruction]:
    step = Range("step {i}", [Loop(4, [Launch("gemm", work_ns), Work(10 * US)])])
    return [Loop(10, [step]), Sync(), Range("report", [Work(100 * MS)]), Loop(10, [step]), Sync()]


@pytest.mark.parametrize(
    ("work_ns", "change"),
    [(1 * MS, "Overlap host code with the GPU's work"), (100 * US, "Find what is slow in parse, and speed it up")],
)
def test_what_runs_beside_the_gpu_hides_no_more_than_the_gpu_works(
    monkeypatch: pytest.MonkeyPatch, work_ns: int, change: str
) -> None:
    monkeypatch.setattr(host_rules, "hot_functions", lambda *_: (Hotspot("parse", "app", 9, 0.9),))
    (found,) = of("host-phase", *_phase(work_ns=work_ns))
    assert found.change == change
    assert found.saving_ns is not None
    busy_ns = 80 * work_ns
    if change.startswith("Overlap"):
        assert found.saving_ns[1] <= 1.01 * busy_ns
    else:
        assert found.saving_ns[1] > busy_ns
        assert "at most" in found.advice[0]


@pytest.mark.parametrize(
    ("symbols", "first"),
    [
        (("parse", "read", "copy"), "See with py-spy record --native what calls these functions"),
        ((PYTHON_CODE,), "Record with boundby profile"),
        ((), "Record with boundby profile"),
    ],
)
def test_samples_on_record_are_not_denied(
    monkeypatch: pytest.MonkeyPatch, symbols: tuple[str, ...], first: str
) -> None:
    spots = tuple(Hotspot(symbol, "app", 9, 1 / len(symbols)) for symbol in symbols)
    monkeypatch.setattr(host_rules, "hot_functions", lambda *_: spots)
    (found,) = of("host-work", Loop(20, [Range("step {i}", [Work(4 * MS), Launch("gemm", 500 * US), Sync()])]))
    assert found.advice[0].startswith(first)
    shares = "parse, 33 % of the samples, then read, 33 %, then copy, 33 %"
    spread = f"spread over many functions (the largest parts: {shares})"
    assert (spread in found.title) == (len(symbols) > 1)
    assert not any("looping" in line for line in found.advice if len(symbols) < 2)
