"""What the steps of a server of language models take, as plain frozen data in the order of its JSON."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from boundby.model.causes import BOUNDS
from boundby.results.report import CONFIDENCES, Communication, FirstResponse
from boundby.results.saved import LATER, Natural, NonNegative, OneOf, RegionPath, Saved

STEP_KINDS = ("prefill", "decode", "mixed", "unknown")
ENGINES = ("", "vLLM", "SGLang", "TensorRT-LLM")


class StepBudget(Struct, frozen=True, kw_only=True):
    """Where the time of a step goes, from its begin to the next one's: means, in nanoseconds, that sum to it. All but
    the first and the second are time in which the device idles."""

    graph_ns: Annotated[NonNegative, "The device works, on what CUDA graphs launched."]
    other_ns: Annotated[NonNegative, "The device works, on what was launched one by one."]
    head_ns: Annotated[NonNegative, "Host work before the step's first operation."]
    inside_ns: Annotated[NonNegative, "Gaps between its first and its last operation."]
    tail_ns: Annotated[NonNegative, "The host is still in the step after its last operation."]
    gap_ns: Annotated[NonNegative, "Between steps: the scheduler, sampling, detokenization, or no requests."]


class StepPhase(Struct, frozen=True, kw_only=True):
    """A part of a step that has a range of its own: preparing inputs, the forward pass, sampling, a layer."""

    name: Annotated[str, "Of the range."]
    per_step: Annotated[NonNegative, "How many of them a step has, mean."]
    host_ns: Annotated[NonNegative, "How long they are open on the host in a step, mean."]
    device_ns: Annotated[NonNegative, "How long the device works for them in a step, mean."]


class ServingSteps(Struct, frozen=True, kw_only=True):
    """The steps of one kind and about one size."""

    kind: Annotated[str, OneOf(STEP_KINDS), "prefill: prompts; decode: a token or more for each request; mixed: both."]
    path: Annotated[RegionPath, "Their region, as in boundby analyze."]
    requests: Annotated[float | None, "Requests of a step, median; null: not told."]
    tokens: Annotated[float | None, "Tokens that a step works on, median; null: not told."]
    count: Annotated[Natural, "Steps."]
    median_ns: Annotated[NonNegative, "A step, from its begin to the end of its work, without the gap to the next one."]
    p99_ns: Annotated[NonNegative, "99th percentile of that."]
    host_gap_ns: Annotated[
        NonNegative | None, "Idle time from its end to the next step's begin, median; null: no step follows."
    ]
    gpu_busy_ns: Annotated[NonNegative, "Of a step, the time in which the device works, median."]
    graph_fraction: Annotated[NonNegative, "Share of the operations' time that CUDA graphs launched."]
    tokens_per_s: Annotated[NonNegative | None, "Tokens over the time of these steps and of the gaps after them."]
    budget: StepBudget
    waited_ns: Annotated[
        NonNegative, "Besides, the device idles while the host waits inside a blocking call, mean: in no other figure."
    ]
    hidden_ns: Annotated[
        NonNegative, "A step and the gap after it if the host's time were hidden, mean: what the device itself needs."
    ]
    bound: Annotated[str, OneOf(BOUNDS), "What bounds these steps."]
    confidence: Annotated[str, OneOf(CONFIDENCES), "How sure that is."]
    first_responses: Annotated[tuple[FirstResponse, ...], "What to try first, for these steps."] = ()
    phases: Annotated[tuple[StepPhase, ...], LATER, "The ranges inside a step, most time first."] = ()
    communication: Annotated[
        Communication | None, LATER, "Communication in all of these steps, and how much of it is hidden; null: none."
    ] = None
    mfu: Annotated[
        NonNegative | None,
        LATER,
        "Share of a step, without the gap after it and without what it waits for, that its matrix products would take"
        " at the device's peak, at least; null where the sizes of most are not known, or the peak is not.",
    ] = None

    @property
    def period_ns(self) -> float:
        """A step and the gap after it, mean."""
        budget = self.budget
        idle = budget.head_ns + budget.inside_ns + budget.tail_ns + budget.gap_ns
        return budget.graph_ns + budget.other_ns + idle


class ServingReport(Saved, Struct, frozen=True, kw_only=True):
    """What the steps of a server take, by kind and size. ``boundby.serving`` returns it."""

    kind: ClassVar[str] = "serving"
    written_by: ClassVar[str] = "boundby serving REPORT -o serving.json"

    path: Annotated[str, "What was given."]
    device: Annotated[str, "The GPU."]
    engine: Annotated[str, OneOf(ENGINES), "Whose names the steps have; empty: none's."]
    named: Annotated[bool, "Steps are told by their names; false: by what repeats, and their kind by their kernels."]
    steps: Annotated[tuple[ServingSteps, ...], "Prefill, mixed and decode steps, smaller ones first."]
    token_ns: Annotated[
        tuple[float, float] | None,
        "Time per output token: from one step that generates to the next, median and 99th percentile; null: too few.",
    ]
    generated_per_s: Annotated[NonNegative | None, "Generated tokens a second, over all steps; null: not told."]
    workers: Annotated[Natural, "Processes that make such steps; one of them is shown."] = 1
    overlaps: Annotated[
        bool, LATER, "The host leaves most steps behind while the device works on them: scheduling overlaps."
    ] = False
    notes: Annotated[tuple[str, ...], "What else should be known."] = ()
