"""What an experiment says, as a document: the answer, what each part is worth, what was tried, what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boundby.document.blocks import Column, Document, Heading, Paragraph, Span, Table, section
from boundby.model.causes import SHORT_LABEL
from boundby.model.scale import SMALL
from boundby.model.units import duration, percent, plural
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
_PART = {"host": "the host", "input": "the loader", "device": "the device"}
#: An answer less probable than this is not worth a word.
_PROBABLE = SMALL
_AGREEMENT = {
    "agree": "the experiment agrees",
    "trace doubted": "the experiment says something else, and the trace is doubted",
    "experiment doubted": "the experiment does not confirm that, and is itself doubted",
    "both doubted": "the experiment does not confirm that, and both are doubted",
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
            *section("Each part", worth, Paragraph(_reach(proof)), *doubts, id="worth"),
            *section("What was tried", tried, id="tried", short="Tried"),
            *section(
                "What was measured, waits for a core left out",
                Table(_MEASURED, proof.conditions),
                id="measured",
                short="Measured",
            ),
        ),
    )


def _sentences(proof: Proof) -> Iterator[str]:
    yield (
        f"{plural(proof.steps, 'step')} were counted, marked by {proof.steps_by}. Without a delay a step takes "
        f"{duration(proof.step_ns)} (eight in ten: {' to '.join(map(duration, proof.spread_ns))})."
    )
    if proof.confidence != "high":
        probable = sorted(proof.likely.items(), key=lambda answer: -answer[1])
        shares = ", ".join(f"{name} {percent(share)}" for name, share in probable if share >= _PROBABLE)
        yield f"How probable each answer is: {shares}."
    if proof.bound_next:
        answer = ANSWERS[proof.bound_next]
        yield f"Next, once {_PART[proof.bound]} takes no time: {answer[0].lower()}{answer[1:]}."
    if proof.bound_by_trace and proof.agreement:
        named = SHORT_LABEL.get(proof.bound_by_trace, proof.bound_by_trace)
        yield f"The trace says {named}; {_AGREEMENT[proof.agreement]}. {proof.agreement_because}"


def _reach(proof: Proof) -> str:
    parts: dict[str, list[str]] = {}
    for part in proof.parts:
        parts.setdefault(duration(part.reach_ns), []).append(part.part)
    reach = " and ".join(f"{length} saved of {' or '.join(names)}" for length, names in parts.items())
    return f'In ms a step, with 95 % intervals. "1 ms less saves" is an average for the first {reach}.'


def _range(one: Estimate) -> str:
    value, low, high = (f"{round(end, 2) + 0.0:.2f}" for end in (one.value, one.low, one.high))  # no minus nought
    return f"{value} [{low}, {high}]"


def _promised(one: Removal) -> str:
    return "no promise" if one.promised_ns is None else _span(one.promised_ns)


def _span(ns: Sequence[float]) -> str:
    ends = [f"{'-' if end < 0 else ''}{duration(abs(end))}" for end in ns]
    return " to ".join(dict.fromkeys(ends))


def _delayed(one: MeasuredCondition) -> str:
    return one.removed or " + ".join(one.delayed) or "none"


_WORTH = (
    Column("part", lambda part: part.part),
    Column("1 ms less saves", lambda part: _range(part.saved_per_ns), right=True),
    Column("1 ms more costs", lambda part: _range(part.slope), right=True, goes=1),
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
