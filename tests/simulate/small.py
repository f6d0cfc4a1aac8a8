"""A machine with small round costs, so that a timeline can be worked out by hand, and timelines as plain tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from boundby.simulate.instructions import Instruction, Program, program
from boundby.simulate.machine import Do, Machine, Run, realise, simulate

#: A launch takes 5 and reaches the device 3 later; operations of a stream are 1 apart; a wait returns 5 after its end.
SMALL = Machine(
    launch_call_ns=5,
    copy_call_ns=6,
    memset_call_ns=5,
    graph_call_ns=8,
    event_call_ns=2,
    submit_point=1.0,
    launch_latency_ns=3,
    switch_ns=1,
    graph_switch_ns=2,
    sync_call_ns=2,
    sync_return_ns=5,
    range_ns=0,
    wake_ns=10,
    pinned_bytes_per_ns=1.0,
    pageable_bytes_per_ns=0.5,
    device_bytes_per_ns=10.0,
    copy_setup_ns=0,
    staging_bytes=100,
    staging_bytes_per_ns=10.0,
)
Row = tuple[str, int, int]


def run(made: Program | Sequence[Instruction], on: Machine = SMALL, **changes: Any) -> Run:
    """A program (or the body of its only thread) on the small machine, with some costs changed."""
    made = made if isinstance(made, Program) else program(*made)
    return simulate(realise(made, replace(on, **changes)))


def host(run: Run, thread: int = 0) -> list[Row]:
    """(what, start, end) of a thread's steps, ranges left out."""
    steps = run.script.threads[thread].steps
    rows = zip(steps, run.start_ns[thread], run.end_ns[thread], strict=False)  # a daemon does not get through
    return [
        (step.call.removeprefix("cuda") or step.do.name.lower(), start, end)
        for step, start, end in rows
        if step.do not in (Do.PUSH, Do.POP)
    ]


def device(run: Run) -> list[Row]:
    """(name, start, end) of the operations in launch order."""
    return [(one.spec.name, one.start_ns, one.end_ns) for one in run.operations]
