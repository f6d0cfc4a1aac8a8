"""Too few instances, or too different ones, to speak of an average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.repetition import repeated_regions
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Rule, Threshold

_FEW: tuple[str, ...] = ("Record more steps: the account is of these few, and one odd step distorts it",)
_DIFFERENT = (
    "Look at a slow and a fast one separately: boundby analyze --window START:END with the times of the examples",
    "Different shapes or data: give them different range names, so that each has an account of its own",
)


def _check(context: RuleContext) -> Iterator[Match]:
    for item in repeated_regions(context):
        steady = item.steady_ns
        if int(steady.sum()) < RULE.threshold(context, "window_fraction") * context.longest_window_ns:
            continue
        low, middle, high = (float(value) for value in np.quantile(steady, (0.1, 0.5, 0.9)))
        spread = (high - low) / max(middle, 1.0)
        if len(steady) < RULE.threshold(context, "instances"):
            title = f"only {count(len(steady))} instances after warm-up: too few for an average"
            advice = _FEW
        elif spread > RULE.threshold(context, "spread"):
            title = (
                f"instances differ: one in ten takes over {duration(high)}, one in ten under {duration(low)} (median "
                f"{duration(middle)}, spread {percent(spread)})"
            )
            advice = _DIFFERENT
        else:
            continue
        yield Match(
            region=item.region,
            title=title,
            evidence={
                "instances": len(item.length_ns),
                "warm_up_instances": item.warm_up,
                "median_ns": round(middle),
                "p10_ns": round(low),
                "p90_ns": round(high),
                "spread_fraction": round(spread, 4),
            },
            saving_ns=None,
            advice=advice,
            examples=item.examples("/".join(context.path(item.region)), item.warm_up, len(item.length_ns)),
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
