"""A whole phase without GPU work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.evidence.context import RuleContext
from boundby.evidence.feeders import has_loader, started_processes
from boundby.evidence.host_idleness import Idleness, Place, host_pieces, hot_functions, is_seen, places, slept_on
from boundby.evidence.hotspots import PYTHON_CODE
from boundby.model.causes import Cause
from boundby.model.scale import HALF
from boundby.model.units import count, duration, percent
from boundby.rules.builtin._telling import (
    asleep_share,
    early_advice,
    files_opened,
    fold,
    gpu_works_ns,
    is_early,
    known,
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
    for place, _ in fold(context, phases, lambda place: _kind(context, place)):
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
        remedy = _remedy(context, place)
        yield match(
            context,
            place,
            f"the host {does}{on}{where_and_when(context, place)}, and the GPU has no work "
            f"({percent(share_of_window(context, place))} of the window)",
            does,
            evidence=evidence,
            advice=_advice(context, place),
            removed_least=HALF,
            asleep_fraction=sleeping,
            spots=spots,
            is_beside=remedy == "cpu.overlap",
        ).advising(
            remedy,
            **known(rest=rest_after(context, place), function=spots[0].short_symbol if spots else ""),
        )


def _kind(context: RuleContext, place: Place) -> tuple[object, ...]:
    """Places of which all of this is the same are told as one."""
    started = tuple(started_processes(context, host_pieces(context).intervals(place.rows)))
    files, is_asleep = files_opened(context, place), asleep_share(context, place) > 0.5
    is_known = bool(hot_functions(context, place.rows)) or is_asleep
    return is_early(context, place) and not started, started if is_asleep else (), bool(files), is_known


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
    spots = hot_functions(context, place.rows)
    if not (spots or is_asleep or files):
        return "cpu.find-host-code"
    if spots and spots[0].symbol != PYTHON_CODE and gpu_works_ns(context) < HALF * place.total_ns:
        return "cpu.vectorise"  # the GPU works for too little of it to hide it
    return "cpu.overlap"


def _starting_advice(context: RuleContext, started: Sequence[int]) -> str:
    """What to do about processes that start, and are waited for."""
    begin = "Processes start here (pids" if len(started) > 1 else "A process starts here (pid"
    what = f"{begin} {', '.join(str(pid) for pid in started[:3])}), and what the program does next waits for it"
    if context.program.is_torch and has_loader(context):
        return (
            "DataLoader(..., persistent_workers=True) keeps workers from epoch to epoch; iter(loader), called early, "
            f"starts the first ones beside the GPU. {what}"
        )
    return f"{what}: start it once, before the steps"


def _advice(context: RuleContext, place: Place) -> tuple[str, ...]:
    started = started_processes(context, host_pieces(context).intervals(place.rows))
    first: tuple[str, ...] = ()
    files, is_asleep = files_opened(context, place), asleep_share(context, place) > 0.5
    is_known = bool(hot_functions(context, place.rows)) or is_asleep
    if is_early(context, place) and not started:
        return early_advice(context, place, files, is_known=is_known)
    if started and is_asleep:
        first = (_starting_advice(context, started),)
    if not (first or is_known or files):
        first = (unseen_advice(context),)
    elif not first and _remedy(context, place) == "cpu.vectorise":
        first = (
            f"Make it cheaper, run it less often, or on the GPU: at most {duration(most)} of it can overlap with the "
            "GPU's work"
            if (most := gpu_works_ns(context))
            else "Make it cheaper, run it less often, or on the GPU",
        )
    elif not first:
        first = ("Run it while the GPU works (in a thread or a process, or prepared early), less often, or on the GPU",)
    return (
        *first,
        f"If it happens once and the real run is long, measure without it: --window {_beside(context, place)}",
    )


def _beside(context: RuleContext, place: Place) -> str:
    """The longer part of the window that does not hold it."""
    pieces, devices, window_ns = host_pieces(context), context.timeline.devices, context.longest_window_ns
    begin, end = int(pieces.start_ns[place.rows].min()), int(pieces.end_ns[place.rows].max())
    low, high = min(one.low_ns for one in devices), max(one.high_ns for one in devices)
    is_late = begin - low > high - end
    return f":{context.instant(begin, window_ns)}" if is_late else f"{context.instant(end, window_ns)}:"


RULE = Rule(
    id="host-phase",
    title="A whole phase on the CPU",
    group="host",
    causes=(Cause.CPU, Cause.HOST_BLOCKED, Cause.INIT),
    check=_check,
    needs=("cuda_api",),
)
