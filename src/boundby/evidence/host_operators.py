"""Operators of PyTorch that compute on the CPU in a program that uses a GPU."""

from __future__ import annotations

import numpy as np

from boundby.evidence.context import Rows, RuleContext, once
from boundby.model.arrays import marked
from boundby.model.expressions import expression
from boundby.trace.vocabulary.operator_names import is_operator

# Operators that compute: others only make views, allocate or dispatch, and take microseconds wherever they run.
_COMPUTES = expression(
    r"^aten::(?:_?(?:add?mm|baddbmm|bmm|mm|mv|dot|linear|matmul|einsum)|\w*conv\w*|\w*norm\w*|\w*softmax\w*|\w*loss\w*"
    r"|\w*pool\w*|\w*(?:sort|topk|unique\w*|nonzero|cumsum|cdist|histc|bincount|index\w*|gather|scatter\w*|masked_\w+)\d?"
    r"|sum|mean|std|var|max|min|argmax|argmin|prod|all|any|eq|ne|lt|gt|le|ge|where|clamp|add_?|sub_?|mul_?|div_?|pow|exp"
    r"|log|sqrt|sigmoid|tanh|relu_?|gelu|cat|stack|upsample\w*|interpolate|grid_sampler\w*|rand\w*|normal_|uniform_"
    r"|bernoulli_?|copy_|_fft\w*|stft|linalg_\w+)$"
)


@once
def operators_on_cpu(context: RuleContext) -> Rows:
    """Innermost operator ranges that compute, launch nothing and call no CUDA: rows of ``trace.ranges``."""
    trace, tree = context.trace, context.tree
    ranges = trace.ranges
    named = np.array([is_operator(name) and bool(_COMPUTES.match(name.partition(",")[0])) for name in tree.name], bool)
    chosen = named[tree.of_range] if len(ranges) else np.empty(0, bool)
    busy = marked(context.timeline.call_range, len(ranges))
    inside = np.flatnonzero(busy)
    while len(inside):  # what holds a CUDA call, directly or further in, works with the device
        above = marked(tree.range_parent[inside], len(ranges))
        inside = np.flatnonzero(above & ~busy)
        busy |= above
    chosen &= ~busy
    parent = tree.range_parent[np.flatnonzero(chosen)]
    outer = np.zeros(len(ranges), bool)
    outer[parent[parent >= 0]] = True
    rows: Rows = np.flatnonzero(chosen & ~outer)
    return rows
