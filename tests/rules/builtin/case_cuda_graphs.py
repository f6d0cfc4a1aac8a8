"""Short kernels in an order that repeats, and the same in graphs."""

from __future__ import annotations

from boundby.simulate.instructions import US, GraphLaunch, Launch, Loop, Node, Range, Sync, Work, program
from tests.rules.builtin.harness import RuleCases, Source, without

KERNELS = [f"layer_{number}" for number in range(40)]


def one_by_one() -> Source:
    parts = [part for kernel in KERNELS for part in (Work(15 * US), Launch(kernel, 4 * US))]
    return Source(program(Loop(25, [Range("step {i}", parts)]), Sync()))


def as_graphs() -> Source:
    graph = GraphLaunch([Node(kernel, 4 * US) for kernel in KERNELS])
    return Source(program(Launch("warm_up", 4 * US), Loop(25, [Range("step {i}", [Work(15 * US), graph])]), Sync()))


def without_calls() -> Source:
    return without(one_by_one(), "api")


CASES = RuleCases(positive=one_by_one, negative=as_graphs, missing=without_calls)
