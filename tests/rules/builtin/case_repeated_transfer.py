"""Data that goes out and comes back every step, stays, and a program without copies."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Copy, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without

ARRAY = Copy(64 << 20, "HtoD")
BACK = Copy(64 << 20, "DtoH")
KERNELS = [Launch(f"part_{number}", 200 * US) for number in range(4)]


def out_and_back() -> Source:
    step = Range("step {i}", [ARRAY, *KERNELS, BACK, Sync()])
    return Source(program(Loop(15, [step])))


def stays() -> Source:
    step = Range("step {i}", [Work(20 * US), *KERNELS])
    return Source(program(ARRAY, Loop(15, [step]), BACK, Sync()))


def frames() -> Source:
    """New data of the same size each time, which takes the host longer than copying: nothing comes back."""
    step = Range("frame {i}", [Work(10 * MS), ARRAY, Launch("filter", 400 * US), BACK, Sync()])
    return Source(program(Loop(15, [step])))


def without_operations() -> Source:
    return without(pattern("copy"), "operations")


CASES = RuleCases(
    positive=out_and_back, negative=frames, missing=without_operations, also=("sync-call", "copy-overlap")
)
