"""Many short kernels, each of which waits for its launch."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS
from boundby.model.causes import Cause
from boundby.model.scale import HALF, MOST, QUARTER
from boundby.model.units import count, duration
from boundby.rules.builtin._launches import in_no_order
from boundby.rules.rule import Match, Rule

# Why a CUDA graph does not hold them as they are.
_CUT = (
    "Waits, allocations and copies to or from the host cut them into short pieces: without those, a CUDA graph could "
    "hold them"
)
_NO_ORDER = (
    "They repeat in no fixed order: make shapes and control flow the same (padding, buckets), and a CUDA graph can "
    "hold them"
)


def _check(context: RuleContext) -> Iterator[Match]:
    short = in_no_order(context)
    if short is None or short.are_small or short.median_ns > SHORT_KERNEL_NS:
        return
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
                    "Fewer and larger kernels: join neighbours that work on the same data, and do several items in "
                    "one launch",
                ),
                vllm=("vLLM compiles the model, and so launches less, unless it is started with --enforce-eager",),
                sglang=("SGLang compiles the model, and so launches less, with --enable-torch-compile",),
                torch=(
                    "torch.compile(function) fuses small operations, so that there are fewer to launch",
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
            _CUT if short.of.interrupted >= HALF else _NO_ORDER,
        ),
    )


RULE = Rule(
    id="launch-overhead",
    title="Many short kernels wait for their launches",
    group="cuda_api",
    cause=Cause.CUDA_API,
    check=_check,
    needs=("kernels", "cuda_api"),
)
