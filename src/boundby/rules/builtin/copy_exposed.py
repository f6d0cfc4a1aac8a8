"""Copies that no kernel hides, where no other rule says why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import LEAST_BYTES
from boundby.model.causes import Cause
from boundby.model.scale import NOTABLE
from boundby.model.units import counted, duration, percent, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule
from boundby.trace.tables import Direction, OpKind

FILLS = "fills"
OVERLAP = "gpu_copy.overlap-copies"
_WAYS = {Direction.HTOD: "to the device", Direction.DTOH: "to the host", Direction.DTOD: "on the device"}


def _check(context: RuleContext) -> Iterator[Match]:
    work, table = device_work(context), context.operations
    copies = CopySet(context, np.flatnonzero(work.is_copy & (table.kind >= OpKind.MEMCPY)))
    least_ns = max(context.least_ns, NOTABLE * context.window_ns)
    if copies.exposed_ns < least_ns:
        return
    parts = _parts(copies)
    remedy = _remedy(parts)
    yield copies.match(
        _title(context, copies.exposed_ns, parts),
        copies.evidence(by_way_exposed_ns={way: one.exposed_ns for way, one in parts}),
        (0, _saving_ns(copies, remedy)),
        _advice(context, parts),
        cost_ns=copies.exposed_ns,
    ).advising(remedy)


def _saving_ns(copies: CopySet, remedy: str) -> int:
    """Without them; where they are to run beside kernels, no more than kernels run."""
    without_ns = copies.saving_without(Cause.GPU_COPY)[1]
    if remedy != OVERLAP:
        return without_ns
    return min(without_ns, copies.context.time_ns(Cause.GPU_COMPUTE))


def _remedy(parts: list[tuple[str, CopySet]]) -> str:
    """The row of the table that fits the copies that take most."""
    way, most = parts[0]
    if way == FILLS:
        return "gpu_copy.no-fill"
    if way == _WAYS[Direction.DTOD]:
        return "gpu_copy.fewer-copies"
    is_small = most.byte_count / len(most) < LEAST_BYTES
    return "gpu_copy.larger-pieces" if is_small else OVERLAP


def _title(context: RuleContext, exposed_ns: int, parts: list[tuple[str, CopySet]]) -> str:
    """What takes the time. Parts that would be no finding by themselves are not named, nor counted."""
    named = [(way, one) for way, one in parts if one.exposed_ns >= context.least_ns] or parts
    rest = (
        f"{duration(exposed_ns)} that no kernel hides, {percent(exposed_ns / max(context.window_ns, 1))} of the window"
    )
    if len(named) > 1:
        number = sum(len(one) for _, one in named)
        each = ", ".join(
            f"{_counted(way, one)} ({size(one.byte_count)}, {duration(one.exposed_ns)})" for way, one in named[:3]
        )
        return f"{counted(number, 'copy or fill', 'copies and fills')} take {rest}: {each}"
    ((way, one),) = named
    return f"{_counted(way, one)} of {size(one.byte_count)} {'takes' if len(one) == 1 else 'take'} {rest}"


def _counted(way: str, copies: CopySet) -> str:
    """``1 fill``, ``12 copies to the host``."""
    if way == FILLS:
        return counted(len(copies), "fill", FILLS)
    return f"{counted(len(copies), 'copy', 'copies')} {way}"


def _parts(copies: CopySet) -> list[tuple[str, CopySet]]:
    """The copies by way, and fills, most exposed first."""
    table, context = copies.context.operations, copies.context
    is_fill = table.kind[copies.rows] == OpKind.MEMSET
    parts = [(FILLS, CopySet(context, copies.rows[is_fill]))]
    rest = copies.rows[~is_fill]
    known = np.isin(table.direction[rest], [int(way) for way in _WAYS])
    parts += [(name, CopySet(context, rest[table.direction[rest] == way])) for way, name in _WAYS.items()]
    parts.append(("of unknown ways", CopySet(context, rest[~known])))
    return sorted((part for part in parts if len(part[1])), key=lambda part: (-part[1].exposed_ns, part[0]))


def _advice(context: RuleContext, parts: list[tuple[str, CopySet]]) -> tuple[str, ...]:
    way, most = parts[0]
    mean = most.byte_count / len(most)
    if way == FILLS:
        return (
            "Memory that is written before it is read needs no fill: leave it out, or fill only the part that is read, "
            "once, or in the kernel that writes it anyway",
        )
    if way == "on the device":
        return (
            context.program.pick(
                "Let the next kernel read where the data lie, instead of copying them first",
                torch="Avoid the copy: views instead of .contiguous(), .clone() and cat; write into slices of one "
                "tensor",
            ),
        )
    if mean < LEAST_BYTES:
        return (f"They are small ({size(mean)} on average): join them into one copy, or leave the data where they are",)
    return (
        "Copy on a stream of its own, from pinned memory, while kernels that do not need the data run; move fewer "
        "bytes (smaller types, only what is needed), or keep them on the device",
    )


RULE = Rule(
    id="copy-exposed",
    title="Copies that no kernel hides",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    is_last=True,
)
