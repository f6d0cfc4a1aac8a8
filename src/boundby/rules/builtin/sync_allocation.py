"""Allocations and releases of device memory that wait for the GPU, again and again."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.cuda import plain_name

_OTHER = (
    "Allocate once, outside the loop, or take memory from a pool that does not wait: cudaMallocAsync and cudaFreeAsync",
)
_PYTHON = (
    "Leave torch.cuda.empty_cache() out of the loop, so that memory is kept and used again",
    "If the allocator runs out of memory and retries: smaller batches, or "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    rows = waits.of_kind(_waits.ALLOCATION)
    names, call_name = context.timeline.trace.names, context.timeline.calls.name
    keys = [plain_name(names[number]) for number in call_name[waits.call[rows]].tolist()]
    for group in _waits.groups(context, waits, rows, keys):
        if group.incidents < RULE.threshold(context, "instances"):
            continue
        saved, told = _waits.saving(context, waits, group)
        yield Match(
            region=group.region,
            title=f"{group.key} waits for the GPU {_waits.costs(group)}",
            evidence={**_waits.evidence(context, waits, group), **told},
            saving_ns=saved,
            advice=(_PYTHON if _waits.is_python(context) else _OTHER) + _waits.together_advice(context, told),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
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
