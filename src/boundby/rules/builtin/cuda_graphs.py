"""Launch sequences that repeat and could be one CUDA graph each."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.host_idleness import behind_input
from boundby.evidence.launches import (
    Launches,
    Part,
    launch_evidence,
    launch_examples,
    launch_place,
    launches,
    small_grid_share,
)
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Rule, Threshold

# Sequences of one kind stand for all launches that repeat if they hold this share of them.
MOST_OF_ALL = 0.9


def _check(context: RuleContext) -> Iterator[Match]:
    found = launches(context)
    rows = found.rows(Part.REPEATING)
    if len(rows) < RULE.threshold(context, "count") or context.time_ns(Cause.CUDA_API) < context.least_ns:
        return
    of_graph = len(rows) / max(found.graphs, 1)
    if of_graph < RULE.threshold(context, "launches"):
        return
    cost = round(RULE.threshold(context, "graph_launch_ns")) * found.graphs
    low, high = (max(value - cost, 0) for value in found.saving(context, Part.REPEATING))
    evidence, behind = launch_evidence(context, found, rows), behind_input(context)
    small = small_grid_share(context, found.operation[rows])
    batch = (
        f"{percent(small)} of these kernels have fewer blocks than the GPU has multiprocessors: a larger batch costs "
        "them next to nothing",
    )
    yield Match(
        region=launch_place(context, found, rows),
        title=f"{count(len(rows))} launches repeat, in {_sequences(found, len(rows))}: one CUDA graph launch could "
        f"take the place of each{behind}",
        evidence={
            **evidence,
            "graph_launches": found.graphs,
            "launches_per_graph": round(of_graph, 1),
            "sequences": [f"{times:,} of {unit:,} launches" for unit, times in found.units[:5]],
            "assumed_graph_launch_ns": round(RULE.threshold(context, "graph_launch_ns")),
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
        },
        saving_ns=(0 if behind else low, high),
        advice=(
            'model = torch.compile(model, mode="reduce-overhead"): captures what repeats in CUDA graphs '
            f"(now {_pace(evidence)})",
            "torch.cuda.make_graphed_callables(model, (sample,)) for a model without data-dependent control flow; "
            "shapes must stay the same, nothing inside may wait for the GPU",
            *(batch if small >= RULE.threshold(context, "small_fraction") else ()),
        ),
        examples=launch_examples(context, rows),
        instances=len(rows),
    )


def _sequences(found: Launches, launched: int) -> str:
    """``25 sequences of 40``; ``3 of 897 and 57 shorter ones``; ``5 sequences of 897, 2 of them in pieces``; ``...,
    and others`` where these are not most of all that are ``launched``."""
    unit, times = found.units[0]
    if found.turns > times:
        others = ", and others" if found.turns * unit < MOST_OF_ALL * launched else ""
        return f"{count(found.turns)} sequences of {unit:,}, {count(found.turns - times)} of them in pieces{others}"
    rest = found.graphs - times
    kinds = "others" if any(length > unit for length, _ in found.units) else "shorter ones"
    more = f" and {count(rest)} {kinds}" if rest else ""
    return f"{count(times)} sequence{'s' if times != 1 else ''} of {unit:,}{more}"


def _pace(evidence: dict[str, object]) -> str:
    between, kernel = evidence["launch_to_launch_median_ns"], evidence["kernel_median_ns"]
    paces = f"kernels of {duration(float(str(kernel)))}"
    return f"{paces}, {duration(float(str(between)))} of host time each" if between is not None else paces


RULE = Rule(
    id="cuda-graphs",
    title="Repeating launch sequences that could be CUDA graphs",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_check,
    needs=("kernels", "cuda_api"),
    thresholds=(
        Threshold("count", 100, "launches", "Fewer cannot take a share of the time that matters."),
        Threshold("launches", 10, "launches per sequence", "Shorter sequences gain little and are tedious to capture."),
        Threshold(
            "graph_launch_ns", 10_000, "ns", "A graph launch takes the host about 5 to 15 us, more for large graphs."
        ),
        Threshold("small_fraction", 0.5, "fraction", "From half on, small kernels are the rule, not the exception."),
    ),
)
