"""CPU work between CUDA calls, while the GPU idles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from boundby.attribution.regions import ROOT
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
from boundby.evidence.hotspots import PYTHON_CODE, Hotspot, short_symbol
from boundby.evidence.initialization import rest_window, warm_regions
from boundby.model.causes import Cause
from boundby.model.scale import A_FEW_LINES, HALF, NO_LAUNCH_NS, NOTABLE
from boundby.model.units import duration, percent
from boundby.rules.builtin._telling import (
    early_advice,
    files_opened,
    fold,
    is_early,
    match,
    preempted_ns,
    rest_after,
    unseen_advice,
    where_and_when,
    while_idle,
)
from boundby.rules.rule import Match, Rule
from boundby.structure.found import is_found

# Operators that take less than this from launch to launch are the framework's own path, not somebody's loop.
SHORT_NS = NO_LAUNCH_NS
# Operators that hold this share of the time explain it.
MOSTLY = HALF
MOST_NAMED = A_FEW_LINES
# A function with fewer of the samples says nothing.
NAMED = NOTABLE
_ENGINE = "autograd::engine::evaluate_function: "
DISPATCH = (
    "The framework takes this time between operator and launch (Python, autograd, dispatch). Use fewer operators "
    "(torch.compile, a larger batch), or one CUDA graph for what repeats"
)
OF_TORCH = (
    "torch works off there what it was told: no line of the program is a loop to vectorise. Fewer operators shorten "
    "it: torch.compile, a larger batch, foreach=True or fused=True in the optimizer; what runs on the CPU, on the GPU"
)
OF_SERVER = (
    "It is the server's own code, between one launch and the next: CUDA graphs leave out most of it, and a step of "
    "more requests pays for it once for all of them"
)

SLOWED = (
    "The recording is part of it: record_shapes, profile_memory and with_stack slow every operator down. Time a step "
    "without the profiler before changing anything"
)


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    rows = pieces.of_kind(Idleness.WORK)
    is_warm = warm_regions(context)[pieces.region[rows]]
    yield from _matches(context, rows[~is_warm], in_warm_up=False)
    yield from _matches(context, rows[is_warm], in_warm_up=True)


def _matches(context: RuleContext, rows: Rows, *, in_warm_up: bool) -> Iterator[Match]:
    """What warm-up regions hold (by their names) is a note: the program does it once, and knows so."""
    unsure = "runs its own code (or sleeps: not captured)"
    does = "computes" if is_seen(context) else "works in operators" if is_in_operators(context) else unsure
    by_name = "in set-up or warm-up, by its name, " if in_warm_up else ""
    for place, hot in fold(context, places(context, rows), lambda place: _hottest(context, place)):
        spots = hot_functions(context, place.rows)
        inside = "" if spots or in_warm_up else _operators(context, place)
        waiting_ns = 0 if in_warm_up else preempted_ns(context, place)
        own_ns = place.total_ns - waiting_ns
        if own_ns < context.least_ns:
            continue  # it hardly runs: see preempted
        is_dispatch = bool(inside) and place.total_ns <= SHORT_NS * place.times
        is_engine = bool(hot) and spots[0].is_engine
        core = f", {duration(waiting_ns)} of which it waits for a core" if waiting_ns > own_ns // 10 else ""
        yield match(
            context,
            place,
            f"{by_name}the host {does}{while_idle(context)}{where_and_when(context, place)}{core}"
            f"{f', mostly in {hot}' if hot else f'; the longest: {inside}' if inside else _spread(spots)}",
            does,
            evidence={},
            advice=_warm_advice(context, place)
            if in_warm_up
            else early_advice(context, place, files_opened(context, place), is_known=bool(hot))
            if is_early(context, place)
            else (OF_SERVER, SLOWED)
            if context.program.is_server
            else (DISPATCH, SLOWED)
            if is_dispatch
            else (OF_TORCH,)
            if is_engine
            else _advice(context, place, hot, is_sampled=bool(hot)),
            removed_least=None if in_warm_up else HALF,
            waiting_ns=waiting_ns,
            spots=spots,
        ).advising(
            _remedy(
                hot,
                bool(spots),
                in_warm_up=in_warm_up,
                is_dispatch=is_dispatch or is_engine or context.program.is_server,
            ),
            rest=rest_after(context, place),
            **({"function": spots[0].short_symbol} if hot else {}),
        )


def _remedy(hot: str, is_sampled: bool, *, in_warm_up: bool, is_dispatch: bool) -> str:
    """Code whose function is known is made cheaper; samples that are spread leave hiding it; else it is looked for."""
    if in_warm_up:
        return "init.after-warm-up"
    if is_dispatch:
        return "cpu.fewer-operators"
    if hot not in ("", short_symbol(PYTHON_CODE)):
        return "cpu.vectorise"
    return "cpu.overlap" if is_sampled and not hot else "cpu.find-host-code"


def _spread(spots: Sequence[Hotspot]) -> str:
    """``; most samples: parse (x.py:3) 31 %, read 20 %`` where no function holds half of them."""
    named = [f"{spot.place} {percent(spot.share)}" for spot in spots if spot.share >= NAMED]
    return f"; most samples: {', '.join(named[:MOST_NAMED])}" if named else ""


def _hottest(context: RuleContext, place: Place) -> str:
    """The function that most samples of a place fall into; empty where none holds half of them."""
    spots = hot_functions(context, place.rows)
    return spots[0].place if spots and spots[0].share >= MOSTLY else ""


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
    named = ((operators.names[one].removeprefix(_ENGINE), total[one]) for one in longest.tolist() if total[one])
    return ", ".join(f"{name} {duration(ns)}" for name, ns in named)


def _warm_advice(context: RuleContext, place: Place) -> tuple[str, ...]:
    rest = rest_window(context)
    return (
        "It happens once, before what counts, and later steps do not pay for it. Look at the rest: boundby analyze "
        + (f"--window {rest}" if rest else rest_after(context, place)),
    )


def _advice(context: RuleContext, place: Place, hot: str, *, is_sampled: bool) -> tuple[str, ...]:
    where = "this code" if hot in ("", short_symbol(PYTHON_CODE)) else hot
    rest = (
        "vectorise the rest instead of looping in Python"
        if context.program.is_python
        else "let several threads share what remains"
    )
    first = (
        f"Compute {where} on the GPU, once before the loop, or in another thread while the GPU works; {rest}"
        if context.timeline.devices
        else f"Make {where} cheaper: compute once what does not change, move what is "
        f"done to many elements to the GPU; {rest}"
    )
    if is_sampled:
        return (first,)
    is_named = place.region != ROOT and not is_found(context.tree.domain[place.region])
    return (first, unseen_advice(context)) if is_named else (unseen_advice(context), first)


RULE = Rule(
    id="host-work",
    title="CPU work while the GPU idles",
    group="host",
    cause=Cause.CPU,
    check=_check,
)
