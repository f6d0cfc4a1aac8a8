"""Copies from and to pageable memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import Int, Rows, RuleContext
from boundby.evidence.device_work import device_work, place_of, saving_without, scaled
from boundby.evidence.transfers import (
    LARGE_BYTES,
    Transfer,
    bandwidth_of,
    copy_evidence,
    copy_examples,
    is_upload,
    link_rate,
    most_common_device,
    transfers,
)
from boundby.model.causes import Cause
from boundby.model.units import bandwidth, count, duration, size
from boundby.rules.rule import Match, Rule, Threshold

# So often a copy of one size may be the same data each time.
_OFTEN = 5
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
    "openmp": (
        "Fill the arrays on the device (a target loop that initializes them) in place of on the host",
        "Arrays that must come from the host: allocate them pinned (cudaMallocHost; nvc and nvc++: -gpu=pinned)",
    ),
    "cuda": (
        "Make the data on the device where it is computed, or upload it from pinned memory (cudaMallocHost) while "
        "other work runs",
    ),
}
_PINNED: dict[str, tuple[str, ...]] = {
    "torch": (
        'DataLoader(..., pin_memory=True) and batch = batch.to("cuda", non_blocking=True)',
        "Back to the host: copy into a tensor made once with torch.empty(shape, pin_memory=True)",
    ),
    "openmp": (
        "Allocate the mapped arrays pinned: cudaMallocHost in place of malloc, or nvc and nvc++ with -gpu=pinned",
    ),
    "cuda": (
        "Allocate the host side with cudaMallocHost, once, and copy with cudaMemcpyAsync on a stream",
        "Memory that is there already: cudaHostRegister(pointer, bytes, cudaHostRegisterDefault), once",
    ),
}


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    rows = transfers(context).rows(Transfer.PAGEABLE)
    region = context.timeline.launch_region[rows]
    for number in np.unique(_outermost(context, region)).tolist():
        mine = rows[_outermost(context, region) == number]
        if int(work.exposed_ns[mine].sum()) < context.least_ns:
            continue
        if is_upload(context, mine):
            yield _upload(context, mine)
        elif (match := _pinning(context, mine)) is not None:
            yield match


def _outermost(context: RuleContext, region: Int) -> Int:
    """The outermost region around each: loading a model and feeding it are different stories."""
    tree = context.tree
    found: Int = region.copy()
    for _ in range(int(tree.depth.max(initial=0))):
        found = np.where(tree.depth[found] > 1, tree.parent[found], found)
    return found


def _upload(context: RuleContext, rows: Rows) -> Match:
    evidence = copy_evidence(context, rows)
    total, byte_count = int(str(evidence["total_ns"])), int(str(evidence["bytes"]))
    return Match(
        region=place_of(context, rows),
        title=f"{_copies(rows, 'uploads', 'upload')} {size(byte_count)} from pageable memory in {duration(total)}, "
        "while no kernel runs",
        evidence={**evidence, "is_upload": True},
        saving_ns=(0, saving_without(context, Cause.GPU_COPY, rows)[1]),
        advice=_UPLOADS[context.framework],
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


def _pinning(context: RuleContext, rows: Rows) -> Match | None:
    rate = bandwidth_of(context, rows)
    expected, source = _expected(context, rows)
    if expected is None:
        least, most = RULE.threshold(context, "pinned_least"), RULE.threshold(context, "pinned_most")
    else:
        most = min(expected / rate if rate else 1.0, RULE.threshold(context, "most"))
        least = min(RULE.threshold(context, "pinned_least"), most)
    if most < RULE.threshold(context, "worth"):
        return None  # as fast as pinned already: what is left is the wait, which the rules on syncs tell
    evidence = copy_evidence(context, rows)
    total, byte_count = int(str(evidence["total_ns"])), int(str(evidence["bytes"]))
    to_device = int(str(evidence["to_device_count"]))
    way = f"{'from' if to_device == len(rows) else 'to' if to_device == 0 else 'from or to'} pageable memory"
    return Match(
        region=place_of(context, rows),
        title=f"{_copies(rows, f'{way} moves', f'{way} move')} {size(byte_count)} in {duration(total)}, at "
        f"{bandwidth(rate * 1e9)}",
        evidence={
            **evidence,
            "is_upload": False,
            "expected_from": source,
            "assumed_speed_up": [least, round(most, 2)],
        },
        # Not by speed: a call that stages pageable memory is as long as its copy, and shortens with it.
        saving_ns=scaled(saving_without(context, Cause.GPU_COPY, rows), 1 - 1 / least, 1 - 1 / most),
        advice=(*_PINNED.get(context.framework, _PINNED["cuda"]), *_constant(evidence)),
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


def _copies(rows: Rows, one: str, several: str) -> str:
    return f"1 copy {one}" if len(rows) == 1 else f"{count(len(rows))} copies {several}"


def _constant(evidence: dict[str, object]) -> tuple[str, ...]:
    times, common = int(str(evidence["commonest_size_count"])), int(str(evidence["commonest_size_bytes"]))
    if times < _OFTEN or int(str(evidence["to_device_count"])) < times:
        return ()
    return (f"{count(times)} of them are {size(common)} each: if their content does not change, upload it once",)


def _expected(context: RuleContext, rows: Rows) -> tuple[float | None, str]:
    """The rate that pinned copies reach here, in GB/s: as measured in this trace, else by the link."""
    table = context.operations
    pinned = transfers(context).rows(Transfer.PINNED)
    pinned = pinned[(table.bytes[pinned] >= LARGE_BYTES) & np.isin(table.direction[pinned], table.direction[rows])]
    if len(pinned):
        return bandwidth_of(context, pinned), f"{len(pinned)} pinned copies of this trace"
    link = link_rate(context, most_common_device(context, rows))
    return (None, "common experience") if link is None else (link[0], link[1])


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
        Threshold("most", 5.0, "times", "Whatever the link's rate: more than that pinning does not bring."),
        Threshold("worth", 1.15, "times", "Below, the copies run at the link's rate already."),
    ),
)
