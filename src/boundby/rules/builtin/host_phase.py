"""A whole phase without GPU work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from boundby.evidence.code_lines import PYTHON_CODE, Hotspot
from boundby.evidence.context import RuleContext
from boundby.evidence.feeders import has_loader, started_processes
from boundby.evidence.host_idleness import Idleness, Place, host_pieces, hot_functions, is_seen, places, slept_on
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
    mostly_in,
    rest_after,
    share_of_window,
    spread,
    unseen_advice,
    verbose,
    where_and_when,
)
from boundby.rules.rule import Match, Rule


class _Phase(Struct, frozen=True):
    """What is on record of what the host does there."""

    spots: Sequence[Hotspot]
    started: tuple[int, ...]  # processes, by their ids
    files: int  # opened
    asleep: float  # share of the time
    is_early: bool

    @property
    def is_asleep(self) -> bool:
        return self.asleep > HALF

    @property
    def waits_for_start(self) -> bool:
        """Whether it sleeps until a process has started."""
        return bool(self.started) and self.is_asleep

    @property
    def is_known(self) -> bool:
        """Whether it is on record what the host does."""
        return bool(self.spots) or self.is_asleep


def _phase(context: RuleContext, place: Place) -> _Phase:
    return _Phase(
        hot_functions(context, place.rows),
        tuple(started_processes(context, host_pieces(context).intervals(place.rows))),
        files_opened(context, place),
        asleep_share(context, place),
        is_early(context, place),
    )


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    phases = places(context, pieces.of_kind(Idleness.PHASE))
    for place, _ in fold(context, phases, lambda place: _kind(_phase(context, place))):
        phase, asleep = _phase(context, place), pieces.asleep(place.rows)
        function = phase.spots[0].short_symbol if mostly_in(phase.spots) else ""
        slept = slept_on(context, asleep) if len(asleep) else {}
        facts = {"slept_on_ns": slept, "processes_started": list(phase.started), "files_opened": phase.files}
        does, remedy = _does(context, phase), _remedy(context, place, phase)
        yield match(
            context,
            place,
            f"the host {does}{_where(phase, slept)}{where_and_when(context, place)}, and the GPU has no work "
            f"({percent(share_of_window(context, place))} of the window)",
            does,
            evidence={key: value for key, value in facts.items() if value},
            advice=_advice(context, place, phase),
            removed_least=HALF,
            asleep_fraction=phase.asleep,
            spots=phase.spots,
            is_beside=remedy == "cpu.overlap",
        ).advising(
            remedy,
            **known(rest=rest_after(context, place), function=function),
            **verbose(context, phase.spots),
        )


def _kind(phase: _Phase) -> tuple[object, ...]:
    """Phases of which all of this is the same are told as one."""
    started = phase.started if phase.is_asleep else ()
    return phase.is_early and not phase.started, started, bool(phase.files), phase.is_known


def _does(context: RuleContext, phase: _Phase) -> str:
    if phase.is_asleep:
        return "waits for a process that starts" if phase.started else "sleeps"
    return "computes" if is_seen(context) else "computes or sleeps"


def _where(phase: _Phase, slept: Mapping[str, int]) -> str:
    """In what it sleeps, in which function or functions most of it is, or that it opens files."""
    if slept and phase.is_asleep:
        return f" (in {next(iter(slept))})"
    if phase.spots:
        return f" in {phase.spots[0].short_symbol}" if mostly_in(phase.spots) else spread(phase.spots)
    return f" and opens {count(phase.files)} files" if phase.files else ""


def _remedy(context: RuleContext, place: Place, phase: _Phase) -> str:
    """The row of the table that fits what the host does there."""
    if phase.waits_for_start and _has_workers(context):
        return "host_blocked.persistent-workers"
    if phase.is_early and (phase.files or phase.is_asleep):
        return "cpu.start-once"
    if not (phase.is_known or phase.files):
        return "cpu.find-host-code"
    return _of_code(context, place, phase.spots)


def _of_code(context: RuleContext, place: Place, spots: Sequence[Hotspot]) -> str:
    """What to do about a phase of code that computes."""
    if not spots or spots[0].symbol == PYTHON_CODE or gpu_works_ns(context) >= HALF * place.total_ns:
        return "cpu.overlap"  # else the GPU works for too little of it to hide it
    if not mostly_in(spots):
        return "cpu.cheaper-code"
    return "cpu.print-less" if verbose(context, spots) else "cpu.vectorise"


def _has_workers(context: RuleContext) -> bool:
    return context.program.is_torch and has_loader(context)


def _starting_advice(context: RuleContext, started: Sequence[int]) -> str:
    """What to do about processes that start, and are waited for."""
    begin = "Processes start here (pids" if len(started) > 1 else "A process starts here (pid"
    what = f"{begin} {', '.join(str(pid) for pid in started[:3])}), and what the program does next waits for it"
    if _has_workers(context):
        return (
            "DataLoader(..., persistent_workers=True) keeps workers from epoch to epoch; iter(loader), called early, "
            f"starts the first ones beside the GPU. {what}"
        )
    return f"Start {'them' if len(started) > 1 else 'it'} once, before the steps. {what}"


def _advice(context: RuleContext, place: Place, phase: _Phase) -> tuple[str, ...]:
    if phase.is_early and not phase.started:
        return early_advice(context, place, phase.files, is_known=phase.is_known)
    return (
        _change(context, place, phase),
        f"If it happens once and the real run is long, measure without it: --window {_beside(context, place)}",
    )


def _change(context: RuleContext, place: Place, phase: _Phase) -> str:
    if phase.waits_for_start:
        return _starting_advice(context, phase.started)
    if not (phase.is_known or phase.files):
        return unseen_advice(context)
    if _remedy(context, place, phase) == "cpu.overlap":
        return "Run it while the GPU works (in a thread or a process, or prepared early), less often, or on the GPU"
    most_ns = gpu_works_ns(context)
    overlap = (
        f": at most {duration(most_ns)} of it can overlap with the GPU's work" if 0 < most_ns < place.total_ns else ""
    )
    return f"Make it cheaper, run it less often, or on the GPU{overlap}"


def _beside(context: RuleContext, place: Place) -> str:
    """The longer part of the window that does not hold it."""
    pieces, devices, window_ns = host_pieces(context), context.timeline.devices, context.longest_window_ns
    begin, end = int(pieces.start_ns[place.rows].min()), int(pieces.end_ns[place.rows].max())
    low, high = min(device.low_ns for device in devices), max(device.high_ns for device in devices)
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
