"""Memory that is allocated, freed or pinned in steady state."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.initialization import allocated_in, call_evidence, call_place, init_saving, setup_calls
from boundby.model.causes import Cause
from boundby.model.scale import HALF, MANY
from boundby.model.units import count, duration
from boundby.rules.rule import Match, Rule
from boundby.trace.program import KnownProgram


def _check(context: RuleContext) -> Iterator[Match]:
    rows = setup_calls(context).steady
    total = int(context.call_ns(rows).sum())
    if len(rows) < MANY or total < context.least_ns:
        return
    held = allocated_in(context, rows)
    memory = f"; {held}" if held else ""
    yield Match(
        region=call_place(context, rows),
        title=f"{count(len(rows))} allocation calls take {duration(total)}, throughout the run: "
        f"{', '.join(context.named_calls(rows, 2))}{memory}",
        evidence={**call_evidence(context, rows), **(held.evidence if held else {})},
        saving_ns=init_saving(context, rows, HALF),
        advice=_advice(context.program, context.call_totals(rows)[0][0]),
        examples=context.call_examples(rows),
        instances=len(rows),
        cost_ns=total,
    )


def _advice(program: KnownProgram, call: str) -> tuple[str, ...]:
    """What to do about calls of which ``call`` takes the most time."""
    if "Host" in call:
        loader = ("DataLoader(..., pin_memory=True) keeps pinned buffers by itself",)
        return (
            f"Pin buffers once, before the loop, and use them again: {call} pins or unpins host memory, which takes "
            "far longer than allocating it",
            *program.pick((), torch=loader),
        )
    again = "Allocate before the loop and use the memory again"
    return program.pick(
        (f"{again}, or take it from a pool: cudaMallocAsync and cudaFreeAsync instead of {call}",),
        torch=(
            "Take torch.cuda.empty_cache() out of the loop, and set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
            "where shapes vary: PyTorch's allocator calls cudaMalloc only for memory that it does not hold",
            "Run the largest batch first, so that later ones find their memory there",
        ),
        cudf=("rmm.reinitialize(pool_allocator=True) before the first data frame: allocations then come from a pool",),
        python=(f"{again}: write into arrays that are there (out=), or let a memory pool of the library hold them",),
        directives=(f"{again}: one data region around the loop (enter data, exit data) instead of one in each turn",),
        julia=(f"{again}: write into arrays that are there (.=, mul!)",),
    )


RULE = Rule(
    id="allocation",
    title="Memory is allocated again and again",
    group="init",
    cause=Cause.INIT,
    check=_check,
    needs=("kernels", "cuda_api"),
)
