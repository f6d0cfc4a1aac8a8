"""Steps, then a long evaluation on the CPU, then steps again; steps that all compute alike; no calls."""

from __future__ import annotations

from boundby.simulate.instructions import MS, US, Launch, Loop, Program, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, pattern, without


def evaluates_in_between() -> Source:
    return Source(_steps(Work(60 * MS)))


def _steps(between: Work) -> Program:
    step = Range("step {i}", [Loop(4, [Launch("gemm", 1 * MS), Work(990 * US)])])
    return program(Loop(20, [step]), Sync(), Range("evaluate", [between]), Loop(20, [step]), Sync())


def computes_in_every_step() -> Source:
    return pattern("cpu")


def without_calls() -> Source:
    return without(evaluates_in_between(), "api")


CASES = RuleCases(positive=evaluates_in_between, negative=computes_in_every_step, missing=without_calls)
