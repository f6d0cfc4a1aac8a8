"""CPU work between CUDA calls, while the GPU idles."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import scaled
from boundby.evidence.host import (
    WORK,
    HostPieces,
    Place,
    Rows,
    examples,
    host_pieces,
    hot_functions,
    is_seen,
    named,
    places,
    saving,
    short_symbol,
)
from boundby.evidence.hotspots import PYTHON_CODE
from boundby.evidence.warm import rest_window, warm_regions
from boundby.evidence.workers import is_python_program
from boundby.rules.builtin._telling import fold, named_places, where_and_when
from boundby.rules.rule import Match, Remedy, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    pieces = context.once(host_pieces)
    rows = pieces.of_kind(WORK)
    is_warm = context.once(warm_regions)[pieces.region[rows]]
    yield from _told(context, pieces, rows[~is_warm], in_warm_up=False)
    yield from _told(context, pieces, rows[is_warm], in_warm_up=True)


def _told(context: RuleContext, pieces: HostPieces, rows: Rows, *, in_warm_up: bool) -> Iterator[Match]:
    """What warm-up regions hold (by their names) is a note: the program does it once, and knows so."""
    does = "computes" if is_seen(context) else "runs its own code (or sleeps: not captured)"
    named_so = "set-up or warm-up by its name, where " if in_warm_up else ""
    found = places(context, pieces, rows)
    for folded, key in fold(context, pieces, found, lambda place: _hottest(context, pieces, place)):
        place, hot = folded.place, str(key)
        spots = hot_functions(context, pieces, place.rows)
        evidence: dict[str, object] = {
            "idle_ns": place.total_ns,
            "count": place.times,
            "share_of_window_fraction": round(place.total_ns / max(context.window_ns, 1), 4),
        }
        if not folded.is_one:
            evidence["places"] = named_places(context, pieces, folded)
        if spots:
            evidence["hottest_functions"] = named(spots)
        yield Match(
            region=place.region,
            title=f"{named_so}the host {does} while the GPU idles{where_and_when(context, pieces, folded)}"
            f"{f', mostly in {hot}' if hot else ''}",
            evidence=evidence,
            saving_ns=None
            if in_warm_up
            else scaled(saving(context, pieces, place), context.threshold(RULE, "removed_least"), 1.0),
            advice=_warm_advice(context) if in_warm_up else _advice(context, hot, is_sampled=bool(spots)),
            examples=examples(context, pieces, place.rows, does),
            severity="note" if in_warm_up else None,
            instances=place.times,
            cost_ns=None if in_warm_up else place.total_ns,
        )


def _hottest(context: RuleContext, pieces: HostPieces, place: Place) -> str:
    """The function that most samples of a place fall into; empty where none is known."""
    spots = hot_functions(context, pieces, place.rows)
    return short_symbol(spots[0].symbol) if spots else ""


def _warm_advice(context: RuleContext) -> tuple[str, ...]:
    rest = rest_window(context)
    return (
        "It happens once, before what counts, and later steps do not pay for it. Look at the rest: boundby analyze "
        + (f"--window {rest}" if rest else "--window START:END, or --skip-first K"),
    )


def _advice(context: RuleContext, hot: str, *, is_sampled: bool) -> tuple[str, ...]:
    where = "this code" if hot in ("", short_symbol(PYTHON_CODE)) else hot
    if is_python_program(context):
        rest = "vectorise what remains (NumPy, torch) in place of Python loops"
        capture = "--sample=process-tree --python-sampling=true"
    else:
        rest = "let several threads share what remains"
        capture = "--sample=process-tree"
    return (
        f"Take {where} off the path to the next launch: compute it on the GPU, once before the loop, or in another "
        f"thread while the GPU works; {rest}",
        *(() if is_sampled else (f"To see which functions: capture with {capture}",)),
    )


RULE = Rule(
    id="host-work",
    title="CPU work while the GPU idles",
    group="host",
    picture="""\
host  |launch|==== computes ====|launch|==== computes ====|
GPU          |#kernels#|               |#kernels#|
then
host  |launch|launch|launch|     work moved, or done while the GPU runs
GPU   |#kernels#|#kernels#|#kernels#|
""",
    meaning="""\
Between two CUDA calls the launching thread runs its own code for longer than a framework needs to dispatch (100 us),
and the GPU has run out of work. Python loops over elements, post-processing, metrics, logging, tokenizing, building
small tensors from lists, garbage collection.

Only idle time counts: CPU work that runs while the GPU is busy costs nothing and is not reported. The functions are
named where the trace holds CPU samples with backtraces.

In regions that are set-up or warm-up by their names (`init_model`, `Warm-up Step 3`) it is a note without a saving: a
first pass imports, compiles and looks things up, and what is slow there is not what a step does.
""",
    remedies=(
        Remedy(
            "Move it to the GPU, or out of the loop.",
            """
            for step, batch in enumerate(loader):
                weights = make_weights(step)              # the same for all steps, or cheap on the GPU
                ...
            weights = torch.linspace(0, 1, steps, device=device)   # once, before the loop
            """,
        ),
        Remedy(
            "Do it while the GPU works: launch the next step's kernels first, then compute what belongs to the "
            "step before.",
            """
            previous = None
            for batch in loader:
                output = model(batch)                     # launches only
                if previous is not None:
                    log(previous)                         # runs while the GPU computes
                previous = output.detach()
            """,
            caution="log() must not wait for the GPU itself (no .item() of this step's values).",
        ),
        Remedy("Vectorise Python loops with NumPy or torch; Numba or C++ where that is not possible."),
        Remedy(
            "Garbage collection in the middle of a step: collect between steps instead.",
            "gc.disable()\nif step % 100 == 0:\n    gc.collect()",
            caution="cyclic garbage then lives longer.",
        ),
    ),
    disproof="Replace the code by a constant result for one run: if the step takes as long, it was not on the "
    "critical path.",
    check=_check,
    needs=("cuda_api",),
    thresholds=(
        Threshold(
            "removed_least", 0.5, "fraction", "Vectorised or overlapped code rarely costs more than half as much."
        ),
    ),
    see_also=("host-input", "host-phase"),
)
