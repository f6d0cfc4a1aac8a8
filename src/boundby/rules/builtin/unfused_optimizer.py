"""An optimizer that updates tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS
from boundby.evidence.launches import Part
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.scale import HALF
from boundby.model.units import count, duration
from boundby.rules.builtin._launches import launched
from boundby.rules.rule import Match, Rule

# PyTorch's optimizers with one kernel for many tensors; the others have foreach=True.
FUSED = ("AdamW", "Adam", "SGD", "Adagrad")
_DROP = (
    "optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0, drops gradients instead of filling them: "
    "no kernel at all, and the first accumulation writes instead of adding"
)
_NAMED = expression(r"Optimizer\.step#(\w+)\.step")


def _check(context: RuleContext) -> Iterator[Match]:
    updates = launched(context, Part.OPTIMIZER)
    if updates is None or updates.median_ns > SHORT_KERNEL_NS:
        return
    # At least the launches go; at most the kernels too, which are too short to be limited by memory.
    saving_ns = updates.saving_ns(HALF, 1)[0], updates.saving_ns(HALF, 1, Cause.GPU_COMPUTE)[1]
    path = context.path(updates.region)
    does = "sets gradients to zero" if _fills(path) else "updates"
    yield updates.match(
        f"the optimizer {does} tensor by tensor: {count(len(updates))} kernels of {duration(updates.median_ns)}, "
        "launched one by one",
        {"kernels": updates.kernels.named()},
        saving_ns,
        (
            *context.program.pick(
                ("One kernel that updates all parameters, given a list of their addresses, instead of one for each",),
                torch=(_DROP,)
                if _fills(path)
                else (
                    _fused(path),
                    "A loop of your own over parameters: torch._foreach_mul_, torch._foreach_add_, "
                    "torch._foreach_addcdiv_ take lists of tensors",
                ),
            ),
        ),
    ).advising(code=context.program.pick("", torch=_code(path)))


def _code(path: tuple[str, ...]) -> str:
    """The same as code: of the optimizer that is used, as far as its range tells."""
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


RULE = Rule(
    id="unfused-optimizer",
    title="The optimizer updates tensor by tensor",
    group="cuda_api",
    causes=(Cause.GPU_COMPUTE, Cause.CUDA_API, Cause.CPU),  # fewer kernels, and fewer calls for them
    check=_check,
    needs=("kernels", "cuda_api"),
)
