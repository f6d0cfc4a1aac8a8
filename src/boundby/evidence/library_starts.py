"""Which libraries set themselves up: cuBLAS, cuDNN and others do at their first call, while the device may idle."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import kernel_name
from boundby.model.arrays import unique
from boundby.model.expressions import expression
from boundby.model.intervals import IntervalSet, contains
from boundby.trace.stacks import StackSource, file_name
from boundby.trace.tables import OpKind

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
