"""The rules on work that takes longer to launch than to run: short kernels, kernels too small for the GPU, small
chunks, and sequences that repeat and could be one CUDA graph each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS
from boundby.evidence.launches import (
    LEAST_LAUNCHES,
    Chunks,
    Launches,
    Part,
    chunks,
    saving_by_size,
    times_larger,
    worth_a_call,
)
from boundby.model.arrays import unique
from boundby.model.causes import BUSY_CAUSES, Cause
from boundby.model.scale import A_FEW_LINES, HALF, MOST, NEARLY_ALL, QUARTER
from boundby.model.units import count, counted, duration, percent, size
from boundby.rules.builtin._operations import ENOUGH, CopySet, LaunchSet, in_no_order, launched
from boundby.rules.rule import MEASURED, Match, Rule, Threshold

# Why a CUDA graph does not hold them as they are.
_CUT = (
    "Waits, allocations and copies to or from the host cut the launches into short sequences: without those, one CUDA "
    "graph could hold each"
)
_NO_ORDER = (
    "They repeat in no fixed order: make shapes and control flow the same (padding, buckets), and a CUDA graph can "
    "hold them"
)


_FUSES = "torch.compile(function) fuses small operations, so that there are fewer to launch"
_STACKED = "x = torch.stack(items)  # then one kernel for all of them, in place of one for each"


def _short_kernels(context: RuleContext) -> Iterator[Match]:
    short = in_no_order(context)
    if short is None or short.are_small or short.median_ns > SHORT_KERNEL_NS:
        return
    is_one = len(unique(context.operations.name[short.kernels.rows])) == 1  # no neighbours: nothing to fuse
    pace = "" if short.between_ns is None else f", one every {duration(short.between_ns)}"
    yield short.match(
        f"{count(len(short))} kernels of {duration(short.median_ns)} (median) are launched one by one{pace}",
        {
            "interrupted_fraction": round(short.of.interrupted, 4),
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
            "kernels": short.kernels.named(),
        },
        short.saving_ns(QUARTER, MOST),
        (
            *context.program.pick(
                (
                    "Launch fewer and larger kernels: join neighbours that work on the same data, and do several items "
                    "in one launch",
                ),
                vllm=(
                    "Start vLLM without --enforce-eager, if it has that option: it then compiles the model, and "
                    "launches less",
                ),
                sglang=("Start SGLang with --enable-torch-compile: it then compiles the model, and launches less",),
                torch=(
                    *(() if is_one else (_FUSES,)),
                    "Work on whole tensors instead of Python loops over rows, samples or parameters",
                ),
                python=(
                    "Work on whole arrays instead of Python loops over rows or samples, and let the library fuse what "
                    "is elementwise (jax.jit, cupy.fuse)",
                ),
                directives=(
                    "Join neighbouring loops into one parallel region, and collapse nested loops into one launch",
                ),
            ),
            *context.program.pick((_CUT if short.of.interrupted >= HALF else _NO_ORDER,), directives=()),
        ),
    ).advising(code=context.program.pick("", torch=_STACKED if is_one else ""))


LAUNCH_OVERHEAD = Rule(
    id="launch-overhead",
    title="Many short kernels wait for their launches",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_short_kernels,
    needs=("kernels", "cuda_api"),
)


def _small_kernels(context: RuleContext) -> Iterator[Match]:
    small = in_no_order(context)
    if small is None or chunks(context) is not None:  # small-chunks speaks of those, with their copies
        return
    if small.small_share is None:
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    if not small.are_small or small.median_ns > SHORT_KERNEL_NS:
        return
    yield small.match(
        f"{percent(small.small_share)} of {count(len(small))} kernels have fewer blocks than the GPU has "
        f"multiprocessors, and they take {duration(small.median_ns)} (median): too little work in each",
        {
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
            "kernels": small.kernels.named(),
        },
        small.saving_ns(QUARTER, HALF),  # a third more work in each, or twice as much
        (
            *context.program.pick(
                (
                    "Put more items into each launch: larger chunks, or one launch over several of them; kernels "
                    "this small take hardly longer for it",
                ),
                torch=(
                    "Use a larger batch, and so fewer steps: kernels this small take hardly longer for it",
                    "Inference: collect requests for a few milliseconds and run them as one batch",
                ),
                directives=("Collapse nested loops, and join neighbouring ones, so that each launch has more to do",),
            ),
        ),
    )


SMALL_BATCH = Rule(
    id="small-batch",
    title="Too little work in each kernel",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_small_kernels,
    needs=("kernels", "cuda_api"),
)


def _small_chunks(context: RuleContext) -> Iterator[Match]:
    small = chunks(context)
    if small is None or small.calls_ns < HALF * context.longest_window_ns:
        return
    copies, larger = CopySet(context, small.copies), times_larger(context, small)
    each = size(small.bytes_each * larger)
    if small.bytes_each * larger >= worth_a_call(context, small):
        each += ": a copy then takes several times as long as its call"
    yield copies.match(
        f"copies of {size(small.bytes_each)} and the kernels on them take less time than the calls that start them: "
        f"{duration(small.run_ns)} against {duration(small.call_ns)} each (median); the calls take "
        f"{percent(min(small.calls_ns / max(context.longest_window_ns, 1), 1.0))} of the window, and the copies reach "
        f"{copies.bytes_per_ns:.2g} GB/s",
        copies.evidence(
            call_median_ns=round(small.call_ns),
            run_median_ns=round(small.run_ns),
            calls_ns=small.calls_ns,
            kernel_count=len(small.kernels),
            times_larger=larger,
            **MEASURED,
        ),
        saving_by_size(context, small),
        (_larger_chunks(context, small, larger),),
        cost_ns=small.span_ns,
    ).advising(larger=larger, each=each)


def _larger_chunks(context: RuleContext, found: Chunks, larger: int) -> str:
    all_of_them = found.bytes_each * len(found.kernels)
    if all_of_them < worth_a_call(context, found):
        return f"Copy each array in one piece ({size(all_of_them)}); more data at once gains more"
    return (
        f"Make chunks larger, so that a copy or kernel runs several times as long as its call: here "
        f"{size(found.bytes_each * larger)} each. Two or three chunks in flight hide copies as well as many do"
    )


SMALL_CHUNKS = Rule(
    id="small-chunks",
    title="Chunks too small to be worth a call each",
    group="cuda_api",
    causes=(Cause.CUDA_API, Cause.GPU_COPY, Cause.GPU_COMPUTE),
    check=_small_chunks,
    needs=("kernels", "cuda_api", "memcpy"),
)


# Sequences of one kind stand for all launches that repeat if they hold this share of them.
MOST_OF_ALL = NEARLY_ALL
# So many kinds of sequences are shown as evidence.
_MOST_KINDS = A_FEW_LINES

_WITH_RANKS = (
    "DistributedDataParallel under graphs: wrap the model in a side stream, run at least 11 steps before the capture, "
    "and set TORCH_NCCL_ASYNC_ERROR_HANDLING=0; a step that torch.compile splits at its hooks is several graphs",
)


def _communicates(context: RuleContext, region: int) -> bool:
    """Whether collectives are launched there that no server captures itself."""
    exchanged = context.timeline.launch_region[np.flatnonzero(context.operations.is_communication)]
    return not context.program.is_server and bool(context.tree.subtree(region)[exchanged].any())


def _capture_advice(context: RuleContext, pace: str) -> tuple[str, ...]:
    """How a program of this kind puts what repeats into graphs."""
    return context.program.pick(
        (
            f"Capture what repeats once and launch it as one graph: cudaStreamBeginCapture around it, "
            f"cudaGraphInstantiate, then cudaGraphLaunch in the loop ({pace})",
            "Nothing inside may wait for the GPU, and addresses must stay the same",
        ),
        vllm=(
            f"Start vLLM without --enforce-eager, if it has that option: it then captures its steps in CUDA graphs "
            f"({pace})",
            "Steps of more tokens than its largest captured size run without one: cudagraph_capture_sizes in "
            "--compilation-config",
        ),
        sglang=(
            "Start SGLang without --disable-cuda-graph, if it has that option: it then captures decoding steps in CUDA "
            f"graphs ({pace}); batches beyond --cuda-graph-max-bs run without",
        ),
        torch=(
            f'model = torch.compile(model, mode="reduce-overhead"): records what repeats as CUDA graphs ({pace})',
            "torch.cuda.make_graphed_callables(model, (sample,)) for a model without data-dependent control "
            "flow; shapes must stay the same, nothing inside may wait for the GPU",
        ),
        jax=(f"Put jax.jit around the whole step: it compiles what repeats into few kernels and graphs ({pace})",),
        directives=(
            f"Join parallel loops into one region, and queue what is left without waits (OpenACC async, OpenMP "
            f"nowait): each region is a launch ({pace})",
        ),
    )


def _graphs(context: RuleContext) -> Iterator[Match]:
    if context.time_ns(Cause.CUDA_API) < context.least_ns:
        return
    repeating = launched(context, Part.REPEATING)
    if repeating is None or len(repeating) < ENOUGH:
        return
    turns = repeating.of
    of_graph = len(repeating) / max(turns.graphs, 1)
    if of_graph < LEAST_LAUNCHES:
        return
    graph_launch_ns = LAUNCH_LIMIT_NS
    low, high = (max(ns - graph_launch_ns * turns.graphs, 0) for ns in turns.saving(context, Part.REPEATING))
    sooner_ns = round(CUDA_GRAPHS.threshold(context, "sooner_ns")) * (len(repeating) - turns.graphs) if high else 0
    idle_ns = sum(context.time_ns(cause) for cause in Cause if cause not in BUSY_CAUSES)
    high = max(min(high + sooner_ns, idle_ns), low)  # kernels stay as long as they are
    communicates = _communicates(context, repeating.region)
    yield repeating.match(
        f"{count(len(repeating))} launches repeat ({_sequences(turns, len(repeating))}): one CUDA graph launch could "
        "take the place of each sequence",
        {
            "graph_launches": turns.graphs,
            "launches_per_graph": round(of_graph, 1),
            "sequences": [f"{times:,} times {unit:,} launches" for unit, times in turns.units[:_MOST_KINDS]],
            "assumed_graph_launch_ns": graph_launch_ns,
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
        },
        (low, high),
        _graph_advice(context, repeating, communicates=communicates),
    ).advising("cuda_api.graphs-with-collectives" if communicates else "cuda_api.cuda-graphs")


def _graph_advice(context: RuleContext, repeating: LaunchSet, *, communicates: bool) -> tuple[str, ...]:
    pace = f"a kernel now runs for {duration(round(repeating.median_ns))}"
    if repeating.between_ns is not None:
        pace += f" and costs the host {duration(repeating.between_ns)}"
        if repeating.median_ns > repeating.between_ns:
            pace += ", so that a graph gains little"
    small = repeating.small_share or 0.0
    more = context.program.pick("more work in each", torch="a larger batch", jax="a larger batch")
    batch = (
        f"{percent(small)} of these kernels have fewer blocks than the GPU has multiprocessors: "
        f"{more} makes them hardly any longer",
    )
    return (
        *_capture_advice(context, pace),
        *(context.program.pick((), torch=_WITH_RANKS) if communicates else ()),
        *(batch if small >= HALF else ()),
    )


def _sequences(found: Launches, launches: int) -> str:
    """``25 times the same 40``; ``3 times the same 897, and 57 shorter sequences``; ``3 times the same 897, and 2
    times a part of them``; ``..., and others`` where these are not most of all that are ``launches``."""
    unit, times = found.units[0]
    if found.turns > times:
        others = ", and others" if found.turns * unit < MOST_OF_ALL * launches else ""
        return f"{_same(times, unit)}, and {counted(found.turns - times, 'time', 'times')} a part of them{others}"
    rest = found.graphs - times
    kinds = "other" if any(length > unit for length, _ in found.units) else "shorter"
    more = f", and {count(rest)} {kinds} sequence{'s' if rest != 1 else ''}" if rest else ""
    return f"{_same(times, unit)}{more}"


def _same(times: int, unit: int) -> str:
    return f"{count(times)} times the same {unit:,}" if times != 1 else f"one sequence of {unit:,}"


CUDA_GRAPHS = Rule(
    id="cuda-graphs",
    title="Repeating launch sequences that could be CUDA graphs",
    group="cuda_api",
    causes=(Cause.CUDA_API, Cause.DEVICE_WAIT),  # nodes of a graph follow one another faster than launches do
    check=_graphs,
    needs=("kernels", "cuda_api"),
    thresholds=(
        Threshold(
            "sooner_ns", 400, "ns", "In a graph, a kernel may start this much sooner after another than on a stream."
        ),
    ),
)
