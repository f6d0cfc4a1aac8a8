"""The host reads managed memory back from the GPU, a page fault at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.host_idleness import Idleness, host_pieces, places
from boundby.evidence.transfers import paged
from boundby.model.causes import Cause
from boundby.model.units import counted, percent, size
from boundby.rules.builtin._telling import match, share_of_window, where_and_when, while_idle
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    pieces, table = host_pieces(context), context.operations
    read_back = np.flatnonzero(paged(context).read_back)
    for place in places(context, pieces.of_kind(Idleness.PAGES)):
        around = pieces.start_ns[place.rows].min(), pieces.end_ns[place.rows].max()
        moves = read_back[(table.start_ns[read_back] >= around[0]) & (table.start_ns[read_back] <= around[1])]
        byte_count = int(table.bytes[moves].sum())
        yield match(
            context,
            place,
            f"the host reads {size(byte_count)} of managed memory back by page faults{while_idle(context)}, in "
            f"{counted(len(moves), 'migration', 'migrations')} of {size(byte_count / max(len(moves), 1))}"
            f"{where_and_when(context, place)}, {percent(share_of_window(context, place))} of the window",
            "reads managed memory back",
            evidence={"migrations": len(moves), "bytes": byte_count},
            advice=_advice(context),
            removed_least=0.0,
        )


def _advice(context: RuleContext) -> tuple[str, ...]:
    on_gpu = "Work on the result on the GPU (a check, a sum, a norm), and read back only the number that is left"
    return context.program.pick(
        (
            "cudaMemPrefetchAsync(pointer, bytes, cudaCpuDeviceId, stream) and cudaStreamSynchronize(stream) before "
            "the host reads: one copy at the rate of the bus instead of a page fault for each piece",
            on_gpu,
        ),
        python=(on_gpu,),
        directives=(
            "Copy the result with an update directive (update self, update from) before the host reads it, compiled "
            "without managed memory",
            on_gpu,
        ),
    )


RULE = Rule(
    id="managed-read-back",
    title="The host reads managed memory back by page faults",
    group="host",
    cause=Cause.CPU,
    check=_check,
    needs=("memcpy", "cuda_api"),
)
