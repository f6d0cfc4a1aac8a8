"""The GPU did something else in between: slices of time of another process, or lower clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import kernel_name
from boundby.evidence.interruptions import PARTS, interruptions, slowdowns
from boundby.model.scale import SLIGHT
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    worth = max(context.least_ns, SLIGHT * context.longest_window_ns)
    shared = {item.device: item for item in interruptions(context) if item.total_ns >= worth}
    table, gpus = context.operations, context.trace.gpus
    for device, item in shared.items():
        longest = np.lexsort((item.rows, -item.length_ns))[:3].tolist()
        lengths = " and ".join(duration(length) for length in item.common_ns)
        gaps = len(item.rows) - item.in_kernels
        yield Match(
            region=ROOT,
            title=f"another process or context had GPU {gpus[device].id} for {duration(item.total_ns)}: "
            f"{count(item.in_kernels)} kernels of {item.kinds} kinds take longer than others of the same grid, and "
            f"{count(gaps)} that were launched long before start late, by {lengths} each",
            evidence={
                "gpu": gpus[device].id,
                "interruptions": len(item.rows),
                "in_kernels": item.in_kernels,
                "before_kernels": gaps,
                "kinds_of_kernels": item.kinds,
                "common_lengths_ns": list(item.common_ns),
                "interrupted_ns": item.total_ns,
            },
            saving_ns=(0, item.total_ns),
            advice=(
                "Measure on a GPU of your own, or see which program takes this one: nvidia-smi "
                "--query-compute-apps=pid,name --format=csv shows it while it runs",
                "Until then kernels take longer here than they need: savings of other findings are too high or too low",
            ),
            examples=tuple(
                Example(
                    int(table.start_ns[item.rows[number]]),
                    int(item.length_ns[number]),
                    f"{kernel_name(context, int(item.rows[number]))} is held up",
                )
                for number in longest
            ),
            instances=len(item.rows),
            cost_ns=item.total_ns,
        )
    for slow in slowdowns(context):
        if slow.device in shared or slow.excess_ns < worth:
            continue
        yield Match(
            region=ROOT,
            title=f"kernels of the same grid take up to {percent(slow.ratio - 1)} longer at one time than at another, "
            f"{slow.kinds} kinds alike: lower clocks, or another program on GPU {gpus[slow.device].id}",
            evidence={
                "slower_by": round(slow.ratio, 3),
                "kinds_of_kernels": slow.kinds,
                "excess_ns": slow.excess_ns,
                "fastest_tenth": slow.fastest + 1,
                "slowest_tenth": slow.slowest + 1,
                "parts": PARTS,
            },
            saving_ns=(0, slow.excess_ns),
            advice=(
                "See whether heat or power lowers the clock: nvidia-smi "
                "--query-gpu=clocks.sm,temperature.gpu,power.draw,clocks_event_reasons.active --format=csv -l 1, while "
                "it runs; another process on the GPU slows kernels the same way",
            ),
            cost_ns=slow.excess_ns,
            is_unsure=True,
            code="nvidia-smi --query-gpu=clocks.sm,temperature.gpu,clocks_event_reasons.active --format=csv -l 1",
        )


RULE = Rule(
    id="shared-gpu",
    title="Kernels are slower than their like: the GPU is shared, or its clock is lower",
    group="gpu_compute",
    check=_check,
    needs=("kernels", "cuda_api"),
)
