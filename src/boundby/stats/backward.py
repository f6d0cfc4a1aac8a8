"""The backward pass told beside the forward pass: which part of the program each of its kernels is the gradient of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import places
from boundby.model.expressions import expression
from boundby.model.nesting import depths
from boundby.model.step_function import NOTHING
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.ranges import BACKWARD

Int = npt.NDArray[np.int64]

_NODE = expression(rf"^(?:{BACKWARD}|[A-Za-z_]\w*Backward\d*(?:,|$))")
_SEQUENCE = expression(r"\bseq = (\d{1,18})\b")  # of emit_nvtx


def backward_kernels(timeline: Timeline) -> Int:
    """Kernel time of each region's backward pass, with descendants (ns): that of autograd's nodes, which carry the
    sequence number of the operator that made them; of several such operators, the one begun last before the node."""
    trace, tree = timeline.trace, timeline.ownership.regions
    ranges, total = trace.ranges, np.zeros(len(tree), np.int64)
    used, shapes = trace.range_names
    may_be = np.array(["Backward" in shape or shape.startswith(BACKWARD) for shape in shapes.distinct], bool)
    named = used[may_be[shapes.of_name]].tolist() if may_be.any() else []
    is_node_name = np.zeros(len(trace.names) + 1, bool)
    is_node_name[[number for number in named if _NODE.match(trace.names[number])]] = True
    is_node = is_node_name[ranges.name]
    if not is_node.any():
        return total
    sequence = _sequences(trace)
    nodes = np.flatnonzero(is_node & (sequence >= 0))
    if not len(nodes):
        return total
    inside = is_node.copy()  # operators that the backward pass calls
    depth = depths(tree.range_parent)
    levels = [np.flatnonzero(depth == level) for level in range(1, int(depth.max()) + 1)]
    for rows in levels:
        inside[rows] |= inside[tree.range_parent[rows]]
    forward = np.flatnonzero(~inside & (sequence >= 0))
    forward = forward[np.lexsort((ranges.start_ns[forward], sequence[forward]))]
    _, rank = np.unique(sequence, return_inverse=True)
    span = int(ranges.start_ns.max()) - int(ranges.start_ns.min()) + 1
    if len(ranges) * span >= 1 << 62:
        return total
    begun = ranges.start_ns - int(ranges.start_ns.min())
    key = rank.astype(np.int64) * span + begun
    place = places(key[forward], key[nodes]) - 1
    source = np.where(place >= 0, forward[np.maximum(place, 0)] if len(forward) else NOTHING, NOTHING)
    known = (source >= 0) & (sequence[np.maximum(source, 0)] == sequence[nodes])
    made_by = np.full(len(ranges) + 1, NOTHING, np.int64)
    made_by[nodes[known]] = source[known]
    for rows in levels:  # of what lies in a node, too
        made_by[rows] = np.where(made_by[rows] >= 0, made_by[rows], made_by[tree.range_parent[rows]])
    operations = trace.operations
    of = made_by[timeline.launch_range]
    chosen = (operations.kind <= OpKind.GRAPH) & (of >= 0)
    np.add.at(total, tree.of_range[of[chosen]], (operations.end_ns - operations.start_ns)[chosen])
    return tree.accumulate(total)


def _sequences(trace: Trace) -> Int:
    ranges = trace.ranges
    if len(ranges.sequence) and (ranges.sequence >= 0).any():
        return ranges.sequence
    told = np.full(len(trace.names) + 1, -1, np.int64)
    for number, name in enumerate(trace.names):
        if "seq = " in name and (match := _SEQUENCE.search(name)):
            told[number] = int(match[1])
    return told[ranges.name]
