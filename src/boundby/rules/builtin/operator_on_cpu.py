"""Operators of PyTorch that compute on the CPU in a program that uses a GPU, while that idles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import CannotCheckError, RuleContext, once
from boundby.evidence.context import Rows as RowsOf
from boundby.evidence.operators import is_operator
from boundby.model.arrays import marked
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.intervals import CoveredTime, union
from boundby.model.units import duration
from boundby.results.report import Example
from boundby.rules.rule import Match, Rule

# Operators that compute: others only make views, allocate or dispatch, and take microseconds wherever they run.
_COMPUTES = expression(
    r"^aten::(?:_?(?:add?mm|baddbmm|bmm|mm|mv|dot|linear|matmul|einsum)|\w*conv\w*|\w*norm\w*|\w*softmax\w*|\w*loss\w*"
    r"|\w*pool\w*|\w*(?:sort|topk|unique\w*|nonzero|cumsum|cdist|histc|bincount|index\w*|gather|scatter\w*|masked_\w+)\d?"
    r"|sum|mean|std|var|max|min|argmax|argmin|prod|all|any|eq|ne|lt|gt|le|ge|where|clamp|add_?|sub_?|mul_?|div_?|pow|exp"
    r"|log|sqrt|sigmoid|tanh|relu_?|gelu|cat|stack|upsample\w*|interpolate|grid_sampler\w*|rand\w*|normal_|uniform_"
    r"|bernoulli_?|copy_|_fft\w*|stft|linalg_\w+)$"
)


@once
def operators_on_cpu(context: RuleContext) -> RowsOf:
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
    rows: RowsOf = np.flatnonzero(chosen & ~outer)
    return rows


def _check(context: RuleContext) -> Iterator[Match]:
    if not any(name.startswith("aten::") for name in context.trace.names):
        raise CannotCheckError("the trace holds no operator ranges (boundby profile --torch-ops adds them)")
    rows, ranges = operators_on_cpu(context), context.trace.ranges
    if not len(rows):
        return
    idle = [device.gaps.intervals for device in context.timeline.devices]
    gaps = union(np.concatenate([one.start for one in idle]), np.concatenate([one.end for one in idle]))
    start, end = ranges.start_ns[rows], ranges.end_ns[rows]
    exposed = CoveredTime(gaps).within(start, end)
    total = int(exposed.sum())
    if total < context.least_ns:
        return
    region = context.tree.of_range[rows]
    names = [context.tree.name[number] for number in region.tolist()]
    by_name: dict[str, tuple[int, int]] = {}
    for name, ns in zip(names, exposed.tolist(), strict=True):
        before = by_name.get(name, (0, 0))
        by_name[name] = (before[0] + 1, before[1] + ns)
    largest = sorted(by_name.items(), key=lambda item: (-item[1][1], item[0]))
    told = ", ".join(f"{name} {duration(ns)} ({times:,} x)" for name, (times, ns) in largest[:3])
    longest = np.argsort(-exposed, kind="stable")[:3].tolist()
    saving = context.saving((Cause.CPU.key,), regions=np.isin(np.arange(len(context.tree)), region))
    yield Match(
        context.place(context.tree.parent[region], exposed),
        f"operators compute on the CPU while the GPU idles, {duration(total)} in all: {told}",
        {"operators": {name: ns for name, (_, ns) in largest[:10]}, "idle_ns": total, "calls": len(rows)},
        None if saving is None else (0, saving[1]),
        (
            "Move their inputs to the device before: x = x.to('cuda', non_blocking=True), or create them there; the "
            "operators then run as kernels",
            "Where the data have to stay on the host: in DataLoader workers, beside the GPU's work",
        ),
        tuple(Example(int(start[row]), int(end[row] - start[row]), f"{names[row]} on the CPU") for row in longest),
        instances=len(rows),
        cost_ns=total,
    )


RULE = Rule(
    id="operator-on-cpu",
    title="Operators compute on the CPU in a GPU program",
    group="host",
    cause=Cause.CPU,
    check=_check,
    needs=("kernels", "cuda_api", "nvtx"),
)
