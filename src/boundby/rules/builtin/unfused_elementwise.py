"""Chains of elementwise kernels that a compiler would fuse."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import device_work, named_top, operation_examples, place_of, saving_by_speed
from boundby.evidence.kernelruns import elementwise_chains
from boundby.model.units import count, duration, percent
from boundby.rules.rule import Match, Remedy, Rule, Threshold


def _check(context: RuleContext) -> Iterator[Match]:
    work, chains = context.once(device_work), context.once(elementwise_chains)
    rows = chains.rows[work.duration_ns[chains.rows] >= context.threshold(RULE, "kernel_ns")]
    exposed = int(work.exposed_ns[rows].sum())
    share = exposed / max(work.busy_kernels_ns(), 1)
    if exposed < context.least_ns or share < context.threshold(RULE, "share_fraction"):
        return
    least = context.threshold(RULE, "fused_least")
    most = max(least, min(chains.mean_length, context.threshold(RULE, "fused_most")))
    total = int(work.duration_ns[rows].sum())
    yield Match(
        region=place_of(context, rows),
        title=f"{count(len(rows))} elementwise and reduction kernels in chains of {chains.mean_length:.1f} take "
        f"{duration(total)}, {percent(share)} of kernel time",
        evidence={
            "count": len(rows),
            "chains": chains.count,
            "kernels_per_chain": round(chains.mean_length, 1),
            "total_ns": total,
            "share_of_kernel_time_fraction": round(share, 4),
            "assumed_speed_up": [least, round(most, 2)],
            "kernels": named_top(context, rows),
        },
        saving_ns=saving_by_speed(context, rows, least, most),
        advice=(
            "model = torch.compile(model): it fuses such chains, so that data passes through memory once, not once "
            "per operation",
            "Norms and activations written out: torch.nn.functional.layer_norm, rms_norm, gelu and silu are one "
            "kernel each",
        ),
        examples=operation_examples(context, rows),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="unfused-elementwise",
    title="Chains of elementwise kernels",
    group="gpu_compute",
    picture="""\
GPU     | mul | add | pow | mean | rsqrt | mul |   each reads and writes memory
memory   r w   r w   r w   r       ...    r w
then    |     one fused kernel     |
memory   r                        w
""",
    meaning="""\
Elementwise kernels do a few operations per number and spend their time on moving the numbers to and from memory. Three
in a row read and write everything three times; fused they do it once.

Counted are PyTorch's own elementwise and reduction kernels that follow one another directly on a stream, three or
more, each long enough that memory and not its launch limits it. Attention and optimizers have rules of their own.
Kernels that follow one another need not work on the same data: the low end of the saving allows for that.
""",
    remedies=(
        Remedy(
            "Compile the model, or the function that holds the chain.",
            "model = torch.compile(model)",
            caution="The first calls compile, which takes seconds to minutes, and again for new shapes "
            "(dynamic=True helps). Graph breaks leave chains as they are: TORCH_LOGS=graph_breaks shows them.",
        ),
        Remedy(
            "Use the fused form of norms, activations and losses.",
            "y = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)",
        ),
        Remedy(
            "CUDA C++: write one kernel for the chain, or let the library's epilogue do it (cuBLASLt, cuDNN graphs).",
            "template <class F> __global__ void apply(F f, float* y, const float* x, int n) {\n"
            "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
            "        y[i] = f(x[i]);\n}",
            language="cpp",
        ),
    ),
    disproof="Compiled, the same kernels are still there: they work on different tensors, or a graph break parts them.",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share_fraction", 0.05, "fraction of kernel time", "Below, compiling for this alone does not pay."),
        Threshold("kernel_ns", 5_000, "ns", "Shorter kernels are limited by launching, not by memory."),
        Threshold("fused_least", 1.3, "times", "Some neighbours work on different data and cannot be fused."),
        Threshold("fused_most", 4.0, "times", "Inputs and outputs of the chain remain, however long it is."),
    ),
    see_also=("unfused-attention", "unfused-optimizer", "cuda-graphs"),
    references={"PyTorch: torch.compile": "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"},
)
