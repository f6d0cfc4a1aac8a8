"""First GPU work long after the start of the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from boundby.evidence.context import Int, RuleContext
from boundby.evidence.transfers import looks_like_a_model
from boundby.model.arrays import group_sums, ranked, unique
from boundby.model.intervals import union
from boundby.model.scale import HALF, MOST, QUARTER, TENFOLD
from boundby.model.units import duration, percent, size
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import Direction, MemoryKind, OpKind

# Ranges and calls are named if they cover this share of the start; a range gives way to one inside it that covers most.
_MOST = HALF
# What is uploaded after it was made on the CPU is a model, and no batch.
_MODEL_BYTES = 50_000_000


# What the remedy is called where the cause of the late start is known.
_KEEP = "Make the context once for several jobs, and for one GPU"
_ON_GPU = "Build the model on the GPU"
_SLOW = "Find out why CUDA takes so long to start, with only the GPUs that it uses and code that is loaded when needed"


class _Covering(Struct, frozen=True):
    """A range open before the first GPU work: for how long of it."""

    row: int  # of ``trace.ranges``
    name: str
    start_ns: int
    covered_ns: int


def _in_one_call(context: RuleContext, call: int, in_cuda_ns: int) -> tuple[str, Example]:
    """How much of the time in CUDA calls one takes."""
    name, took = context.call_name(call), int(context.call_ns(call))
    of_calls = f"{duration(took)} of it"
    if took < MOST * in_cuda_ns:
        of_calls = f"{duration(in_cuda_ns)} of it in CUDA calls, {duration(took)}"
    return f": {of_calls} in one {name}", Example(int(context.calls.start_ns[call]), took, name)


def _check(context: RuleContext) -> Iterator[Match]:
    trace, calls, operations = context.trace, context.calls, context.operations
    if not len(operations):
        return
    (low, end), first = trace.span_ns, int(operations.start_ns.min())
    high = min(first, *(device.low_ns for device in context.timeline.devices))  # a step may begin before its work
    startup, work = high - low, int(operations.end_ns.max()) - first
    share = startup / max(end - low, 1)
    if startup < RULE.threshold(context, "startup_ns") or share < QUARTER:
        return
    rows = np.flatnonzero((calls.start_ns < high) & (calls.end_ns > low))
    ends = np.minimum(calls.end_ns[rows], high)
    in_cuda = union(calls.start_ns[rows], ends).total
    covering = _ranges(context, low, high)
    evidence: dict[str, object] = {
        "startup_ns": startup,
        "first_to_last_gpu_work_ns": work,
        "startup_of_run_fraction": round(share, 4),
        "in_cuda_calls_ns": in_cuda if trace.captured.cuda_api else None,
        "calls": context.named_calls(rows, 3),
    }
    if trace.captured.osrt:
        evidence["os_calls"] = _os_calls(context, low, high)
    evidence["ranges"] = [f"{item.name}: {duration(item.covered_ns)}" for item in covering]
    named = [item for item in covering if item.covered_ns >= _MOST * startup]
    is_cuda = in_cuda >= _MOST * startup
    is_slow = False
    if is_cuda:
        worst = int(rows[np.lexsort((rows, calls.start_ns[rows] - ends))][0])
        what, example = _in_one_call(context, worst, in_cuda)
        examples = [example]
        usual_ns = RULE.threshold(context, "startup_ns")  # tenfold is no start that a program may wait for
        is_slow = example.duration_ns >= max(TENFOLD * usual_ns, HALF * (end - low))
    else:
        what, examples = _in_ranges(context, named, in_cuda)
    begins = "GPU work" if high == first else "step"
    yield Match(
        region=None,
        title=f"the first {begins} starts {duration(startup)} after the first event, "
        f"{percent(share)} of the time on record{what}",
        evidence=evidence,
        saving_ns=None,
        advice=_advice(context, in_cuda, startup, named[0] if named else None),
        examples=tuple(examples) or (Example(low, startup, "from the first event to the first GPU work"),),
        severity="medium" if is_slow else "note",
    ).advising(**_code(context, named, is_cuda=is_cuda, is_slow=is_slow))


def _in_ranges(context: RuleContext, named: list[_Covering], in_cuda_ns: int) -> tuple[str, list[Example]]:
    """What ranges tell of it; where none does, how much of it is in CUDA calls."""
    if named:
        what = ": " + ", ".join(f"{duration(item.covered_ns)} of it in {item.name}" for item in named)
        return what, [Example(item.start_ns, item.covered_ns, item.name) for item in named]
    return f", {duration(in_cuda_ns)} of it in CUDA calls" if context.trace.captured.cuda_api else "", []


def _code(context: RuleContext, named: list[_Covering], *, is_cuda: bool, is_slow: bool) -> dict[str, str]:
    """What to write, where that is known, and what comes earlier then. ``is_slow``: one call takes most of the run."""
    if is_slow:
        lazy = "" if context.trace.is_of_amd else "CUDA_MODULE_LOADING=LAZY "
        return {"code": f"{lazy}{_own_gpus(context)}", "earlier": _SLOW}
    if is_cuda:
        is_one = len(context.timeline.devices) == 1
        return {"code": _own_gpus(context) if is_one else "", "earlier": _KEEP}
    if named and _makes_model(context, named[0]):
        return {"code": 'with torch.device("cuda"): model = Model(...)', "earlier": _ON_GPU}
    return {}


def _own_gpus(context: RuleContext) -> str:
    """The program, which sees no more GPUs than it used."""
    hide = "HIP_VISIBLE_DEVICES" if context.trace.is_of_amd else "CUDA_VISIBLE_DEVICES"
    used = ",".join(str(context.trace.gpus[device.index].id) for device in context.timeline.devices)
    return f"{hide}={used} {context.trace.how_it_runs}"


def _os_calls(context: RuleContext, low: int, high: int) -> list[str]:
    """The OS calls of the thread that launches the first work that take most of the start."""
    os_calls, names = context.trace.os_calls, context.trace.names
    inside = np.isin(os_calls.thread, unique(context.calls.thread))
    inside &= (os_calls.start_ns >= low) & (os_calls.end_ns <= high)
    lengths = (os_calls.end_ns - os_calls.start_ns)[inside]
    called, place = ranked(os_calls.name[inside])
    total = Counter[str]()
    for name, length in zip(called.tolist(), group_sums(place, lengths, len(called)).tolist(), strict=True):
        total[names[name]] += length
    most = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:3]
    return [f"{name}: {duration(length)}" for name, length in most]


def _ranges(context: RuleContext, low: int, high: int) -> list[_Covering]:
    """The ranges that cover most of the start, no one inside another; a range that holds little but another gives way
    to that one. A range may end after the first GPU work: its part before it counts."""
    ranges, parent = context.trace.ranges, context.tree.range_parent
    covered = np.minimum(ranges.end_ns, high) - np.maximum(ranges.start_ns, low)
    rows = np.flatnonzero((parent < 0) & (covered > 0))
    rows = rows[np.lexsort((rows, -covered[rows]))][:3]
    covering = []
    for row in rows.tolist():
        while True:
            inside = np.flatnonzero(parent == row)
            best = int(inside[np.lexsort((inside, -covered[inside]))][0]) if len(inside) else -1
            if best < 0 or covered[best] < MOST * covered[row]:
                break
            row = best
        name = context.trace.names[ranges.name[row]]
        covering.append(_Covering(row, name, max(int(ranges.start_ns[row]), low), int(covered[row])))
    return covering


def _advice(context: RuleContext, in_cuda: int, startup: int, named: _Covering | None) -> tuple[str, ...]:
    if in_cuda >= _MOST * startup and context.trace.is_of_amd:
        return (
            "Keep the process alive from job to job, and show one GPU only (HIP_VISIBLE_DEVICES=0): most of it is HIP "
            "itself, which makes a context and loads code",
        )
    if in_cuda >= _MOST * startup:
        return (
            "Keep the process alive from job to job, show one GPU only (CUDA_VISIBLE_DEVICES=0), and build for this "
            "GPU: most of it is CUDA itself, which makes a context and loads code. From CUDA 11.7, "
            "CUDA_MODULE_LOADING=LAZY loads code when it is needed (the default since 12.2)",
        )
    if not context.program.is_python:
        return (
            "Find out with nsys profile --sample=process-tree, or perf record -g, which functions run: it is host code "
            "before the first launch, or the driver that makes the context, which no call in the trace shows",
        )
    command = f"py-spy record -o start.svg -- {context.trace.how_it_runs}"
    profile = f"Find out with {command} what the program does before the first GPU work"
    if named is None:
        return (f"{profile}; the same command with python -X importtime shows which imports are slow",)
    if _makes_model(context, named):
        return (
            'Build the model on the GPU, with torch.device("cuda"): model = Model(...), instead of '
            "Model(...).to('cuda'); with a checkpoint, build on device \"meta\" and load it to the GPU: "
            f"{named.name} runs on the CPU for {duration(named.covered_ns)}, then uploads "
            f"{size(int(_uploaded(context, named).sum()))} from pageable memory",
            profile,
        )
    return (f"{profile}: {named.name} is what takes the time",)


def _makes_model(context: RuleContext, named: _Covering) -> bool:
    """Whether a model is made on the CPU there, and uploaded."""
    sizes = _uploaded(context, named) if context.program.is_torch else np.zeros(0, np.int64)
    return int(sizes.sum()) >= _MODEL_BYTES and looks_like_a_model(sizes)


def _uploaded(context: RuleContext, covering: _Covering) -> Int:
    """What calls inside this range, on its thread, copy to devices from pageable memory: bytes of each copy."""
    ranges, calls, table = context.trace.ranges, context.calls, context.operations
    rows = np.flatnonzero(
        (table.kind == OpKind.MEMCPY)
        & (table.direction == Direction.HTOD)
        & (table.source == MemoryKind.PAGEABLE)
        & (calls.of_operation >= 0)
    )
    call = calls.of_operation[rows]
    inside = calls.thread[call] == ranges.thread[covering.row]
    inside &= calls.start_ns[call] >= ranges.start_ns[covering.row]
    inside &= calls.start_ns[call] < ranges.end_ns[covering.row]
    sizes: Int = table.bytes[rows[inside]].astype(np.int64)
    return sizes


RULE = Rule(
    id="late-start",
    title="The first GPU work comes late",
    group="init",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("startup_ns", 2e9, "ns", "Importing a framework and making a context take one or two seconds."),
    ),
)
