"""Large pinned copies at a fraction of the link's rate, at its rate, and on an unknown GPU."""

from __future__ import annotations

from boundby.simulate.instructions import US, Copy, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine
from tests.rules.builtin.hardware import UNKNOWN, on_gpu
from tests.rules.builtin.harness import RuleCases, Source


def _training(rate: float) -> Source:
    step = [Work(20 * US), Copy(32 << 20), Launch("gemm", 900 * US)]
    return Source(program(Loop(20, [Range("step {i}", step)]), Sync()), Machine(pinned_bytes_per_ns=rate))


def slow_link() -> Source:
    return on_gpu(_training(4.0))


def usual_link() -> Source:
    return on_gpu(_training(22.0))


def unknown_gpu() -> Source:
    return on_gpu(_training(4.0), UNKNOWN)


CASES = RuleCases(positive=slow_link, negative=usual_link, missing=unknown_gpu, also=("copy-overlap",))
