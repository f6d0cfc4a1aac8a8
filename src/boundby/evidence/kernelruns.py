"""Runs of kernels that belong together: attention written out, optimizers tensor by tensor, elementwise chains."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.devicework import Bool, Rows, device_work
from boundby.trace.vocabulary.kernels import MATMULS, KernelKind

# Softmax and the matrix products on either side of it have at most so many kernels between them: scale, mask, dropout,
# dtype and layout copies, and where softmax is written out its own steps.
MOST_BETWEEN = 10
# A softmax written out takes a maximum, exponentials and a sum, a kernel or two apart.
WRITTEN_OUT = 4
# An update of one parameter by Adam takes at most so many elementwise kernels on either side of its addcdiv.
UPDATE_REACH = 10
# Fewer elementwise kernels in a row are no chain: two may well be unrelated.
SHORTEST_CHAIN = 3

_MAXIMUM = re.compile(r"MaxOps|MaxNanFunctor|max_kernel_impl", re.IGNORECASE)
_EXPONENTIAL = re.compile(r"\bexp_kernel_cuda|ExpFunctor", re.IGNORECASE)
_BETWEEN = re.compile(r"dropout|elementwise_kernel_with_index|index_elementwise|triu_tril|masked_fill", re.IGNORECASE)
_ADDCDIV = re.compile(r"addcdiv", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optimi[sz]er|\boptim\b|\badamw?\b|\bsgd\b|\bsgd\.step|adagrad|rmsprop|lamb\b", re.IGNORECASE)


@dataclass(frozen=True)
class Attention:
    """Attention written out: rows of trace.operations, one entry of ``instances`` for each softmax found."""

    between: Rows  # all kernels between the two matrix products
    products: Rows  # the matrix products
    instances: int
    forward: int  # of which are no backward pass


def attention(context: RuleContext) -> Attention:
    """Softmax between two matrix products on one stream. Ask with ``context.once(attention)``."""
    work, trace = context.once(device_work), context.timeline.trace
    rows, follows = work.stream_order, work.follows
    name, kind = trace.operations.name[rows], work.kind[rows]
    product = np.isin(kind, MATMULS)
    allowed = np.isin(kind, (KernelKind.ELEMENTWISE, KernelKind.REDUCTION, KernelKind.SOFTMAX))
    allowed |= _named(context, _BETWEEN)[name]
    maximum = (kind == KernelKind.REDUCTION) & _named(context, _MAXIMUM)[name]
    total = (kind == KernelKind.REDUCTION) & ~maximum
    anchors = np.flatnonzero(
        (kind == KernelKind.SOFTMAX) | ((kind == KernelKind.ELEMENTWISE) & _named(context, _EXPONENTIAL)[name])
    )
    backward = _named(context, re.compile("backward", re.IGNORECASE))[name]
    inside, around, instances, forward, reached = np.zeros(len(rows), bool), np.zeros(len(rows), bool), 0, 0, -1
    for anchor in anchors.tolist():
        if anchor <= reached:
            continue
        first, last = anchor, anchor
        while first > 0 and follows[first] and allowed[first - 1] and anchor - first < MOST_BETWEEN:
            first -= 1
        while last + 1 < len(rows) and follows[last + 1] and allowed[last + 1] and last - anchor < MOST_BETWEEN:
            last += 1
        if first == 0 or last + 1 == len(rows) or not (follows[first] and follows[last + 1]):
            continue
        if not (product[first - 1] and product[last + 1]):
            continue
        if kind[anchor] != KernelKind.SOFTMAX and not (
            maximum[max(first, anchor - WRITTEN_OUT) : anchor].any() and total[anchor : anchor + 1 + WRITTEN_OUT].any()
        ):
            continue
        inside[first : last + 1] = True
        around[[first - 1, last + 1]] = True
        instances, reached = instances + 1, last
        forward += not bool(backward[first : last + 1].any())
    return Attention(rows[inside], rows[around], instances, forward)


def optimizer_kernels(context: RuleContext) -> Rows:
    """Single-tensor kernels of an optimizer: elementwise ones launched in a range named after one, or around the
    addcdiv that ends Adam's update of each parameter."""
    work, trace = context.once(device_work), context.timeline.trace
    rows = work.stream_order
    elementwise = work.kind[rows] == KernelKind.ELEMENTWISE
    addcdiv = np.flatnonzero(elementwise & _named(context, _ADDCDIV)[trace.operations.name[rows]])
    mine = np.zeros(len(rows), bool)
    for step in range(-UPDATE_REACH, 3):
        place = addcdiv + step
        place = place[(place >= 0) & (place < len(rows))]
        mine[place] = True
    if len(addcdiv) < 2:  # one of them proves no loop over parameters
        mine[:] = False
    tree = context.timeline.ownership.regions
    named = np.zeros(len(tree), bool)
    for region in range(1, len(tree)):  # parents stand before their children
        named[region] = named[tree.parent[region]] or bool(_OPTIMIZER.search(tree.name[region]))
    mine |= named[context.timeline.launch_region[rows]]
    chosen: Rows = rows[mine & elementwise]
    return chosen


@dataclass(frozen=True)
class Chains:
    """Elementwise and reduction kernels that follow each other directly on one stream."""

    rows: Rows
    count: int  # of chains
    mean_length: float


def elementwise_chains(context: RuleContext) -> Chains:
    """Chains outside attention and optimizers, which have remedies of their own."""
    work = context.once(device_work)
    rows, follows = work.stream_order, work.follows
    kind = work.kind[rows]
    taken = np.zeros(len(work.duration_ns), bool)
    taken[context.once(attention).between] = True
    taken[context.once(optimizer_kernels)] = True
    link = np.isin(kind, (KernelKind.ELEMENTWISE, KernelKind.REDUCTION)) & ~taken[rows]
    begins = link & ~(np.append(False, link[:-1]) & follows)
    number = np.cumsum(begins)[link] - 1
    length = np.bincount(number) if len(number) else np.zeros(0, np.int64)
    long_enough = length >= SHORTEST_CHAIN
    kept = np.flatnonzero(link)[long_enough[number]] if len(number) else np.zeros(0, np.intp)
    count = int(long_enough.sum())
    return Chains(rows[kept], count, len(kept) / count if count else 0.0)


def _named(context: RuleContext, pattern: re.Pattern[str]) -> Bool:
    """Mask over names: in which of the kernels' the pattern is found."""
    trace = context.timeline.trace
    found = np.zeros(len(trace.names) + 1, bool)
    for name in np.unique(trace.operations.name[context.once(device_work).stream_order]).tolist():
        found[name] = bool(pattern.search(trace.names[name]))
    return found
