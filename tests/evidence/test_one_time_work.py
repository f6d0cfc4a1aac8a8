"""Where what comes after a program's one-time work begins: behind the stretch, and behind all steps of a warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.evidence.initialization import rest_after_steps, warm_option
from boundby.rules.builtin._telling import rest_options
from boundby.simulate.instructions import (
    MS,
    US,
    Init,
    Instruction,
    Launch,
    Loop,
    Process,
    Program,
    Sync,
    Thread,
    Work,
    program,
)
from tests.rules.builtin.harness import Source, context_of

STEP: tuple[Instruction, ...] = (Init(2 * MS), Launch("a", 300 * US), Launch("b", 200 * US), Sync("device"))
COMMAND = ("./bench", "--warmup_steps", "2")


def of_command(*body: Instruction) -> Source:
    return Source(Program((Process([Thread(list(body), name="bench")], name="bench"),), command=COMMAND))


def ends_s(source: Source) -> list[float]:
    """When the steps end, by their waits."""
    calls, trace = context_of(source).calls, context_of(source).trace
    waits = [row for row in range(len(calls)) if "DeviceSynchronize" in trace.names[calls.name[row]]]
    return [int(calls.end_ns[row]) / 1e9 for row in waits]


def test_the_rest_begins_behind_all_steps_of_the_warm_up() -> None:
    source = of_command(*STEP * 5)
    context = context_of(source)
    option = warm_option(context)
    assert option is not None
    assert (option.text, option.steps) == ("--warmup_steps 2", 2)
    told = rest_after_steps(context, option.steps).removeprefix("--window ").removesuffix("s:")
    assert float(told) == pytest.approx(ends_s(source)[1], abs=1e-3)


@pytest.mark.parametrize("body", [STEP * 2, (*STEP * 3, Launch("a", 1 * MS), *STEP * 2), (*STEP[:-1] * 5, STEP[-1])])
def test_steps_that_are_not_seen_to_end_tell_no_window(body: tuple[Instruction, ...]) -> None:
    assert rest_after_steps(context_of(of_command(*body)), 2) == ""


def test_the_rest_begins_behind_the_stretch() -> None:
    """Nine tenths of a stretch are no end of it."""
    source = Source(program(Launch("first", 10 * US), Work(40 * MS), Loop(60, [Launch("a", 1 * MS)]), Sync()))
    context = context_of(source)
    (gap,) = [row for row, ns in enumerate(context.timeline.devices[0].gaps.length_ns) if ns > 30 * MS]
    gaps = context.timeline.devices[0].gaps
    begin, end = int(gaps.start_ns[gap]), int(gaps.end_ns[gap])
    ends_ns, lengths_ns = np.array([end - 2 * MS, end]), np.array([end - begin - 2 * MS, 2 * MS])
    told = rest_options(context, ends_ns, lengths_ns).removeprefix("--window ").removesuffix("s:")
    assert float(told) == pytest.approx(end / 1e9, abs=1e-3)
