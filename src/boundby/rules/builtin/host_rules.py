"""The rules on what the program itself does while the GPU idles: work between CUDA calls, a whole phase without GPU
work, operators on the CPU, and a pace set from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

import numpy as np
from msgspec import Struct

from boundby.attribution.regions import ROOT
from boundby.evidence.code_lines import PYTHON_CODE, Hotspot, short_symbol
from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.feeders import has_loader, started_processes
from boundby.evidence.host_idleness import (
    Idleness,
    Place,
    external_pace,
    host_pieces,
    hot_functions,
    is_in_operators,
    is_seen,
    operators_on_cpu,
    places,
    slept_on,
)
from boundby.evidence.initialization import rest_window, warm_regions
from boundby.model import units
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime, any_of
from boundby.model.scale import A_FEW_LINES, HALF, NO_LAUNCH_NS
from boundby.model.units import count, duration
from boundby.results.report import Example
from boundby.rules.builtin._telling import (
    analyze,
    asleep_share,
    begins_one_step,
    early_advice,
    files_opened,
    fold,
    gpu_works_ns,
    host,
    is_annotated,
    is_early,
    known,
    match,
    mostly_in,
    preempted_ns,
    rest_after,
    spread,
    unseen_advice,
    verbose,
    where_and_when,
    while_idle,
)
from boundby.rules.rule import Match, Rule

# Operators that take less than this from launch to launch are the framework's own path, not somebody's loop.
SHORT_NS = NO_LAUNCH_NS
# Operators that hold this share of the time explain it.
MOSTLY = HALF
MOST_NAMED = A_FEW_LINES
_ENGINE = "autograd::engine::evaluate_function: "
DISPATCH = (
    "Use fewer operators (torch.compile), more work in each (a larger batch), or one graph for what repeats: the "
    "framework takes this time between operator and launch (Python, autograd, dispatch)"
)
OF_TORCH = (
    "Use fewer operators with more work in each (torch.compile, a larger batch, foreach=True or fused=True in the "
    "optimizer), and run on the GPU what runs on the CPU: the time is PyTorch's own for each operator, not a loop of "
    "the program"
)
OF_SERVER = (
    "Use CUDA graphs, which leave out most of it, or steps of more requests, which pay for it once for all of them: it "
    "is the server's own code, between one launch and the next"
)

SLOWED = (
    "Time a step without the profiler before you change anything: the recording is part of this time, since "
    "record_shapes, profile_memory and with_stack slow every operator"
)


def _host_work(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    rows = pieces.of_kind(Idleness.WORK)
    is_warm = warm_regions(context)[pieces.region[rows]]
    yield from _matches(context, rows[~is_warm], in_warm_up=False)
    yield from _matches(context, rows[is_warm], in_warm_up=True)


class _Work(Enum):
    """What the host's own work at a place is, as far as it decides what to do about it."""

    WARM_UP = auto()
    SERVER = auto()
    DISPATCH = auto()
    ENGINE = auto()  # torch's own, which works off what the program asked for
    NAMED = auto()  # in one function
    PRINTS = auto()  # in one function that prints, as the program was told to
    SPREAD = auto()  # over functions of which none holds half of the samples
    SPREAD_ALONE = auto()  # likewise, where no GPU works that it could run beside
    UNSEEN = auto()
    UNNAMED = auto()  # likewise, though samples are on record: too few, or of Python code without its lines


_REMEDIES = {
    _Work.WARM_UP: "init.after-warm-up",
    _Work.SERVER: "cpu.fewer-operators",
    _Work.DISPATCH: "cpu.fewer-operators",
    _Work.ENGINE: "cpu.fewer-operators",
    _Work.NAMED: "cpu.vectorise",
    _Work.PRINTS: "cpu.print-less",
    _Work.SPREAD: "cpu.overlap",
    _Work.SPREAD_ALONE: "cpu.cheaper-code",
    _Work.UNSEEN: "cpu.find-host-code",
    _Work.UNNAMED: "cpu.cheaper-code",
}
_OF_FRAMEWORK = {_Work.SERVER: (OF_SERVER, SLOWED), _Work.DISPATCH: (DISPATCH, SLOWED), _Work.ENGINE: (OF_TORCH,)}


def _matches(context: RuleContext, rows: Rows, *, in_warm_up: bool) -> Iterator[Match]:
    """What warm-up regions hold (by their names) is a note: the program does it once, and knows so."""
    by_name = "during set-up or warm-up, " if in_warm_up else ""
    for place, hot in fold(context, places(context, rows), lambda place: mostly_in(hot_functions(context, place.rows))):
        spots = hot_functions(context, place.rows)
        inside = "" if spots or in_warm_up else _operators(context, place)
        waiting_ns = 0 if in_warm_up else preempted_ns(context, place)
        own_ns = place.total_ns - waiting_ns
        if own_ns < context.least_ns:
            continue  # it hardly runs: see preempted
        core = f"; for {duration(waiting_ns)} of this it waits for a core" if waiting_ns > own_ns // 10 else ""
        does = _work_does(context, core)
        work = _Work.WARM_UP if in_warm_up else _work(context, place, hot, spots, inside)
        yield match(
            context,
            place,
            f"{by_name}{host(context, place)} {does}{while_idle(context)}{where_and_when(context, place)}"
            f"{_mostly(hot, inside, spots)}{core}",
            does,
            evidence={},
            advice=_advice_on(context, place, work, hot, spots),
            removed_least=None if in_warm_up else HALF,
            waiting_ns=waiting_ns,
            spots=spots,
            is_beside=work == _Work.SPREAD,
        ).advising(
            _REMEDIES[work],
            **known(rest=_rest(context, place, in_warm_up=in_warm_up), function=spots[0].short_symbol if hot else ""),
            **verbose(context, spots),
        )


def _work_does(context: RuleContext, core: str) -> str:
    """``core``: how long of it the host only could work."""
    if is_seen(context):
        return "is in its own code" if core else "computes"
    return "works in PyTorch operators or between them" if is_in_operators(context) else "runs its own code or sleeps"


def _rest(context: RuleContext, place: Place, *, in_warm_up: bool) -> str:
    return (rest_window(context) if in_warm_up else "") or rest_after(context, place)


def _mostly(hot: str, inside: str, spots: Sequence[Hotspot]) -> str:
    """``, mostly in parse``: the function, else the operators, else the functions that most of it is in."""
    if hot:
        return f", mostly in {hot}"
    return f"; by operator: {inside}" if inside else spread(spots)


def _work(context: RuleContext, place: Place, hot: str, spots: Sequence[Hotspot], inside: str) -> _Work:
    """``hot``: the function that holds most samples; ``inside``: the operators that hold the time, where none does."""
    if context.program.is_server:
        return _Work.SERVER
    if inside:
        return _Work.DISPATCH if place.total_ns <= SHORT_NS * place.times else _Work.ENGINE
    if hot and (spots[0].is_engine or spots[0].is_of_torch):
        return _Work.ENGINE
    return _by_samples(context, hot, spots)


def _by_samples(context: RuleContext, hot: str, spots: Sequence[Hotspot]) -> _Work:
    """What the samples show of work that is no library's."""
    if hot and hot != short_symbol(PYTHON_CODE):
        return _Work.PRINTS if verbose(context, spots) else _Work.NAMED
    if hot or not spots:
        return _Work.UNNAMED if context.trace.captured.cpu_samples else _Work.UNSEEN
    return _Work.SPREAD if context.timeline.devices else _Work.SPREAD_ALONE


def _operators(context: RuleContext, place: Place) -> str:
    """``aten::conv2d 31.0 ms, aten::addmm 12.0 ms``: the framework's operators that make the calls which end most of
    this time; empty where that is not told."""
    if not context.trace.is_told_by_frames:
        return ""
    pieces, operators = host_pieces(context), context.operators
    rows = place.rows[pieces.call[place.rows] >= 0]
    length, outermost = (pieces.end_ns - pieces.start_ns)[rows], operators.outermost[pieces.call[rows]]
    total = np.bincount(outermost + 1, length, len(operators.names) + 1)[1:]
    if total.sum() < MOSTLY * place.total_ns:
        return ""
    longest = np.lexsort((np.arange(len(total)), -total))[:MOST_NAMED]
    named = (
        (operators.names[number].removeprefix(_ENGINE), total[number]) for number in longest.tolist() if total[number]
    )
    return ", ".join(f"{name} {duration(ns)}" for name, ns in named)


def _warm_advice(context: RuleContext, place: Place) -> tuple[str, ...]:
    rest = rest_window(context) or rest_after(context, place)
    once = "this happens once, before the measured part, and later steps do not pay for it"
    return (
        f"Look at the rest: {analyze(rest)}" if rest else "Record a longer run",
        f"{once[:1].upper()}{once[1:]}",
    )


def _advice_on(context: RuleContext, place: Place, work: _Work, hot: str, spots: Sequence[Hotspot]) -> tuple[str, ...]:
    if work == _Work.WARM_UP:
        return _warm_advice(context, place)
    if is_early(context, place):
        return early_advice(context, place, files_opened(context, place), is_known=bool(hot))
    if work in _OF_FRAMEWORK:
        return _OF_FRAMEWORK[work]
    if work in (_Work.UNSEEN, _Work.UNNAMED):
        of_range = context.tree.name[place.region] if is_annotated(context, place.region) else ""
        return (unseen_advice(context, is_python=bool(hot), of_range=of_range),)
    if work == _Work.SPREAD:
        most_ns = gpu_works_ns(context)
        limit = f": that hides no more than {duration(most_ns)} of it" if most_ns < place.total_ns else ""
        return _callers(context), f"Run it in another thread while the GPU works{limit}"
    return (*((_callers(context),) if work == _Work.SPREAD_ALONE else ()), _work_advice(context, place, hot, spots))


def _callers(context: RuleContext) -> str:
    """What shows who calls the many functions that samples fall into."""
    profile = context.program.pick("perf record -g", torch="py-spy record --native", python="py-spy record --native")
    return f"See with {profile} what calls these functions"


def _work_advice(context: RuleContext, place: Place, hot: str, spots: Sequence[Hotspot]) -> str:
    what, rest = hot or "this code", "let several threads share what remains"
    if context.program.is_python:
        rest = "call it less often, on more data at once" if hot and spots[0].is_compiled else "vectorise loops in it"
    if not context.timeline.devices:
        return f"Make {what} cheaper: compute once what does not change, {rest}, or move it to a GPU"
    is_hidden = gpu_works_ns(context) >= HALF * place.total_ns
    beside = ", or in another thread while the GPU works" if is_hidden else ""
    return f"Compute {what} on the GPU, or once before the loop{beside}; {rest}"


HOST_WORK = Rule(
    id="host-work",
    title="CPU work while the GPU idles",
    group="host",
    cause=Cause.CPU,
    check=_host_work,
)


_NEXT_STEP = "cpu.overlap-next-step"
_BESIDE = ("cpu.overlap", _NEXT_STEP)


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


def _host_phase(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    phases = places(context, pieces.of_kind(Idleness.PHASE))
    for place, _ in fold(context, phases, lambda place: _kind(_phase(context, place))):
        phase, asleep = _phase(context, place), pieces.asleep(place.rows)
        function = phase.spots[0].short_symbol if mostly_in(phase.spots) else ""
        slept = slept_on(context, asleep) if len(asleep) else {}
        facts = {"slept_on_ns": slept, "processes_started": list(phase.started), "files_opened": phase.files}
        does, remedy = _phase_does(context, phase), _phase_remedy(context, place, phase)
        yield match(
            context,
            place,
            f"{host(context, place)} {does}{_where(phase, slept)}{where_and_when(context, place)}, and the GPU has "
            "no work",
            does,
            evidence={key: value for key, value in facts.items() if value},
            advice=_phase_advice(context, place, phase),
            removed_least=HALF,
            asleep_fraction=phase.asleep,
            spots=phase.spots,
            is_beside=remedy in _BESIDE,
        ).advising(
            remedy,
            **known(rest=rest_after(context, place), function=function),
            **verbose(context, phase.spots),
        )


def _kind(phase: _Phase) -> tuple[object, ...]:
    """Phases of which all of this is the same are told as one."""
    started = phase.started if phase.is_asleep else ()
    return phase.is_early and not phase.started, started, bool(phase.files), phase.is_known


def _phase_does(context: RuleContext, phase: _Phase) -> str:
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


def _phase_remedy(context: RuleContext, place: Place, phase: _Phase) -> str:
    """The row of the table that fits what the host does there."""
    if phase.waits_for_start and _has_workers(context):
        return f"host_blocked.{'persistent-workers' if place.times > 1 else 'start-workers-early'}"
    if phase.is_early and (phase.files or phase.is_asleep):
        return "cpu.start-once"
    if not (phase.is_known or phase.files):
        return _REMEDIES[_Work.UNNAMED if context.trace.captured.cpu_samples else _Work.UNSEEN]
    return _of_code(context, place, phase.spots)


def _of_code(context: RuleContext, place: Place, spots: Sequence[Hotspot]) -> str:
    """What to do about a phase of code that computes."""
    if not spots or spots[0].symbol == PYTHON_CODE or gpu_works_ns(context) >= HALF * place.total_ns:
        return _NEXT_STEP if begins_one_step(context, place) else "cpu.overlap"  # else the GPU hides too little of it
    if not mostly_in(spots):
        return "cpu.cheaper-code"
    return "cpu.print-less" if verbose(context, spots) else "cpu.vectorise"


def _has_workers(context: RuleContext) -> bool:
    return context.program.is_torch and has_loader(context)


def _starting_advice(context: RuleContext, place: Place, started: Sequence[int]) -> str:
    """What to do about processes that start, and are waited for."""
    is_one = len(started) == 1
    begin = "a process starts here (pid" if is_one else "processes start here (pids"
    what = (
        f"{begin} {', '.join(str(pid) for pid in started[:3])}), and the program waits for {'it' if is_one else 'them'}"
    )
    if _has_workers(context) and place.times > 1:
        return f"Keep the workers from epoch to epoch, by DataLoader(..., persistent_workers=True): {what}"
    if _has_workers(context):
        return f"Start the loader's workers earlier, by iter(loader) while the GPU works: {what}"
    return f"Start {'it' if is_one else 'them'} once, before the steps: {what}"


def _phase_advice(context: RuleContext, place: Place, phase: _Phase) -> tuple[str, ...]:
    if phase.is_early and not phase.started:
        return early_advice(context, place, phase.files, is_known=phase.is_known)
    change = _change(context, place, phase)
    if len(place.rows) > 1:
        return (change,)
    return change, f"If the real run is long, measure without it: --window {_beside(context, place)}"


def _change(context: RuleContext, place: Place, phase: _Phase) -> str:
    if phase.waits_for_start:
        return _starting_advice(context, place, phase.started)
    if not (phase.is_known or phase.files):
        return unseen_advice(context)
    if _phase_remedy(context, place, phase) in _BESIDE:
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


HOST_PHASE = Rule(
    id="host-phase",
    title="A whole phase on the CPU",
    group="host",
    causes=(Cause.CPU, Cause.HOST_BLOCKED, Cause.INIT),
    check=_host_phase,
    needs=("cuda_api",),
)


def _operator_on_cpu(context: RuleContext) -> Iterator[Match]:
    if not any(name.startswith("aten::") for name in context.trace.names):
        raise CannotCheckError("the trace holds no operator ranges (boundby profile --torch-ops adds them)")
    rows, ranges = operators_on_cpu(context), context.trace.ranges
    if not len(rows):
        return
    gaps = any_of(device.gaps.intervals for device in context.timeline.devices)
    start, end = ranges.start_ns[rows], ranges.end_ns[rows]
    exposed = CoveredTime(gaps).within(start, end)
    total = int(exposed.sum())
    if total < context.least_ns:
        return
    region = context.tree.of_range[rows]
    names = [context.tree.name[number] for number in region.tolist()]
    by_name: dict[str, tuple[int, int]] = {}
    for name, ns in zip(names, exposed.tolist(), strict=True):
        before = by_name.get(name, (0, 0))
        by_name[name] = (before[0] + 1, before[1] + ns)
    largest = sorted(by_name.items(), key=lambda item: (-item[1][1], item[0]))
    listed = ", ".join(f"{name} {duration(ns)} ({times:,} x)" for name, (times, ns) in largest[:3])
    longest = np.argsort(-exposed, kind="stable")[:3].tolist()
    saving = context.saving((Cause.CPU.key,), regions=np.isin(np.arange(len(context.tree)), region))
    yield Match(
        context.place(context.tree.parent[region], exposed),
        f"operators compute on the CPU while the GPU idles, {duration(total)} in all: {listed}",
        {"operators": {name: ns for name, (_, ns) in largest[:10]}, "idle_ns": total, "calls": len(rows)},
        None if saving is None else (round(HALF * saving[0]), saving[1]),  # kernels take their place
        (
            "Move their inputs to the device before: x = x.to('cuda', non_blocking=True), or create them there; the "
            "operators then run as kernels",
            "Where the data have to stay on the host: in DataLoader workers, beside the GPU's work",
        ),
        tuple(Example(int(start[row]), int(end[row] - start[row]), f"{names[row]} on the CPU") for row in longest),
        instances=len(rows),
        cost_ns=total,
    )


OPERATOR_ON_CPU = Rule(
    id="operator-on-cpu",
    title="Operators compute on the CPU in a GPU program",
    group="host",
    cause=Cause.CPU,
    check=_operator_on_cpu,
    needs=("kernels", "cuda_api", "nvtx"),
)


def _external_pace(context: RuleContext) -> Iterator[Match]:
    pace = external_pace(context)
    if pace is None:
        return
    thread, busiest = (context.trace.threads[number] for number in (pace.thread, pace.busiest))
    region = context.timeline.step_region
    where = "" if region is None else f" in all, in {units.place(context.path(region))}"
    yield Match(
        region=ROOT if region is None else region,
        title=f"work arrives every {duration(pace.period_ns)} ({count(pace.periods)} times{where}; thread "
        f"{thread.name or thread.tid} wakes for it). In that time the GPU works {duration(pace.gpu_ns)}, and the "
        f"busiest thread, {busiest.name or busiest.tid}, {duration(pace.host_ns)}. A faster program would only wait "
        "longer",
        evidence={
            "period_ns": pace.period_ns,
            "periods": pace.periods,
            "gpu_ns_of_each": pace.gpu_ns,
            "busiest_thread_ns_of_each": pace.host_ns,
            "thread": thread.tid,
        },
        saving_ns=None,
        advice=(
            "Use a faster source, or several, for more throughput. For lower latency, look at one period alone, from "
            "the arrival to the end of its GPU work",
        ),
        examples=(Example(pace.low_ns, pace.high_ns - pace.low_ns, "from the first arrival to the last"),),
        severity="low",
        instances=pace.periods,
    )


EXTERNAL_PACE = Rule(
    id="external-pace",
    title="Work arrives at a pace set outside of the program",
    group="host",
    cause=Cause.HOST_BLOCKED,
    check=_external_pace,
    needs=("cuda_api", "cpu_scheduling"),
)
