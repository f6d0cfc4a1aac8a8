"""Idle time in which the host starts a library: cuBLAS, cuDNN and others set themselves up at their first call.

It is told by the calls that only a start makes (cuInit, many of cuGetProcAddress, cuLibraryLoadData), by CPU samples
inside such a library, and by files that are opened and mapped one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from boundby.correlation.correlate import Calls
from boundby.evidence.context import RuleContext
from boundby.evidence.setup import LEAST_STEADY, STEADY_SHARE, progress_at
from boundby.model.intervals import IntervalSet, contains, union
from boundby.trace.stacks import Backtraces, StackSource
from boundby.trace.vocabulary.cuda import CallClass, plain_name
from boundby.trace.vocabulary.kernels import kernel_label

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.int64]

# Calls that only the start of a library, and loading of its code, makes.
_MARK = re.compile(
    r"^cuInit$|^cu(?:da)?(?:GetProcAddress|GetExportTable|GetDriverEntryPoint|Module|Library|Link|KernelGet)"
    r"|^nvrtc|^nvJitLink"
)
_OPENING = re.compile(r"^cuInit$|GetProcAddress|GetExportTable|GetDriverEntryPoint|GetLoadingMode")
_LIBRARIES = {
    "cuBLAS": re.compile(r"cublas", re.IGNORECASE),
    "cuDNN": re.compile(r"cudnn", re.IGNORECASE),
    "cuSOLVER": re.compile(r"cusolver", re.IGNORECASE),
    "cuSPARSE": re.compile(r"cusparse", re.IGNORECASE),
    "cuFFT": re.compile(r"cufft", re.IGNORECASE),
    "cuRAND": re.compile(r"curand", re.IGNORECASE),
    "NVRTC": re.compile(r"nvrtc|nvJitLink", re.IGNORECASE),
}
_KERNELS = {
    "cuBLAS": re.compile(r"gemm|cutlass|gemv|cublas", re.IGNORECASE),
    "cuDNN": re.compile(r"cudnn|convolve|winograd|nchw", re.IGNORECASE),
    "cuFFT": re.compile(r"fft", re.IGNORECASE),
}
_DRIVER = re.compile(r"^lib(?:cuda|cudart)\.so|^lib(?:cublas|cudnn|cusolver|cusparse|cufft|curand|nvrtc|nvJitLink)")
_MAPPING = re.compile(r"^(?:open(?:at)?(?:64)?|mmap(?:64)?|munmap|dlm?open)$")
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
# What opens a file so near to a burst of them belongs to it.
_NEAR_NS = 50_000_000


def is_setup(context: RuleContext, start: Int, end: Int, thread: Int, call: Int) -> Bool:
    """Which idle pieces a library's start explains. ``call``: the call that ends each piece; pieces that one call of a
    thread ends are judged together. Shapes (n,)."""
    if not len(start):
        return np.zeros(0, bool)
    by_calls = _between_marks(context, start, end, thread)
    _, stretch = np.unique(thread * (int(call.max()) + 2) + call + 1, return_inverse=True)
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
    if goes_on and len(np.unique(stretch[by_sight])) >= LEAST_STEADY:
        by_sight[:] = False  # what goes on throughout the run is no start
    return by_calls | by_sight


def _between_marks(context: RuleContext, start: Int, end: Int, thread: Int) -> Bool:
    """Pieces inside runs of calls that only a start makes, just before them, or just after."""
    timeline = context.timeline
    is_mark, opens = (np.zeros(len(timeline.trace.names) + 1, bool) for _ in range(2))
    for number in np.unique(timeline.calls.name).tolist():
        name = plain_name(timeline.trace.names[number])
        is_mark[number], opens[number] = bool(_MARK.search(name)), bool(_OPENING.search(name))
    found = np.zeros(len(start), bool)
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        spans = _starts(timeline.calls, timeline.calls.rows_of(one), is_mark, opens)
        inside = contains(spans, start[mine])
        found[mine] = (inside >= 0) & (end[mine] <= np.append(spans.end, 0)[inside])
    return found


def _starts(calls: Calls, rows: slice, is_mark: Bool, opens: Bool) -> IntervalSet:
    """When one thread starts libraries, with what comes right before and after."""
    name, kind = calls.name[rows], calls.kind[rows]
    begin, finish = calls.start_ns[rows], calls.end_ns[rows]
    marks = np.flatnonzero(is_mark[name])
    low, high = [], []
    if len(marks):
        works = np.isin(kind, (CallClass.LAUNCH, CallClass.SYNC, CallClass.BLOCKING_COPY)) & ~is_mark[name]
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
    found = np.zeros(len(begins), bool)
    trace = context.timeline.trace
    long = np.flatnonzero(ends - begins >= _LEAST_SAMPLED_NS)
    if not trace.captured.backtraces or not len(long):
        return found
    stacks = trace.backtraces.load()
    has = _with_module(stacks, [bool(_DRIVER.match(PurePath(name).name)) for name in stacks.names])
    for one in np.unique(thread[long]).tolist():
        rows = stacks.rows(StackSource.SAMPLE, one)
        time = stacks.events.start_ns[rows]
        before = np.concatenate(([0], np.cumsum(has[stacks.events.stack[rows]])))
        mine = long[thread[long] == one]
        low, high = np.searchsorted(time, begins[mine]), np.searchsorted(time, ends[mine])
        found[mine] = (high - low >= _LEAST_SAMPLES) & (2 * (before[high] - before[low]) >= high - low)
    return found


def _with_module(stacks: Backtraces, wanted: list[bool]) -> Bool:
    """Which stacks have a frame in a module that is wanted, by its place in ``names``."""
    frames = np.array([*wanted, False], bool)[stacks.frames.module]
    before = np.concatenate(([0], np.cumsum(frames[stacks.frame])))
    found: Bool = before[stacks.first[1:]] > before[stacks.first[:-1]]
    return found


def _mapping(context: RuleContext, begins: Int, ends: Int, thread: Int) -> Bool:
    """Stretches in which files are opened and mapped one after the other, as loading a library does."""
    trace = context.timeline.trace
    found, opened = np.zeros(len(begins), bool), np.zeros(len(begins), bool)
    used = np.unique(trace.os_calls.name)
    maps, opening = np.zeros(len(trace.names) + 1, bool), np.zeros(len(trace.names) + 1, bool)
    for number in used.tolist():
        name = trace.names[number].rsplit("@", 1)[0]
        maps[number] = bool(_MAPPING.match(name))
        opening[number] = maps[number] and "open" in name
    for one in np.unique(thread).tolist():
        low, high = np.searchsorted(trace.os_calls.thread, [one, one + 1])
        name = trace.os_calls.name[low:high]
        mine = thread == one
        for kind, wanted, least in ((maps, found, _LEAST_MAPPINGS), (opening, opened, 1)):
            time = trace.os_calls.start_ns[low:high][kind[name]]
            wanted[mine] = np.searchsorted(time, ends[mine]) - np.searchsorted(time, begins[mine]) >= least
        found[mine] &= opened[mine]
        near = union(begins[mine & found] - _NEAR_NS, ends[mine & found] + _NEAR_NS)
        inside = contains(near, begins)
        found |= mine & opened & (inside >= 0) & (ends <= np.append(near.end, 0)[inside])
    return found


def libraries_of(context: RuleContext, intervals: IntervalSet, threads: Iterable[int]) -> list[str]:
    """Names of the libraries that start in these intervals: by samples, ranges, else the kernel launched next."""
    timeline = context.timeline
    trace = timeline.trace
    texts: set[str] = set()
    for thread in sorted(set(threads)):
        if trace.captured.backtraces:
            stacks = trace.backtraces.load()
            rows = stacks.rows(StackSource.SAMPLE, thread)
            within = contains(intervals, stacks.events.start_ns[rows]) >= 0
            for stack in np.unique(stacks.events.stack[rows][within]).tolist():
                texts |= {PurePath(stacks.module(frame)).name for frame in stacks.frames_of(stack).tolist()}
        mine = trace.ranges.thread == thread
        within = mine & (contains(intervals, trace.ranges.start_ns) >= 0)
        texts |= {trace.names[name] for name in np.unique(trace.ranges.name[within]).tolist()}
    found = {name for name, pattern in _LIBRARIES.items() if any(pattern.search(text) for text in texts)}
    if found or not len(intervals.end):
        return sorted(found)
    for thread in sorted(set(threads)):
        kernels = np.flatnonzero((timeline.calls.of_operation >= 0) & (trace.operations.kind == 0))
        kernels = kernels[timeline.calls.thread[timeline.calls.of_operation[kernels]] == thread]
        launched = timeline.calls.start_ns[timeline.calls.of_operation[kernels]]
        order = np.argsort(launched, kind="stable")
        place = np.unique(np.searchsorted(launched[order], intervals.end - 1))
        for row in kernels[order][place[place < len(order)]].tolist():
            label = kernel_label(trace.names[trace.operations.name[row]])
            found |= {name for name, pattern in _KERNELS.items() if pattern.search(label)}
    return sorted(found)
