"""GPUs of one program that have unequal work, and GPUs that have none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import busy_of_devices, device_work
from boundby.model.scale import A_FEW_LINES, HALF, MOST, QUARTER, SMALL
from boundby.model.units import duration, percent
from boundby.rules.builtin._operations import KernelSet, small_grid_rows
from boundby.rules.rule import Match, Rule, note

# Kinds of unused GPUs that are named.
MOST_NAMED = A_FEW_LINES


def _check(context: RuleContext) -> Iterator[Match]:
    yield from _unequal(context)
    yield from _unused(context)


def _unequal(context: RuleContext) -> Iterator[Match]:
    """GPUs that compute for unequal times."""
    work, table, gpus = device_work(context), context.operations, context.trace.gpus
    used = context.timeline.devices
    ids = [gpus[device.index].id for device in used]
    busy = np.array(busy_of_devices(context), np.int64)
    if len(used) > 1 and busy.any():
        most, least = int(np.argmax(busy)), int(np.argmin(busy))
        extra = int(busy[most]) - int(busy.mean())
        worth = max(context.least_ns, SMALL * context.longest_window_ns)
        if extra >= worth and busy[most] >= (1 + QUARTER) * busy.mean():
            rows = np.flatnonzero(work.is_kernel & (table.device == used[most].index))
            yield Match(
                region=KernelSet(context, rows).region,
                title=f"GPU {gpus[used[most].index].id} computes for {duration(int(busy[most]))}, GPU "
                f"{gpus[used[least].index].id} for {duration(int(busy[least]))}: balanced, each would take "
                f"{duration(int(busy.mean()))}",
                evidence={
                    "compute_ns": {str(gpu): ns for gpu, ns in zip(ids, busy.tolist(), strict=True)},
                    "mean_ns": int(busy.mean()),
                    "names": sorted({gpus[device.index].name for device in used}),
                },
                saving_ns=(0, extra),
                advice=(
                    "Give each GPU work in proportion to its speed: waits for the slower one go with the balance, not "
                    "with the call that waits",
                ),
                examples=KernelSet(context, rows).examples(),
                cost_ns=extra,
                is_unsure=True,
            )


def _unused(context: RuleContext) -> Iterator[Match]:
    """GPUs that have no work while others are busy, and full of it."""
    gpus, used, work = context.trace.gpus, context.timeline.devices, device_work(context)
    busy = np.array(busy_of_devices(context), np.int64)
    idle = [gpu for gpu in gpus if not gpu.used]
    kernels = int(busy.sum()) >= MOST * max(context.window_ns, 1)
    # The GPUs of other ranks are listed as well, and a profiler of one process sees none of theirs.
    is_alone = not (context.operations.is_communication.any() or context.trace.is_told_by_frames)
    is_filled = int(work.duration_ns[small_grid_rows(context)].sum()) < HALF * work.busy_kernels_ns
    if idle and used and kernels and is_alone and is_filled:
        names = list(dict.fromkeys(gpu.name for gpu in idle))
        more = f" and {len(names) - MOST_NAMED} more kinds" if len(names) > MOST_NAMED else ""
        others = "the other is" if len(used) == 1 else f"the other {len(used)} are, on average,"
        yield note(
            f"{len(idle)} of the {len(gpus)} GPUs that the report lists ({', '.join(names[:MOST_NAMED])}{more}) "
            f"{'runs' if len(idle) == 1 else 'run'} nothing of this program, while {others} busy with its kernels "
            f"{percent(int(busy.sum()) / max(context.window_ns, 1))} of the time",
            {"gpus_listed": len(gpus), "gpus_used": len(used), "unused": [gpu.name for gpu in idle]},
            "Run independent work (batches, requests, parameters) on the other GPUs, if they are free: they may belong "
            "to other users",
            region=ROOT,
        )


RULE = Rule(
    id="gpu-balance",
    title="GPUs have unequal work, or none",
    group="gpu_compute",
    check=_check,
    needs=("kernels",),
)
