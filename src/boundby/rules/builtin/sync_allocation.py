"""Allocations and releases of device memory that wait for the GPU, again and again."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Remedy, Rule, Threshold
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
        if group.incidents < context.threshold(RULE, "instances"):
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
    picture="""
    host   launch |cudaFree: waits for all work .....| launch  |cudaFree ...
    GPU     [kernel                             ]        [kernel      ]
                                                 ^^^^^^^^ idle
    """,
    meaning="""
`cudaFree` waits for everything that runs on the device before it returns, and `cudaMalloc` may. In a loop that
is a synchronization in disguise: no call named "synchronize" appears. Frameworks avoid it by keeping memory;
when they run out of it, they free what they kept and allocate anew (PyTorch's "allocator retries").

Told by: allocation calls that took longer while the GPU was busy than their like on an idle GPU, or returned
just when it was done, and GPU idle time behind them. The time that allocating itself takes is initialization,
not this.
""",
    remedies=(
        Remedy(
            "Keep memory instead of returning it.",
            """
            torch.cuda.empty_cache()      # in a loop: every later allocation pays for it. Leave it out
            out = torch.empty(n, device="cuda")
            for batch in loader:
                torch.matmul(a, b, out=out)
            """,
        ),
        Remedy(
            "In CUDA C++, use the stream-ordered allocator: it does not wait, and the pool keeps what is freed.",
            """
            cudaMemPool_t pool;
            cudaDeviceGetDefaultMemPool(&pool, device);
            uint64_t keep = UINT64_MAX;
            cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
            cudaMallocAsync(&p, bytes, stream);
            cudaFreeAsync(p, stream);
            """,
            "cpp",
            caution="a pool that keeps all it got leaves less for other processes on the GPU.",
        ),
    ),
    disproof="""
Raise the memory at hand (a smaller batch, another process gone): if the calls remain as long, they are slow by
themselves and not waiting. `torch.cuda.memory_stats()["num_alloc_retries"]` of 0 speaks against running out of
memory.
""",
    check=check,
    needs=("cuda_api", "kernels"),
    thresholds=(
        Threshold(
            "instances", 3, "count", "Once or twice is how a program starts and ends; a loop does it again and again."
        ),
    ),
    see_also=("sync-call",),
    references={
        "CUDA C++ Programming Guide: stream-ordered memory allocator": (
            "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#stream-ordered-memory-allocator"
        ),
        "PyTorch: memory management": "https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    },
)
