"""First instances that take longer than the rest, so that averages mislead."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from boundby.attribution.windows import step_region
from boundby.evidence.context import RuleContext
from boundby.evidence.initialization import warm_regions
from boundby.evidence.repetition import Repeated, repeated_regions, setup_inside
from boundby.model.arrays import median
from boundby.model.scale import HABIT, HALF, NEGLIGIBLE
from boundby.model.units import count, duration, duration_range, place
from boundby.rules.rule import Match, Rule

# Each third of what follows is shorter than the one before by this factor, where the work itself shrinks; a third has
# so many instances.
SHRINKS, LEAST_THIRD = 1.05, HABIT


def _check(context: RuleContext) -> Iterator[Match]:
    for item in repeated_regions(context):
        if not item.warm_up or warm_regions(context)[item.region] or _shrinks(item):
            continue
        first, usual = item.length_ns[: item.warm_up], float(median(item.steady_ns))
        excess = round(float(first.sum()) - usual * item.warm_up)
        least = NEGLIGIBLE * context.longest_window_ns
        if excess < least or not _is_inside(context, item):
            continue
        setup = setup_inside(context, item)
        if setup >= HALF * excess:
            continue  # lazy-initialization tells of it
        wait = context.program.pick(
            "cudaDeviceSynchronize", torch="torch.cuda.synchronize()", jax="block_until_ready()"
        )
        loading = [f"{duration(setup)} of it is loading and first allocations: see lazy-initialization"]
        which = "instance takes" if item.warm_up == 1 else f"{item.warm_up} instances take"
        each = duration_range(int(first.min()), int(first.max()))
        yield Match(
            region=item.region,
            title=f"the first {which} {each}, the other {count(len(item.steady_ns))} {duration(usual)} (median): an "
            "average over all describes neither",
            evidence={
                "instances": len(item.length_ns),
                "warm_up_instances": item.warm_up,
                "first_ns": [int(value) for value in first[:5]],
                "later_median_ns": round(usual),
                "excess_ns": excess,
                "setup_calls_inside_ns": setup,
            },
            saving_ns=None,
            advice=(
                f"Look at the steady state: boundby analyze {_skip(context, item)}",
                f"When timing, run a few first, wait for the GPU ({wait}), then start the clock",
                *(loading if setup >= excess / 4 else []),
            ),
            examples=item.examples(place(context.path(item.region)), 0, item.warm_up),
            severity="note",
            instances=item.warm_up,
            facts={"rest": _skip(context, item)},
        )


def _skip(context: RuleContext, item: Repeated) -> str:
    """Options that leave these instances out; where they are not plainly the program's steps, they are named."""
    path = "/".join(context.path(item.region))
    named = "" if step_region(context.timeline) == item.region else f"--window {shlex.quote(f'nvtx:{path}')} "
    return f"{named}--skip-first {item.warm_up}"


def _shrinks(item: Repeated) -> bool:
    """Whether later instances get shorter still: their work does (an elimination, a search), and none is warm-up."""
    steady = item.steady_ns.astype(np.float64)
    third = len(steady) // 3
    if third < LEAST_THIRD:
        return False
    first, middle, last = (float(median(part)) for part in (steady[:third], steady[third:-third], steady[-third:]))
    return first > SHRINKS * middle and middle > SHRINKS * last


def _is_inside(context: RuleContext, item: Repeated) -> bool:
    """Whether most of the first instances lies in the window: shares of it are not misled by what comes before."""
    low = min(device.low_ns for device in context.timeline.devices) if context.timeline.devices else 0
    start, length = item.start_ns[: item.warm_up], item.host_ns[: item.warm_up]
    inside = np.clip(start + length - np.maximum(start, low), 0, length)
    return 2 * int(inside.sum()) >= int(length.sum())


RULE = Rule(
    id="warm-up",
    title="First instances are slower",
    group="init",
    check=_check,
)
