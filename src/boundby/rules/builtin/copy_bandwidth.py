"""Large pinned copies far below the rate of the link."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import device_work, place_of, saving_by_speed
from boundby.evidence.transfers import (
    LARGE_BYTES,
    Transfer,
    bandwidth_of,
    copy_evidence,
    copy_examples,
    link_rate,
    transfers,
)
from boundby.model.causes import Cause
from boundby.model.units import bandwidth, counted, duration, percent
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import Direction


def _check(context: RuleContext) -> Iterator[Match]:
    work, table = device_work(context), context.operations
    rows = transfers(context).rows(Transfer.PINNED)
    rows = _undisturbed(context, rows[table.bytes[rows] >= LARGE_BYTES])
    for device in np.unique(table.device[rows]).tolist():
        mine = rows[table.device[rows] == device]
        if int(work.exposed_ns[mine].sum()) < context.least_ns:
            continue
        link = link_rate(context, device)
        if link is None:
            raise CannotCheckError(f"the trace does not tell how {context.trace.gpus[device].name} is attached")
        most = RULE.threshold(context, "rate_fraction") * link[0]
        slow = [
            way
            for way in (Direction.HTOD, Direction.DTOH)
            if 0 < bandwidth_of(context, mine[table.direction[mine] == way]) <= most
        ]
        mine = mine[np.isin(table.direction[mine], slow)]
        if int(work.exposed_ns[mine].sum()) >= context.least_ns:
            yield _match(context, mine, *link)


def _match(context: RuleContext, rows: Rows, expected: float, link: str) -> Match:
    rate = bandwidth_of(context, rows)
    most = min(expected / rate, RULE.threshold(context, "most"))
    total = int(device_work(context).duration_ns[rows].sum())
    return Match(
        region=place_of(context, rows),
        title=f"{counted(len(rows), 'large pinned copy', 'large pinned copies')} ({duration(total)}) "
        f"{'reaches' if len(rows) == 1 else 'reach'} {bandwidth(rate * 1e9)}, "
        f"{percent(rate / expected)} of what {link} would carry",
        evidence={
            **copy_evidence(context, rows),
            "expected_bytes_per_s": round(expected * 1e9),
            "assumed_link": link,
            "assumed_speed_up": [1.0, round(most, 2)],
        },
        saving_ns=(0, saving_by_speed(context, rows, 1.0, most)[1]),
        advice=(
            "See the link's real width and generation while copies run: nvidia-smi --query-gpu=pcie.link.gen.current,"
            "pcie.link.width.current --format=csv",
            "Bind the process to the GPU's own NUMA node: nvidia-smi topo -m shows it, "
            "numactl --cpunodebind=N --membind=N PROGRAM",
            "cudaMemcpy2D of narrow rows and strided tensors copy row by row: make them contiguous first",
        ),
        examples=copy_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


def _undisturbed(context: RuleContext, rows: Rows) -> Rows:
    """Those beside which no other copy runs on their device: copies share the link."""
    work, table = device_work(context), context.operations
    copies = np.flatnonzero(work.is_copy & (table.bytes > 0))
    alone = np.zeros(len(rows), bool)
    for device in np.unique(table.device[rows]).tolist():
        there = copies[table.device[copies] == device]
        mine = np.flatnonzero(table.device[rows] == device)
        begun = np.searchsorted(np.sort(table.start_ns[there]), table.end_ns[rows[mine]], side="left")
        done = np.searchsorted(np.sort(table.end_ns[there]), table.start_ns[rows[mine]], side="right")
        alone[mine] = begun - done <= 1
    chosen: Rows = rows[alone]
    return chosen


RULE = Rule(
    id="copy-bandwidth",
    title="Pinned copies far below the link's rate",
    group="gpu_copy",
    cause=Cause.GPU_COPY,
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("rate_fraction", 0.4, "fraction of the link's rate", "Half is common with 8 lanes or a busy host."),
        Threshold("most", 4.0, "times", "More than that a better link seldom brings."),
    ),
)
