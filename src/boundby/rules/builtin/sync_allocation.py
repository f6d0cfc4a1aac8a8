"""Allocations and releases of device memory that wait for the GPU, again and again."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.waits import Group, WaitKind
from boundby.rules.builtin._waiting import Words, calls_of, matches
from boundby.rules.rule import Match, Rule, Threshold

_OTHER = (
    "Allocate once, outside the loop, or take memory from a pool that does not wait: cudaMallocAsync and cudaFreeAsync",
)
_PYTHON = ("Allocate once, outside the loop, or let a memory pool of the library hold what is freed",)
_TORCH = (
    "Leave torch.cuda.empty_cache() out of the loop, so that memory is kept and used again",
    "If the allocator runs out of memory and retries: smaller batches, or "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)


def check(context: RuleContext) -> Iterator[Match]:
    return matches(context, WaitKind.ALLOCATION, calls_of, _words, RULE.threshold(context, "instances"))


def _words(context: RuleContext, group: Group) -> Words:
    return Words(
        f"{group.key} waits for the GPU {group.costs}",
        context.program.pick(_OTHER, torch=_TORCH, python=_PYTHON, julia=_PYTHON),
    )


RULE = Rule(
    id="sync-allocation",
    title="Device memory is freed or allocated in the loop, and the host waits",
    group="sync",
    check=check,
    needs=("cuda_api", "kernels"),
    thresholds=(
        Threshold(
            "instances", 3, "count", "Once or twice is how a program starts and ends; a loop does it again and again."
        ),
    ),
)
