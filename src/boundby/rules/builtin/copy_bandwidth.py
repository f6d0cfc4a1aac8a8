"""Large pinned copies far below the rate of the link."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.copying import copy_evidence, copy_examples
from boundby.evidence.devicework import Rows, device_work, place_of, saving_by_speed
from boundby.evidence.transfers import LARGE_BYTES, Transfer, bandwidth_of, link_rate, transfers
from boundby.model.units import bandwidth, counted, duration, percent
from boundby.rules.rule import Match, Remedy, Rule, Threshold
from boundby.trace.tables import Direction


def _check(context: RuleContext) -> Iterator[Match]:
    work, table = context.once(device_work), context.timeline.trace.operations
    rows = context.once(transfers).rows(Transfer.PINNED)
    rows = _undisturbed(context, rows[table.bytes[rows] >= LARGE_BYTES])
    for device in np.unique(table.device[rows]).tolist():
        mine = rows[table.device[rows] == device]
        if int(work.exposed_ns[mine].sum()) < context.least_ns:
            continue
        link = link_rate(context, device)
        if link is None:
            raise CannotCheckError(
                f"the trace does not tell how {context.timeline.trace.gpus[device].name} is attached"
            )
        most = context.threshold(RULE, "rate_fraction") * link[0]
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
    most = min(expected / rate, context.threshold(RULE, "most"))
    total = int(context.once(device_work).duration_ns[rows].sum())
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
    work, table = context.once(device_work), context.timeline.trace.operations
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
    picture="""\
link   |####################################| 24 GB/s   PCIe 4.0 x16
copy   |#########                           |  6 GB/s
""",
    meaning="""\
A large copy from or to pinned memory should reach about three quarters of the link's rate: 12 GB/s on PCIe 3.0 with 16
lanes, 24 on 4.0, 50 on 5.0. Much less points to a link with fewer lanes, a GPU on another CPU socket than the memory,
a link shared with other devices, or copies of narrow rows.

Looked at are copies of 4 MiB and more beside which no other copy runs. The link is *assumed* from the GPU's generation
(8 lanes for laptops); no trace records it. Pageable copies have a rule of their own.
""",
    remedies=(
        Remedy(
            "See what the link is.",
            "nvidia-smi --query-gpu=name,pcie.link.gen.max,pcie.link.gen.current,pcie.link.width.max,"
            "pcie.link.width.current --format=csv",
            language="bash",
            caution="An idle GPU lowers its link's generation: look while copies run.",
        ),
        Remedy(
            "Run on the CPU socket that the GPU hangs on.",
            "nvidia-smi topo -m\nnumactl --cpunodebind=0 --membind=0 python train.py",
            language="bash",
        ),
        Remedy(
            "Copy whole contiguous blocks.",
            "batch = batch.contiguous().pin_memory()  # before, not after, the copy",
        ),
    ),
    disproof="The card has fewer lanes, or an older slot, than its generation allows: then this is its link's full "
    "rate.",
    check=_check,
    needs=("memcpy",),
    thresholds=(
        Threshold("rate_fraction", 0.4, "fraction of the link's rate", "Half is common with 8 lanes or a busy host."),
        Threshold("most", 4.0, "times", "More than that a better link seldom brings."),
    ),
    see_also=("pageable-copy", "copy-overlap"),
)
