"""Too few instances, or too different ones, to speak of an average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.region_instances import Repeated
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.builtin.warm_up import repeated
from boundby.rules.rule import Match, Remedy, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    if not len(context.timeline.trace.ranges):
        raise CannotCheckError("the trace holds no ranges, and no iterations were found in it")
    for item in context.once(repeated):
        steady = item.steady_ns
        if int(steady.sum()) < context.threshold(RULE, "window_fraction") * context.longest_window_ns:
            continue
        low, middle, high = (float(value) for value in np.quantile(steady, (0.1, 0.5, 0.9)))
        spread = (high - low) / max(middle, 1.0)
        if len(steady) < context.threshold(RULE, "instances"):
            yield _match(
                context,
                item,
                f"only {count(len(steady))} instances after warm-up: too few for an average",
                spread,
                ("Record more steps: the account is of these few, and one odd step weighs much",),
            )
        elif spread > context.threshold(RULE, "spread"):
            yield _match(
                context,
                item,
                f"instances differ: one in ten takes over {duration(high)}, one in ten under {duration(low)} (median "
                f"{duration(middle)}, spread {percent(spread)})",
                spread,
                (
                    "Look at a slow and a fast one apart: boundby analyze --window START:END with the times of the "
                    "examples",
                    "Different shapes or data: give them different range names, so that each has an account of its own",
                ),
            )


def _match(context: RuleContext, item: Repeated, title: str, spread: float, advice: tuple[str, ...]) -> Match:
    steady = item.steady_ns
    name = "/".join(context.path(item.region))
    return Match(
        region=item.region,
        title=title,
        evidence={
            "instances": len(item.length_ns),
            "warm_up_instances": item.warm_up,
            "median_ns": round(float(np.median(steady))),
            "p10_ns": round(float(np.quantile(steady, 0.1))),
            "p90_ns": round(float(np.quantile(steady, 0.9))),
            "spread_fraction": round(spread, 4),
        },
        saving_ns=None,
        advice=advice,
        examples=tuple(
            Example(int(start), int(length), f"{name}, instance {number + item.warm_up + 1}")
            for number, (start, length) in enumerate(zip(item.start_ns[item.warm_up :], steady, strict=True))
        ),
        severity="note",
        instances=len(steady),
    )


RULE = Rule(
    id="unsteady",
    title="Too few or too different instances",
    group="init",
    picture="""\
step  | 1 |  2  | 3 |          4          | 5 |     6     | 7 |
median      says little about 4 and 6
""",
    meaning="""\
Medians, shares and savings describe a step only if steps are alike and there are some of them. Two steps are an
anecdote; steps that differ by half are several kinds of steps in one account.

Looked at are repeated ranges (or iterations that boundby found) that cover a fifth of the window, after their warm-up:
fewer than three of them, or lengths whose tenth and ninetieth percentile lie further apart than half of the median.
""",
    remedies=(
        Remedy(
            "Record more steps, after some that warm up: boundby profile --capture-range steps -- python train.py",
            "from boundby.annotate import steps\n\nfor batch in steps(loader, warmup=5, active=40):\n    train(batch)",
        ),
        Remedy(
            "Name kinds of steps apart.",
            'with nvtx.annotate("step, long" if length > 1024 else "step, short"):\n    train(batch)',
            caution="Numbers in names fold into one region: tell the kinds apart by words.",
        ),
    ),
    disproof="The slow instances are one-time (evaluation, checkpoints) and no step of the kind that matters.",
    check=_check,
    thresholds=(
        Threshold("window_fraction", 0.2, "fraction of the window", "Smaller ranges decide nothing."),
        Threshold("instances", 3, "count", "With fewer there is no telling a usual one from an odd one."),
        Threshold("spread", 0.5, "fraction of the median", "Jitter of healthy steps stays below a tenth or two."),
    ),
    see_also=("warm-up",),
)
