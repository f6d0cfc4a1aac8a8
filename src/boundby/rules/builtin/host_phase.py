"""A whole phase without GPU work."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.feeders import has_loader, started_processes
from boundby.evidence.host_idleness import Idleness, Place, host_pieces, hot_functions, is_seen, places, slept_on
from boundby.model.causes import Cause
from boundby.model.scale import HALF
from boundby.model.units import count, percent
from boundby.rules.builtin._telling import (
    asleep_share,
    early_advice,
    files_opened,
    fold,
    is_early,
    match,
    rest_after,
    share_of_window,
    unseen_advice,
    where_and_when,
)
from boundby.rules.rule import Match, Rule


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    phases = places(context, pieces.of_kind(Idleness.PHASE))
    for place, advice in fold(context, phases, lambda place: _advice(context, place)):
        asleep, sleeping = pieces.asleep(place.rows), asleep_share(context, place)
        spots = hot_functions(context, place.rows)
        slept = slept_on(context, asleep) if len(asleep) else {}
        started = started_processes(context, pieces.intervals(place.rows))
        evidence: dict[str, object] = {"slept_on_ns": slept} if slept else {}
        if started:
            evidence["processes_started"] = started
        does = _does(context, is_asleep=sleeping > 0.5, starts=bool(started))
        files = files_opened(context, place)
        if files:
            evidence["files_opened"] = files
        on = f" in {spots[0].short_symbol}" if spots else f" and opens {count(files)} files" if files else ""
        if slept and sleeping > 0.5:
            on = f" (in {next(iter(slept))})"
        yield match(
            context,
            place,
            f"the host {does}{on}{where_and_when(context, place)}, and the GPU has no work "
            f"({percent(share_of_window(context, place))} of the window)",
            does,
            evidence=evidence,
            advice=advice,
            removed_least=HALF,
            asleep_fraction=sleeping,
            spots=spots,
        ).advising(_remedy(context, place), rest=rest_after(context, place))


def _does(context: RuleContext, *, is_asleep: bool, starts: bool) -> str:
    if is_asleep:
        return "waits for a process that starts" if starts else "sleeps"
    return "computes" if is_seen(context) else "computes or sleeps"


def _remedy(context: RuleContext, place: Place) -> str:
    """The row of the table that fits what the host does there."""
    files, is_asleep = files_opened(context, place), asleep_share(context, place) > 0.5
    started = started_processes(context, host_pieces(context).intervals(place.rows))
    if started and is_asleep and context.program.is_torch and has_loader(context):
        return "host_blocked.persistent-workers"
    if is_early(context, place) and (files or is_asleep):
        return "cpu.start-once"
    is_known = bool(hot_functions(context, place.rows)) or is_asleep or bool(files)
    return "cpu.overlap" if is_known else "cpu.find-host-code"


def _advice(context: RuleContext, place: Place) -> tuple[str, ...]:
    started = started_processes(context, host_pieces(context).intervals(place.rows))
    first: tuple[str, ...] = ()
    files, is_asleep = files_opened(context, place), asleep_share(context, place) > 0.5
    is_known = bool(hot_functions(context, place.rows)) or is_asleep
    if is_early(context, place) and not started:
        return early_advice(context, place, files, is_known=is_known)
    if started and is_asleep:
        pids = f"pid{'s' if len(started) > 1 else ''} {', '.join(str(pid) for pid in started[:3])}"
        what = f"{'Processes start' if len(started) > 1 else 'A process starts'} here ({pids})"
        first = (
            "DataLoader(..., persistent_workers=True) keeps workers from epoch to epoch; iter(loader), called early, "
            f"starts the first ones beside the GPU. {what}, and what the program does next waits for it"
            if context.program.is_torch and has_loader(context)
            else f"{what}, and what the program does next waits for it: start it once, before the steps",
        )
    if not (first or is_known or files):
        first = (unseen_advice(context),)
    return (
        *first,
        "Let it run beside the GPU (a thread, a process, what comes next prepared early), less often, or on the GPU",
        "If it happens once and the real run is long, leave it out of the picture: --window nvtx:NAME, or START:END",
    )


RULE = Rule(
    id="host-phase",
    title="A whole phase on the CPU",
    group="host",
    causes=(Cause.CPU, Cause.HOST_BLOCKED, Cause.INIT),
    check=_check,
    needs=("cuda_api",),
)
