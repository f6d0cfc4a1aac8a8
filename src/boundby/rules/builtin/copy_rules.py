"""The rules on copies: far below the rate of the link, beside no kernel that could hide them, from and to pageable
memory, or of data that travels to the host and back in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.evidence.context import CannotCheckError, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import (
    LARGE_BYTES,
    LEAST_BYTES,
    WAYS,
    Transfer,
    bandwidth_of,
    beside_copies,
    full_link,
    is_upload,
    link_rate,
    looks_like_a_model,
    transfers,
)
from boundby.model.arrays import factorize, group_counts, group_sums, is_in, merged, unique
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, HALF, NOTABLE, QUARTER
from boundby.model.units import bandwidth, count, counted, duration, percent, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.program import ProgramKind
from boundby.trace.tables import Construct, Direction, OpKind


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
    thresholds=(Threshold("most", 4.0, "times", "A better link seldom brings more."),),
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
        f"{counted(len(copies), 'pinned copy shares', 'pinned copies share')} a stream with the kernels, so that they "
        f"cannot overlap: {duration(copies.exposed_ns)} of copying comes on top of them",
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
    link = "" if full is None else f"; {full.text}"
    yield copies.match(
        f"{_title(context, copies.exposed_ns, parts, in_parts=full is None)}{link}",
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


def _title(context: RuleContext, exposed_ns: int, parts: list[tuple[str, CopySet]], *, in_parts: bool) -> str:
    """What takes the time, of both ways ``in_parts``. Those that would be no finding by themselves are not named, nor
    counted."""
    named = [(way, part) for way, part in parts if part.exposed_ns >= context.least_ns] or parts
    rest = (
        f"{duration(exposed_ns)} that no kernel hides, {percent(exposed_ns / max(context.window_ns, 1))} of the window"
    )
    if len(named) > 1:
        number = sum(len(part) for _, part in named)
        each = ", ".join(
            f"{_counted(way, part)} ({size(part.byte_count)}{f', {duration(part.exposed_ns)}' if in_parts else ''})"
            for way, part in named[:3]
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
    is_known = np.isin(table.direction[rest], [int(way) for way in WAYS])
    parts += [(name, CopySet(context, rest[table.direction[rest] == way])) for way, name in WAYS.items()]
    parts.append(("of unknown ways", CopySet(context, rest[~is_known])))
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
            "Join the copies into one, or keep the data on the GPU between kernels: the copies are small "
            f"({size(mean)} on average)",
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


# So often a copy of one size may be the same data each time.
_OFTEN = HABIT
_PINNING_PAYS = "If a longer run copies the same buffers again"
_UPLOADS: dict[str, tuple[str, ...]] = {
    "torch": (
        'with torch.device("cuda"): model = Model(...) makes parameters on the GPU, so that nothing is uploaded',
        'Weights from a file: safetensors.torch.load_file(path, device="cuda"), or model.load_state_dict(torch.load('
        "path, mmap=True), assign=True) on a model made on the meta device: no random values made to be overwritten",
    ),
    "cudf": (
        "Read files on the GPU: cudf.read_parquet(path), cudf.read_csv(path); frames made by pandas or Arrow are "
        "uploaded column by column from pageable memory",
    ),
    "directives": (
        "Fill the arrays on the device (a target loop that initializes them) instead of on the host",
        "Arrays that must come from the host: allocate them pinned (cudaMallocHost; nvc and nvc++: -gpu=pinned)",
    ),
    "python": (
        "Make the data on the device where it is computed, or upload it from pinned memory while other work runs",
    ),
    "cpp": (
        "Make the data on the device where it is computed, or upload it from pinned memory (cudaMallocHost) while "
        "other work runs",
    ),
}
_PINNED: dict[str, tuple[str, ...]] = {
    "torch": (
        'Use DataLoader(..., pin_memory=True) and batch = batch.to("cuda", non_blocking=True)',
        "Back to the host: copy into a tensor made once with torch.empty(shape, pin_memory=True)",
    ),
    "directives": (
        "Allocate the mapped arrays pinned: cudaMallocHost instead of malloc, or nvc and nvc++ with -gpu=pinned",
    ),
    "cupy": ("Keep the host side in pinned memory, made once (cupyx.zeros_pinned), and copy asynchronously",),
    "python": (
        "Allocate the host side pinned, once (cupyx.zeros_pinned, numba.cuda.pinned_array; in C++ cudaMallocHost), and "
        "copy asynchronously",
    ),
    "cpp": (
        "Allocate the host side with cudaMallocHost, once, and copy with cudaMemcpyAsync on a stream",
        "Memory that exists already: cudaHostRegister(pointer, bytes, cudaHostRegisterDefault), once",
    ),
}


def _pageable(context: RuleContext) -> Iterator[Match]:
    rows = transfers(context).rows(Transfer.PAGEABLE)
    outermost = _outermost_wait(context, context.timeline.launch_region[rows])
    sets = [CopySet(context, rows[outermost == region]) for region in unique(outermost).tolist()]
    for copies in _with_the_rest(context, sets):
        if is_upload(context, copies.rows):
            yield _upload(copies)
        elif (match := _pinning(copies)) is not None:
            yield match


def _with_the_rest(context: RuleContext, sets: Sequence[CopySet]) -> list[CopySet]:
    """Those that are worth a finding; what is left is told with the longest of them that is no upload, so that no copy
    is missing."""
    worthwhile = [copies for copies in sets if copies.exposed_ns >= context.least_ns]
    longest = max(
        (copies for copies in worthwhile if not is_upload(context, copies.rows)), key=_exposed_ns, default=None
    )
    left = [copies.rows for copies in sets if copies not in worthwhile]
    if longest is None or not left:
        return worthwhile
    return [CopySet(context, merged(copies.rows, *left)) if copies is longest else copies for copies in worthwhile]


def _exposed_ns(copies: CopySet) -> int:
    return copies.exposed_ns


def _outermost_wait(context: RuleContext, region: npt.NDArray[np.integer]) -> Int:
    """The outermost region around each: loading a model and feeding it are different stories."""
    depth, parent = context.tree.depth, context.tree.parent
    outermost: Int = region.astype(np.int64)
    for _ in range(int(depth.max(initial=0))):
        outermost = np.where(depth[outermost] > 1, parent[outermost], outermost)
    return outermost


#: Of PyTorch, where what is uploaded is no model.
_DATA = (
    'Make or decode the data on the GPU (device="cuda" in torch.randn and torch.arange; torchvision.io.decode_jpeg, '
    "torchcodec and DALI decode there)",
    "Else upload it in pieces, from pinned memory, while the first kernels run",
)


def _upload(copies: CopySet) -> Match:
    is_model = looks_like_a_model(copies.context.operations.bytes[copies.rows])
    torch = copies.context.program.is_torch and not is_model
    return copies.match(
        f"{counted(len(copies), 'copy uploads', 'copies upload')} {size(copies.byte_count)} from pageable memory in "
        f"{copies.took} while no kernel runs",
        copies.evidence(is_upload=True),
        (0, copies.saving_without(Cause.GPU_COPY)[1]),
        _DATA if torch else copies.context.program.pick(_UPLOADS["cpp"], **_UPLOADS),
        cost_ns=copies.total_ns,
    ).advising("gpu_copy.make-on-device", code='x = decode(path, device="cuda")  # or made there' if torch else "")


def _pinning(copies: CopySet) -> Match | None:
    context, copies = copies.context, _slower_than_pinned(copies)
    if not len(copies):
        return None
    rate = copies.bytes_per_ns
    expected, source = _expected(copies)
    least = PAGEABLE_COPY.threshold(context, "pinned_least")
    if expected is None:
        most = PAGEABLE_COPY.threshold(context, "pinned_most")
    else:
        most = min(expected / rate if rate else 1.0, PAGEABLE_COPY.threshold(context, "most"))
        least = min(least, most)
    if most < 1 + NOTABLE:
        return None  # as fast as pinned already: what is left is the wait, which the rules on syncs tell
    to_device, (common, times) = copies.to_device, copies.common_size
    way = f"{'from' if to_device == len(copies) else 'to' if to_device == 0 else 'from or to'} pageable memory"
    again = f"{count(times)} of them are {size(common)} each: if their content does not change, upload it once"
    is_once = _rounds(copies) < _OFTEN
    pinned = context.program.pick(_PINNED["cpp"], **_PINNED)
    match = copies.match(
        f"{counted(len(copies), f'copy {way}{_ends(copies)} moves', f'copies {way}{_ends(copies)} move')} "
        f"{size(copies.byte_count)} in {copies.took}, at {bandwidth(rate * 1e9)}",
        copies.evidence(is_upload=False, expected_from=source, assumed_speed_up=[least, round(most, 2)]),
        # Not by speed: a call that stages pageable memory is as long as its copy, and shortens with it.
        copies.saving_without(Cause.GPU_COPY, 0.0 if is_once else 1 - 1 / least, 1 - 1 / most),
        (
            *((f"{_PINNING_PAYS}, {pinned[0][:1].lower()}{pinned[0][1:]}", *pinned[1:]) if is_once else pinned),
            *((again,) if not is_once and times <= to_device else ()),
        ),
        cost_ns=copies.total_ns,
    )
    return replace(match, severity="low").advising("gpu_copy.pinned-for-reuse") if is_once else match


def _slower_than_pinned(copies: CopySet) -> CopySet:
    """Those of the directions that are slower than from pinned memory: a buffer of the system's own may keep up with
    one of them."""
    context, direction = copies.context, copies.context.operations.direction[copies.rows]
    kept = np.zeros(len(copies), bool)
    for way in (Direction.HTOD, Direction.DTOH):
        of_way = CopySet(context, copies.rows[direction == way])
        if len(of_way):
            expected, rate = _expected(of_way)[0], of_way.bytes_per_ns
            kept |= (direction == way) & (expected is None or expected >= (1 + NOTABLE) * rate)
    return CopySet(context, copies.rows[kept])


def _rounds(copies: CopySet) -> int:
    """How often the same size goes the same way with a kernel in between, at most: in a row they are other buffers."""
    table, rows = copies.context.operations, copies.rows
    kernels = merged(table.start_ns[device_work(copies.context).is_kernel])
    kinds, kind = factorize(table.bytes[rows], table.direction[rows])
    rounds = factorize(kind, np.searchsorted(kernels, table.start_ns[rows]))[0]
    return int(group_counts(rounds[:, 0], len(kinds)).max())


def _ends(copies: CopySet) -> str:
    """That these are what is left of data that go to and fro, where they are: the first way in, the last way out."""
    every = copies.context.operations.bytes
    returning = unique(every[transfers(copies.context).rows(Transfer.RETURNS)])
    if not len(returning) or not np.isin(every[copies.rows], returning).all():
        return ""
    return " that are left once the data stays on the device"


def _expected(copies: CopySet) -> tuple[float | None, str]:
    """The rate that pinned copies reach here, in GB/s: as measured in this trace, else by the link."""
    context, table = copies.context, copies.context.operations
    pinned = transfers(context).rows(Transfer.PINNED)
    alike = np.isin(table.direction[pinned], table.direction[copies.rows])
    pinned = pinned[(table.bytes[pinned] >= LARGE_BYTES) & alike]
    if len(pinned):
        return bandwidth_of(context, pinned), f"{len(pinned)} pinned copies of this trace"
    commonest_device = int(np.bincount(table.device[copies.rows]).argmax())
    return link_rate(context, commonest_device) or (None, "common experience")


PAGEABLE_COPY = Rule(
    id="pageable-copy",
    title="Copies from or to pageable memory",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_pageable,
    needs=("memcpy",),
    thresholds=(
        Threshold("pinned_least", 1.2, "times", "Fast CPUs stage nearly as fast as the link."),
        Threshold("pinned_most", 3.0, "times", "If the link is not known: pinning seldom brings more."),
        Threshold("most", 10.0, "times", "Whatever the link's rate, pinning hardly brings more."),
    ),
)


# Constructs of OpenACC around a program's operations: which directive moves which variable, at which line.


class Directive(NamedTuple):
    """A directive of the source, with the variables that it and its parts name."""

    construct: Construct
    variables: tuple[str, ...]

    @property
    def sentinel(self) -> str:
        """How directives begin in the language of the file."""
        is_fortran = self.construct.file.rpartition(".")[2].lower().startswith("f")
        return "!$acc" if is_fortran else "#pragma acc"


def directives_of(context: RuleContext, operations: Rows) -> tuple[Directive, ...]:
    """The directives inside which these operations were launched, those with most of their time first."""
    outermost, tree = _outermost(context), context.tree
    owner = outermost[context.timeline.launch_region[operations]]
    inside = owner >= 0
    table = context.operations
    time_ns = group_sums(owner[inside], (table.end_ns - table.start_ns)[operations][inside], len(tree))
    regions = np.flatnonzero(time_ns)
    constructs = _constructs(context)
    directives = []
    for region in regions[np.lexsort((regions, -time_ns[regions]))].tolist():
        parts = [constructs[part] for part in np.flatnonzero(outermost == region).tolist() if part in constructs]
        variables = dict.fromkeys(part.variable for part in parts if part.variable)
        directives.append(Directive(constructs[region], tuple(variables)))
    return tuple(directives)


@once
def _constructs(context: RuleContext) -> dict[int, Construct]:
    """The construct of each region that is one of a known place."""
    constructs = {name: construct for name, construct in context.trace.constructs.items() if construct.place}
    if not constructs:
        return {}
    ranges, of_range = context.trace.ranges, context.tree.of_range
    rows = np.flatnonzero(is_in(ranges.name, sorted(constructs)))
    first = rows[np.unique(of_range[rows], return_index=True)[1]]
    return {int(of_range[row]): constructs[int(ranges.name[row])] for row in first.tolist()}


@once
def _outermost(context: RuleContext) -> Int:
    """Of each region the outermost construct that it lies in, itself included; -1: none."""
    tree, constructs = context.tree, _constructs(context)
    outermost = np.full(len(tree), -1, np.int64)
    for region in unique(np.fromiter(constructs, np.int64, len(constructs))).tolist():  # parents come before children
        if outermost[region] < 0:
            outermost[tree.subtree(region)] = region
    return outermost


_KEEP_THERE = {
    "torch": "Keep the tensors on the device: no .cpu() or .numpy() inside the loop, one before it and one after",
    "directives": "#pragma omp target data map(tofrom: u[0:n]) around the loop (OpenACC: #pragma acc data "
    "copy(u[0:n])) keeps the arrays on the device from step to step",
    "cpp": "Copy once before the loop and once after it: device memory keeps its content between kernels",
}


def _region_code(directives: Sequence[Directive]) -> str:
    """The directive around the loop, as code."""
    variables = ", ".join(dict.fromkeys(name for directive in directives for name in directive.variables)) or "..."
    return f"{directives[0].sentinel} data copy({variables})  // around the loop"


def _data_region(directives: Sequence[Directive]) -> str:
    """The directive that keeps on the device what these move at every pass."""
    variables = ", ".join(dict.fromkeys(name for directive in directives for name in directive.variables)) or "..."
    where = " and ".join(directive.construct.place for directive in directives)
    return (
        f"{directives[0].sentinel} data copy({variables}) around the loop that holds {where} keeps the data on the "
        f"device; inside it, present({variables}) instead of copies"
    )


# Where nothing says that it is the same data: what is done in either case.
_OTHERWISE = "If each copy moves another piece of a larger whole, copy it while the kernels of the piece before run"


def _repeated_transfer(context: RuleContext) -> Iterator[Match]:
    returns = transfers(context).returns
    copies = CopySet(context, transfers(context).rows(Transfer.RETURNS))
    if returns < HABIT or copies.exposed_ns < context.least_ns:
        return
    at_a_time, bytes_each_way = len(copies) / 2 / returns, copies.byte_count / 2 / returns
    common, times = copies.common_size
    alike = times == len(copies) and at_a_time == round(at_a_time) > 1
    what = f"{round(at_a_time)} x {size(common)}" if alike else size(bytes_each_way)
    directives = sorted(directives_of(context, copies.rows)[:2])
    where = ", ".join(directive.construct.place for directive in directives)
    whose = f" ({where})" if where else ""
    is_same = bool(directives) or context.program.kind == ProgramKind.DIRECTIVES  # their mapped arrays
    low, high = copies.saving_without(Cause.GPU_COPY)
    keep = _data_region(directives) if directives else context.program.pick(_KEEP_THERE["cpp"], **_KEEP_THERE)
    yield copies.match(
        f"{what}{whose} go to the host and as much comes back, {count(returns)} times: {copies.took} of copies",
        copies.evidence(
            is_without_first_in_and_last_out=True, returns=returns, bytes_each_way_and_time=round(bytes_each_way)
        ),
        (low if is_same else 0, high),
        (
            *((keep,) if is_same else (f"If it is the same data, {keep[0].lower()}{keep[1:]}", _OTHERWISE)),
            "Move what the host does with the data in between to the device, or read only the part that the host needs",
        ),
        cost_ns=copies.total_ns,
    ).advising(code=_region_code(directives) if directives else "")


REPEATED_TRANSFER = Rule(
    id="repeated-transfer",
    title="The same amount of data goes out and comes back every step",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_repeated_transfer,
    needs=("memcpy",),
)
