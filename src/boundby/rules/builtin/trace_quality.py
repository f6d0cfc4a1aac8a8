"""The rules on the quality of the trace: what it lacks or gets wrong, and so what cannot be told from it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.attribution.regions import ROOT
from boundby.evidence.context import Rows, RuleContext
from boundby.model.arrays import unique
from boundby.model.causes import Cause
from boundby.model.late import expression
from boundby.model.scale import NOTABLE, QUARTER, SMALL
from boundby.model.units import count, duration, percent, plural
from boundby.results.report import Example
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, note
from boundby.trace.facts import PYTORCH
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import OverheadClass, classify_overhead


def _clock_skew(context: RuleContext) -> Iterator[Match]:
    """The device's clock is off, and was corrected by the least that causality asks for."""
    for device in context.timeline.devices:
        shift = device.shift.shift_ns
        if abs(shift) < LAUNCH_LIMIT_NS:
            continue
        gpu = context.trace.gpus[device.index].id
        yield note(
            f"GPU {gpu}'s clock was off by {duration(abs(shift))}, so latencies are not known",
            {"shift_ns": shift, "started_before_launch_fraction": device.shift.early_fraction},
            "Capture again, with another nsys, if gaps right after launches matter: they may be longer than shown "
            f"({device.shift.because}); busy time and kernels are right",
        )


CLOCK_SKEW = Rule(
    id="trace-clock-skew",
    title="The GPU's clock is off from the host's",
    group="trace",
    check=_clock_skew,
    needs=("kernels",),
)


# Events that the profiler says it lost, or rows that the export lacks.
_LOST = expression(
    r"\b(?:dropp|discard|truncat|overflow)\w*|\blost\b|events? (?:were|was|have been) (?:not|missed)"
    r"|buffers? (?:is|are|was) full"
    r"|not enough (?:buffer|memory|space)|out of (?:memory|disk)|insufficient",
    re.IGNORECASE,
)
_CODES = frozenset({"export-incomplete", "broken-rows", "unbelievable-times"})
# What is said about other data than the account rests on.
_BESIDE = expression(r"symbol|GPU metrics|perf event|kernel IP", re.IGNORECASE)


def _events_lost(context: RuleContext) -> Iterator[Match]:
    messages = [
        " ".join(warning.message.split())
        for warning in context.trace.warnings
        if warning.code in _CODES or (warning.code.startswith("profiler-") and _is_loss(warning.message))
    ]
    messages += _lost_nodes(context)
    if messages:
        yield note(
            f"events are missing: {messages[0][:160].rstrip('.')}",
            {"messages": messages, "count": len(messages)},
            "Capture a shorter time (--duration, or --capture-range around some steps), export again, and compare: "
            "gaps in this trace may be lost events",
            instances=len(messages),
        )
    yield from _lost_at_start(context)


def _lost_nodes(context: RuleContext) -> list[str]:
    """What is not on record inside launches of CUDA graphs."""
    lost = context.timeline.losses.of_graphs
    if not len(lost.call):
        return []
    launches = plural(len(unique(lost.call)), "launch", "launches")
    idle = f"for {duration(int((lost.until_ns - lost.begin_ns).sum()))} in {launches}"
    nodes = int(lost.missing.sum())
    if nodes:
        return [f"{count(nodes)} nodes of CUDA graphs are not on record: the GPU seems idle inside graphs {idle}"]
    return [f"the GPU seems idle between nodes of CUDA graphs {idle}: what runs there is not on record"]


def _lost_at_start(context: RuleContext) -> Iterator[Match]:
    """A known defect of PyTorch's profiler: kernels at the start of a recording are dropped, the more the longer the
    GPU had idled (pytorch issue 192021; with CUDA 13.1 and later it was not seen)."""
    if context.trace.source != PYTORCH or context.trace.is_of_amd:
        return
    losses, lost = context.timeline.losses, 0
    for device in context.timeline.devices:
        rows = losses.of_device(device.index)
        first_ns = int(device.operations.table.start_ns.min())
        lost += len(unique(losses.call[rows[losses.begin_ns[rows] < first_ns]]))
    if lost:
        yield note(
            f"the work of {plural(lost, 'launch', 'launches')} before the first operation is not on record",
            {"launches_lost": lost, "issue": "https://github.com/pytorch/pytorch/issues/192021"},
            "A known defect: PyTorch's profiler drops kernels at the start of a recording (pytorch issue 192021; not "
            "seen with CUDA 13.1). Record more steps, and leave out the first ones: --skip-first 1",
            instances=lost,
        )


def _is_loss(message: str) -> bool:
    return bool(_LOST.search(message)) and not _BESIDE.search(message)


EVENTS_LOST = Rule(
    id="trace-events-lost",
    title="Events were lost or rows are damaged: gaps may not be real",
    group="trace",
    check=_events_lost,
    needs=("kernels",),
)


def _graph_level(context: RuleContext) -> Iterator[Match]:
    """CUDA graphs traced as one operation each hide what happens inside."""
    table = context.operations
    in_window = (table.kind == OpKind.GRAPH) & context.in_windows(table.start_ns)
    graphs = KernelSet(context, np.flatnonzero(in_window), lambda _: "CUDA graph")
    share = graphs.total_ns / max(context.window_ns, 1)
    if not len(graphs) or context.time_ns(Cause.GPU_COMPUTE) == 0 or share < QUARTER:
        return
    distinct, captured_in = _captured_in(context, graphs.rows)
    evidence: dict[str, object] = {"graph_launches": len(graphs), "graph_ns": graphs.total_ns, "graph_fraction": share}
    if distinct:
        evidence |= {"graphs": distinct, "captured_in": captured_in}
    where = f"; captured in {captured_in[0]}" if len(captured_in) == 1 else ""
    yield note(
        f"{len(graphs):,} CUDA graph launches ({duration(graphs.total_ns)}, {percent(min(share, 1.0))}) are opaque "
        f"and count as compute{where}",
        evidence,
        "Capture once with --cuda-graph-trace=node to see kernels, copies and gaps inside the graphs; it costs more, "
        "so time the program at graph level",
        region=graphs.region,
        examples=graphs.examples(),
        instances=len(graphs),
    )


def _captured_in(context: RuleContext, rows: Rows) -> tuple[int, list[str]]:
    """How many graphs these launches run (0: not told), and in which regions these were captured."""
    nodes, timeline = context.trace.graph_nodes, context.timeline
    used = unique(context.operations.node[rows])
    used = used[used >= 0]
    in_ranges = used[nodes.thread[used] >= 0]
    regions = {
        int(timeline.ownership.at(int(nodes.thread[row]), nodes.captured_ns[[row]])[0]) for row in in_ranges.tolist()
    }
    return len(used), sorted("/".join(context.path(region)) for region in regions if region > ROOT)


GRAPH_LEVEL = Rule(
    id="trace-graph-level",
    title="CUDA graphs are traced as a whole: what is slow inside them cannot be seen",
    group="trace",
    check=_graph_level,
    needs=("kernels",),
)


# What was not captured, and so leaves a large part of the time unexplained.
_OF_PYTORCH = (
    "Record with torch.profiler.profile(with_stack=True): outside operators only Python functions show what the host "
    "does. Whether the host sleeps, and on what, nsys records (boundby profile)"
)


#: Where a profiler has not written out all that it held.
CAPTURE_AGAIN = (
    "Capture again: a shorter time, with the program ending by itself (or cudaProfilerStop after a synchronize), so "
    "that the profiler can write all it holds"
)
_OF_NSYS = "Capture with -t cuda,nvtx,osrt --cpuctxsw=process-tree (boundby profile does), from the program's start"


def _incomplete(context: RuleContext) -> Iterator[Match]:
    captured = context.trace.captured
    least_ns = NOTABLE * context.window_ns
    unknown = context.time_ns(Cause.UNATTRIBUTED)
    lost_ns = sum(int(device.withheld.work.length_ns.sum()) for device in context.timeline.devices)
    if unknown >= least_ns and 2 * lost_ns >= unknown:
        losses = context.timeline.losses
        lost, launches = int(losses.lost.sum()), int(losses.expected.sum())
        why = f"{lost:,} of {launches:,} launches are on record without their work"
        why = why if lost else "its counters show work of which no operation is on record"
        yield note(
            f"for {percent(unknown / context.window_ns)} of the time the trace does not show what the GPU does: {why}",
            {"unexplained_ns": unknown, "unexplained_fraction": unknown / context.window_ns, "launches_lost": lost},
            CAPTURE_AGAIN,
        )
    elif unknown >= least_ns:
        why = "no CUDA API calls were captured" if not captured.cuda_api else "the trace does not show why"
        yield note(
            f"the GPU idles {percent(unknown / context.window_ns)} of the time, and {why}",
            {"unexplained_ns": unknown, "unexplained_fraction": unknown / context.window_ns},
            _OF_PYTORCH if context.trace.is_told_by_frames else _OF_NSYS,
        )
    guessed = context.time_ns(Cause.CPU)
    is_guessed = not captured.osrt and not captured.cpu_scheduling and not context.trace.is_told_by_frames
    if is_guessed and guessed >= least_ns:
        yield note(
            f"{percent(guessed / context.window_ns)} of the time counts as host code, but the thread may have slept",
            {"unexplained_ns": guessed, "unexplained_fraction": guessed / context.window_ns},
            "Capture with -t osrt and --cpuctxsw=process-tree: then work, files, locks and sleeps are told apart",
        )


INCOMPLETE = Rule(
    id="trace-incomplete",
    title="Data that was not captured leaves much of the time unexplained",
    group="trace",
    check=_incomplete,
    needs=("kernels",),
)


# No NVTX ranges: times cannot be given to parts of the program.
_PYTHON = "Annotate steps and their parts: boundby.annotate, or nvtx.annotate of the package nvtx"
_JULIA = "Annotate steps and their parts: NVTX.@annotate of NVTX.jl"
_TORCH = (
    "Annotate steps and their parts: boundby profile --torch-ops does it for torch programs, boundby.annotate by hand"
)
_OTHER = "Annotate steps and their parts with nvtxRangePush and nvtxRangePop (NVTX 3: one header, no library)"


def _no_nvtx(context: RuleContext) -> Iterator[Match]:
    if context.trace.captured.nvtx:
        return
    lost = next((warning.message for warning in context.trace.warnings if warning.code == "nvtx-incompatible"), None)
    regions = sum(1 for region in context.regions if region.path)
    if lost:
        title = "the program's NVTX ranges were lost"
    elif regions == 1:
        title = "the program has no NVTX ranges: boundby found the one region here by repetition and named it"
    elif regions:
        title = f"the program has no NVTX ranges: boundby found the {regions} regions here by repetition and named them"
    else:
        title = "the program has no NVTX ranges: nothing says which part of it takes the time"
    yield note(
        title,
        {"ranges": 0, "regions_found": regions},
        lost or (context.program.pick(_OTHER, torch=_TORCH, python=_PYTHON, julia=_JULIA)),
    )


NO_NVTX = Rule(
    id="trace-no-nvtx",
    title="No NVTX ranges: time cannot be given to parts of the program",
    group="trace",
    check=_no_nvtx,
    needs=("kernels",),
)


def _profiler_overhead(context: RuleContext) -> Iterator[Match]:
    """The profiler's own work takes part of the time."""
    held = context.time_ns(Cause.PROFILER)
    share = held / max(context.window_ns, 1)
    if share < SMALL:
        return
    table, names = context.trace.overhead, context.trace.names
    is_profiler = context.names_where(table.name, lambda name: classify_overhead(name) == OverheadClass.PROFILER)
    rows = np.flatnonzero(is_profiler[table.name] & context.in_windows(table.start_ns))
    length = table.end_ns - table.start_ns
    longest = rows[np.lexsort((rows, -length[rows]))][:3].tolist()
    yield note(
        f"the GPU idles {duration(held)} ({percent(share)}) under the profiler's own work",
        {"gpu_idle_ns": held, "gpu_idle_fraction": share, "profiler_intervals": len(rows)},
        "Capture less: without --cudabacktrace and --python-backtrace, with --sample=none --cpuctxsw=none, and for a "
        "shorter time. Times and shares here hold for the profiled run only",
        region=ROOT,
        examples=tuple(Example(int(table.start_ns[row]), int(length[row]), names[table.name[row]]) for row in longest),
        instances=max(len(rows), 1),
    )


PROFILER_OVERHEAD = Rule(
    id="trace-profiler-overhead",
    title="The profiler's own work slows the program down",
    group="trace",
    check=_profiler_overhead,
    needs=("kernels",),
)
