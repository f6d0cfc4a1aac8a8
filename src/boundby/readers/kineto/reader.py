"""Reader for the traces that ``torch.profiler`` writes (Kineto's Chrome JSON), from 2021 to 2026.

Every variation is met by looking for arguments and categories, never by asking a version. The file is read in pieces:
neither its text nor its events as Python objects are ever in memory as a whole.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from boundby.model import door
from boundby.model.arrays import MISSING, Int32Array, Int64Array, factorize, median, merged, rows_of, unique
from boundby.model.errors import InputError
from boundby.model.intervals import NOTHING, nest
from boundby.model.late import expression
from boundby.model.scale import HALF, PIECE_BYTES
from boundby.model.stage import Room
from boundby.native.passes import EventScanner, JsonEvents, NotJsonError
from boundby.readers.files import PROFILE_AGAIN as _COPY_AGAIN
from boundby.readers.kineto import GZIP, GZIP_WINDOW
from boundby.readers.kineto.columns import (
    ANNOTATION,
    CALL,
    COPY,
    FRAME,
    KERNEL,
    MEMORY,
    MODULE,
    MODULE_PREFIX,
    OPERATOR,
    OVERHEAD,
    SET,
    SYNC,
    Columns,
    kinds_of,
    metadata,
    place_in_job,
    unix_time,
)
from boundby.readers.kineto.gpu_events import KinetoGpus, devices_of, gpu_operations
from boundby.readers.sanitize import CORRELATIONS, MOST_BYTES, MOST_SHAPE, MOST_TIME_NS, Raw, bounded, sanitize
from boundby.trace.facts import PYTORCH, Captured, Cycle, TraceWarning
from boundby.trace.stacks import NO_BACKTRACES, ROUNDED_NS, Backtraces, Frames, LazyBacktraces, StackEvents, StackSource
from boundby.trace.tables import (
    NO_CORRELATION,
    NO_STREAM,
    CallTable,
    Intervals,
    KernelSource,
    MemoryPoints,
    OperatorArguments,
    OpKind,
    ProcessRow,
    Ranges,
    Samples,
    Schedule,
    StreamPoints,
    ThreadRow,
    Trace,
)
from boundby.trace.vocabulary.python import read_frame

# From the events of Kineto's JSON to the tables of a trace.
#
# Operators, annotations and ``nn.Module`` frames become ranges, other Python frames ``Trace.python_frames``. The
# device's twins of annotations (``gpu_user_annotation``) are projections, which are worked out anyway: they are left
# out. So is what tells nothing beside the ids of calls: flows. Instant 0 is the first event; ``Trace.start_unix_ns``
# says when that was.

_CALLED_FROM = ("Call stack", "Module Hierarchy")
_BETWEEN_FRAMES = expression(r";\s*")
_MODULE = expression(r"([^().:]+)\(([^()]*)\)::")
_OUTERMOST, _ITSELF = "TOP", "SELF"


def call_stacks(columns: Columns, raw: Raw, calls: CallTable) -> Backtraces | None:
    """The Python stack of each CUDA call: that of the innermost operator around it that has one. None: none is told, or
    Python functions are recorded as events."""
    stack_texts = columns.text(_CALLED_FROM[0], raw["row"])
    if not (stack_texts >= 0).any() or (columns.kind == FRAME).any():
        return None
    call, text = [], []
    for thread, rows in _by_thread(raw, stack_texts >= 0):
        of_thread = rows_of(calls.thread, thread)
        innermost = nest(raw["start"][rows], raw["end"][rows], ROUNDED_NS).innermost.at(calls.start_ns[of_thread])
        inside = np.flatnonzero(innermost != NOTHING)
        call.append(inside + of_thread.start)
        text.append(stack_texts[rows[innermost[inside]]])
    if not call:
        return None
    taken_of = np.concatenate(call)
    distinct, stack = np.unique(np.concatenate(text), return_inverse=True)
    names: dict[str, int] = {}
    frames: dict[tuple[int, int, int], int] = {}
    stacks = [_stack(columns.events.texts[number], names, frames) for number in distinct.tolist()]
    symbol, module, line = np.array(list(frames), np.int32).reshape(-1, 3).T.copy()
    events = StackEvents(
        calls.start_ns[taken_of],
        calls.thread[taken_of],
        np.full(len(taken_of), StackSource.PYTHON, np.int8),
        stack.reshape(-1).astype(np.int32),
    )
    return Backtraces(
        events,
        np.cumsum([0, *map(len, stacks)]),
        np.array([frame for frames_of_one in stacks for frame in frames_of_one], np.int32),
        Frames(symbol, module, line, np.ones(len(frames), bool), np.zeros(len(frames), bool)),
        tuple(names),
    )


def _stack(text: str, names: dict[str, int], frames: dict[tuple[int, int, int], int]) -> list[int]:
    """The frames of a stack, the innermost first; ``names`` and ``frames`` grow by those that are new."""
    stack = []
    for part in _BETWEEN_FRAMES.split(text):
        if part.strip():
            frame = read_frame(bounded(part.strip()))
            name, file = (names.setdefault(word, len(names)) for word in (frame.function, frame.file))
            key = name, file, frame.line if frame.line < MOST_SHAPE else 0
            stack.append(frames.setdefault(key, len(frames)))
    return stack


def module_ranges(columns: Columns, raw: Raw) -> tuple[dict[str, Int64Array], list[str]]:
    """Ranges of modules, in no order, with the ``name`` of each in the names that are returned: from the first to the
    last of operators in a row that name the module, with no other operator or annotation between them."""
    paths_told = columns.text(_CALLED_FROM[1], raw["row"])
    names: dict[str, int] = {}
    ranges: list[tuple[int, int, int, int]] = []
    if (paths_told >= 0).any():
        paths = {text: _modules(columns.events.texts[text]) for text in unique(paths_told[paths_told >= 0]).tolist()}
        for thread, rows in _by_thread(raw, paths_told >= 0):
            rows = rows[nest(raw["start"][rows], raw["end"][rows], ROUNDED_NS).parent == NOTHING]
            of_thread = np.flatnonzero(raw["globalTid"] == thread)
            begins = merged(raw["start"][of_thread])
            for run in np.split(rows, _breaks(raw, rows, of_thread[paths_told[of_thread] < 0])):
                row_paths = [paths[text] for text in paths_told[run].tolist()]
                times = raw["start"][run].tolist(), raw["end"][run].tolist()
                for name, level, start, end in _runs(row_paths, *times):
                    following = begins[np.searchsorted(begins, end) :][:1].tolist()
                    until = min([end + level, *following])  # who holds another one ends after it, by a nanosecond
                    ranges.append((start, until, thread, names.setdefault(name, len(names))))
    table = np.array(ranges, np.int64).reshape(-1, 4).T.copy()
    return dict(zip(("start", "end", "globalTid", "name"), table, strict=True)), list(names)


def _by_thread(raw: Raw, chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """The chosen rows of each thread, in order of start, then -end."""
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((-raw["end"][rows], raw["start"][rows], raw["globalTid"][rows]))]
    for thread in unique(raw["globalTid"][rows]).tolist():
        yield thread, rows[rows_of(raw["globalTid"][rows], thread)]


def _breaks(raw: Raw, rows: npt.NDArray[np.intp], others: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The places in ``rows`` before which another range begins or ends, since the end of the row before."""
    bounds = merged(raw["start"][others], raw["end"][others])
    until = np.searchsorted(bounds, raw["start"][rows[1:]], side="right")
    since = np.searchsorted(bounds, raw["end"][rows[:-1]])
    return np.flatnonzero(until > since) + 1


def _modules(text: str) -> tuple[str, ...]:
    """The modules that a hierarchy names, the outermost first: ``Net``, ``conv1(Conv2d)``. Calls of a module's own
    methods are the module's."""
    modules = []
    for name, kind in _MODULE.findall(text):
        if name == _OUTERMOST:
            modules.append(bounded(kind or name))
        elif name != _ITSELF:
            modules.append(bounded(f"{name}({kind})" if kind else name))
    return tuple(modules)


def _runs(paths: list[tuple[str, ...]], starts: list[int], ends: list[int]) -> Iterator[tuple[str, int, int, int]]:
    """The name of each module's run of operators, how many levels it holds at least, its start and end."""
    open_since: list[tuple[str, int]] = []
    last = 0
    for path, start, end in zip([*paths, ()], [*starts, 0], [*ends, 0], strict=True):
        shared = 0
        while shared < min(len(path), len(open_since)) and open_since[shared][0] == path[shared]:
            shared += 1
        for depth, (name, since) in enumerate(open_since[shared:], shared):
            yield name, len(open_since) - depth, since, last
        open_since = [*open_since[:shared], *((name, start) for name in path[shared:])]
        last = end


#: The arguments of events that are looked at.
ARGUMENTS = (
    *("device", "stream", "correlation", "bytes", "grid", "block", "registers per thread", "shared memory"),
    "est. achieved occupancy %",
    *("graph node id", "kernel", "Sequence number", "Input Dims", "Input dims", "Input type", "Concrete Inputs"),
    "Input Strides",
    *("cuda_sync_kind", "wait_on_stream", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id"),
    *("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Seq"),
    *("In split size", "Out split size"),
    *("Process Group Name", "Process Group Description", "Process Group Ranks"),
    *_CALLED_FROM,
    *("kernel_file", "kernel_name", "num_warps", "num_stages", "kernel_kwargs"),
    *("Total Allocated", "Total Reserved", "Bytes", "Device Id", "Device Type", "Addr", "name"),
)
OPERATIONS, CALLS, RANGES = "GPU operations", "API calls", "operators and annotations"
FRAMES, OVERHEADS, SYNCS, MEMORY_EVENTS = "Python functions", "profiler overheads", "sync events", "memory events"
_TABLES = {
    OPERATIONS: (KERNEL, COPY, SET),
    CALLS: (CALL,),
    RANGES: (OPERATOR, ANNOTATION, MODULE),
    FRAMES: (FRAME,),
    OVERHEADS: (OVERHEAD,),
    SYNCS: (SYNC,),
    MEMORY_EVENTS: (MEMORY,),
}
_ON_HOST = (CALLS, RANGES, FRAMES, MEMORY_EVENTS)
_CORRELATED = (OPERATIONS, CALLS, SYNCS)
_PROFILE_AGAIN = "Profile again, or take another of the program's traces."
_THREAD_NAME = expression(r"^thread -?\d+ \((.*)\)$")  # "thread 24270 (python)"
_STEP = expression(r"^ProfilerStep#(\d{1,18})")
#: A first or last step with less than this part of the others' calls and operators is one in which the recording began
#: or ended, and no measure of a step.
_WHOLE = HALF
#: Between steps whose numbers do not follow each other a schedule waited, if in so much of the time nothing began.
_UNRECORDED = HALF


def holds_events(events: JsonEvents) -> bool:
    """Whether anything in it is an event of the profiler."""
    return bool(
        np.isin(
            kinds_of(events), [kind for name, kinds in _TABLES.items() for kind in kinds if name != OVERHEADS]
        ).any()
    )


class _Hosts(Struct, frozen=True):
    """The threads that have rows: shape (threads, 2), process and thread ids in ascending order."""

    ids: npt.NDArray[np.int64]
    names: dict[tuple[str, int, int], str]

    def threads(self) -> tuple[ThreadRow, ...]:
        pids = self.pids
        return tuple(
            ThreadRow(pid, tid, pids.index(pid), _THREAD_NAME.sub(r"\1", self.names.get(("thread_name", pid, tid), "")))
            for pid, tid in self.ids.tolist()
        )

    def processes(self) -> tuple[ProcessRow, ...]:
        return tuple(ProcessRow(pid, self.names.get(("process_name", pid, 0), "")) for pid in self.pids)

    @property
    def pids(self) -> list[int]:
        return sorted(set(self.ids[:, 0].tolist()))


def build(events: JsonEvents, shown: Path, path: str) -> Trace:
    """The trace. Raises InputError for one whose events cannot be placed in time."""
    events = replace(events, pid=_unsigned(events.pid), tid=_unsigned(events.tid))
    columns = Columns(events)
    raw, ids = _raw_tables(columns)
    broken = sanitize(shown, raw, _PROFILE_AGAIN)
    hosts = _Hosts(_renumber(raw, ids), _told_names(columns))
    origin_ns, span_ns = _rebase(raw)
    process_of = _owners(raw[CALLS], hosts)
    cycles = _cycles(columns, raw)
    cut = _cut_steps(columns, raw, cycles)
    # What has become a table is given back: twice is not to be in memory.
    of_device = raw.pop(OPERATIONS)
    device = gpu_operations(columns, of_device, process_of(of_device["correlationId"]))
    calls = _calls(columns, raw.pop(CALLS))
    taken = call_stacks(columns, raw[RANGES], calls)
    ranges, arguments = _ranges(columns, raw.pop(RANGES))
    of_frames = raw.pop(FRAMES)
    frames = _intervals(columns, of_frames, of_frames["globalTid"])
    overheads = _overheads(columns, raw[OVERHEADS], calls)
    operators = unique(columns.name(events.name[columns.kind == OPERATOR])).tolist()
    points = _points(columns, raw[SYNCS], process_of, device.gpus.of(devices_of(columns, raw[SYNCS]["row"])))
    memory = _memory(columns, raw[MEMORY_EVENTS], device.gpus)
    names, kind = columns.names, device.operations.kind
    trace = Trace(
        path=path,
        source=PYTORCH,
        operations=device.operations,
        api=calls,
        ranges=ranges,
        os_calls=Intervals.empty(),
        overhead=overheads,
        schedule=Schedule.empty(),
        samples=Samples.empty(),
        names=names,
        domains=("",),
        threads=hosts.threads(),
        processes=hosts.processes(),
        gpus=device.gpus.info,
        captured=Captured(
            kernels=bool((kind == OpKind.KERNEL).any()),
            cuda_api=len(calls) > 0,
            memcpy=bool((kind == OpKind.MEMCPY).any()),
            sync=len(points) > 0,
            nvtx=len(ranges) > 0,
            cuda_graphs=events.has("graph node id")
            or any("GraphLaunch" in names[name] for name in set(calls.name.tolist())),
            python_stacks=len(frames) > 0 or taken is not None,
            shapes=len(arguments) > 0,
            memory=len(memory) > 0,
        ),
        warnings=(*broken, *_of_cut_steps(cut)),
        span_ns=span_ns,
        metadata=metadata(events.top),
        shapes=device.shapes,
        gpu_facts=device.gpus.facts,
        stream_points=points,
        collectives=device.collectives,
        graph_nodes=device.nodes,
        process_groups=device.groups,
        place=place_in_job(events.top),
        start_unix_ns=unix_time(events.top, origin_ns),
        python_frames=frames,
        operator_names=frozenset(names[name] for name in operators if name >= 0),
        arguments=arguments,
        cut_names=frozenset(cut),
        cycles=cycles,
        memory=memory,
        kernel_sources=_kernel_sources(columns),
        backtraces=NO_BACKTRACES if taken is None else LazyBacktraces(lambda: taken),
    )
    return replace(trace, warnings=(*_of_cycles(trace), *trace.warnings))


def _kernel_sources(columns: Columns) -> dict[str, KernelSource]:
    """The sources of the kernels that Triton compiled, which operators name that launch them."""
    rows = np.flatnonzero(columns.text("kernel_file", np.arange(len(columns.events))) >= 0)
    texts = [columns.text(key, rows).tolist() for key in ("kernel_name", "kernel_file", "kernel_kwargs")]
    numbers = [columns.within(key, rows, 1, CORRELATIONS, 0).tolist() for key in ("num_warps", "num_stages")]
    text_of = [*columns.events.texts, ""]  # the last is for -1
    return {
        text_of[name]: KernelSource(text_of[file], warps, stages, text_of[parameters].replace(" ", ""))
        for name, file, parameters, warps, stages in zip(*texts, *numbers, strict=True)
        if name >= 0
    }


def _raw_tables(columns: Columns) -> tuple[dict[str, Raw], npt.NDArray[np.int64]]:
    """Raw columns of each table: ``start``, ``end``, the ``row`` of the event, ``globalTid`` of the host's (a row of
    the process and thread ids, which come with them), ``correlationId`` and ``bytes`` of those that have them."""
    events, kind = columns.events, columns.kind
    of_host = np.isin(kind, [kind_name for table in _ON_HOST for kind_name in _TABLES[table]])
    of_host &= (events.pid != MISSING) & (events.tid != MISSING)
    # Frames of threads whose ids the profiler did not know are filed under 0.
    unknown = (kind == FRAME) & (events.pid == 0) & (events.tid == 0)
    of_host &= ~unknown
    thread = np.full(len(events), MISSING, np.int64)
    ids, thread[of_host] = factorize(events.pid[of_host], events.tid[of_host])
    tables = {}
    for table, kinds in _TABLES.items():
        row = np.flatnonzero(np.isin(kind, kinds) & ~unknown)
        start, duration = as_double(events.start_ns[row]), events.duration_ns[row]
        is_sane = np.abs(start) < MOST_TIME_NS
        start = np.where(is_sane, start, MISSING)
        raw = {"start": start, "row": row.astype(np.int64)}
        if table != MEMORY_EVENTS:
            is_sane &= (duration > -MOST_TIME_NS) & (duration < MOST_TIME_NS)  # abs of the smallest integer is negative
            raw["start"] = np.where(is_sane, start, MISSING)
            raw["end"] = np.where(is_sane, start + np.where(is_sane, duration, 0), MISSING)
        if table in _ON_HOST:
            raw["globalTid"] = thread[row]
        if table in _CORRELATED:
            raw["correlationId"] = columns.number("correlation", row)
        if table == OPERATIONS:
            raw["bytes"] = columns.number("bytes", row)
        tables[table] = raw
    return tables, ids


def _unsigned(ids: Int64Array) -> Int64Array:
    """Ids below 0 as what they were before somebody took their 32 bits for a signed number."""
    is_signed = (ids < 0) & (ids != MISSING)
    return np.where(is_signed, ids & 0xFFFFFFFF, ids) if is_signed.any() else ids


def as_double(time_ns: Int64Array) -> Int64Array:
    """Times (ns) as what a double holds of them in microseconds, which is how all that reads these files sees them, so
    that figures agree to the nanosecond: a quarter of a microsecond is lost where times count from 1970."""
    whole, rest = np.divmod(time_ns, 1_000)
    microseconds = whole.astype(np.float64) + rest / 1_000.0  # the nearest double: ``whole`` is below 2**53
    is_time = np.abs(time_ns) < MOST_TIME_NS
    nearest = np.where(is_time, np.rint(microseconds * 1_000.0), 0).astype(np.int64)
    return np.where(is_time, nearest, time_ns)


def _renumber(raw: dict[str, Raw], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The ids of the threads that still have rows, by which rows now name them."""
    used = unique(np.concatenate([raw[table]["globalTid"] for table in _ON_HOST]))
    for table in _ON_HOST:
        raw[table]["globalTid"] = np.searchsorted(used, raw[table]["globalTid"])
    kept: npt.NDArray[np.int64] = ids[used].reshape(-1, 2)
    return kept


def _rebase(raw: dict[str, Raw]) -> tuple[int, tuple[int, int]]:
    """Make the first event the instant 0: when it was, and first and last instant of any event since."""
    timed = [table for what, table in raw.items() if what != OVERHEADS and len(table["start"])]
    origin = min(int(table["start"].min()) for table in timed)
    last = max(int(table[column].max()) for table in timed for column in ("start", "end") if column in table)
    for table in raw.values():
        table.update({column: table[column] - origin for column in ("start", "end") if column in table})
    return origin, (0, last - origin)


def _told_names(columns: Columns) -> dict[tuple[str, int, int], str]:
    """Names of processes and threads, by (what is named, pid, tid)."""
    events, rows = columns.events, np.flatnonzero(columns.events.phase == ord("M"))
    names = {}
    for row, name in zip(rows.tolist(), columns.text("name", rows).tolist(), strict=True):
        what = events.texts[events.name[row]] if events.name[row] >= 0 else ""
        if name >= 0 and what in ("thread_name", "process_name"):
            names[what, int(events.pid[row]), int(events.tid[row]) if what == "thread_name" else 0] = events.texts[name]
    return names


def _owners(raw: Raw, hosts: _Hosts) -> Callable[[Int64Array], Int32Array]:
    """What tells whose an operation is, by its correlation id: the process that called, or the only one; -1: none."""
    processes = hosts.pids
    order = np.argsort(raw["correlationId"], kind="stable")
    correlations = raw["correlationId"][order]
    owner = np.searchsorted(processes, hosts.ids[raw["globalTid"][order], 0]).astype(np.int32)

    def process(correlation: Int64Array) -> Int32Array:
        if len(processes) <= 1 or not len(correlations):
            return np.full(len(correlation), 0 if len(processes) == 1 else -1, np.int32)
        position = np.minimum(np.searchsorted(correlations, correlation), len(correlations) - 1)
        owners: Int32Array = np.where(correlations[position] == correlation, owner[position], np.int32(-1))
        return owners

    return process


def _calls(columns: Columns, raw: Raw) -> CallTable:
    return CallTable(
        start_ns=raw["start"],
        end_ns=raw["end"],
        thread=raw["globalTid"].astype(np.int32),
        correlation=np.where(raw["correlationId"] == MISSING, NO_CORRELATION, raw["correlationId"]),
        name=columns.name_of(raw["row"]),
        kernel=columns.name(columns.text("kernel", raw["row"])),
    ).sorted(columns.names)


def _steps(columns: Columns, raw: Raw) -> tuple[npt.NDArray[Any], list[int]]:
    """The profiler's steps in order of time, as rows of the ranges, and their numbers."""
    numbers = [match and int(match[1]) for match in map(_STEP.match, columns.events.texts)]
    is_step = np.array([*(number is not None for number in numbers), False], bool)
    names = columns.events.name[raw["row"]]
    rows = np.flatnonzero(is_step[names])
    rows = rows[np.lexsort((raw["end"][rows], raw["start"][rows]))]
    return rows, [int(numbers[name] or 0) for name in names[rows].tolist()]


def _cycles(columns: Columns, raw: dict[str, Raw]) -> tuple[Cycle, ...]:
    """The stretches between which the schedule had nothing recorded; none where there is only one."""
    table = raw[RANGES]
    rows, numbers = _steps(columns, table)
    if len(set(table["globalTid"][rows].tolist())) != 1:
        return ()  # steps of several threads are no schedule's order
    if all(after == before + 1 for before, after in itertools.pairwise(numbers)):
        return ()
    timed = [columns_of for what, columns_of in raw.items() if what != OVERHEADS]
    start = np.concatenate([columns_of["start"] for columns_of in timed])
    until = np.concatenate([columns_of.get("end", columns_of["start"]) for columns_of in timed])
    order = np.argsort(start, kind="stable")
    start, until = start[order], np.maximum.accumulate(until[order])
    cycles: list[Cycle] = []
    first, begun = 0, int(start[0])
    for index, (row, number) in enumerate(zip(rows.tolist(), numbers, strict=True)):
        if index and number != numbers[index - 1] + 1:
            low, high = int(table["end"][rows[index - 1]]), int(table["start"][row])
            inside = slice(*np.searchsorted(start, (low, high + 1)))
            nothing = start[inside] - until[inside.start - 1 : inside.stop - 1]
            if len(nothing) and nothing.max() >= max(_UNRECORDED * (high - low), 1):
                after = inside.start + int(nothing.argmax())
                cycles.append(Cycle(begun, int(until[after - 1]), numbers[first], numbers[index - 1]))
                first, begun = index, int(start[after])
    if not cycles:
        return ()
    return (*cycles, Cycle(begun, int(until[-1]), numbers[first], numbers[-1]))


def _of_cycles(trace: Trace) -> tuple[TraceWarning, ...]:
    main = trace.main_cycle
    apart = [
        f"steps {cycle} (--window {cycle.low_ns // 1_000}us:{cycle.high_ns // 1_000 + 1}us)"
        for cycle in trace.cycles
        if cycle != main
    ]
    text = f"Steps {main} are analysed, recorded apart from {', '.join(apart)}."
    return (TraceWarning("cycles", text),) if apart else ()


def _cut_steps(columns: Columns, raw: dict[str, Raw], cycles: tuple[Cycle, ...]) -> list[str]:
    """Names of the profiler's first and last step (of each stretch) where the recording began or ended in it."""
    table = raw[RANGES]
    start, end = table["start"], table["end"]
    steps, _ = _steps(columns, table)
    if len(steps) < 2:
        return []
    began = merged(np.delete(start, steps), raw[CALLS]["start"])
    work = np.searchsorted(began, end[steps]) - np.searchsorted(began, start[steps])
    usual = float(median(work[1:-1])) if len(work) > 2 else float(work.max())
    turns = np.searchsorted(start[steps], [cycle.low_ns for cycle in cycles[1:]]).tolist()
    ends = sorted({0, len(steps) - 1, *turns, *(index - 1 for index in turns)})
    cut = [steps[index] for index in ends if work[index] < _WHOLE * usual]
    return [columns.events.texts[name] for name in columns.events.name[table["row"][cut]].tolist()]


def _of_cut_steps(cut: list[str]) -> tuple[TraceWarning, ...]:
    text = f"The recording began or ended within {', '.join(cut)}: kept apart from the whole steps."
    return (TraceWarning("step-cut", text),) if cut else ()


def _ranges(columns: Columns, raw: Raw) -> tuple[Ranges, tuple[OperatorArguments, ...]]:
    rows, texts = raw["row"], columns.events.texts
    sizes, types, values = (columns.text(key, rows) for key in ("Input Dims", "Input type", "Concrete Inputs"))
    sizes = np.maximum(sizes, columns.text("Input dims", rows))  # 2021's spelling
    has_sizes = sizes >= 0
    arguments = np.full(len(rows), -1, np.int32)
    strides = columns.text("Input Strides", rows)
    distinct, arguments[has_sizes] = factorize(
        sizes[has_sizes], types[has_sizes], values[has_sizes], strides[has_sizes]
    )
    table = Ranges(
        start_ns=raw["start"],
        end_ns=raw["end"],
        thread=raw["globalTid"].astype(np.int32),
        name=columns.name_of(rows, lambda text: text.removeprefix(MODULE_PREFIX) or "(unnamed)"),
        domain=np.zeros(len(rows), np.int32),
        is_start_end=np.zeros(len(rows), bool),
        is_open=np.zeros(len(rows), bool),
        arguments=arguments,
        sequence=columns.within("Sequence number", rows, 0, 1 << 62, -1),
    )
    arguments_of = tuple(
        OperatorArguments(*(texts[text] if text >= 0 else "" for text in row)) for row in distinct.tolist()
    )
    of_modules, modules = module_ranges(columns, raw)
    if modules:
        none = np.zeros(len(of_modules["name"]), bool)
        table = table.and_more(
            {
                "start_ns": of_modules["start"],
                "end_ns": of_modules["end"],
                "thread": of_modules["globalTid"].astype(np.int32),
                "name": columns.names_of(modules)[of_modules["name"]],
                "domain": none.astype(np.int32),
                "is_start_end": none,
                "is_open": none,
            }
        )
    return table.sorted(columns.names), arguments_of


def _intervals(columns: Columns, raw: Raw, thread: npt.NDArray[Any]) -> Intervals:
    name = columns.name_of(raw["row"])
    return Intervals(raw["start"], raw["end"], thread.astype(np.int32), name).sorted(columns.names)


def _overheads(columns: Columns, raw: Raw, calls: CallTable) -> Intervals:
    """The profiler's own work. Kineto does not say on which thread: that in whose call it lies, else (asking for a
    buffer comes just before a call) that whose call returns next. What no thread waits for is left out: flushing."""
    if not len(calls) or not len(raw["start"]):
        return Intervals.empty()
    order = np.argsort(calls.end_ns, kind="stable")
    position = np.searchsorted(calls.end_ns[order], raw["end"])
    caller = order[np.minimum(position, len(order) - 1)]
    flushes = np.array(columns.each(columns.events.name[raw["row"]], lambda name: "flush" in name.lower(), False), bool)
    held = (position < len(order)) & (~flushes | (calls.start_ns[caller] <= raw["start"])) & (raw["start"] >= 0)
    return _intervals(columns, {column: values[held] for column, values in raw.items()}, calls.thread[caller[held]])


def _points(
    columns: Columns, raw: Raw, process_of: Callable[[Int64Array], Int32Array], device: Int32Array
) -> StreamPoints:
    """What sync events say of streams and events. A stream's wait names the record that it waits for, too."""
    rows, correlation, process = raw["row"], raw["correlationId"], process_of(raw["correlationId"])
    stream, recorded_on, event = (
        columns.within(key, rows, 0, NO_STREAM, -1) for key in ("stream", "wait_on_stream", "wait_on_cuda_event_id")
    )
    record = columns.within("wait_on_cuda_event_record_corr_id", rows, NO_CORRELATION + 1, CORRELATIONS, -1)
    good = np.flatnonzero((correlation > NO_CORRELATION) & (process >= 0))
    # Several streams can wait for one record.
    records = good[record[good] >= 0]
    records = records[np.unique(record[records], return_index=True)[1]]

    def both(of_calls: npt.NDArray[Any], of_records: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate((of_calls[good], of_records[records]))

    return StreamPoints(
        process=both(process, process),
        correlation=both(correlation, record),
        device=both(device, device),
        stream=both(stream, recorded_on),
        event=both(event, event),
        is_record=np.repeat([False, True], [len(good), len(records)]),
        **{f"{end}_ns": np.append(raw[end][good], np.zeros(len(records), np.int64)) for end in ("start", "end")},
    ).sorted()


def _memory(columns: Columns, raw: Raw, gpus: KinetoGpus) -> MemoryPoints:
    rows = raw["row"]
    on_host = columns.number("Device Type", rows) == 0  # c10::DeviceType::CPU
    delta = columns.within("Bytes", rows, -MOST_BYTES, MOST_BYTES, 0)
    allocated, reserved = (
        columns.within(f"Total {what}", rows, 0, MOST_BYTES, 0) for what in ("Allocated", "Reserved")
    )
    thread = raw["globalTid"].astype(np.int32)
    where = np.full(len(rows), -1, np.int32)
    where[~on_host] = gpus.of_visible(columns.number("Device Id", rows[~on_host]))
    address = columns.within("Addr", rows, 0, MOST_TIME_NS, -1)
    return MemoryPoints(where, raw["start"], thread, delta, allocated, reserved, address).sorted()


Progress = Callable[[str, float | None], None]

#: Text of a trace is some 10 to 40 times its packed size. What is made to fill memory is a thousand times as long.
MOST_UNPACKED = door.MOST_TEXT_BYTES
_MOST_RATIO = 200


def read(path: Path, *, name: str | None, source: str, progress: Progress, room: Room | None = None) -> Trace:  # noqa: ARG001
    """Read a PyTorch profiler trace into a Trace: see `boundby.readers.read_trace`."""
    shown = path if name is None else Path(name)
    scanner = EventScanner(ARGUMENTS)
    size = max(path.stat().st_size, 1)
    try:
        for piece, done in _pieces(path, shown):
            progress("reading the PyTorch profiler's events", min(done / size, 1.0))
            scanner.feed(piece)
        events = scanner.finish()
    except NotJsonError as error:
        raise _no_trace(shown) if _is_json(path) else _broken(shown, error) from None
    _check(shown, events)
    return build(events, shown, str(name or path))


def _unpacked(file: BinaryIO, packed: bytes, shown: Path) -> Iterator[tuple[bytes, int]]:
    """The text of a compressed file, of which this is the first piece."""
    unpacked, unpacker = 0, zlib.decompressobj(GZIP_WINDOW)
    while packed:
        text = unpacker.decompress(packed, PIECE_BYTES)
        unpacked += len(text)
        if unpacked > MOST_UNPACKED and unpacked > _MOST_RATIO * file.tell():
            raise InputError(
                f"{shown} unpacks to more than {_MOST_RATIO} times its size, which no trace does.", _COPY_AGAIN
            )
        if text:
            yield text, file.tell()
        packed = unpacker.unconsumed_tail
        if unpacker.eof:  # another member may follow
            packed = unpacker.unused_data or file.read(PIECE_BYTES)
            if not packed.startswith(GZIP):
                return
            unpacker = zlib.decompressobj(GZIP_WINDOW)
        packed = packed or file.read(PIECE_BYTES)
    if not unpacker.eof:
        raise InputError(f"{shown} is cut short: the compressed data end in the middle.", _COPY_AGAIN)


def _pieces(path: Path, shown: Path) -> Iterator[tuple[bytes, int]]:
    """The text in pieces, and how many bytes of the file have been read by then."""
    try:
        with door.opened(path) as file:
            first = file.read(PIECE_BYTES)
            if not first.startswith(GZIP):
                first = first.removeprefix(b"\xef\xbb\xbf")
                while first:
                    yield first, file.tell()
                    first = file.read(PIECE_BYTES)
                return
            yield from _unpacked(file, first, shown)
    except zlib.error:
        raise InputError(f"{shown} is damaged: its compressed data cannot be unpacked.", _COPY_AGAIN) from None
    except OSError as error:
        raise InputError(f"{shown} cannot be read ({error.strerror}).", "Check the path and its permissions.") from None


def _broken(shown: Path, error: NotJsonError) -> InputError:
    if error.is_cut:
        return InputError(f"{shown} is cut short: its JSON ends in the middle.", _COPY_AGAIN)
    return InputError(f"{shown} is damaged: what follows its first {error.at:,} bytes is not JSON.", _COPY_AGAIN)


def _check(shown: Path, events: JsonEvents) -> None:
    """A file of JSON that holds no event of the profiler is something else."""
    if holds_events(events):
        return
    top: dict[str, Any] = events.top
    if len(events) or "deviceProperties" in top or "schemaVersion" in top:
        raise InputError(
            f"{shown} holds no event of the PyTorch profiler: no operator, annotation, call or kernel was recorded.",
            "Profile a part of the program that does something, and call the profiler's step() in its loop.",
        )
    raise _no_trace(shown)


def _is_json(path: Path) -> bool:
    """Whether a file is whole JSON, of whatever kind."""
    try:
        json.loads(door.read_bytes(path, PIECE_BYTES))
        return True
    except (OSError, ValueError, RecursionError):
        pass
    return False


def _no_trace(shown: Path) -> InputError:
    return InputError(
        f"{shown} is a JSON file without the events of a trace.",
        "Name a trace that torch.profiler wrote (export_chrome_trace), a .nsys-rep report or its .sqlite export.",
    )
