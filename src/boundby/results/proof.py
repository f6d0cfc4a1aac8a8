"""The result of an experiment on a running program, as plain frozen data in the order of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Struct

from boundby.results.report import CONFIDENCES
from boundby.results.saved import LATER, Natural, NonNegative, OneOf, Saved

#: A part of the program; or that several take turns, that none alone helps, that something outside sets the pace.
PROVEN_BOUNDS = ("host", "input", "device", "serial", "balanced", "outside", "unknown")
AGREEMENTS = ("agree", "trace doubted", "experiment doubted", "both doubted")


class Estimate(Struct, frozen=True):
    """A measured value and its 95 % interval."""

    value: Annotated[float, "The value."]
    low: Annotated[float, "At least."]
    high: Annotated[float, "At most."]


class MeasuredCondition(Struct, frozen=True, kw_only=True):
    """What was delayed in some blocks of steps, and how long a step took then, waits for a core left out."""

    delayed: Annotated[tuple[str, ...], "The parts that were delayed; empty: none."]
    delay_ns: Annotated[NonNegative, "By how much each, nanoseconds a step, as it happened."]
    blocks: Annotated[Natural, "Blocks of steps."]
    step_ns: Annotated[tuple[float, float, float], "A step at least, in the middle and at most (95 %), nanoseconds."]
    removed: Annotated[str, LATER, "The remedy that was tried in these blocks; empty: none."] = ""


class ProvenPart(Struct, frozen=True, kw_only=True):
    """What a part of the program is worth."""

    part: Annotated[str, OneOf(("host", "input", "device")), "Which one."]
    where: Annotated[str, "Where it was delayed."]
    slope: Annotated[Estimate, "By how much a step grows for each nanosecond of delay: raw data, no verdict."]
    saved_per_ns: Annotated[Estimate, "What a nanosecond saved here saves of a step, by the fit to all conditions."]
    reach_ns: Annotated[NonNegative, LATER, "Over the first so many nanoseconds saved, a step."] = 0
    busy_ns: Annotated[NonNegative | None, LATER, "Its own work, nanoseconds a step, where that was measured."] = None


class Removal(Struct, frozen=True, kw_only=True):
    """A remedy that was tried: promised against measured."""

    id: Annotated[str, "The remedy or scenario."]
    promised_ns: Annotated[
        tuple[float, float] | None, "What the report promised for it, nanoseconds of the same step; null: none."
    ]
    measured_ns: Annotated[
        tuple[float, float], "What it saved, nanoseconds a step (95 %), as with a free core where that is known."
    ]
    outputs: Annotated[str, LATER, "How the first losses compare with and without it."] = ""


class Proof(Saved, Struct, frozen=True, kw_only=True):
    """What a running program is bound by, by experiment: parts of it were delayed. ``boundby.prove`` returns it."""

    kind: ClassVar[str] = "prove"
    written_by: ClassVar[str] = "boundby prove -o prove.json -- python train.py"

    command: Annotated[str, "What ran."]
    steps: Annotated[Natural, "Steps that were counted."]
    step_ns: Annotated[NonNegative, "A step without any delay, nanoseconds."]
    steps_by: Annotated[str, "What marked the steps."]
    spread_ns: Annotated[tuple[float, float], LATER, "Of ten steps without a delay eight lie between these."]
    conditions: Annotated[tuple[MeasuredCondition, ...], "What was measured, the one without a delay first."]
    parts: Annotated[tuple[ProvenPart, ...], "What each part is worth."]
    bound: Annotated[
        str,
        OneOf(PROVEN_BOUNDS),
        "The part whose saving saves most; serial: parts take turns, each saving counts; balanced: no part alone"
        " saves much; outside: something that was not delayed sets the pace; unknown: it cannot be told.",
    ]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure that is."]
    bound_next: Annotated[str | None, OneOf(PROVEN_BOUNDS), "What it is bound by once the bound takes no time."]
    likely: Annotated[Mapping[str, float], "The probability of each answer."]
    court_row: Annotated[
        Mapping[str, tuple[str, ...]],
        LATER,
        "What this says of a trace of the program, as benchmarks/court.py reads it: ``bound``, the causes that a right"
        " verdict names; nothing where the experiment is not sure.",
    ]
    bound_by_trace: Annotated[str | None, "The verdict of the report that was given; null: none was."] = None
    agreement: Annotated[str | None, OneOf(AGREEMENTS), "Whether the two agree, else which is doubted; null: one."] = (
        None
    )
    agreement_because: Annotated[str, "Why."] = ""
    removals: Annotated[tuple[Removal, ...], "Remedies that were tried."] = ()
    doubts: Annotated[tuple[str, ...], "What makes the answer less sure, or the experiment impossible."] = ()
