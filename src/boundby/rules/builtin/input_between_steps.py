"""The GPU idles between two steps of a PyTorch program, and no range or call says what for: most likely its input."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.feeders import workers
from boundby.evidence.host_idleness import Idleness, host_pieces, hot_functions, is_seen, places, slept_on
from boundby.model.causes import Cause
from boundby.rules.builtin._input import input_advice
from boundby.rules.builtin._telling import asleep_share, match, where_and_when
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    for place in places(context, pieces.of_kind(Idleness.BETWEEN)):
        asleep, sleeping = pieces.asleep(place.rows), asleep_share(context, place)
        spots = hot_functions(context, place.rows)
        does = "sleeps" if sleeping > 0.5 else "computes" if is_seen(context) else "computes or sleeps"
        hot = f" in {spots[0].short_symbol}" if spots and sleeping <= 0.5 else ""
        others = workers(context, pieces.intervals(place.rows))
        yield match(
            context,
            place,
            f"between two steps the host {does}{hot} and the GPU idles, most likely for the next batch"
            f"{where_and_when(context, place)}",
            does,
            evidence={"slept_on_ns": slept_on(context, asleep)} if len(asleep) else {},
            advice=(
                *input_advice(context, place, sleeping, others, RULE.threshold(context, "busy_fraction")),
                "To be sure: boundby profile --torch-ops names the loader's part, or put annotate_loader of "
                "boundby.annotate around it",
            ),
            removed_least=RULE.threshold(context, "removed_least"),
            asleep_fraction=sleeping,
            spots=spots,
        )


RULE = Rule(
    id="input-between-steps",
    title="The GPU idles between two steps",
    group="host",
    cause=Cause.HOST_BLOCKED,
    check=_check,
    needs=("cuda_api", "nvtx"),
    thresholds=(
        Threshold("removed_least", 0.0, "fraction", "Nothing shows that it is input: a change may bring nothing."),
        Threshold("busy_fraction", 0.5, "fraction", "Workers that run less than half of the time wait for something."),
    ),
)
