"""One GPU comes late to the collectives, and all others wait for it inside theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.model.units import duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Collectives:
    """The n-th communication kernel of each device, side by side. ``start_ns``: shape (devices, collectives)."""

    devices: tuple[int, ...]
    start_ns: Int
    end_ns: Int
    row: Int  # of ``trace.operations``

    @property
    def waited_ns(self) -> Int:
        """How long each device's kernel ran until the last device came, shape (devices, collectives)."""
        waited: Int = np.clip(np.minimum(self.start_ns.max(axis=0), self.end_ns) - self.start_ns, 0, None)
        return waited


def collectives(context: RuleContext) -> Collectives | None:
    """Communication kernels matched across devices by their order; None where they do not match (other counts, other
    names, one device, or starts so far apart that the clocks cannot be the same). Use as
    ``collectives(context)``."""
    trace = context.trace
    table = trace.operations
    found: dict[int, npt.NDArray[np.intp]] = {}
    for device in context.timeline.devices:
        mine = (table.device == device.index) & table.is_communication
        rows = np.flatnonzero(mine & (table.start_ns >= device.low_ns) & (table.start_ns < device.high_ns))
        if len(rows):
            found[device.index] = rows[np.argsort(table.start_ns[rows], kind="stable")]
    sizes = {len(rows) for rows in found.values()}
    if len(found) < 2 or len(sizes) != 1:
        return None
    rows = np.stack(list(found.values()))
    if (table.name[rows] != table.name[rows][0]).any():
        return None
    matched = Collectives(tuple(found), table.start_ns[rows], table.end_ns[rows], rows)
    # A collective ends on no device before the last one has begun it.
    if (matched.end_ns.min(axis=0) < matched.start_ns.max(axis=0)).mean() > IMPOSSIBLE_SHARE:
        return None
    return matched


# Where more of them end before all devices began, they are no collectives of these devices, or the clocks differ.
IMPOSSIBLE_SHARE = 0.02


def waited_ns(context: RuleContext) -> dict[int, int]:
    """By device index: time inside collectives before the last device came. Empty where that cannot be told."""
    matched = collectives(context)
    if matched is None:
        return {}
    return {device: int(matched.waited_ns[row].sum()) for row, device in enumerate(matched.devices)}


def _check(context: RuleContext) -> Iterator[Match]:
    trace = context.trace
    if not trace.operations.is_communication.any():
        return
    if len(context.timeline.devices) < 2:
        raise CannotCheckError("the report holds the communication of one GPU only: profile all ranks into one report")
    matched = collectives(context)
    if matched is None:
        raise CannotCheckError("the GPUs' communication kernels do not match one to one")
    last = np.argmax(matched.start_ns, axis=0)
    by_device = np.bincount(last, minlength=len(matched.devices))
    slow = int(np.argmax(by_device))
    often = by_device[slow] / max(len(last), 1)
    others = [row for row in range(len(matched.devices)) if row != slow]
    waited = int(matched.waited_ns[others][:, last == slow].sum()) // max(len(others), 1)
    if len(last) < RULE.threshold(context, "collectives_least") or often < RULE.threshold(context, "late_fraction"):
        return
    if waited < max(context.least_ns, RULE.threshold(context, "share_fraction") * context.longest_window_ns):
        return
    gpu = trace.gpus[matched.devices[slow]].id
    lateness = matched.start_ns[slow] - np.median(matched.start_ns[others], axis=0).astype(np.int64)
    worst = np.argsort(-lateness, kind="stable")[:3]
    name = trace.names[int(trace.operations.name[matched.row[slow][0]])]
    yield Match(
        region=context.place(
            context.timeline.launch_region[matched.row[slow]].astype(np.int64), np.maximum(lateness, 0)
        ),
        title=f"GPU {gpu} comes last to {percent(float(often))} of {len(last):,} collectives, the others wait "
        f"{duration(waited)} each",
        evidence={
            "gpu": gpu,
            "collectives": len(last),
            "last_fraction": round(float(often), 4),
            "median_lateness_ns": int(np.median(lateness)),
            "others_waited_ns": waited,
            "kernel": name,
            "saving_by": "the others' waiting",
        },
        saving_ns=(0, waited),
        advice=(
            f"Compare GPU {gpu} with another: boundby analyze REPORT --device {gpu}. Its own bound says why it "
            f"is late: more "
            "or longer input (uneven batches), host work on its rank (logging, saving on rank 0), a slower or "
            "hotter GPU",
        ),
        examples=tuple(
            Example(
                int(matched.start_ns[:, position].min()),
                int(lateness[position]),
                f"{name}: GPU {gpu} {duration(int(lateness[position]))} after the others",
            )
            for position in worst.tolist()
        ),
        instances=len(last),
        severity=None if waited < 0.1 * context.longest_window_ns else "medium",
    )


RULE = Rule(
    id="comm-straggler",
    title="One GPU is late to the collectives",
    group="gpu_comm",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("collectives_least", 5, "count", "Fewer say nothing about who is usually late."),
        Threshold("late_fraction", 0.7, "fraction", "Last more often than chance among a few GPUs allows."),
        Threshold("share_fraction", 0.02, "fraction of the window", "Below, it is jitter."),
    ),
)
