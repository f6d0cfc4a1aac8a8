"""The rules on how copies run: far below the rate of the link, beside no kernel that could hide them, or beside
none for no known reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext, SavingNs
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import (
    LARGE_BYTES,
    LEAST_BYTES,
    WAYS,
    Transfer,
    bandwidth_of,
    beside_copies,
    full_link,
    link_rate,
    transfers,
)
from boundby.model.arrays import factorize, merged, unique
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, HALF, NOTABLE, QUARTER
from boundby.model.units import bandwidth, count, counted, duration, percent, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import Direction, OpKind


def _slow(context: RuleContext) -> Iterator[Match]:
    table = context.operations
    rows = transfers(context).rows(Transfer.PINNED)
    large_copies = CopySet(context, _undisturbed(context, rows[table.bytes[rows] >= LARGE_BYTES]))
    for device, large in large_copies.per_device():
        if CopySet(context, large).exposed_ns < context.least_ns:
            continue
        link = link_rate(context, device)
        if link is None:
            raise CannotCheckError(f"the trace does not say how {context.trace.gpus[device].name} is attached")
        most = QUARTER * link[0]
        slow = [
            way
            for way in (Direction.HTOD, Direction.DTOH)
            if 0 < bandwidth_of(context, large[table.direction[large] == way]) <= most
        ]
        copies = CopySet(context, large[np.isin(table.direction[large], slow)])
        if copies.exposed_ns >= context.least_ns:
            yield _slow_match(copies, *link)


def _slow_match(copies: CopySet, expected: float, link: str) -> Match:
    most = min(expected / copies.bytes_per_ns, BANDWIDTH.threshold(copies.context, "most"))
    return copies.match(
        f"{counted(len(copies), 'large pinned copy', 'large pinned copies')} ({copies.took}) "
        f"{'reaches' if len(copies) == 1 else 'reach'} {bandwidth(copies.bytes_per_ns * 1e9)}, "
        f"{percent(copies.bytes_per_ns / expected)} of what {link} would carry",
        copies.evidence(
            expected_bytes_per_s=round(expected * 1e9), assumed_link=link, assumed_speed_up=[1.0, round(most, 2)]
        ),
        (0, copies.saving_by_speed(1.0, most)[1]),
        (
            "See the link's real width and generation while copies run: nvidia-smi --query-gpu=pcie.link.gen.current,"
            "pcie.link.width.current --format=csv",
            "Bind the process to the GPU's own NUMA node: nvidia-smi topo -m shows it, "
            f"numactl --cpunodebind=N --membind=N {copies.context.trace.how_it_runs}",
            "cudaMemcpy2D of narrow rows and strided tensors copy row by row: make them contiguous first",
        ),
        cost_ns=copies.total_ns,
    )


def _undisturbed(context: RuleContext, rows: Rows) -> Rows:
    """Those beside which no other copy runs on their device: copies share the link."""
    table = context.operations
    all_copies = CopySet(context, np.flatnonzero(device_work(context).is_copy & (table.bytes > 0)))
    of_device = dict(all_copies.per_device())
    alone = [np.zeros(0, np.intp)]
    for device, chosen in CopySet(context, rows).per_device():
        begun = np.searchsorted(merged(table.start_ns[of_device[device]]), table.end_ns[chosen], side="left")
        done = np.searchsorted(merged(table.end_ns[of_device[device]]), table.start_ns[chosen], side="right")
        alone.append(chosen[begun - done <= 1])
    return np.concatenate(alone)


BANDWIDTH = Rule(
    id="copy-bandwidth",
    title="Pinned copies far below the link's rate",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_slow,
    needs=("memcpy",),
    thresholds=(Threshold("most", 4.0, "times", "A better link seldom brings more than that."),),
)


def _could_overlap(context: RuleContext) -> Iterator[Match]:
    copies = CopySet(context, _on_streams_of_kernels(context, transfers(context).rows(Transfer.PINNED)))
    if copies.exposed_ns < context.least_ns or len(copies) < HABIT:
        return
    turns, kernels_ns = _turns(copies)
    hidden = 1 - copies.exposed_ns / max(copies.total_ns, 1)
    if turns < HABIT or hidden > QUARTER:
        return
    most = min(copies.saving_without(Cause.GPU_COPY)[1], kernels_ns, _alone_ns(context))
    yield copies.match(
        f"{counted(len(copies), 'pinned copy does', 'pinned copies do')} not overlap with kernels: "
        f"{duration(copies.exposed_ns)} of copying comes on top of them",
        copies.evidence(turns=turns, hidden_fraction=round(hidden, 4), kernels_between_ns=kernels_ns),
        (round(HALF * most), most),
        (
            context.program.pick(
                "Copy the next piece on a stream of its own while this one computes: two buffers and two streams, "
                "cudaMemcpyAsync, and cudaStreamWaitEvent before the kernel that reads it",
                torch="Copy the next batch on a stream of its own while this one computes: "
                'with torch.cuda.stream(copy_stream): next_batch = next_batch.to("cuda", non_blocking=True), then '
                "torch.cuda.current_stream().wait_stream(copy_stream)",
                directives="Copy the next piece while this one computes: OpenACC async(queue) on update and loop, "
                "OpenMP nowait and depend on target update",
            ),
            "They are on a stream that also runs kernels, where everything waits its turn",
        ),
        cost_ns=copies.exposed_ns,
    )


def _on_streams_of_kernels(context: RuleContext, rows: Rows) -> Rows:
    """Those on a stream that also runs kernels. Why others do not overlap, this rule could not tell."""
    if not len(rows):
        return rows
    table = context.operations
    both = np.concatenate((rows, np.flatnonzero(device_work(context).is_kernel)))
    _, stream = factorize(table.device[both], table.process[both], table.stream[both])
    chosen: Rows = rows[np.isin(stream[: len(rows)], stream[len(rows) :])]
    return chosen


def _turns(copies: CopySet) -> tuple[int, int]:
    """How often kernels run after a copy and before the next (on one device), and how long they run in between."""
    work, table = device_work(copies.context), copies.context.operations
    turns, kernels_ns = 0, 0
    for device, rows in copies.per_device():
        kernels = np.flatnonzero(work.is_kernel & (table.device == device))
        after = np.searchsorted(merged(table.start_ns[rows]), table.start_ns[kernels])
        inside = (after > 0) & (after <= len(rows))
        turns += len(unique(after[inside]))
        kernels_ns += int(work.exposed_ns[kernels[inside]].sum())
    return turns, kernels_ns


COPY_OVERLAP = Rule(
    id="copy-overlap",
    title="Copies do not overlap with kernels",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_could_overlap,
    needs=("memcpy", "kernels"),
)


FILLS = "fills"
OVERLAP = "gpu_copy.overlap-copies"
FEWER_BYTES = "gpu_copy.half-the-bytes"
_BYTES = "Move fewer bytes (smaller types, only what is needed), or keep them on the device"


def _exposed(context: RuleContext) -> Iterator[Match]:
    work, table = device_work(context), context.operations
    copies = CopySet(context, np.flatnonzero(work.is_copy & (table.kind >= OpKind.MEMCPY)))
    least_ns = max(context.least_ns, NOTABLE * context.window_ns)
    if copies.exposed_ns < least_ns:
        return
    parts = _parts(copies)
    full, remedy = full_link(context), _remedy(context, parts)
    yield copies.match(
        _title(context, copies.exposed_ns, parts) + ("" if full is None else f"; {full.text}"),
        copies.evidence(by_way_exposed_ns={way: part.exposed_ns for way, part in parts}),
        _saving_ns(copies, remedy),
        (_BYTES,) if remedy == FEWER_BYTES else _advice(context, parts),
        cost_ns=copies.exposed_ns,
    ).advising(remedy)


def _saving_ns(copies: CopySet, remedy: str) -> SavingNs:
    """Without them; where they are to run beside kernels, no more than kernels run beside none."""
    if remedy == FEWER_BYTES:
        low, high = copies.saving_by_speed(1 / HALF, 1 / HALF)
        most_ns = round(HALF * max(device.copies_ns for device in beside_copies(copies.context)))
        return min(low, most_ns), min(high, most_ns)
    without_ns = copies.saving_without(Cause.GPU_COPY)[1]
    return 0, without_ns if remedy != OVERLAP else min(without_ns, _alone_ns(copies.context))


def _alone_ns(context: RuleContext) -> int:
    """How long kernels run beside no copy: all that copies could still hide behind."""
    return sum(device.kernels_alone_ns for device in beside_copies(context))


def _remedy(context: RuleContext, parts: list[tuple[str, CopySet]]) -> str:
    """The row of the table that fits the copies that take most."""
    way, most = parts[0]
    full = full_link(context)
    if full is not None and way == WAYS[full.way] and _alone_ns(context) < context.least_ns:
        return FEWER_BYTES
    if way == FILLS:
        return "gpu_copy.no-fill"
    if way == WAYS[Direction.DTOD]:
        return "gpu_copy.fewer-copies"
    is_small = most.byte_count / len(most) < LEAST_BYTES
    return "gpu_copy.larger-pieces" if is_small else OVERLAP


def _title(context: RuleContext, exposed_ns: int, parts: list[tuple[str, CopySet]]) -> str:
    """What takes the time. Parts that would be no finding by themselves are not named, nor counted."""
    named = [(way, part) for way, part in parts if part.exposed_ns >= context.least_ns] or parts
    rest = (
        f"{duration(exposed_ns)} that no kernel hides, {percent(exposed_ns / max(context.window_ns, 1))} of the window"
    )
    if len(named) > 1:
        number = sum(len(part) for _, part in named)
        each = ", ".join(
            f"{_counted(way, part)} ({size(part.byte_count)}, {duration(part.exposed_ns)})" for way, part in named[:3]
        )
        what = "copies and fills" if any(way == FILLS for way, _ in named) else "copies"
        return f"{count(number)} {what} take {rest}: {each}"
    ((way, copies),) = named
    return f"{_counted(way, copies)} of {size(copies.byte_count)} {'takes' if len(copies) == 1 else 'take'} {rest}"


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
    known = np.isin(table.direction[rest], [int(way) for way in WAYS])
    parts += [(name, CopySet(context, rest[table.direction[rest] == way])) for way, name in WAYS.items()]
    parts.append(("of unknown ways", CopySet(context, rest[~known])))
    return sorted((part for part in parts if len(part[1])), key=lambda part: (-part[1].exposed_ns, part[0]))


def _advice(context: RuleContext, parts: list[tuple[str, CopySet]]) -> tuple[str, ...]:
    way, most = parts[0]
    mean = most.byte_count / len(most)
    if way == FILLS:
        return (
            "Leave out the fill of memory that is written before it is read, or fill only the part that is read, "
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
        return (
            f"Join the copies into one, or leave the data where they are: they are small ({size(mean)} on average)",
        )
    return (
        "Copy on a stream of its own, from pinned memory, while kernels that do not need the data run; "
        f"{_BYTES[0].lower()}{_BYTES[1:]}",
    )


EXPOSED = Rule(
    id="copy-exposed",
    title="Copies that no kernel hides",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_exposed,
    needs=("memcpy",),
    is_last=True,
)
