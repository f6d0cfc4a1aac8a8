"""Large pinned copies far below the rate of the link."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.transfers import LARGE_BYTES, Transfer, bandwidth_of, link_rate, transfers
from boundby.model.causes import Cause
from boundby.model.scale import QUARTER
from boundby.model.units import bandwidth, counted, percent
from boundby.rules.builtin._operations import CopySet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import Direction


def _check(context: RuleContext) -> Iterator[Match]:
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
            yield _match(copies, *link)


def _match(copies: CopySet, expected: float, link: str) -> Match:
    most = min(expected / copies.bytes_per_ns, RULE.threshold(copies.context, "most"))
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
        begun = np.searchsorted(np.sort(table.start_ns[of_device[device]]), table.end_ns[chosen], side="left")
        done = np.searchsorted(np.sort(table.end_ns[of_device[device]]), table.start_ns[chosen], side="right")
        alone.append(chosen[begun - done <= 1])
    return np.concatenate(alone)


RULE = Rule(
    id="copy-bandwidth",
    title="Pinned copies far below the link's rate",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(Threshold("most", 4.0, "times", "A better link seldom brings more than that."),),
)
