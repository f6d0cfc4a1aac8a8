"""A whole phase without GPU work."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import scaled
from boundby.evidence.feeders import started_processes
from boundby.evidence.host_idleness import (
    PHASE,
    HostPieces,
    Place,
    examples,
    host_pieces,
    hot_functions,
    is_seen,
    named,
    places,
    saving,
    short_symbol,
    slept_on,
)
from boundby.model.causes import Cause
from boundby.model.units import percent
from boundby.rules.builtin._telling import fold, named_places, where_and_when
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    found = places(context, pieces, pieces.of_kind(PHASE))
    for folded, key in fold(context, pieces, found, lambda place: _advice(context, pieces, place)):
        place = folded.place
        asleep = place.rows[pieces.cause[place.rows] == Cause.HOST_BLOCKED]
        sleeping = pieces.total_ns(asleep) / max(place.total_ns, 1)
        spots = hot_functions(context, pieces, place.rows)
        slept = slept_on(context, pieces, asleep) if len(asleep) else {}
        started = started_processes(context, pieces.intervals(place.rows))
        evidence: dict[str, object] = {
            "idle_ns": place.total_ns,
            "count": place.times,
            "share_of_window_fraction": round(place.total_ns / max(context.window_ns, 1), 4),
            "host_asleep_fraction": round(sleeping, 3),
        }
        if not folded.is_one:
            evidence["places"] = named_places(context, pieces, folded)
        if slept:
            evidence["slept_on_ns"] = slept
        if started:
            evidence["processes_started"] = started
        if spots:
            evidence["hottest_functions"] = named(spots)
        does = "sleeps" if sleeping > 0.5 else "computes" if is_seen(context) else "computes or sleeps"
        if started and sleeping > 0.5:
            does = "waits for a process that starts"
        on = f" ({next(iter(slept))})" if slept and sleeping > 0.5 else ""
        if not on and spots:
            on = f" ({short_symbol(spots[0].symbol)})"
        yield Match(
            region=place.region,
            title=f"a phase without GPU work, the host {does}{on}{where_and_when(context, pieces, folded)}, "
            f"{percent(place.total_ns / max(context.window_ns, 1))} of the window",
            evidence=evidence,
            saving_ns=scaled(saving(context, pieces, place), RULE.threshold(context, "removed_least"), 1.0),
            advice=tuple(str(line) for line in key) if isinstance(key, tuple) else (),
            examples=examples(context, pieces, place.rows, does),
            instances=place.times,
            cost_ns=place.total_ns,
        )


def _advice(context: RuleContext, pieces: HostPieces, place: Place) -> tuple[str, ...]:
    started = started_processes(context, pieces.intervals(place.rows))
    first: tuple[str, ...] = ()
    if started:
        pids = f"pid{'s' if len(started) > 1 else ''} {', '.join(str(pid) for pid in started[:3])}"
        what = f"{'Processes start' if len(started) > 1 else 'A process starts'} here ({pids})"
        first = (
            "DataLoader(..., persistent_workers=True) keeps workers from epoch to epoch; iter(loader), called early, "
            f"starts the first ones beside the GPU. {what}, and what the program does next waits for it"
            if context.is_python
            else f"{what}, and what the program does next waits for it: start it once, before the steps",
        )
    usual = "starting workers, building indexes and metrics" if context.is_python else "files, building indexes"
    return (
        *first,
        "Let it run beside the GPU (a thread, a process, what comes next prepared early), less often, or on the GPU: "
        f"evaluation, checkpoints, {usual} are the usual ones",
        "If it happens once and the real run is long, leave it out of the picture: --window nvtx:NAME or --skip-first",
    )


RULE = Rule(
    id="host-phase",
    title="A whole phase on the CPU",
    group="host",
    check=_check,
    needs=("cuda_api",),
    thresholds=(
        Threshold("removed_least", 0.5, "fraction", "Run beside the GPU, some of it usually stays on the path."),
    ),
)
