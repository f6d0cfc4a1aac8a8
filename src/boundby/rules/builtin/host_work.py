"""CPU work between CUDA calls, while the GPU idles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto

import numpy as np

from boundby.evidence.code_lines import PYTHON_CODE, Hotspot, short_symbol
from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.host_idleness import (
    Idleness,
    Place,
    host_pieces,
    hot_functions,
    is_in_operators,
    is_seen,
    places,
)
from boundby.evidence.initialization import rest_window, warm_regions
from boundby.model.causes import Cause
from boundby.model.scale import A_FEW_LINES, HALF, NO_LAUNCH_NS
from boundby.model.units import duration
from boundby.rules.builtin._telling import (
    early_advice,
    files_opened,
    fold,
    gpu_works_ns,
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
    "Use fewer operators (torch.compile, a larger batch), or one CUDA graph for what repeats: the framework takes this "
    "time between operator and launch (Python, autograd, dispatch)"
)
OF_TORCH = (
    "Use fewer, larger operators (torch.compile, a larger batch, foreach=True or fused=True in the optimizer), and run "
    "on the GPU what runs on the CPU: the time is PyTorch's own for each operator, not a loop of the program"
)
OF_SERVER = (
    "Use CUDA graphs, which leave out most of it, or steps of more requests, which pay for it once for all of them: it "
    "is the server's own code, between one launch and the next"
)

SLOWED = (
    "Time a step without the profiler before you change anything: the recording is part of this time, since "
    "record_shapes, profile_memory and with_stack slow every operator"
)


def _check(context: RuleContext) -> Iterator[Match]:
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
}
_OF_FRAMEWORK = {_Work.SERVER: (OF_SERVER, SLOWED), _Work.DISPATCH: (DISPATCH, SLOWED), _Work.ENGINE: (OF_TORCH,)}


def _matches(context: RuleContext, rows: Rows, *, in_warm_up: bool) -> Iterator[Match]:
    """What warm-up regions hold (by their names) is a note: the program does it once, and knows so."""
    does = _does(context)
    by_name = "in regions named as set-up or warm-up, " if in_warm_up else ""
    for place, hot in fold(context, places(context, rows), lambda place: mostly_in(hot_functions(context, place.rows))):
        spots = hot_functions(context, place.rows)
        inside = "" if spots or in_warm_up else _operators(context, place)
        waiting_ns = 0 if in_warm_up else preempted_ns(context, place)
        own_ns = place.total_ns - waiting_ns
        if own_ns < context.least_ns:
            continue  # it hardly runs: see preempted
        core = f", {duration(waiting_ns)} of which it waits for a core" if waiting_ns > own_ns // 10 else ""
        work = _Work.WARM_UP if in_warm_up else _work(context, place, hot, spots, inside)
        yield match(
            context,
            place,
            f"{by_name}the host {does}{while_idle(context)}{where_and_when(context, place)}{core}"
            f"{_mostly(hot, inside, spots)}",
            does,
            evidence={},
            advice=_advice_on(context, place, work, hot),
            removed_least=None if in_warm_up else HALF,
            waiting_ns=waiting_ns,
            spots=spots,
            is_beside=work == _Work.SPREAD,
        ).advising(
            _REMEDIES[work],
            **known(rest=_rest(context, place, in_warm_up=in_warm_up), function=spots[0].short_symbol if hot else ""),
            **verbose(context, spots),
        )


def _does(context: RuleContext) -> str:
    if is_seen(context):
        return "computes"
    return "works in operators" if is_in_operators(context) else "runs its own code (or sleeps: not captured)"


def _rest(context: RuleContext, place: Place, *, in_warm_up: bool) -> str:
    return (rest_window(context) if in_warm_up else "") or rest_after(context, place)


def _mostly(hot: str, inside: str, spots: Sequence[Hotspot]) -> str:
    """``, mostly in parse``: the function, else the operators, else the functions that most of it is in."""
    if hot:
        return f", mostly in {hot}"
    return f"; the longest: {inside}" if inside else spread(spots)


def _work(context: RuleContext, place: Place, hot: str, spots: Sequence[Hotspot], inside: str) -> _Work:
    """``hot``: the function that holds most samples; ``inside``: the operators that hold the time, where none does."""
    if context.program.is_server:
        return _Work.SERVER
    if inside:
        return _Work.DISPATCH if place.total_ns <= SHORT_NS * place.times else _Work.ENGINE
    if hot:
        if spots[0].is_engine or hot == short_symbol(PYTHON_CODE):
            return _Work.ENGINE if spots[0].is_engine else _Work.UNSEEN
        return _Work.PRINTS if verbose(context, spots) else _Work.NAMED
    if not spots:
        return _Work.UNSEEN
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
        f"Look at the rest: boundby analyze {rest}" if rest else "Record a longer run",
        f"{once[:1].upper()}{once[1:]}",
    )


def _advice_on(context: RuleContext, place: Place, work: _Work, hot: str) -> tuple[str, ...]:
    if work == _Work.WARM_UP:
        return _warm_advice(context, place)
    if is_early(context, place):
        return early_advice(context, place, files_opened(context, place), is_known=bool(hot))
    if work in _OF_FRAMEWORK:
        return _OF_FRAMEWORK[work]
    if work == _Work.UNSEEN:
        of_range = context.tree.name[place.region] if is_annotated(context, place.region) else ""
        return (unseen_advice(context, is_python=bool(hot), of_range=of_range),)
    if work == _Work.SPREAD:
        most_ns = gpu_works_ns(context)
        limit = f": that hides no more than {duration(most_ns)} of it" if most_ns < place.total_ns else ""
        return _callers(context), f"Run it in another thread while the GPU works{limit}"
    return (*((_callers(context),) if work == _Work.SPREAD_ALONE else ()), _advice(context, hot))


def _callers(context: RuleContext) -> str:
    """What shows who calls the many functions that samples fall into."""
    profile = context.program.pick("perf record -g", torch="py-spy record --native", python="py-spy record --native")
    return f"Find out with {profile} what calls these functions: none of them holds half of the samples"


def _advice(context: RuleContext, hot: str) -> str:
    what = hot or "this code"
    rest = (
        "vectorise the rest instead of looping in Python"
        if context.program.is_python
        else "let several threads share what remains"
    )
    if context.timeline.devices:
        return f"Compute {what} on the GPU, once before the loop, or in another thread while the GPU works; {rest}"
    return (
        f"Make {what} cheaper: compute once what does not change, move what is done to many elements to the GPU; {rest}"
    )


RULE = Rule(
    id="host-work",
    title="CPU work while the GPU idles",
    group="host",
    cause=Cause.CPU,
    check=_check,
)
