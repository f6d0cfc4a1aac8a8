"""What the rules on launch cost tell alike."""

from __future__ import annotations

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.devicework import Rows, device_work, kernel_name
from boundby.evidence.host import INPUT, host_pieces, places
from boundby.evidence.launches import Launches, launches
from boundby.evidence.workers import is_held_by_input
from boundby.model.causes import Cause
from boundby.results.report import Example

# Gaps between launches that are looked up as examples: the longest of them.
_MOST_EXAMPLES = 20


def launch_evidence(context: RuleContext, found: Launches, rows: Rows) -> dict[str, object]:
    """Counts, the host's time from launch to launch, the kernels' own, and how far they fill the GPU."""
    work = context.once(device_work)
    operations = found.operation[rows]
    gap = found.gap_ns[rows]
    gap = gap[gap >= 0]
    told = (work.blocks[operations] > 0) & (work.multiprocessors[operations] > 0)
    evidence: dict[str, object] = {
        "count": len(rows),
        "kernel_median_ns": round(float(np.median(work.duration_ns[operations]))),
        "launch_to_launch_median_ns": round(float(np.median(gap))) if len(gap) else None,
    }
    if told.any():
        evidence["small_grid_fraction"] = round(small_grid_share(context, operations), 4)
        evidence["multiprocessors"] = int(work.multiprocessors[operations][told].max())
    return evidence


def small_grid_share(context: RuleContext, operations: Rows) -> float:
    """Share of these kernels, of those whose shape is told, with fewer blocks than the GPU has multiprocessors."""
    work = context.once(device_work)
    told = operations[(work.blocks[operations] > 0) & (work.multiprocessors[operations] > 0)]
    return float((work.blocks[told] < work.multiprocessors[told]).mean()) if len(told) else 0.0


def worth_a_look(context: RuleContext, rows: Rows, least: float, share: float) -> bool:
    """Whether these launches are enough, in number and of all, and the GPU idles for launches at all."""
    enough = len(rows) >= least and len(rows) >= share * len(context.once(launches).call)
    return enough and context.time_ns(Cause.CUDA_API) >= context.least_ns


def behind_input(context: RuleContext) -> str:
    """What to add to a title where processes that make the input set the pace: nothing is sure to be saved then by
    fewer launches, so that the low end of a saving is none. Empty elsewhere. Use as ``context.once(behind_input)``."""
    try:
        pieces = context.once(host_pieces)
    except CannotCheckError:
        return ""
    waits = [pieces.intervals(place.rows) for place in places(context, pieces, pieces.of_kind(INPUT))]
    is_held = is_held_by_input(context, waits)
    return " (worth it once the GPU no longer waits for input)" if is_held else ""


def launch_examples(context: RuleContext, rows: Rows) -> tuple[Example, ...]:
    """The longest waits of the host from one launch to the next."""
    found, calls = context.once(launches), context.timeline.calls
    known = rows[found.gap_ns[rows] >= 0]
    longest = known[np.lexsort((known, -found.gap_ns[known]))][:_MOST_EXAMPLES]
    return tuple(
        Example(
            start_ns=int(calls.start_ns[found.call[row]] - found.gap_ns[row]),
            duration_ns=int(found.gap_ns[row]),
            what=f"from the launch before to that of {kernel_name(context, int(found.operation[row]))}",
        )
        for row in longest.tolist()
    )


def launch_place(context: RuleContext, found: Launches, rows: Rows) -> int:
    """The region that made these launches, each counting alike."""
    region = context.timeline.launch_region[found.operation[rows]]
    return context.place(region, np.ones(len(rows), np.int64))
