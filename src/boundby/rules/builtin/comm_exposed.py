"""Communication that no computation hides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work, named_top, operation_examples, place_of, saving_without, scaled
from boundby.model.causes import Cause
from boundby.model.units import counted, duration, percent
from boundby.rules.builtin.comm_straggler import waited_ns
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    rows = np.flatnonzero(context.operations.is_communication & work.in_window)
    exposed, total = int(work.exposed_ns[rows].sum()), int(work.duration_ns[rows].sum())
    devices = max(len(context.timeline.devices), 1)
    if exposed < context.least_ns or exposed < RULE.threshold(context, "share_fraction") * context.window_ns:
        return
    waited = min(sum(waited_ns(context).values()), exposed)
    if exposed - waited < max(context.least_ns, RULE.threshold(context, "share_fraction") * context.window_ns):
        return  # it is waiting for a late device: comm-straggler says so
    hidden = 1 - exposed / max(total, 1)
    yield Match(
        region=place_of(context, rows),
        title=f"communication takes {duration(exposed // devices)}{' a GPU' if devices > 1 else ''} that no kernel "
        f"hides, {percent(exposed / max(context.window_ns, 1))} of the window",
        evidence={
            "exposed_ns": exposed,
            "total_ns": total,
            "hidden_fraction": round(max(hidden, 0.0), 4),
            "count": len(rows),
            "devices": devices,
            "kernels": named_top(context, rows),
        },
        saving_ns=scaled(saving_without(context, Cause.GPU_COMM, rows), RULE.threshold(context, "hidden_least"), 1.0),
        advice=(
            "Start each collective as soon as its data are ready, on a stream of its own, while the rest of backward "
            "runs: DDP does so per bucket (bucket_cap_mb), FSDP with backward_prefetch; one all_reduce after backward "
            "hides nothing",
            f"Fewer bytes: bf16 gradients (ddp comm hook bf16_compress_hook), no_sync() while accumulating gradients; "
            f"{counted(len(rows), 'collective', 'collectives: join small ones')}",
        ),
        examples=operation_examples(context, rows),
        instances=len(rows),
        cost_ns=exposed,
    )


RULE = Rule(
    id="comm-exposed",
    title="Communication that no computation hides",
    group="gpu_comm",
    cause=Cause.GPU_COMM,
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold(
            "share_fraction", 0.03, "fraction of the window", "Little communication is always exposed at the end."
        ),
        Threshold("hidden_least", 0.5, "fraction", "The last bucket, and what has no compute beside it, stays."),
    ),
)
