"""Launch sequences that repeat and could be one CUDA graph each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import RuleContext
from boundby.evidence.launches import LEAST_LAUNCHES, Launches, Part
from boundby.model.causes import BUSY_CAUSES, Cause
from boundby.model.scale import A_FEW_LINES, HALF, NEARLY_ALL
from boundby.model.units import count, duration, percent
from boundby.rules.builtin._launches import ENOUGH, launched
from boundby.rules.rule import Match, Rule, Threshold

# Sequences of one kind stand for all launches that repeat if they hold this share of them.
MOST_OF_ALL = NEARLY_ALL
# So many kinds of sequences are shown as evidence.
_MOST_KINDS = A_FEW_LINES

_WITH_RANKS = (
    "DistributedDataParallel under graphs: wrap the model in a side stream, run at least 11 steps before the capture, "
    "and set TORCH_NCCL_ASYNC_ERROR_HANDLING=0; a step that torch.compile splits at its hooks is several graphs",
)


def _check(context: RuleContext) -> Iterator[Match]:
    if context.time_ns(Cause.CUDA_API) < context.least_ns:
        return
    repeating = launched(context, Part.REPEATING)
    if repeating is None or len(repeating) < ENOUGH:
        return
    found = repeating.of
    of_graph = len(repeating) / max(found.graphs, 1)
    if of_graph < LEAST_LAUNCHES:
        return
    graph_launch_ns = LAUNCH_LIMIT_NS
    low, high = (max(ns - graph_launch_ns * found.graphs, 0) for ns in found.saving(context, Part.REPEATING))
    sooner_ns = round(RULE.threshold(context, "sooner_ns")) * (len(repeating) - found.graphs) if high else 0
    idle_ns = sum(context.time_ns(cause) for cause in Cause if cause not in BUSY_CAUSES)
    high = max(min(high + sooner_ns, idle_ns), low)  # kernels stay as long as they are
    pace = f"kernels of {duration(round(repeating.median_ns))}"
    if repeating.between_ns is not None:
        pace += f", {duration(repeating.between_ns)} of host time each"
    small = repeating.small_share or 0.0
    exchanged = context.timeline.launch_region[np.flatnonzero(context.operations.is_communication)]
    # A server captures its collectives itself.
    communicates = not context.program.is_server and bool(context.tree.subtree(repeating.region)[exchanged].any())
    more = context.program.pick("more work in each", torch="a larger batch", jax="a larger batch")
    batch = (
        f"{percent(small)} of these kernels have fewer blocks than the GPU has multiprocessors: "
        f"{more} makes them hardly any longer",
    )
    yield repeating.match(
        f"{count(len(repeating))} launches repeat, in {_sequences(found, len(repeating))}: one CUDA graph launch could "
        "take the place of each",
        {
            "graph_launches": found.graphs,
            "launches_per_graph": round(of_graph, 1),
            "sequences": [f"{times:,} of {unit:,} launches" for unit, times in found.units[:_MOST_KINDS]],
            "assumed_graph_launch_ns": graph_launch_ns,
            "idle_in_launching_ns": context.time_ns(Cause.CUDA_API),
        },
        (low, high),
        (
            *context.program.pick(
                (
                    f"Capture what repeats once and launch it as one graph: cudaStreamBeginCapture around it, "
                    f"cudaGraphInstantiate, then cudaGraphLaunch in the loop (now {pace})",
                    "Nothing inside may wait for the GPU, and addresses must stay the same",
                ),
                vllm=(
                    f"vLLM captures its steps in CUDA graphs unless it is started with --enforce-eager (now {pace})",
                    "Steps of more tokens than its largest captured size run without one: cudagraph_capture_sizes in "
                    "--compilation-config",
                ),
                sglang=(
                    f"SGLang captures decoding steps in CUDA graphs unless started with --disable-cuda-graph (now "
                    f"{pace}); batches beyond --cuda-graph-max-bs run without",
                ),
                torch=(
                    f'model = torch.compile(model, mode="reduce-overhead"): captures what repeats in CUDA graphs (now '
                    f"{pace})",
                    "torch.cuda.make_graphed_callables(model, (sample,)) for a model without data-dependent control "
                    "flow; shapes must stay the same, nothing inside may wait for the GPU",
                ),
                jax=(f"jax.jit around the whole step compiles what repeats into few kernels and graphs (now {pace})",),
                directives=(
                    f"Join parallel loops into one region, and queue what is left without waits (OpenACC async, OpenMP "
                    f"nowait): each region is a launch (now {pace})",
                ),
            ),
            *(context.program.pick((), torch=_WITH_RANKS) if communicates else ()),
            *(batch if small >= HALF else ()),
        ),
    ).advising("cuda_api.graphs-with-collectives" if communicates else "cuda_api.cuda-graphs")


def _sequences(found: Launches, launches: int) -> str:
    """``25 sequences of 40``; ``3 of 897 and 57 shorter ones``; ``5 sequences of 897, 2 of them in pieces``; ``...,
    and others`` where these are not most of all that are ``launches``."""
    unit, times = found.units[0]
    if found.turns > times:
        others = ", and others" if found.turns * unit < MOST_OF_ALL * launches else ""
        return f"{count(found.turns)} sequences of {unit:,}, {count(found.turns - times)} of them in pieces{others}"
    rest = found.graphs - times
    kinds = "others" if any(length > unit for length, _ in found.units) else "shorter ones"
    more = f" and {count(rest)} {kinds}" if rest else ""
    return f"{count(times)} sequence{'s' if times != 1 else ''} of {unit:,}{more}"


RULE = Rule(
    id="cuda-graphs",
    title="Repeating launch sequences that could be CUDA graphs",
    group="cuda_api",
    causes=(Cause.CUDA_API, Cause.DEVICE_WAIT),  # nodes of a graph follow one another faster than launches do
    check=_check,
    needs=("kernels", "cuda_api"),
    thresholds=(
        Threshold("sooner_ns", 400, "ns", "By so much sooner than on a stream a kernel may follow another in a graph."),
    ),
)
