"""Floating-point work and bytes by region, where the trace tells the sizes of operators' inputs, against what the
device can do at most.

A kernel counts for the innermost operator around its launch whose work is known; each call of an operator counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.attribution.timeline import Timeline, rows_in_windows
from boundby.model.arrays import factorize, first_rows, group_sums, places, unique
from boundby.model.gpus import Gpu, find_gpu
from boundby.model.intervals import NOTHING, nearest
from boundby.model.late import expression
from boundby.model.scale import TABLE
from boundby.results.report import Counters, OperatorShape, Work
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary import operator_work
from boundby.trace.vocabulary.kernel_names import KernelKind
from boundby.trace.vocabulary.range_names import BACKWARD, fold_name, operator_names

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

# emit_nvtx(record_shapes=True): "aten::addmm, seq = 893, op_id = 7, sizes = [[768], [4096, 768], [768, 768], [], []]"
_SIZES = expression(r"\bsizes = (\[.*\])(?:, input_op_ids|$)")


class WorkedCalls(Struct, frozen=True):
    """The calls of operators whose work is known: the range of each, and its work in six columns (`worked_calls`)."""

    rows: Int  # of Trace.ranges
    columns: Float
    around: Int  # per operation: the range of the call that it works for; NOTHING
    is_counted: npt.NDArray[np.bool_]  # per operation: a kernel inside the windows that does not communicate
    has_peak: bool

    def work(self, columns: npt.NDArray[np.int64], known_ns: int, kernels_ns: int) -> Work | None:
        """Of calls whose columns come to this sum; None where nothing is known."""
        flops, matmul, moved, at_peak, at_bandwidth, at_best = columns.tolist()
        if not known_ns:
            return None
        return Work(
            flops=flops,
            matmul_flops=matmul,
            bytes=moved,
            known_ns=known_ns,
            kernels_ns=kernels_ns,
            at_peak_ns=at_peak if self.has_peak else None,
            at_bandwidth_ns=at_bandwidth if self.has_peak else None,
            at_best_ns=at_best if self.has_peak else None,
        )


def works(timeline: Timeline, calls: WorkedCalls | None, counters: Sequence[Counters | None]) -> list[Work | None]:
    """Of each region, with its descendants; None where nothing is known of its kernels. ``counters``: of each region;
    they tell the traffic of memory where they were sampled."""
    gpus = [_peaks(timeline.trace, device.index) for device in timeline.devices]
    works_of, bandwidths = _works(timeline, calls), {gpu.memory_gb_per_s if gpu else None for gpu in gpus}
    if len(bandwidths) != 1 or None in bandwidths:  # of unlike devices nobody knows whose traffic a mean is
        return works_of
    (bandwidth,) = bandwidths
    return [_measured(work, measured, bandwidth or 0.0) for work, measured in zip(works_of, counters, strict=True)]


def _measured(work: Work | None, counters: Counters | None, bandwidth: float) -> Work | None:
    """The work with the traffic that the GPU's counters saw in the place of the least that it needs."""
    if work is None or counters is None or counters.dram is None or not counters.is_unmixed:
        return work
    at_bandwidth_ns = round(counters.dram * work.known_ns)
    at_best_ns = None if work.at_peak_ns is None else max(work.at_peak_ns, at_bandwidth_ns)
    moved = round(at_bandwidth_ns * bandwidth)
    return replace(work, measured_bytes=moved, at_bandwidth_ns=at_bandwidth_ns, at_best_ns=at_best_ns)


def worked_calls(timeline: Timeline) -> WorkedCalls | None:
    """None where the work of none is known."""
    tree, trace = timeline.ownership.regions, timeline.trace
    work_of, of_range = _work_of_ranges(trace)
    if not work_of:
        return None
    operations = trace.operations
    worked = nearest(tree.range_parent, of_range >= 0)
    windows = {device.index: (device.low_ns, device.high_ns) for device in timeline.devices}
    low, high = (
        np.array([windows.get(number, (0, 0))[side] for number in range(len(trace.gpus))] or [0], np.int64)[
            operations.device
        ]
        for side in (0, 1)
    )
    inside = (operations.start_ns >= low) & (operations.start_ns < high)
    is_kernel = (operations.kind <= OpKind.GRAPH) & ~operations.is_communication & inside
    around = np.append(worked, NOTHING)[timeline.launch_range]
    with_range = np.flatnonzero(is_kernel & (around >= 0))
    # Each call of an operator once, on the device of the first of its kernels.
    first = with_range[first_rows(around[with_range])]
    rows = around[first]
    kinds = np.append(trace.kernel_kind, KernelKind.OTHER)[operations.name]
    peaks = [_peaks(trace, device) for device in range(len(trace.gpus))]
    # Operations, those of matrix products, bytes, ns at the peak, at the bandwidth, the longer of both.
    columns = np.zeros((len(rows), 6), np.float64)
    matmul_kernel = _matmul_kernels(with_range, around, kinds)
    for index, (row, operation) in enumerate(zip(rows.tolist(), first.tolist(), strict=True)):
        work, gpu = work_of[of_range[row]], peaks[int(operations.device[operation])]
        peak = _peak(gpu, work, int(matmul_kernel.get(row, KernelKind.OTHER)))
        bandwidth = gpu.memory_gb_per_s if gpu else None
        at_peak = work.flops / peak / 1e3 if peak else 0.0  # 1e12 a second are 1e3 a nanosecond
        at_bandwidth = (work.bytes or 0) / bandwidth if bandwidth else 0.0  # GB/s: bytes a nanosecond
        matmul = work.flops if work.is_matmul else 0
        columns[index] = (
            work.flops,
            matmul,
            work.bytes or 0,
            at_peak,
            at_bandwidth,
            max(at_peak, at_bandwidth),
        )
    return WorkedCalls(rows, columns, around, is_kernel, any(gpu is not None for gpu in peaks))


def _works(timeline: Timeline, calls: WorkedCalls | None) -> list[Work | None]:
    tree, operations = timeline.ownership.regions, timeline.trace.operations
    if calls is None:
        return [None] * len(tree)
    duration = operations.end_ns - operations.start_ns
    columns = np.zeros((len(tree), calls.columns.shape[1]), np.float64)
    np.add.at(columns, tree.of_range[calls.rows], calls.columns)
    counted = np.rint(columns).astype(np.int64)
    is_kernel, around = calls.is_counted, calls.around
    with_range = np.flatnonzero(is_kernel & (around >= 0))
    covered = np.zeros(len(tree), np.int64)
    np.add.at(covered, tree.of_range[around[with_range]], duration[with_range])
    kernels = np.zeros(len(tree), np.int64)
    np.add.at(kernels, timeline.launch_region[is_kernel], duration[is_kernel])
    summed, covered, kernels = tree.accumulate(counted), tree.accumulate(covered), tree.accumulate(kernels)
    return [calls.work(summed[region], int(covered[region]), int(kernels[region])) for region in range(len(tree))]


def _inputs_of(trace: Trace, name: int, arguments: int) -> tuple[str, str, str] | None:
    """Sizes, types and values of an operator's inputs, by the arguments or the name of its range; None: not told."""
    if arguments >= 0:
        call_arguments = trace.arguments[arguments]
        return call_arguments.sizes, call_arguments.types, call_arguments.values
    match = _SIZES.search(trace.names[name]) if name >= 0 else None
    return (match[1], "", "") if match else None


def _work_of_ranges(trace: Trace) -> tuple[list[operator_work.LeastWork], Int]:
    """Distinct works, and which of them each range has to do; NOTHING (-1): that is not told."""
    ranges = trace.ranges
    if not (ranges.arguments >= 0).any() and not any("sizes = [" in name for name in trace.names):
        return [], np.full(len(ranges), NOTHING, np.int64)
    distinct, index = factorize(ranges.name, ranges.arguments)
    works_of: list[operator_work.LeastWork] = []
    number_of = np.full(len(distinct), NOTHING, np.int64)
    for position, (name, arguments) in enumerate(distinct.tolist()):
        inputs, text = _inputs_of(trace, name, arguments), trace.names[name] if name >= 0 else ""
        if inputs and (work := operator_work.work_of(fold_name(text), *inputs)) is not None:
            number_of[position] = len(works_of)
            works_of.append(work)
    return works_of, number_of[index]


def sizes_of(trace: Trace, row: int) -> tuple[str, str]:
    """The sizes and types of an operator's inputs, as its range tells them, without spaces; "" where it does not."""
    inputs = _inputs_of(trace, int(trace.ranges.name[row]), int(trace.ranges.arguments[row])) or ("", "", "")
    return "".join(inputs[0].split()), "".join(inputs[1].split())


def _matmul_kernels(known: Int, around: Int, kinds: npt.NDArray[np.int8]) -> dict[int, int]:
    """Of ranges, the kind of the matrix kernel that they launched: it tells the precision that was used."""
    of_known = kinds[known]
    chosen = known[np.isin(of_known, (KernelKind.MATMUL_TENSOR, KernelKind.MATMUL_TF32, KernelKind.MATMUL_FP32))]
    return dict(zip(around[chosen].tolist(), kinds[chosen].tolist(), strict=True))


def _peaks(trace: Trace, device: int) -> Gpu | None:
    facts = trace.gpu_facts[device] if device < len(trace.gpu_facts) else None
    return find_gpu(trace.gpus[device].name, facts.multiprocessors if facts and facts.multiprocessors else None)


def _peak(gpu: Gpu | None, work: operator_work.LeastWork, kernel: int) -> float | None:
    """TFLOPS that the device reaches at most in such work; None: not known. In single precision TF32 or not is told by
    the kernel's name; where that says nothing, the faster one counts: a share of it is at least so much."""
    if gpu is None or not work.is_matmul:
        return None
    if work.precision in ("", "fp32"):
        if kernel == KernelKind.MATMUL_FP32:
            return gpu.fp32_tflops
        if kernel == KernelKind.MATMUL_TENSOR:
            return gpu.fp16_tflops
        return gpu.tf32_tflops or gpu.fp32_tflops
    return gpu.tflops(work.precision) or gpu.fp32_tflops


# The backward pass told beside the forward pass: which part of the program each of its kernels is the gradient of.

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
    # Not what the backward pass calls.
    forward = np.flatnonzero((nearest(tree.range_parent, is_node) < 0) & (sequence >= 0))
    forward = forward[np.lexsort((ranges.start_ns[forward], sequence[forward]))]
    _, rank = np.unique(sequence, return_inverse=True)
    span = int(ranges.start_ns.max()) - int(ranges.start_ns.min()) + 1
    if len(ranges) * span >= 1 << 62:
        return total
    begun = ranges.start_ns - int(ranges.start_ns.min())
    key = rank.astype(np.int64) * span + begun
    position = places(key[forward], key[nodes]) - 1
    source = np.where(position >= 0, forward[np.maximum(position, 0)] if len(forward) else NOTHING, NOTHING)
    is_same = (source >= 0) & (sequence[np.maximum(source, 0)] == sequence[nodes])
    made_by = np.full(len(ranges) + 1, NOTHING, np.int64)
    made_by[nodes[is_same]] = source[is_same]
    around = nearest(tree.range_parent, made_by[:-1] >= 0)  # of what lies in a node, too
    operations = trace.operations
    of = made_by[np.append(around, NOTHING)[timeline.launch_range]]
    chosen = (operations.kind <= OpKind.GRAPH) & (of >= 0)
    np.add.at(total, tree.of_range[of[chosen]], (operations.end_ns - operations.start_ns)[chosen])
    return tree.accumulate(total)


def _sequences(trace: Trace) -> Int:
    ranges = trace.ranges
    if len(ranges.sequence) and (ranges.sequence >= 0).any():
        return ranges.sequence
    numbers = np.full(len(trace.names) + 1, -1, np.int64)
    for number, name in enumerate(trace.names):
        if "seq = " in name and (match := _SEQUENCE.search(name)):
            numbers[number] = int(match[1])
    return numbers[ranges.name]


def operators_by_shape(timeline: Timeline, worked: WorkedCalls | None) -> tuple[OperatorShape, ...]:
    """Those whose kernels take most time; none where no operators are on record. A kernel counts for the innermost
    operator around its launch whose work is known, else for the innermost one."""
    trace, table = timeline.trace, timeline.trace.operations
    names, name_of_range = _operators(trace)
    if not names:
        return ()
    around = np.append(nearest(timeline.ownership.regions.range_parent, name_of_range >= 0), NOTHING)
    of_operation = around[timeline.launch_range]
    if worked is not None:
        of_operation = np.where(worked.around >= 0, worked.around, of_operation)
    rows = np.arange(len(table))[rows_in_windows(timeline.devices)] if timeline.devices else np.empty(0, np.intp)
    rows = rows[(table.kind[rows] <= OpKind.GRAPH)]
    all_ns = int((table.end_ns - table.start_ns)[rows].sum())
    rows = rows[of_operation[rows] >= 0]
    if not len(rows):
        return ()
    label = _labels(trace, name_of_range)
    keys, group = factorize(label[of_operation[rows]])
    first = first_rows(of_operation[rows])
    called = of_operation[rows[first]]
    calls = np.bincount(group[first], minlength=len(keys))
    length = (table.end_ns - table.start_ns)[rows]
    total, kernels = group_sums(group, length, len(keys)), np.bincount(group, minlength=len(keys))
    example = np.full(len(keys), NOTHING)
    example[group[first][::-1]] = called[::-1]
    columns, known_ns = np.zeros((len(keys), 6)), np.zeros(len(keys), np.int64)
    if worked is not None:
        position = np.searchsorted(keys[:, 0], label[worked.rows])
        np.add.at(columns, position, worked.columns)
        counted = worked.is_counted[rows] & (worked.around[rows] >= 0)
        known_ns = group_sums(group[counted], length[counted], len(keys))
    operators = [
        OperatorShape(
            name=names[name_of_range[row]],
            sizes=shapes[0],
            types=shapes[1],
            calls=int(calls[at]),
            kernels=int(kernels[at]),
            total_ns=int(total[at]),
            share=round(int(total[at]) / all_ns, 4) if all_ns else 0.0,
            work=None
            if worked is None
            else worked.work(np.rint(columns[at]).astype(np.int64), int(known_ns[at]), int(total[at])),
        )
        for at, row in enumerate(example.tolist())
        for shapes in (sizes_of(trace, row),)
    ]
    return tuple(
        sorted(operators, key=lambda operator: (-operator.total_ns, operator.name, operator.sizes, operator.types))[
            :TABLE
        ]
    )


def _operators(trace: Trace) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """The names of operators, and which of them each range is (NOTHING: none)."""
    used = unique(trace.ranges.name)
    names, number = operator_names([trace.names[name] for name in used.tolist()], trace.operator_names)
    of_name = np.full(len(trace.names) + 1, NOTHING, np.int64)
    of_name[used] = number
    return names, np.where(trace.in_library, NOTHING, of_name[trace.ranges.name])


def _labels(trace: Trace, name_of_range: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number for each operator range; of equal names and shapes the same."""
    rows = np.flatnonzero(name_of_range >= 0)
    distinct, index = factorize(trace.ranges.name[rows], trace.ranges.arguments[rows], name_of_range[rows])
    number: dict[tuple[int, str, str], int] = {}
    first = np.full(len(distinct), NOTHING)
    first[index[::-1]] = rows[::-1]
    of_distinct = [
        number.setdefault((operator, *sizes_of(trace, row)), len(number))
        for operator, row in zip(distinct[:, 2].tolist(), first.tolist(), strict=True)
    ]
    label = np.full(len(trace.ranges), NOTHING, np.int64)
    label[rows] = np.array(of_distinct, np.int64)[index]
    return label
