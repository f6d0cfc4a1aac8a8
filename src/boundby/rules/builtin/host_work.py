"""CPU work between CUDA calls, while the GPU idles."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.host_idleness import Idleness, Place, host_pieces, hot_functions, is_seen, places
from boundby.evidence.hotspots import PYTHON_CODE, short_symbol
from boundby.evidence.initialization import rest_window, warm_regions
from boundby.model.causes import Cause
from boundby.rules.builtin._telling import early_advice, fold, is_early, match, where_and_when, while_idle
from boundby.rules.rule import Match, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = host_pieces(context)
    rows = pieces.of_kind(Idleness.WORK)
    is_warm = warm_regions(context)[pieces.region[rows]]
    yield from _matches(context, rows[~is_warm], in_warm_up=False)
    yield from _matches(context, rows[is_warm], in_warm_up=True)


def _matches(context: RuleContext, rows: Rows, *, in_warm_up: bool) -> Iterator[Match]:
    """What warm-up regions hold (by their names) is a note: the program does it once, and knows so."""
    unsure = "runs its own code (or sleeps: not captured)"
    does = "computes" if is_seen(context) else "works in operators" if context.trace.is_told_by_frames else unsure
    by_name = "set-up or warm-up by its name, where " if in_warm_up else ""
    for place, hot in fold(context, places(context, rows), lambda place: _hottest(context, place)):
        spots = hot_functions(context, place.rows)
        yield match(
            context,
            place,
            f"{by_name}the host {does}{while_idle(context)}{where_and_when(context, place)}"
            f"{f', mostly in {hot}' if hot else ''}",
            does,
            evidence={},
            advice=_warm_advice(context)
            if in_warm_up
            else early_advice(context)
            if is_early(context, place)
            else _advice(context, hot, is_sampled=bool(spots)),
            removed_least=None if in_warm_up else RULE.threshold(context, "removed_least"),
            spots=spots,
        )


def _hottest(context: RuleContext, place: Place) -> str:
    """The function that most samples of a place fall into; empty where none is known."""
    spots = hot_functions(context, place.rows)
    return spots[0].place if spots else ""


def _warm_advice(context: RuleContext) -> tuple[str, ...]:
    rest = rest_window(context)
    return (
        "It happens once, before what counts, and later steps do not pay for it. Look at the rest: boundby analyze "
        + (f"--window {rest}" if rest else "--window START:END, or --skip-first K"),
    )


def _advice(context: RuleContext, hot: str, *, is_sampled: bool) -> tuple[str, ...]:
    where = "this code" if hot in ("", short_symbol(PYTHON_CODE)) else hot
    if context.program.is_python:
        rest = "vectorise the rest instead of looping in Python"
        capture = "--sample=process-tree --python-sampling=true"
    else:
        rest = "let several threads share what remains"
        capture = "--sample=process-tree"
    first = (
        f"Take {where} off the path to the next launch: compute it on the GPU, once before the loop, or in another "
        f"thread while the GPU works; {rest}"
        if context.timeline.devices
        else f"Make {where} cheaper: compute once what does not change, move what is "
        f"done to many elements to the GPU; {rest}"
    )
    return (
        first,
        *(() if is_sampled else (f"To see which functions: capture with {capture}",)),
    )


RULE = Rule(
    id="host-work",
    title="CPU work while the GPU idles",
    group="host",
    cause=Cause.CPU,
    check=_check,
    thresholds=(
        Threshold(
            "removed_least", 0.5, "fraction", "Vectorised or overlapped code rarely costs more than half as much."
        ),
    ),
)
