"""Which ranges a framework opens around its operators, by their names.

Details such as ``, seq = 12, op_id = 7, sizes = [...]`` folded away, these are

- ``namespace::operator`` of PyTorch's namespaces: ``aten::nonzero``, ``c10d::allreduce_``, ``torchvision::nms``
  (``emit_nvtx``, nsys ``--pytorch``, boundby's own operator ranges); of any where ``aten::`` ranges exist too,
- the autograd engine's: ``autograd::engine::evaluate_function: MulBackward0``, and the node's own ``MulBackward0``,
  ``torch::autograd::AccumulateGrad``, ``struct torch::autograd::CopySlices``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from boundby.model.expressions import expression
from boundby.trace.vocabulary.range_names import fold_name, fold_names

_OPERATOR = expression(
    r"^(?:struct |class )?(?:aten|prims?|_?c10d?(?:_functional)?|nccl|torch\w*|quantized|fbgemm|xformers\w*"
    # aten::nonzero, torch::autograd::AccumulateGrad
    r"|flash_attn\w*|vllm|symm_mem|inductor|onednn|mkldnn\w*)::[A-Za-z_][\w.:]*$"
    r"|^autograd::engine::evaluate_function:"
    r"|^[A-Za-z_]\w*Backward\d*$"
)
# Other namespaces (custom operators) count where the trace shows that operators are annotated; a C++ program may well
# name its own ranges so.
_ANY_NAMESPACE = expression(r"^[a-z_]\w*(?:::[A-Za-z_][\w.]*)+$")


def is_operator(name: str) -> bool:
    """True for the name of an operator range, folded or not."""
    return bool(_OPERATOR.match(fold_name(name)))


def operator_names(texts: Sequence[str], known: Collection[str]) -> tuple[tuple[str, ...], list[int]]:
    """The folded names of operators among these texts, ascending, and which of them each text is (-1: none).
    ``known``: names of ranges that the trace says are operators'."""
    folded = fold_names(texts)
    distinct = set(folded)
    annotated = any(name.startswith("aten::") for name in distinct)
    told = {fold_name(name) for name in known}
    names = tuple(
        sorted(
            name
            for name in distinct
            if _OPERATOR.match(name) or (annotated and _ANY_NAMESPACE.match(name)) or name in told
        )
    )
    index = {name: number for number, name in enumerate(names)}
    return names, [index.get(name, -1) for name in folded]
