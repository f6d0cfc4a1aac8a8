"""When libraries start: cuBLAS, cuDNN and others set themselves up at their first call, while the device may idle.

It is told by the calls that only a start makes (cuInit, many of cuGetProcAddress, cuLibraryLoadData), by CPU samples
inside such a library, and by files that are opened and mapped one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from boundby.correlation.correlate import Calls
from boundby.evidence.context import Bool, Int, RuleContext
from boundby.evidence.device_work import kernel_name
from boundby.evidence.initialization import LEAST_STEADY, STEADY_SHARE, progress_at
from boundby.model.arrays import is_any, ranked, unique
from boundby.model.expressions import expression
from boundby.model.intervals import IntervalSet, contains, union
from boundby.trace.stacks import StackSource, file_name
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass, cuda_name

# Calls that only the start of a library, and loading of its code, makes.
_MARK = expression(
    r"^cuInit$|^cu(?:da)?(?:GetProcAddress|GetExportTable|GetDriverEntryPoint|Module|Library|Link|KernelGet)"
    r"|^nvrtc|^nvJitLink"
)
_OPENING = expression(r"^cuInit$|GetProcAddress|GetExportTable|GetDriverEntryPoint|GetLoadingMode")
_LIBRARIES = {
    "cuBLAS": expression(r"cublas", re.IGNORECASE),
    "cuDNN": expression(r"cudnn", re.IGNORECASE),
    "cuSOLVER": expression(r"cusolver", re.IGNORECASE),
    "cuSPARSE": expression(r"cusparse", re.IGNORECASE),
    "cuFFT": expression(r"cufft", re.IGNORECASE),
    "cuRAND": expression(r"curand", re.IGNORECASE),
    "NVRTC": expression(r"nvrtc|nvJitLink", re.IGNORECASE),
}
_KERNELS = {
    "cuBLAS": expression(r"gemm|cutlass|gemv|cublas", re.IGNORECASE),
    "cuDNN": expression(r"cudnn|convolve|winograd|nchw", re.IGNORECASE),
    "cuFFT": expression(r"fft", re.IGNORECASE),
}
_DRIVER = expression(r"^lib(?:cuda|cudart)\.so|^lib(?:cublas|cudnn|cusolver|cusparse|cufft|curand|nvrtc|nvJitLink)")
_MAPPING = expression(r"^(?:open(?:at)?(?:64)?|mmap(?:64)?|munmap|dlm?open)$")
# Between two marks a handle makes its events and its workspace, and launches nothing.
_MOST_BETWEEN = 40
# The calls of one start: real ones make hundreds. A few may be one kernel that is loaded.
_BURST = 10
# Opening and relocating the largest of these libraries takes less; what is longer before the first call is more.
_LONGEST_HEAD_NS = 500_000_000
# A library's own work at every call takes microseconds; setting up takes milliseconds.
_LEAST_SAMPLED_NS = 1_000_000
_LEAST_SAMPLES = 2
# Loading a shared library maps several segments; fewer such calls are any program's.
_LEAST_MAPPINGS = 8
# Opened far more often than mapped, files are read: modules of Python, data.
_MAPPED_OF_OPENED = 0.5
# What opens a file so near to a burst of them belongs to it.
_NEAR_NS = 50_000_000


def is_setup(context: RuleContext, start: Int, end: Int, thread: Int, call: Int) -> Bool:
    """Which idle pieces a library's start explains. ``call``: the call that ends each piece; pieces that one call of a
    thread ends are judged together. Shapes (n,)."""
    if not len(start):
        return np.zeros(0, bool)
    by_calls = _between_marks(context, start, end, thread)
    _, stretch = ranked(thread * (int(call.max()) + 2) + call + 1)
    begins = np.full(int(stretch.max()) + 1, np.iinfo(np.int64).max)
    ends = np.full(len(begins), np.iinfo(np.int64).min)
    owner = np.zeros(len(begins), np.int64)
    np.minimum.at(begins, stretch, start)
    np.maximum.at(ends, stretch, end)
    owner[stretch] = thread
    seen = _in_libraries(context, begins, ends, owner) | _mapping(context, begins, ends, owner)
    by_sight = seen[stretch] & ~by_calls
    length = end - start
    late = by_sight & (progress_at(context, start) >= 0.5)
    goes_on = int(length[late].sum()) >= max(STEADY_SHARE * int(length[by_sight].sum()), 1)
    if goes_on and len(unique(stretch[by_sight])) >= LEAST_STEADY:
        by_sight[:] = False  # what goes on throughout the run is no start
    return by_calls | by_sight


def _between_marks(context: RuleContext, start: Int, end: Int, thread: Int) -> Bool:
    """Pieces inside runs of calls that only a start makes, just before them, or just after."""
    calls = context.calls
    is_mark = context.names_where(calls.name, lambda name: _MARK.search(cuda_name(name)))
    opens = context.names_where(calls.name, lambda name: _OPENING.search(cuda_name(name)))
    between = np.zeros(len(start), bool)
    for number in unique(thread).tolist():
        rows = np.flatnonzero(thread == number)
        between[rows] = _lie_within(_starts(calls, calls.rows_of(number), is_mark, opens), start[rows], end[rows])
    return between


def _lie_within(intervals: IntervalSet, start: Int, end: Int) -> Bool:
    """Which of [start, end) lie inside one interval as a whole."""
    inside = contains(intervals, start)
    return (inside >= 0) & (end <= np.append(intervals.end, 0)[inside])


def _starts(calls: Calls, rows: slice, is_mark: Bool, opens: Bool) -> IntervalSet:
    """When one thread starts libraries, with what comes right before and after."""
    name, kind = calls.name[rows], calls.kind[rows]
    begin, finish = calls.start_ns[rows], calls.end_ns[rows]
    marks = np.flatnonzero(is_mark[name])
    low, high = [], []
    if len(marks):
        works = is_any(kind, (CallClass.LAUNCH, CallClass.SYNC, CallClass.BLOCKING_COPY)) & ~is_mark[name]
        before = np.cumsum(works)
        breaks = (np.diff(before[marks]) > 0) | (np.diff(marks) > _MOST_BETWEEN)
        for run in np.split(marks, np.flatnonzero(breaks) + 1):
            first, last = int(run[0]), int(run[-1])
            since, until = int(begin[first]), int(finish[last])
            length = until - since
            if len(run) >= _BURST and opens[name[run]].any():
                head = since - int(finish[first - 1]) if first else 0
                if opens[name[first]] and 0 < head <= _LONGEST_HEAD_NS:
                    since -= head
                tail = int(begin[last + 1]) - until if last + 1 < len(begin) else 0
                if 0 < tail <= length:
                    until += tail
            low.append(since)
            high.append(until)
    for place in range(1, len(low)):  # one begins where the one before it ends, at the earliest
        low[place] = max(low[place], high[place - 1])
    return IntervalSet(np.array(low, np.int64), np.maximum(np.array(high, np.int64), np.array(low, np.int64)))


def _in_libraries(context: RuleContext, begins: Int, ends: Int, thread: Int) -> Bool:
    """Stretches in which most CPU samples have a CUDA library on the stack."""
    started = np.zeros(len(begins), bool)
    long = np.flatnonzero(ends - begins >= _LEAST_SAMPLED_NS)
    if not context.trace.captured.backtraces or not len(long):
        return started
    stacks = context.trace.backtraces.load()
    modules, of_frame = ranked(stacks.frames.module)
    is_driver = np.array(
        [_DRIVER.match(file_name(stacks.names[module])) is not None for module in modules.tolist()], bool
    )
    frames_before = np.append(0, np.cumsum(is_driver[of_frame][stacks.frame]))
    in_driver = frames_before[stacks.first[1:]] > frames_before[stacks.first[:-1]]  # by stack
    for number in unique(thread[long]).tolist():
        samples, rows = stacks.rows(StackSource.SAMPLE, number), long[thread[long] == number]
        low, high = np.searchsorted(stacks.events.start_ns[samples], [begins[rows], ends[rows]])
        before = np.append(0, np.cumsum(in_driver[stacks.events.stack[samples]]))
        started[rows] = (high - low >= _LEAST_SAMPLES) & (2 * (before[high] - before[low]) >= high - low)
    return started


def _mapping(context: RuleContext, begins: Int, ends: Int, thread: Int) -> Bool:
    """Stretches in which files are opened and mapped one after the other, as loading a library does."""
    os_calls = context.trace.os_calls
    maps = context.names_where(os_calls.name, lambda name: _MAPPING.match(name.rsplit("@", 1)[0]))
    opens = maps & context.names_where(os_calls.name, lambda name: "open" in name.rsplit("@", 1)[0])
    found = np.zeros(len(begins), bool)
    for number in unique(thread).tolist():
        rows = np.flatnonzero(thread == number)
        of_thread = os_calls.rows_of(number)
        name, start_ns = os_calls.name[of_thread], os_calls.start_ns[of_thread]
        mapped, opened = (
            np.subtract(*np.searchsorted(start_ns[wanted[name]], [ends[rows], begins[rows]]))
            for wanted in (maps, opens)
        )
        loads = (mapped >= _LEAST_MAPPINGS) & (opened > 0) & (mapped - opened >= _MAPPED_OF_OPENED * opened)
        near = union(begins[rows[loads]] - _NEAR_NS, ends[rows[loads]] + _NEAR_NS)
        found[rows] = loads | ((opened > 0) & _lie_within(near, begins[rows], ends[rows]))
    return found


def libraries_of(context: RuleContext, intervals: IntervalSet, threads: Iterable[int]) -> list[str]:
    """Names of the libraries that start in these intervals: by samples, ranges, else the kernel launched next."""
    trace, calls, operations = context.trace, context.calls, context.operations
    threads = sorted(set(threads))
    texts: set[str] = set()
    for thread in threads:
        if trace.captured.backtraces:
            stacks = trace.backtraces.load()
            samples = stacks.rows(StackSource.SAMPLE, thread)
            within = contains(intervals, stacks.events.start_ns[samples]) >= 0
            for stack in unique(stacks.events.stack[samples][within]).tolist():
                texts |= {file_name(stacks.module(frame)) for frame in stacks.frames_of(stack).tolist()}
        within = (trace.ranges.thread == thread) & (contains(intervals, trace.ranges.start_ns) >= 0)
        texts |= {trace.names[name] for name in unique(trace.ranges.name[within]).tolist()}
    libraries = {name for name, pattern in _LIBRARIES.items() if any(pattern.search(text) for text in texts)}
    if libraries or not len(intervals.end):
        return sorted(libraries)
    kernels = np.flatnonzero((calls.of_operation >= 0) & (operations.kind == OpKind.KERNEL))
    kernels = kernels[np.argsort(calls.start_ns[calls.of_operation[kernels]], kind="stable")]
    launched_by = calls.thread[calls.of_operation[kernels]]
    for thread in threads:
        of_thread = kernels[launched_by == thread]
        following = np.searchsorted(calls.start_ns[calls.of_operation[of_thread]], intervals.end - 1)
        for row in of_thread[unique(following[following < len(of_thread)])].tolist():
            label = kernel_name(context, row)
            libraries |= {name for name, pattern in _KERNELS.items() if pattern.search(label)}
    return sorted(libraries)
