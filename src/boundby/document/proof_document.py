"""What an experiment says, as data: the same sentences and tables for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from boundby.model.units import duration, plural
from boundby.results.proof import Estimate, Proof, Removal

ANSWERS = {
    "host": "The host sets the pace",
    "input": "The loader sets the pace",
    "device": "The device sets the pace",
    "serial": "Parts take turns, so each saving counts",
    "balanced": "Parts are balanced, so none alone saves much",
    "outside": "Something that was not delayed sets the pace",
    "unknown": "It cannot be told what sets the pace",
}


@dataclass(frozen=True)
class ProofTable:
    """Rows of text under a heading."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def headline(proof: Proof) -> str:
    """The answer, and how sure it is."""
    sure = "" if proof.bound == "unknown" else f" ({proof.confidence} confidence)"
    return f"{ANSWERS[proof.bound]}{sure}"


def sentences(proof: Proof) -> Iterator[str]:
    """What was measured, what comes next, what the trace says."""
    yield (
        f"{plural(proof.steps, 'step')} were counted, marked by {proof.steps_by}. Without a delay a step takes "
        f"{duration(proof.step_ns)}, eight in ten take {' to '.join(map(duration, proof.spread_ns))}."
    )
    if proof.bound_next:
        answer = ANSWERS[proof.bound_next]
        yield f"Once that part takes no time: {answer[0].lower()}{answer[1:]}."
    if proof.bound_by_trace:
        agreement = {"agree": "Trace and experiment agree"}.get(
            proof.agreement or "", f"{(proof.agreement or '').capitalize()}"
        )
        yield f"The trace says {proof.bound_by_trace}. {agreement}: {proof.agreement_because}"


def worth(proof: Proof) -> ProofTable:
    """Of each part."""
    rows = tuple((one.part, _range(one.saved_per_ns), _range(one.slope), one.where) for one in proof.parts)
    return ProofTable(
        "What a millisecond saved there saves of a step", ("part", "saves, ms", "slope", "delayed where"), rows
    )


def removals(proof: Proof) -> ProofTable | None:
    """Promised against measured; None: nothing was tried."""
    rows = tuple((one.id, _promised(one), _span(one.measured_ns), one.outputs) for one in proof.removals)
    return (
        ProofTable("What was tried, a step", ("remedy", "promised", "measured (95 %)", "outputs"), rows)
        if rows
        else None
    )


def conditions(proof: Proof) -> ProofTable:
    """The raw data."""
    rows = tuple(
        (
            one.removed or " + ".join(one.delayed) or "none",
            duration(one.delay_ns) if one.delay_ns else "",
            str(one.blocks),
            duration(one.step_ns[1]),
            f"{duration(max(one.step_ns[0], 0))} to {duration(max(one.step_ns[2], 0))}",
        )
        for one in proof.conditions
    )
    return ProofTable("What was measured", ("delayed", "each by", "blocks", "step", "95 %"), rows)


def _range(one: Estimate) -> str:
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _promised(one: Removal) -> str:
    return "nothing" if one.promised_ns is None else _span(one.promised_ns)


def _span(ns: Sequence[float]) -> str:
    low, high = (f"{'-' if end < 0 else ''}{duration(abs(end))}" for end in ns)
    return f"{low} to {high}"
