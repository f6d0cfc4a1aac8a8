"""Copies named asynchronous that are not: their host memory is pageable, so the host stands by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.model.units import duration, size
from boundby.rules.rule import Match, Remedy, Rule

_PYTHON = ("Pin the host's memory and do not block: DataLoader(pin_memory=True), x.to(device, non_blocking=True)",)
_OTHER = ("Pin the host's memory once: cudaMallocHost, or cudaHostRegister for memory that is there already",)


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    timeline = context.timeline
    rows = waits.of_kind(_waits.PAGEABLE)
    moved = np.zeros(len(timeline.calls), np.int64)
    joined = np.flatnonzero(timeline.calls.of_operation >= 0)
    np.add.at(moved, timeline.calls.of_operation[joined], timeline.trace.operations.bytes[joined])
    for group in _waits.groups(context, waits, rows, ["copy"] * len(rows)):
        saved, told = _waits.saving(context, waits, group)
        total = int(moved[waits.call[group.rows]].sum())
        copies, plural = ("a copy", "s") if group.incidents == 1 else (f"{group.incidents:,} copies", "")
        yield Match(
            region=group.region,
            title=f"the host stands by while {copies} of pageable memory ({size(total)}) wait{plural} for the GPU's "
            f"earlier work: {duration(group.held_ns)} in all",
            evidence={**_waits.evidence(context, waits, group), "moved_bytes": total, **told},
            saving_ns=saved,
            advice=(_PYTHON if _waits.is_python(context) else _OTHER) + _waits.together_advice(context, told),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
        )


RULE = Rule(
    id="sync-pageable-copy",
    title="Asynchronous copies from or to pageable memory hold the host",
    group="sync",
    picture="""
    host   launch |cudaMemcpyAsync, pageable: waits, stages, waits ....| launch
    GPU      [kernel           ][copy                              ]      [kernel ]
                                                                     ^^^^ idle
    """,
    meaning="""
The device can read only memory that does not move. From pageable memory the driver copies piece by piece
through a pinned buffer of its own, and the calling thread does that work: `cudaMemcpyAsync`
(`non_blocking=True`) returns only when all, or nearly all, is staged. To pageable memory it returns when the
copy is done. Meanwhile nothing is launched.

Told by: copies whose host side the trace calls pageable, in whose calls (and in the synchronization right
after, which blocking copies of frameworks add) the host was held, for half of the time or more by work that the
device had to finish before the copy began. Where the copy itself takes the time, rules on copies speak of it.
""",
    remedies=(
        Remedy(
            "Pin the memory once; then the same call returns at once and the copy runs beside kernels.",
            """
            loader = DataLoader(data, batch_size=64, num_workers=4, pin_memory=True)
            for images, labels in loader:
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
            """,
            caution="pinned memory is not swapped: leave enough for the rest of the machine.",
        ),
        Remedy(
            "In CUDA C++.",
            """
            float* host;
            cudaMallocHost(&host, bytes);                       // once
            cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
            """,
            "cpp",
            caution="do not write to the buffer before the copy is done: wait for an event first, or use two buffers.",
        ),
    ),
    disproof="""
Pin the buffers of one of the copies shown: its call should then return within some 10 us. If it still takes as
long, it waited for something else (a full launch queue, another thread's lock).
""",
    check=check,
    needs=("cuda_api", "kernels"),
    see_also=("sync-operator", "sync-call"),
    references={
        "CUDA Runtime API: API synchronization behavior": (
            "https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html"
        ),
        "PyTorch: pin_memory and non_blocking": ("https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html"),
    },
)
