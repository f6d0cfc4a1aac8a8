"""When a thread starts libraries, compiles, captures CUDA graphs, or searches for the fastest kernel.

cuBLAS, cuDNN and others set themselves up at their first call.

It is told by the calls that only a start makes (cuInit, many of cuGetProcAddress, cuLibraryLoadData), by CPU samples
inside such a library, and by files that are opened and mapped one after the other.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt

from boundby.correlation.correlate import Calls
from boundby.model.arrays import (
    BoolArray,
    Int32Array,
    Int64Array,
    in_order,
    is_any,
    marked,
    merged,
    pick,
    places,
    unique,
)
from boundby.model.intervals import EMPTY, IntervalSet, any_of, contains, intersect, union
from boundby.model.late import expression
from boundby.model.scale import HABIT, HALF, MANY, NO_LAUNCH_NS, QUARTER, SEVERAL
from boundby.trace.facts import TraceWarning
from boundby.trace.stacks import StackSource, file_name
from boundby.trace.tables import OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, cuda_name, plain_name
from boundby.trace.vocabulary.range_names import Shapes

# What tells that code is compiled while a program runs: calls, ranges and processes, by their names.

# Calls that hand over what was just compiled (PTX, cubin): what a thread did before one of them is the compilation.
# Not cuLibraryLoadData: CUDA's own libraries load their ready code with it, one kernel at a time.
_HANDS_OVER = expression(r"^cu(?:ModuleLoadData(?:Ex)?|ModuleLoadFatBinary|Link(?:Create|AddData|AddFile|Complete))$")
_COMPILES = expression(r"^(?:cuLink|nvrtc|nvJitLink|nvPTXCompiler)")
# Ranges: "compile" as a verb, not "compiled" (which runs what was); compilers and their passes by name.
_RANGE = expression(
    r"(?i:nvrtc|nvjitlink|ptxas|\bcicc\b|torch.?dynamo|convert_frame|torch.?inductor|compile_fx|autotun|benchmark_all_configs)"
    r"|(?<![A-Za-z])[Cc]ompil(?:e|ing|ation)(?![a-z])|[a-z]Compil(?:e|ing|ation)(?![a-z])|GpuLower|Xla(?:Compile|Lower)"
)
_PROCESS = expression(
    r"^(?:ptxas|cicc|cudafe\+\+|fatbinary|nvlink|nvcc|cc1(?:plus)?|collect2|ninja|ld(?:\.\w+)?|as"
    r"|(?:[\w.]+-)*(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-[\d.]+)?|pt_compile_w\w*)$"
)
# Who compiled, by names of ranges, kernels and binaries, the most specific first.
COMPILERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("nvFuser", expression(r"Fusion(?:Executor|KernelRuntime)|nvfuser|\bGpuLower", re.IGNORECASE)),
    (
        "torch.compile",
        expression(r"dynamo|inductor|^triton_(?:poi|red|per|tem)_|compile_fx|CompiledFunction", re.IGNORECASE),
    ),
    ("Triton", expression(r"triton", re.IGNORECASE)),
    ("XLA", expression(r"\bxla|^Xla|jaxlib|^(?:loop|input)_\w*fusion|GpuCompiler", re.IGNORECASE)),
    ("CuPy", expression(r"\bcupy", re.IGNORECASE)),
    ("Numba", expression(r"cudapy|numba", re.IGNORECASE)),
    ("NVRTC", expression(r"nvrtc", re.IGNORECASE)),
)


def hands_over_code(call: str) -> bool:
    """True for a call, by its plain name, that loads or links code which the program holds in memory."""
    return bool(_HANDS_OVER.match(call))


def is_compile_call(call: str) -> bool:
    """True for a call, by its plain name, that compiles or links itself."""
    return bool(_COMPILES.match(call))


def is_compile_range(name: str) -> bool:
    """True for a range in which code is compiled."""
    return bool(_RANGE.search(name))


def is_compiler_process(name: str) -> bool:
    """True for a process, by its path or name, that compiles, assembles or links."""
    return bool(_PROCESS.match(name.rsplit("/", 1)[-1]))


# Calls that only the start of a library, and loading of its code, makes.
_MARK = expression(
    r"^cuInit$|^cu(?:da)?(?:GetProcAddress|GetExportTable|GetDriverEntryPoint|Module|Library|Link|KernelGet)"
    r"|^nvrtc|^nvJitLink"
)
_OPENING = expression(r"^cuInit$|GetProcAddress|GetExportTable|GetDriverEntryPoint|GetLoadingMode")
_DRIVER = expression(r"^lib(?:cuda|cudart)\.so|^lib(?:cublas|cudnn|cusolver|cusparse|cufft|curand|nvrtc|nvJitLink)")
_MAPPING = expression(r"^(?:open(?:at)?(?:64)?|mmap(?:64)?|munmap|dlm?open)$")
# Between two marks a handle makes its workspace and its events (cuBLAS some thirty), and launches nothing.
_MOST_BETWEEN = 40
# The calls of one start: real ones make hundreds. A few may be one kernel that is loaded.
_BURST = SEVERAL
# Opening and relocating the largest of these libraries takes less; what is longer before the first call is more.
_LONGEST_HEAD_NS = 500_000_000
# A library's own work at every call takes microseconds; setting up takes milliseconds.
_LEAST_SAMPLED_NS = NO_LAUNCH_NS
# Loading a shared library maps several segments; fewer such calls are any program's.
_LEAST_MAPPINGS = SEVERAL
# Opened far more often than mapped, files are read: modules of Python, data.
_MAPPED_OF_OPENED = HALF
# What opens a file so near to a burst of them belongs to it.
_NEAR_NS = 50_000_000
# What goes on in so many stretches, with this share of its time after half of the kernels, is no start.
LEAST_STEADY = 10
STEADY_SHARE = QUARTER


class LibraryStarts:
    """The evidence of a whole trace, worked out once; ``of`` asks it for a thread."""

    def __init__(self, trace: Trace, calls: Calls) -> None:
        self._trace, self._calls = trace, calls
        self._is_mark = trace.named(calls.names, lambda name: _MARK.search(cuda_name(name)))
        self._opens = trace.named(calls.names, lambda name: _OPENING.search(cuda_name(name)))

    def of(self, thread: int) -> IntervalSet:
        """When a thread sets a library up."""
        rows = self._calls.rows_of(thread)
        if rows.stop - rows.start < 2:
            return EMPTY
        by_calls = self._between_marks(rows)
        begin_ns, until_ns = self._calls.end_ns[rows][:-1], self._calls.start_ns[rows][1:]
        long = np.flatnonzero(until_ns - begin_ns >= _LEAST_SAMPLED_NS)
        begin_ns, until_ns = begin_ns[long], until_ns[long]
        seen = self._in_libraries(thread, begin_ns, until_ns) | self._mapping(thread, begin_ns, until_ns)
        begin_ns, until_ns = begin_ns[seen], until_ns[seen]
        if len(begin_ns) >= LEAST_STEADY and self._goes_on(begin_ns, until_ns - begin_ns):
            return by_calls
        return any_of((by_calls, union(begin_ns, until_ns)))

    def _goes_on(self, begin_ns: Int64Array, length_ns: Int64Array) -> bool:
        """Whether much of these stretches lies after half of the kernels: then it is no start."""
        late = np.searchsorted(self._launched_ns, begin_ns) >= len(self._launched_ns) / 2
        return int(length_ns[late].sum()) >= max(STEADY_SHARE * int(length_ns.sum()), 1)

    @cached_property
    def _launched_ns(self) -> Int64Array:
        """When each kernel was launched, in order."""
        kernels = self._trace.operations.kind <= OpKind.GRAPH
        launches = marked(self._calls.of_operation[kernels], len(self._calls))
        launched_ns = self._calls.start_ns[launches]
        return launched_ns[in_order(launched_ns)]

    def _between_marks(self, rows: slice) -> IntervalSet:
        """Inside runs of calls that only a start makes, just before them, and just after."""
        calls = self._calls
        name, kind, begin, finish = calls.name[rows], calls.kind[rows], calls.start_ns[rows], calls.end_ns[rows]
        is_mark = self._is_mark[name]
        marks = np.flatnonzero(is_mark)
        if not len(marks):
            return EMPTY
        low, high = [], []
        before = np.cumsum(is_any(kind, (CallClass.LAUNCH, CallClass.SYNC, CallClass.BLOCKING_COPY)) & ~is_mark)
        breaks = (np.diff(before[marks]) > 0) | (np.diff(marks) > _MOST_BETWEEN)
        for run in np.split(marks, np.flatnonzero(breaks) + 1):
            first, last = int(run[0]), int(run[-1])
            if len(run) < _BURST or not self._opens[name[run]].any():
                continue
            since, until = int(begin[first]), int(finish[last])
            length, head = until - since, since - int(finish[first - 1]) if first else 0
            tail = int(begin[last + 1]) - until if last + 1 < len(begin) else 0
            low.append(since - (head if self._opens[name[first]] and 0 < head <= _LONGEST_HEAD_NS else 0))
            high.append(until + (tail if 0 < tail <= length else 0))
        return union(np.array(low, np.int64), np.array(high, np.int64))

    @cached_property
    def _in_driver(self) -> BoolArray:
        """Mask over stacks: those with a CUDA library on them."""
        stacks = self._trace.backtraces.load()
        modules, of_frame = np.unique(stacks.frames.module, return_inverse=True)
        is_driver = [_DRIVER.match(file_name(stacks.names[module])) is not None for module in modules.tolist()]
        before = np.append(0, np.cumsum(np.array(is_driver, bool)[of_frame][stacks.frame]))
        return before[stacks.first[1:]] > before[stacks.first[:-1]]

    def _in_libraries(self, thread: int, begin_ns: Int64Array, until_ns: Int64Array) -> BoolArray:
        """Stretches in which most CPU samples have a CUDA library on the stack."""
        if not self._trace.captured.backtraces or not len(begin_ns):
            return np.zeros(len(begin_ns), bool)
        stacks = self._trace.backtraces.load()
        samples = stacks.rows(StackSource.SAMPLE, thread)
        low, high = np.searchsorted(stacks.events.start_ns[samples], [begin_ns, until_ns])
        before = np.append(0, np.cumsum(self._in_driver[stacks.events.stack[samples]]))
        in_library: BoolArray = (high - low >= 2) & (2 * (before[high] - before[low]) >= high - low)
        return in_library

    @cached_property
    def _file_calls(self) -> tuple[BoolArray, BoolArray]:
        """Masks over names: what opens or maps a file, and what opens one."""
        names = unique(self._trace.os_calls.name)
        maps = self._trace.named(names, lambda name: _MAPPING.match(name.rsplit("@", 1)[0]))
        return maps, maps & self._trace.named(names, lambda name: "open" in name.rsplit("@", 1)[0])

    def _mapping(self, thread: int, begin_ns: Int64Array, until_ns: Int64Array) -> BoolArray:
        """Stretches in which files are opened and mapped one after the other, as loading a library does."""
        of_thread = self._trace.os_calls.rows_of(thread)
        if not len(begin_ns) or of_thread.start == of_thread.stop:
            return np.zeros(len(begin_ns), bool)
        name, start_ns = self._trace.os_calls.name[of_thread], self._trace.os_calls.start_ns[of_thread]
        mapped, opened = (
            np.subtract(*np.searchsorted(start_ns[wanted[name]], [until_ns, begin_ns])) for wanted in self._file_calls
        )
        loads = (mapped >= _LEAST_MAPPINGS) & (opened > 0) & (mapped - opened >= _MAPPED_OF_OPENED * opened)
        near = union(begin_ns[loads] - _NEAR_NS, until_ns[loads] + _NEAR_NS)
        maps_code: BoolArray = loads | ((opened > 0) & _lie_within(near, begin_ns, until_ns))
        return maps_code


def _lie_within(intervals: IntervalSet, start: Int64Array, end: Int64Array) -> BoolArray:
    """Which of [start, end) lie inside one interval as a whole."""
    inside = contains(intervals, start)
    return (inside >= 0) & (end <= np.append(intervals.end, 0)[inside])


# When a thread compiles code, or waits for a compiler: long stretches between two CUDA calls that end in one which
# hands over code, lie in a range that compiles, or are slept through while a compiler's process runs.

# The smallest kernels take NVRTC and ptxas longer; what is shorter is a lookup in a cache, or dispatch.
LEAST_COMPILE_NS = 5_000_000


class CompilationSpans:
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
        if np.count_nonzero(before_code) < 2 and not self._names_a_compiler:
            before_code[:] = False
        own = ranges.rows_of(thread)
        chosen = self._is_range[ranges.name[own]]
        inside = union(ranges.start_ns[own][chosen], ranges.end_ns[own][chosen])
        waits = intersect(asleep, self._compilers)
        parts = [intersect(union(begin, until), waiting) for waiting in (inside, waits)]
        parts.append(union(begin[before_code], until[before_code]))
        compiling = any_of(parts)
        long_enough = compiling.end - compiling.start >= LEAST_COMPILE_NS
        return IntervalSet(compiling.start[long_enough], compiling.end[long_enough])

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


# When streams are captured into CUDA graphs: what is launched then does not run.


def stream_captures(trace: Trace, calls: Calls) -> dict[int, IntervalSet]:
    """When streams were captured into graphs, by process: what is launched then does not run."""
    names = {number: plain_name(trace.names[number]) for number in calls.names.tolist() if number >= 0}
    begins, ends = ([number for number in names if what in names[number]] for what in ("BeginCapture", "EndCapture"))
    if not begins:
        return {}
    first, last = (np.flatnonzero(np.isin(calls.name, numbers)) for numbers in (begins, ends))
    captures: dict[int, IntervalSet] = {}
    process = trace.process_of(calls.thread)
    for number in unique(process[first]).tolist():
        start = calls.start_ns[first[process[first] == number]]
        stop = merged(calls.end_ns[last[process[last] == number]])
        position = places(stop, start)
        end = np.where(position < len(stop), np.append(stop, np.iinfo(np.int64).max)[position], trace.span_ns[1])
        captures[number] = union(start, end)
    return captures


def captured_once(trace: Trace, calls: Calls) -> dict[int, IntervalSet]:
    """Captures of CUDA graphs by processes that capture to replay later: their graphs are launched several times as
    often as they are captured, or not while this is recorded.
    (Programs that capture each round anew work in their captures.)"""
    launches = trace.named(calls.names, lambda name: "GraphLaunch" in name)
    launched = trace.process_of(calls.thread[np.flatnonzero(launches[calls.name])])
    once = {}
    for process, captures in stream_captures(trace, calls).items():
        times = int(np.count_nonzero(launched == process))
        if times < HALF * len(captures.start) or times >= HABIT * len(captures.start):
            once[process] = captures
    return once


def mostly_captures(trace: Trace, calls: Calls) -> TraceWarning | None:
    """Says so where most launches are captured and do not run: the trace is of the making of graphs, not of the program
    at its work."""
    once = captured_once(trace, calls)
    if not once:
        return None
    launches = np.flatnonzero(calls.kind == CallClass.LAUNCH)
    process = trace.process_of(calls.thread[launches])
    captured = 0
    for number, captures in once.items():
        own = launches[process == number]
        captured += int(np.count_nonzero(contains(captures, calls.start_ns[own]) >= 0))
    if captured <= HALF * len(launches):
        return None
    text = (
        f"{captured:,} of {len(launches):,} launches are captured into CUDA graphs, and do not run: this is a recording"
        " of the capture, which happens once. Record what follows to see the program at its work."
    )
    return TraceWarning("stream-capture", text)


# Searches for the fastest kernel: known by what they do, whatever library does it.
#
# cuDNN, Triton and others run one candidate after the other and time each with events: three and more in a row of which
# each runs another kernel, inside one operator. XLA checks after each candidate whether it wrote beyond its output.

# A wait for an event after each of fewer launches is what programs do that time two of their parts.
LEAST_CANDIDATES = HABIT
# Between two checks lie a candidate's kernels and what fills its buffers: this many operations at most.
MOST_BETWEEN_CHECKS = MANY
_WAITS_FOR_EVENT = expression(r"EventSynchronize")
_CHECKS_OUTPUT = expression(r"(?i)redzone_?checker")


def find_searches(trace: Trace, calls: Calls, call_range: Int32Array) -> IntervalSet:
    """When the program searches; ``call_range`` has the innermost range of each call."""
    waiting = [name for name in calls.names.tolist() if _WAITS_FOR_EVENT.search(trace.names[name])]
    checking = [number for number, name in enumerate(trace.names) if _CHECKS_OUTPUT.search(name)]
    parts = [np.empty((2, 0), np.int64)]
    if waiting:
        rows = np.flatnonzero(is_any(calls.name, waiting) & (calls.kind == CallClass.SYNC))
        parts += [
            _timed(trace, calls, call_range, rows[calls.thread[rows] == thread])
            for thread in unique(calls.thread[rows])
        ]
    if checking:
        parts.append(_checked(trace, calls, np.flatnonzero(is_any(trace.operations.name, checking))))
    start, end = np.concatenate(parts, axis=1)
    return union(start, end)


def _timed(trace: Trace, calls: Calls, call_range: Int32Array, waits: npt.NDArray[np.intp]) -> Int64Array:
    """From these waits of one thread for events: runs in which each candidate's longest kernel differs from that of the
    one before it, inside one range. Shape (2, runs): from the first launch to the last wait's end."""
    table = trace.operations
    kernels = np.flatnonzero((table.kind == OpKind.KERNEL) & (calls.of_operation >= 0))
    kernels = kernels[calls.thread[calls.of_operation[kernels]] == calls.thread[waits[0]]]
    launched = calls.launched_ns[kernels]
    trial = places(calls.end_ns[waits], launched)  # the wait that ends it
    kernels, launched, trial = (column[trial < len(waits)] for column in (kernels, launched, trial))
    kernels, launched, trial = (
        column[is_any(call_range[calls.of_operation[kernels]], unique(call_range[waits]))]
        for column in (kernels, launched, trial)
    )
    if not len(kernels):
        return np.empty((2, 0), np.int64)
    longest = np.lexsort((table.end_ns[kernels] - table.start_ns[kernels], trial))
    is_last = np.append(np.diff(trial[longest]) > 0, True)
    tried, name = trial[longest][is_last], table.name[kernels][longest][is_last]
    first = np.full(len(waits), np.iinfo(np.int64).max)
    np.minimum.at(first, trial, launched)
    of_range = call_range[waits[tried]]
    begins = np.append(True, (np.diff(tried) != 1) | (np.diff(of_range) != 0) | (name[1:] == name[:-1]))
    low = np.flatnonzero(begins)
    high = np.append(low[1:], len(tried))
    some = high - low >= LEAST_CANDIDATES
    return np.stack((first[tried[low[some]]], calls.end_ns[waits[tried[high[some] - 1]]]))


def _checked(trace: Trace, calls: Calls, checks: npt.NDArray[np.intp]) -> Int64Array:
    """From these checks of outputs: runs of checks that follow each other. Shape (2, runs)."""
    table = trace.operations
    begins = np.append(True, np.diff(checks) > MOST_BETWEEN_CHECKS)
    low = np.flatnonzero(begins)
    high = np.append(low[1:], len(checks))
    some = high - low >= LEAST_CANDIDATES
    launched = pick(calls.start_ns, calls.of_operation, 0)[checks]
    start = np.where(launched > 0, launched, table.start_ns[checks])
    return np.stack((start[low[some]], table.end_ns[checks][high[some] - 1]))
