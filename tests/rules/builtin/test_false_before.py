"""Findings that were false on real traces, each as a small program; what they said of it they say no more."""

from __future__ import annotations

from boundby.results.report import Finding
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


def test_nothing_that_may_save_a_tenth_is_low() -> None:
    runtime = [
        Launch("nvkernel_a", 1 * MS),
        Alloc(60 * MS, call="cuMemAllocManaged"),
        Launch("nvkernel_a", 40 * MS),
        Sync(),
    ]
    (found,) = of("lazy-initialization", *runtime, Sync())
    assert found.saving_ns is not None
    assert found.saving_ns[1] >= 50 * MS
    assert found.severity == "medium"
