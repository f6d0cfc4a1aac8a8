"""FP32 products on a GPU with tensor cores, the same on one without, and on one that is not told."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import P100, UNKNOWN, on_gpu
from tests.rules.builtin.harness import RuleCases, Source


def _training(kernel: str) -> Source:
    step = Range("step {i}", [Work(30 * US), Loop(4, [Launch(kernel, 1 * MS)]), Launch("relu", 100 * US)])
    return Source(program(Loop(20, [step]), Sync()))


def fp32() -> Source:
    return on_gpu(_training("ampere_sgemm_128x64_tn"))


def without_tensor_cores() -> Source:
    return on_gpu(_training("maxwell_sgemm_128x64_tn"), P100, name="Tesla P100-PCIE-16GB")


def unknown_gpu() -> Source:
    return on_gpu(_training("ampere_sgemm_128x64_tn"), UNKNOWN)


CASES = RuleCases(positive=fp32, negative=without_tensor_cores, missing=unknown_gpu)
