"""Copies from and to pageable memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.evidence.context import Int, RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import (
    LARGE_BYTES,
    Transfer,
    bandwidth_of,
    is_upload,
    link_rate,
    looks_like_a_model,
    transfers,
)
from boundby.model.arrays import factorize, group_counts, merged, unique
from boundby.model.causes import Cause
from boundby.model.scale import HABIT, NOTABLE
from boundby.model.units import bandwidth, count, counted, size
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import Direction

# So often a copy of one size may be the same data each time.
_OFTEN = HABIT
_PINNING_COSTS = (
    "It pays only where the buffer is pinned from the start, or used again: each may be copied only once here"
)
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
        'DataLoader(..., pin_memory=True) and batch = batch.to("cuda", non_blocking=True)',
        "Back to the host: copy into a tensor made once with torch.empty(shape, pin_memory=True)",
    ),
    "directives": (
        "Allocate the mapped arrays pinned: cudaMallocHost instead of malloc, or nvc and nvc++ with -gpu=pinned",
    ),
    "cupy": ("Keep the host side in pinned memory, made once (cupyx.zeros_pinned), and copy asynchronously",),
    "python": ("Keep the host side in pinned memory, made once by the library that copies, and copy asynchronously",),
    "cpp": (
        "Allocate the host side with cudaMallocHost, once, and copy with cudaMemcpyAsync on a stream",
        "Memory that exists already: cudaHostRegister(pointer, bytes, cudaHostRegisterDefault), once",
    ),
}


def _check(context: RuleContext) -> Iterator[Match]:
    rows = transfers(context).rows(Transfer.PAGEABLE)
    outermost = _outermost(context, context.timeline.launch_region[rows])
    sets = [CopySet(context, rows[outermost == region]) for region in unique(outermost).tolist()]
    for copies in _with_the_rest(context, sets):
        if is_upload(context, copies.rows):
            yield _upload(copies)
        elif (match := _pinning(copies)) is not None:
            yield match


def _with_the_rest(context: RuleContext, sets: Sequence[CopySet]) -> list[CopySet]:
    """Those that are worth a finding; what is left is told with the longest of them that is no upload, so that no copy
    is missing."""
    told = [copies for copies in sets if copies.exposed_ns >= context.least_ns]
    longest = max((copies for copies in told if not is_upload(context, copies.rows)), key=_exposed_ns, default=None)
    left = [copies.rows for copies in sets if copies not in told]
    if longest is None or not left:
        return told
    return [CopySet(context, merged(copies.rows, *left)) if copies is longest else copies for copies in told]


def _exposed_ns(copies: CopySet) -> int:
    return copies.exposed_ns


def _outermost(context: RuleContext, region: npt.NDArray[np.integer]) -> Int:
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
    context, copies = copies.context, _slow(copies)
    if not len(copies):
        return None
    rate = copies.bytes_per_ns
    expected, source = _expected(copies)
    least = RULE.threshold(context, "pinned_least")
    if expected is None:
        most = RULE.threshold(context, "pinned_most")
    else:
        most = min(expected / rate if rate else 1.0, RULE.threshold(context, "most"))
        least = min(least, most)
    if most < 1 + NOTABLE:
        return None  # as fast as pinned already: what is left is the wait, which the rules on syncs tell
    to_device, (common, times) = copies.to_device, copies.common_size
    way = f"{'from' if to_device == len(copies) else 'to' if to_device == 0 else 'from or to'} pageable memory"
    again = f"{count(times)} of them are {size(common)} each: if their content does not change, upload it once"
    is_once = _rounds(copies) < _OFTEN
    pinned = context.program.pick(_PINNED["cpp"], **_PINNED)
    match = copies.match(
        f"{counted(len(copies), f'copy {way} moves', f'copies {way} move')} {size(copies.byte_count)} in "
        f"{copies.took}, at {bandwidth(rate * 1e9)}{_ends(copies)}"
        f"{'; to pin memory takes time, too' if is_once else ''}",
        copies.evidence(is_upload=False, expected_from=source, assumed_speed_up=[least, round(most, 2)]),
        # Not by speed: a call that stages pageable memory is as long as its copy, and shortens with it.
        copies.saving_without(Cause.GPU_COPY, 0.0 if is_once else 1 - 1 / least, 1 - 1 / most),
        (
            *((f"{pinned[0]}. {_PINNING_COSTS}", *pinned[1:]) if is_once else pinned),
            *((again,) if not is_once and times <= to_device else ()),
        ),
        cost_ns=copies.total_ns,
    )
    return replace(match, severity="low").advising("gpu_copy.pinned-for-reuse") if is_once else match


def _slow(copies: CopySet) -> CopySet:
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
    """Whether these are what is left of data that go to and fro: the first way in, and the last way out."""
    every = copies.context.operations.bytes
    returning = unique(every[transfers(copies.context).rows(Transfer.RETURNS)])
    if not len(returning) or not np.isin(every[copies.rows], returning).all():
        return ""
    return ": the first upload and the last download of data that is copied each time (see repeated-transfer)"


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


RULE = Rule(
    id="pageable-copy",
    title="Copies from or to pageable memory",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("pinned_least", 1.2, "times", "Fast CPUs stage nearly as fast as the link."),
        Threshold("pinned_most", 3.0, "times", "Where the link is not known: what pinning commonly brings at most."),
        Threshold("most", 10.0, "times", "Whatever the link's rate: more than that pinning hardly brings."),
    ),
)
