"""The rules on kernels that one fused kernel could replace: attention written out, chains of elementwise kernels, and
optimizers that update tensor by tensor."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work
from boundby.evidence.kernels import Attention, attention, elementwise_chains
from boundby.evidence.launches import Part
from boundby.model.arrays import unique
from boundby.model.causes import Cause
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HABIT, HALF, SMALL
from boundby.model.units import count, counted, duration, percent
from boundby.rules.builtin._operations import KernelSet, launched
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.kernel_names import KernelKind, kernel_label

_16_BITS = "In 16 bits (BF16, FP16) the flash kernel is chosen, in FP32 the memory-efficient one"
# By whether a mask is seen.
_ATTENTION_CALL = {
    True: (
        "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask) instead of "
        "q @ k.transpose(-2, -1), mask, softmax and @ v",
        f"If the mask is causal, is_causal=True takes its place and is faster. {_16_BITS}",
    ),
    False: (
        "out = torch.nn.functional.scaled_dot_product_attention(q, k, v) instead of q @ k.transpose(-2, -1), softmax "
        "and @ v",
        f"A mask or bias that is added before softmax goes in as attn_mask=. {_16_BITS}",
    ),
}


def _softmax(context: RuleContext, found: Attention) -> str:
    """What their softmax runs in, where that is more than one kernel."""
    rows = found.between[device_work(context).kind[found.between] == KernelKind.SOFTMAX]
    names, times = np.unique(context.operations.name[rows], return_counts=True)
    told = [f"{count(n)} in {kernel_label(context.trace.names[name])}" for name, n in zip(names, times, strict=True)]
    return f" (softmax: {', '.join(told)})" if 1 < len(told) <= A_FEW_LINES else ""


def _attention(context: RuleContext) -> Iterator[Match]:
    written_out = attention(context)
    kernels = KernelSet(context, written_out.between)
    if written_out.instances < HABIT or kernels.exposed_ns < context.least_ns:
        return
    least, most = ATTENTION.threshold(context, "fused_least"), ATTENTION.threshold(context, "fused_most")
    yield kernels.match(
        f"{counted(written_out.instances, 'attention runs', 'attentions run')} as several kernels each"
        f"{_softmax(context, written_out)}{_passes(written_out)}: "
        f"{count(len(kernels))} kernels between the matrix products take "
        f"{duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time",
        kernels.evidence(
            count=written_out.instances,
            forward_count=written_out.forward,
            backward_count=written_out.instances - written_out.forward,
            kernels_between=len(kernels),
            matrix_products_ns=int(device_work(context).duration_ns[written_out.products].sum()),
            assumed_speed_up=[least, most],
        ),
        kernels.saving_by_speed(least, most),
        (
            *context.program.pick(
                (
                    "Use a fused attention kernel instead of products, scale, mask and softmax: FlashAttention, "
                    "cuDNN's, CUTLASS'",
                ),
                torch=_ATTENTION_CALL[written_out.is_masked],
                jax=(
                    "jax.nn.dot_product_attention(q, k, v, "
                    f'{"mask=mask, " if written_out.is_masked else ""}implementation="cudnn")',
                ),
            ),
        ),
        instances=written_out.instances,
        cost_ns=kernels.total_ns,
    ).advising(mask=", attn_mask=mask" if written_out.is_masked else "", jax_mask="mask=mask, " * written_out.is_masked)


def _passes(written_out: Attention) -> str:
    """`` (12 forward, 12 backward)``; empty of a forward pass alone."""
    backward = written_out.instances - written_out.forward
    return f" ({count(written_out.forward)} forward, {count(backward)} backward)" if backward else ""


ATTENTION = Rule(
    id="unfused-attention",
    title="Attention is not fused",
    group="gpu_compute",
    causes=(Cause.GPU_COMPUTE, Cause.CUDA_API),  # fewer kernels, and fewer calls for them
    check=_attention,
    needs=("kernels",),
    thresholds=(
        Threshold("fused_least", 2.0, "times", "Short sequences leave the fused kernel little to gain."),
        Threshold(
            "fused_most", 20.0, "times", "In a fused kernel these steps take hardly any time beside the products."
        ),
    ),
)


def _elementwise(context: RuleContext) -> Iterator[Match]:
    chains = elementwise_chains(context)
    long_enough = device_work(context).duration_ns[chains.rows] >= LAUNCH_LIMIT_NS // 2
    kernels = KernelSet(context, chains.rows[long_enough])
    if kernels.exposed_ns < context.least_ns or kernels.share < SMALL:
        return
    held = len(unique(chains.chain[long_enough]))
    least = ELEMENTWISE.threshold(context, "fused_least")
    most = max(least, min(len(kernels) / held, ELEMENTWISE.threshold(context, "fused_most")))
    yield kernels.match(
        f"{count(len(kernels))} elementwise and reduction kernels in {counted(held, 'chain', 'chains')} take "
        f"{duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time",
        kernels.evidence(
            chains=held,
            kernels_per_chain=round(len(kernels) / held, 1),
            assumed_speed_up=[least, round(most, 2)],
        ),
        kernels.saving_by_speed(least, most),
        (
            *context.program.pick(
                (
                    "Write one kernel that does the whole chain, so that data passes through memory once, not once per "
                    "operation",
                ),
                torch=(
                    "model = torch.compile(model): it fuses such chains, so that data passes through memory once, not "
                    "once per operation",
                    "Norms and activations written out: torch.nn.functional.layer_norm, rms_norm, gelu and silu are "
                    "one kernel each",
                ),
            ),
        ),
        cost_ns=kernels.total_ns,
    )


ELEMENTWISE = Rule(
    id="unfused-elementwise",
    title="Chains of elementwise kernels",
    group="gpu_compute",
    causes=(Cause.GPU_COMPUTE, Cause.CUDA_API),  # fewer kernels, and fewer calls for them
    check=_elementwise,
    needs=("kernels",),
    thresholds=(
        Threshold("fused_least", 1.3, "times", "Some neighbours work on different data and cannot be fused."),
        Threshold("fused_most", 4.0, "times", "Inputs and outputs of the chain remain, however long it is."),
    ),
)


# PyTorch's optimizers with one kernel for many tensors; the others have foreach=True.
FUSED = ("AdamW", "Adam", "SGD", "Adagrad")
_DROP = (
    "optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0, drops gradients instead of filling them: "
    "no kernel at all, and the first accumulation writes instead of adding"
)
_NAMED = expression(r"Optimizer\.step#(\w+)\.step")


def _optimizer(context: RuleContext) -> Iterator[Match]:
    updates = launched(context, Part.OPTIMIZER)
    if updates is None or updates.median_ns > SHORT_KERNEL_NS:
        return
    # At least the launches go; at most the kernels too, which are too short to be limited by memory.
    saving_ns = updates.saving_ns(HALF, 1)[0], updates.saving_ns(HALF, 1, Cause.GPU_COMPUTE)[1]
    path, names = context.path(updates.region), context.trace.names
    kernels = [names[number] for number in unique(context.operations.name[updates.kernels.rows]).tolist()]
    is_own = _is_written_out(kernels)
    does = "sets gradients to zero" if _fills(path) else "updates"
    yield updates.match(
        f"the optimizer {does} tensor by tensor: {count(len(updates))} kernels of {duration(updates.median_ns)}, "
        "launched one by one",
        {"kernels": updates.kernels.named()},
        saving_ns,
        (
            *context.program.pick(
                (
                    "Write one kernel that updates all parameters, given a list of their addresses, instead of one "
                    "for each",
                ),
                torch=(_DROP,)
                if _fills(path)
                else (_WRITTEN_OUT,)
                if is_own
                else (_fused(path), *(() if any(map(_OF_TORCH.search, kernels)) else (_OWN_LOOP,))),
            ),
        ),
    ).advising(code=context.program.pick("", torch=_LISTS if is_own and not _fills(path) else _optimizer_code(path)))


# An update that takes roots and none of the operations with which torch.optim's optimizers end is the program's own.
_ROOT, _OF_TORCH = expression(r"\br?sqrt_kernel"), expression(r"addcmul|addcdiv|lerp")
_WRITTEN_OUT = (
    "Take lists of all tensors at once with torch._foreach_mul_, torch._foreach_add_, torch._foreach_addcdiv_, or an "
    "optimizer of torch.optim with fused=True if it does the same update: the kernels are those of an update written "
    "by hand"
)
_OWN_LOOP = (
    "Take lists of tensors instead of a loop over parameters: torch._foreach_mul_, torch._foreach_add_, "
    "torch._foreach_addcdiv_"
)
_LISTS = "torch._foreach_mul_(averages, beta)  # lists of all tensors, in place of a loop over parameters"


def _is_written_out(kernels: Collection[str]) -> bool:
    """Whether an update with these kernels is no optimizer of torch.optim."""
    return any(map(_ROOT.search, kernels)) and not any(map(_OF_TORCH.search, kernels))


def _optimizer_code(path: tuple[str, ...]) -> str:
    """What to write for a fused optimizer, as code: of the optimizer that is used, as far as its range tells."""
    if _fills(path):
        return "optimizer.zero_grad(set_to_none=True)"
    names = [match[1] for name in path if (match := _NAMED.search(name))]
    if not names:
        return "for group in optimizer.param_groups: group.update(foreach=True)  # or fused=True where it is made"
    return f"torch.optim.{names[-1]}(params, lr=lr, {'fused' if names[-1] in FUSED else 'foreach'}=True)"


def _fills(path: tuple[str, ...]) -> bool:
    return any("zero_grad" in name for name in path)


def _fused(path: tuple[str, ...]) -> str:
    """How to ask for it, by the optimizer that PyTorch names its range after, where there is one."""
    names = [match[1] for name in path if (match := _NAMED.search(name))]
    if not names:
        return (
            "fused=True lets AdamW, Adam, SGD and Adagrad update all tensors in a few kernels; others have foreach=True"
        )
    name = names[-1]
    if name in FUSED:
        return f"torch.optim.{name}(params, lr=lr, fused=True) updates all tensors in a few kernels"
    return (
        f"torch.optim.{name}(params, lr=lr, foreach=True) updates all tensors with a few kernels an operation ({name} "
        "has no fused kernel)"
    )


OPTIMIZER = Rule(
    id="unfused-optimizer",
    title="The optimizer updates tensor by tensor",
    group="cuda_api",
    causes=(Cause.GPU_COMPUTE, Cause.CUDA_API, Cause.CPU),  # fewer kernels, and fewer calls for them
    check=_optimizer,
    needs=("kernels", "cuda_api"),
)
