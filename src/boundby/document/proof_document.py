"""What an experiment says, as a document: the answer, what each part is worth, what was tried, what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.document.blocks import Column, Document, Heading, Paragraph, Span, Table, section
from boundby.model.causes import SHORT_LABEL
from boundby.model.units import duration, plural
from boundby.results.proof import Estimate, MeasuredCondition, Proof, Removal

ANSWERS = {
    "host": "The host sets the pace",
    "input": "The loader sets the pace",
    "device": "The device sets the pace",
    "serial": "Parts take turns, so each saving counts",
    "balanced": "Parts are balanced, so none alone saves much",
    "outside": "Something that was not delayed sets the pace",
    "unknown": "It cannot be told what sets the pace",
}


def headline(proof: Proof) -> str:
    """The answer, and how sure it is."""
    sure = "" if proof.bound == "unknown" else f" ({proof.confidence} confidence)"
    return f"{ANSWERS[proof.bound]}{sure}"


def document(proof: Proof) -> Document:
    """All of it; the raw data come last."""
    worth = Table(_WORTH, proof.parts)
    tried = Table(_TRIED, proof.removals)
    doubts = tuple(Paragraph(doubt, "warning") for doubt in proof.doubts)
    return Document(
        f"boundby prove: {headline(proof)}",
        (Heading(headline(proof)), Paragraph(Span(proof.command, "code")), *map(Paragraph, _sentences(proof))),
        (
            *section("What a millisecond saved there saves of a step", worth, *doubts, id="worth", short="Worth"),
            *section("What was tried", tried, id="tried"),
            *section("What was measured, waits for a core left out", Table(_MEASURED, proof.conditions), id="measured"),
        ),
    )


def _sentences(proof: Proof) -> Iterator[str]:
    yield (
        f"{plural(proof.steps, 'step')} were counted, marked by {proof.steps_by}. Without a delay a step takes "
        f"{duration(proof.step_ns)}, eight in ten take {' to '.join(map(duration, proof.spread_ns))}."
    )
    if proof.bound_next:
        answer = ANSWERS[proof.bound_next]
        yield f"Once that part takes no time: {answer[0].lower()}{answer[1:]}."
    if proof.bound_by_trace and proof.agreement:
        agree = "trace and experiment agree" if proof.agreement == "agree" else proof.agreement
        named = SHORT_LABEL.get(proof.bound_by_trace, proof.bound_by_trace)
        yield f"The trace says {named}: {agree}. {proof.agreement_because}"


def _range(one: Estimate) -> str:
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _promised(one: Removal) -> str:
    return "nothing" if one.promised_ns is None else _span(one.promised_ns)


def _span(ns: Sequence[float]) -> str:
    ends = [f"{'-' if end < 0 else ''}{duration(abs(end))}" for end in ns]
    return " to ".join(dict.fromkeys(ends))


def _delayed(one: MeasuredCondition) -> str:
    return one.removed or " + ".join(one.delayed) or "nothing"


_WORTH = (
    Column("part", lambda part: part.part),
    Column("saves, ms", lambda part: _range(part.saved_per_ns), right=True),
    Column("slope", lambda part: _range(part.slope), right=True, goes=1),
    Column("delayed where", lambda part: part.where, prose=True),
)
_TRIED = (
    Column("remedy", lambda one: one.id),
    Column("promised a step", _promised, right=True),
    Column("measured (95 %)", lambda one: _span(one.measured_ns), right=True),
    Column("outputs", lambda one: one.outputs, prose=True, goes=1),
)
_MEASURED = (
    Column("delayed", _delayed),
    Column("each by", lambda one: duration(one.delay_ns) if one.delay_ns else "", right=True),
    Column("blocks", lambda one: str(one.blocks), right=True),
    Column("step", lambda one: duration(one.step_ns[1]), right=True),
    Column("95 %", lambda one: _span(one.step_ns[::2]), right=True),
)
