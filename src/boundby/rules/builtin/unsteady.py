"""Too few instances, or too different ones, to speak of an average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.repetition import Repeated, repeated_regions
from boundby.model.units import count, duration, percent
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    if not len(context.trace.ranges):
        raise CannotCheckError("the trace holds no ranges, and no iterations were found in it")
    for item in repeated_regions(context):
        steady = item.steady_ns
        if int(steady.sum()) < RULE.threshold(context, "window_fraction") * context.longest_window_ns:
            continue
        low, middle, high = (float(value) for value in np.quantile(steady, (0.1, 0.5, 0.9)))
        spread = (high - low) / max(middle, 1.0)
        if len(steady) < RULE.threshold(context, "instances"):
            yield _match(
                context,
                item,
                f"only {count(len(steady))} instances after warm-up: too few for an average",
                spread,
                ("Record more steps: the account is of these few, and one odd step weighs much",),
            )
        elif spread > RULE.threshold(context, "spread"):
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
    check=_check,
    thresholds=(
        Threshold("window_fraction", 0.2, "fraction of the window", "Smaller ranges decide nothing."),
        Threshold("instances", 3, "count", "With fewer there is no telling a usual one from an odd one."),
        Threshold("spread", 0.5, "fraction of the median", "Jitter of healthy steps stays below a tenth or two."),
    ),
)
