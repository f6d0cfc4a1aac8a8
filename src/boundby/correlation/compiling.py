"""When a thread compiles code, or waits for a compiler: long stretches between two CUDA calls that end in one which
hands over code, lie in a range that compiles, or are slept through while a compiler's process runs."""

from __future__ import annotations

import numpy as np

from boundby.correlation.correlate import Calls
from boundby.model.arrays import BoolArray, Int32Array, Int64Array, unique
from boundby.model.intervals import EMPTY, IntervalSet, intersect, union
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.compilers import COMPILERS, hands_over_code, is_compile_range, is_compiler_process
from boundby.trace.vocabulary.cuda import plain_name
from boundby.trace.vocabulary.ranges import Shapes

# The smallest kernels take NVRTC and ptxas longer; what is shorter is a lookup in a cache, or dispatch.
LEAST_COMPILE_NS = 5_000_000
# A single stretch before code is handed over may be any work, unless names show a compiler.
LEAST_STRETCHES = 2


class Compilations:
    """The evidence of a whole trace, worked out once; ``of`` asks it for a thread."""

    def __init__(self, trace: Trace, calls: Calls) -> None:
        self._trace, self._calls = trace, calls
        called = calls.names
        called = called[called >= 0]
        texts = Shapes.of([trace.names[number] for number in called.tolist()])
        self._hands_over = _mask(trace, called, texts.told(lambda name: hands_over_code(plain_name(name))))
        used_by_ranges, shapes = trace.range_names
        self._is_range = _mask(trace, used_by_ranges, shapes.told(is_compile_range))
        columns = (trace.operations.name, trace.ranges.name, trace.api.name) if self._hands_over.any() else ()
        used = {number for column in columns for number in unique(column).tolist() if number >= 0}
        self._names_a_compiler = any(pattern.search(trace.names[number]) for number in used for _, pattern in COMPILERS)
        self._compilers = self._compiler_processes()

    def of(self, thread: int, asleep: IntervalSet) -> IntervalSet:
        """When a thread compiles. ``asleep``: when it sleeps, as far as is known."""
        calls, ranges = self._calls, self._trace.ranges
        rows = calls.rows_of(thread)
        start, end, name = calls.start_ns[rows], calls.end_ns[rows], calls.name[rows]
        # The long stretches between calls, which follow one another; before the first and after the last all are.
        far = np.iinfo(np.int64).max // 2
        long = np.flatnonzero(start[1:] - end[:-1] >= LEAST_COMPILE_NS) + 1
        long = np.concatenate(([0], long, [len(start)]))[: 1 + len(long) + bool(len(start))]
        begin = np.where(long > 0, end[long - 1] if len(end) else 0, -far - 1)
        until = np.append(start, far)[long]
        before_code = np.append(self._hands_over[name[long[:-1]]], False)
        before_code[0] = False  # since when the thread has been about it nothing says
        if np.count_nonzero(before_code) < LEAST_STRETCHES and not self._names_a_compiler:
            before_code[:] = False
        own = ranges.rows_of(thread)
        chosen = self._is_range[ranges.name[own]]
        inside = union(ranges.start_ns[own][chosen], ranges.end_ns[own][chosen])
        waits = intersect(asleep, self._compilers)
        parts = [intersect(union(begin, until), found) for found in (inside, waits)]
        parts.append(union(begin[before_code], until[before_code]))
        found = union(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))
        long_enough = found.end - found.start >= LEAST_COMPILE_NS
        return IntervalSet(found.start[long_enough], found.end[long_enough])

    def _compiler_processes(self) -> IntervalSet:
        """When a process that compiles is on a CPU."""
        trace = self._trace
        threads = [
            number
            for number, thread in enumerate(trace.threads)
            if is_compiler_process(trace.processes[thread.process].name) or is_compiler_process(thread.name)
        ]
        begin: list[Int64Array] = [np.empty(0, np.int64)]
        end: list[Int64Array] = [np.empty(0, np.int64)]
        for number in threads:
            switches = trace.schedule.of_thread(number)
            if len(switches):  # from its first to its last switch: a compiler that sleeps waits for another
                begin.append(switches.start_ns[:1])
                end.append(switches.start_ns[-1:])
        return union(np.concatenate(begin), np.concatenate(end)) if len(begin) > 1 else EMPTY


def _mask(trace: Trace, names: Int32Array, which: list[bool]) -> BoolArray:
    """Mask over all names, with an entry for -1, no name."""
    mask = np.zeros(len(trace.names) + 1, bool)
    mask[names] = which
    return mask
