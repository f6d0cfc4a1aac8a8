"""The GPU idles while the program waits for its next batch."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.feeders import workers
from boundby.evidence.host_idleness import Idleness, host_pieces, hot_functions, places, slept_on
from boundby.model.causes import Cause
from boundby.rules.builtin._input import input_advice
from boundby.rules.builtin._telling import asleep_share, match, where_and_when
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces, captured = host_pieces(context), context.trace.captured
    if not captured.nvtx and not len(pieces.of_kind(Idleness.INPUT)):
        raise CannotCheckError("the trace holds no NVTX ranges that show where input is fetched")
    for place in places(context, pieces.of_kind(Idleness.INPUT)):
        asleep, sleeping = pieces.asleep(place.rows), asleep_share(context, place)
        others = workers(context, pieces.intervals(place.rows))
        threads = [thread for one in others for thread in one.threads]
        evidence: dict[str, object] = {}
        if len(asleep):
            evidence["slept_on_ns"] = slept_on(context, asleep)
        if captured.cpu_scheduling:
            evidence["worker_processes"] = sum(one.is_process for one in others)
            evidence["other_threads_running"] = sum(not one.is_process for one in others)
            busy = sum(one.busy for one in others) / len(others) if others else 0.0
            evidence["their_cpu_utilization_fraction"] = round(busy, 3)
        yield match(
            context,
            place,
            f"{_what(context, sleeping)}{where_and_when(context, place)}",
            "waits for input" if sleeping > 0.5 else "prepares input",
            evidence=evidence,
            advice=input_advice(context, place, sleeping, others, RULE.threshold(context, "busy_fraction")),
            removed_least=RULE.threshold(context, "removed_least"),
            asleep_fraction=sleeping,
            spots=hot_functions(context, place.rows, threads if sleeping > 0.5 and threads else None),
        )


def _what(context: RuleContext, sleeping: float) -> str:
    if context.timeline.devices:
        return "the GPU idles for input"
    return "the program waits for input" if sleeping > 0.5 else "the program prepares its input itself"


RULE = Rule(
    id="host-input",
    title="The GPU waits for input",
    group="host",
    cause=Cause.HOST_BLOCKED,
    check=_check,
    thresholds=(
        Threshold("removed_least", 0.5, "fraction", "Twice as many workers halve the wait; storage may not keep up."),
        Threshold("busy_fraction", 0.5, "fraction", "Workers that run less than half of the time wait for something."),
    ),
)
