"""What a server's steps take, as a document: the sentence first, then each kind and size, then where its time goes."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from boundby.document.blocks import Column, Document, Facts, Heading, Paragraph, Span, Table, clean, entries, section
from boundby.model.causes import BOUND_LABEL, SHORT_LABEL
from boundby.model.scale import HALF, SMALL
from boundby.model.units import count, duration, percent, plural
from boundby.results.serving_report import ServingReport, ServingSteps, StepPhase

#: How each engine is told to prepare the next step while the device works, and to launch its decode steps as graphs.
HIDE = {
    "vLLM": "vllm serve --async-scheduling",
    "SGLang": "overlap scheduling: drop --disable-overlap-schedule",
    "TensorRT-LLM": "disable_overlap_scheduler: false",
    "": "prepare the next step while the device works",
}
GRAPHS = {
    "vLLM": 'drop --enforce-eager; --compilation-config \'{"cudagraph_mode": "FULL_AND_PIECEWISE"}\'',
    "SGLang": "drop --disable-cuda-graph; --cuda-graph-max-bs as large as batches get",
    "TensorRT-LLM": "cuda_graph_config: {enable_padding: true, max_batch_size: as large as batches get}",
    "": "CUDA graphs for decode steps",
}


def headline(report: ServingReport) -> str:
    """What bounds the steps that take most of the time, in a sentence a kind."""
    return " ".join(_sentence(steps) for steps in _largest(report))


def _largest(report: ServingReport) -> Iterator[ServingSteps]:
    """Of each kind the size with most time, the kind with most time first."""
    by_kind: dict[str, list[ServingSteps]] = {}
    for steps in report.steps:
        by_kind.setdefault(steps.kind, []).append(steps)
    whole = {kind: sum(steps.period_ns * steps.count for steps in every) for kind, every in by_kind.items()}
    for kind in sorted(whole, key=lambda kind: (-whole[kind], kind)):
        yield max(by_kind[kind], key=lambda steps: (steps.period_ns * steps.count, steps.path))


def _sentence(one: ServingSteps) -> str:
    what = f"{one.kind.capitalize()} steps" if one.kind != "unknown" else "Steps"
    size = f" ({_size(one)})" if one.requests is not None else ""
    if one.bound == "unknown":
        return f"{what}{size} take {duration(one.median_ns)}; the trace does not tell what bounds them."
    if one.bound == "mixed":
        return f"{what}{size} take {duration(one.median_ns)} and have no single bound."
    return f"{what}{size} take {duration(one.median_ns)} and are {BOUND_LABEL.get(one.bound, one.bound)}."


def _size(one: ServingSteps) -> str:
    parts = [plural(round(one.requests), "request")] if one.requests is not None else []
    if one.tokens is not None and one.tokens != one.requests:
        parts.append(plural(round(one.tokens), "token"))
    return ", ".join(parts)


def _facts(report: ServingReport) -> Iterator[str]:
    yield clean(report.device)
    yield f"steps named by {report.engine}" if report.engine else "steps by name" if report.named else "steps found"
    yield plural(sum(steps.count for steps in report.steps), "step")
    if report.token_ns is not None:
        middle, high = map(duration, report.token_ns)
        yield f"time per output token {middle} (median), {high} (p99)"
    if report.generated_per_s is not None:
        yield f"{count(round(report.generated_per_s))} generated tokens/s"


def _if_hidden(report: ServingReport, one: ServingSteps) -> str:
    """What a step would take if the host's time were hidden, and how that is done."""
    step = "step" if one.kind == "unknown" else f"{one.kind} step"
    gain = percent(1 - one.hidden_ns / one.period_ns)
    less = f"{duration(one.hidden_ns)} instead of {duration(one.period_ns)} ({gain} less)."
    if one.host_gap_ns is None:
        rest = "How long the gap to the next step is, is not on record."
        return f"If the host's time were hidden, a {step} would take {less} {rest}"
    if report.overlaps:
        return (
            "The host prepares a step while the device works on the one before, and the device still waits for it: make"
            f" the host's part of a {step} shorter. If it were hidden wholly, a step and the gap after it would take"
            f" {less}"
        )
    return f"Hide the host's time ({HIDE[report.engine]}): a {step} and the gap after it would take {less}"


def advice(report: ServingReport) -> Iterator[str]:
    """What would make steps shorter, by kind, with what it would gain."""
    for group in _largest(report):
        period = group.period_ns
        if period and 1 - group.hidden_ns / period >= SMALL:
            yield _if_hidden(report, group)
        idle = group.budget.head_ns + group.budget.inside_ns
        if group.kind == "decode" and group.graph_fraction < HALF and period and idle / period >= SMALL:
            yield (
                f"{percent(1 - group.graph_fraction)} of the decode steps' work is launched one by one, and the GPU "
                f"idles {percent(idle / period)} of the time before and between its operations: "
                f"{GRAPHS[report.engine]}."
            )
        # A step waits for its tokens: to hide the host's time is to do without that wait.
        for first in [first for first in group.first_responses if not first.id.startswith("sync.")][:1]:
            span = " to ".join(map(duration, first.saving_ns or ()))
            saved = span and f" Saves {span} in {plural(group.count, 'such step')}."
            steps = "Steps" if group.kind == "unknown" else f"{group.kind.capitalize()} steps"
            yield f"{steps}: {first.title}: {first.because.removesuffix('.')}.{saved}"


def _gap(one: ServingSteps) -> str:
    return "" if one.host_gap_ns is None else duration(one.host_gap_ns)


def _rate(one: ServingSteps) -> str:
    return "" if one.tokens_per_s is None else count(round(one.tokens_per_s))


_STEPS = (
    Column("steps", lambda one: one.path[-1] if one.path else "", key=lambda one: one.path),
    Column("count", lambda one: str(one.count), right=True, key=lambda one: one.count),
    Column("median", lambda one: duration(one.median_ns), right=True, key=lambda one: one.median_ns),
    Column("p99", lambda one: duration(one.p99_ns), right=True, goes=2, key=lambda one: one.p99_ns),
    Column("gap after", _gap, right=True, key=lambda one: one.host_gap_ns or 0.0),
    Column("GPU busy", lambda one: duration(one.gpu_busy_ns), right=True, goes=1, key=lambda one: one.gpu_busy_ns),
    Column("in graphs", lambda one: percent(one.graph_fraction), right=True, key=lambda one: one.graph_fraction),
    Column("tokens/s", _rate, right=True, key=lambda one: one.tokens_per_s or 0.0),
    Column("if host hidden", lambda one: duration(one.hidden_ns), right=True, key=lambda one: one.hidden_ns),
    Column(
        "bound by",
        lambda one: Span(SHORT_LABEL.get(one.bound, "cannot tell" if one.bound == "unknown" else one.bound)),
        key=lambda one: one.bound,
    ),
)
_BUDGET = (
    Column("steps", lambda one: one.path[-1] if one.path else ""),
    Column("before", lambda one: duration(one.budget.head_ns), right=True),
    Column("graphs", lambda one: duration(one.budget.graph_ns), right=True),
    Column("other work", lambda one: duration(one.budget.other_ns), right=True),
    Column("gaps inside", lambda one: duration(one.budget.inside_ns), right=True),
    Column("tail", lambda one: duration(one.budget.tail_ns), right=True),
    Column("gap after", lambda one: duration(one.budget.gap_ns), right=True),
    Column("sum", lambda one: duration(one.period_ns), right=True),
)


class _Part(Struct, frozen=True):
    """One row of the table of phases."""

    steps: str
    phase: StepPhase


_PHASES = (
    Column("steps", lambda row: row.steps),
    Column("part", lambda row: clean(row.phase.name)),
    Column("in a step", lambda row: f"{row.phase.per_step:,.3g}", right=True, key=lambda row: row.phase.per_step),
    Column("host", lambda row: duration(row.phase.host_ns), right=True, key=lambda row: row.phase.host_ns),
    Column("GPU", lambda row: duration(row.phase.device_ns), right=True, key=lambda row: row.phase.device_ns),
)


def _parts(report: ServingReport) -> tuple[_Part, ...]:
    """The ranges inside the steps that take most of the time, of each kind."""
    return tuple(_Part(steps.path[-1], phase) for steps in _largest(report) if steps.path for phase in steps.phases)


def _told(report: ServingReport) -> Iterator[str]:
    """Communication and use of the peak, of the steps that take most of the time."""
    for steps in _largest(report):
        name = steps.path[-1] if steps.path else steps.kind
        if steps.communication is not None:
            hidden = percent(steps.communication.hidden_fraction)
            runs = duration(steps.communication.total_ns)
            yield f"{name}: communication runs for {runs}; other kernels hide {hidden}."
        if steps.mfu is not None:
            yield f"{name}: matrix products would take at least {percent(steps.mfu)} of a step at the GPU's peak (MFU)."


def document(report: ServingReport) -> Document:
    """All of it."""
    note = "Means. In graphs and other work the GPU is busy, in all else it idles."
    return Document(
        "boundby serving",
        (Heading(headline(report)), Facts(tuple(_facts(report)))),
        (
            *section("What to try", entries(advice(report), ordered=True), id="advice", short="Try"),
            *section("Steps by kind and size", Table(_STEPS, report.steps), id="steps", short="Steps"),
            *section("Where a step's time goes", Table(_BUDGET, report.steps), Paragraph(note, "faint"), id="budget"),
            *section("Parts of a step", Table(_PHASES, _parts(report)), id="phases", short="Parts"),
            *section("Communication and peak", entries(map(clean, _told(report))), id="peak", short="Peak"),
            *section("Notes", entries(map(clean, report.notes)), id="notes"),
        ),
    )
