"""Blocks of one thread, of 256, and of an unknown number."""

from __future__ import annotations

from boundby.simulate.instructions import US, Launch, Loop, Range, Sync, Work, program
from tests.rules.builtin.hardware import on_gpu
from tests.rules.builtin.harness import RuleCases, Source


def _program() -> Source:
    step = Range("step {i}", [Work(30 * US), Launch("scan", 400 * US), Launch("update", 300 * US)])
    return Source(program(Loop(20, [step]), Sync()))


def one_thread() -> Source:
    return on_gpu(_program(), shapes={"scan": (50_000, 1)})


def many_threads() -> Source:
    return on_gpu(_program())


def not_told() -> Source:
    return on_gpu(_program(), shapes={"scan": (0, 0), "update": (0, 0)})


CASES = RuleCases(positive=one_thread, negative=many_threads, missing=not_told)
