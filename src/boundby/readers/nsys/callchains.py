"""Backtraces: of CPU samples, of CUDA and OS runtime calls, and Python stacks.

nsys writes one row a frame, tied to its event by an id: COMPOSITE_EVENTS.id -> SAMPLING_CALLCHAINS, callchainId of the
CUDA and OS calls -> CUDA_CALLCHAINS and OSRT_CALLCHAINS (0: none was taken). Context switches carry no backtrace in any
version seen. Python stacks (--python-backtrace, --python-sampling) are NVTX marks in a domain of nsys' own, with the
frames in a payload; only exports that hold payloads as JSON (jsonText) hold them, and nsys 2024.2 and older drop them.
What ``boundby profile`` marks itself (`LINE_MARK`) is in exports of every version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from boundby.model.arrays import BoolArray, Int32Array, Int64Array, factorize, first_rows, in_order, joined, spread
from boundby.model.stage import stage
from boundby.readers.nsys.columnar import open_database
from boundby.readers.nsys.database import MISSING, Database, Reads
from boundby.readers.nsys.host_tables import NvtxEvent, domain_names
from boundby.readers.nsys.identity import Identities, NamePool
from boundby.trace.facts import LAUNCHING_SCRIPT, TraceWarning
from boundby.trace.stacks import LINE_MARK, Backtraces, Frames, StackEvents, StackSource, no_backtraces

PYTHON_DOMAIN = "Python Backtrace"  # nsys 2023.4 to 2024.2 create it for both Python options

_CHAINS: tuple[tuple[StackSource, str, str, str], ...] = (
    (StackSource.SAMPLE, "COMPOSITE_EVENTS", "id", "SAMPLING_CALLCHAINS"),
    (StackSource.CUDA, "CUPTI_ACTIVITY_KIND_RUNTIME", "callchainId", "CUDA_CALLCHAINS"),
    (StackSource.CUDA, "CUPTI_ACTIVITY_KIND_DRIVER", "callchainId", "CUDA_CALLCHAINS"),
    (StackSource.OS, "OSRT_API", "callchainId", "OSRT_CALLCHAINS"),
)
_EVENT, _FRAME = ("start", "globalTid"), ("id", "symbol", "module", "kernelMode", "unresolved", "stackDepth")
DECLARED = (
    *(Reads(events, (*_EVENT, link), "their backtraces") for _, events, link, _ in _CHAINS),
    *(Reads(table, _FRAME, "frames of backtraces") for table in dict.fromkeys(chains for *_, chains in _CHAINS)),
    Reads(
        "NVTX_EVENTS",
        (*_EVENT, "eventType", "domainId", "text", "textId", "jsonText", "jsonTextId"),
        "Python stacks, and lines that boundby profile marks",
    ),
)
# Keys of a frame in the payload that nsys registers ("PythonFrame"), lower case.
_FUNCTION, _FILE, _LINE = "function", "file", "line"


class _ChainPart(Struct, frozen=True):
    """Events of one source and the frames of their stacks; ``symbol`` and ``module`` are rows of ``names``."""

    source: StackSource
    start_ns: Int64Array
    global_tid: Int64Array
    chain: Int64Array  # of the event
    frame_chain: Int64Array  # ordered
    symbol: Int32Array | Int64Array
    module: Int32Array | Int64Array
    line: Int64Array
    is_resolved: BoolArray
    is_kernel: BoolArray


def read_later(path: Path, shown: Path, identities: Identities) -> Backtraces:
    """Open the export again and read its backtraces. Raises InputError if it has gone or is damaged."""
    size = path.stat().st_size if path.is_file() else 0
    with stage("reading backtraces", size=size), open_database(path, shown) as database:
        return read_backtraces(database, identities)


def holds(database: Database) -> tuple[bool, bool]:
    """Whether there are backtraces of the program's binary code, and whether there are Python stacks."""
    chains = any(
        database.has(events, link, "start", "globalTid")
        and database.has(table, "id", "symbol")
        and database.holds(table)
        for _, events, link, table in _CHAINS
    )
    return chains, next(_every_python_mark(database), None) is not None


def lost_python_stacks(database: Database) -> tuple[TraceWarning, ...]:
    """A warning where Python stacks were captured and the export left their frames out."""
    if not _python_domains(database) or holds(database)[1]:
        return ()
    text = (
        "Python backtraces were captured, but this export lacks their frames (nsys 2024.2 and older leave them out). "
        "Export the .nsys-rep again with a newer nsys, with --include-json=true where it has that option."
    )
    return (TraceWarning("python-stacks-not-exported", text),)


def read_backtraces(database: Database, identities: Identities) -> Backtraces:
    """All backtraces whose event has a time and a known thread."""
    names = NamePool()
    parts = [part for spec in _CHAINS if (part := _read_chains(database, names, *spec)) is not None]
    parts += [part for part in (_read_python(database, names),) if part is not None]
    return _assemble(parts, names, identities)


def _read_chains(
    database: Database, names: NamePool, source: StackSource, table: str, link: str, chains: str
) -> _ChainPart | None:
    if not database.has(table, link, "start", "globalTid") or not database.has(chains, "id", "symbol"):
        return None
    events = database.columns(table, (*_EVENT, link))
    taken = (events[link] != MISSING) & ((events[link] > 0) | (source == StackSource.SAMPLE))
    rows = database.columns(chains, _FRAME)
    order = in_order(rows["id"], rows["stackDepth"])
    return _ChainPart(
        source,
        events["start"][taken],
        events["globalTid"][taken],
        events[link][taken],
        rows["id"][order],
        names.add_ids(database, rows["symbol"][order], unknown="[unknown]"),
        names.add_ids(database, rows["module"][order], unknown="[unknown]"),
        spread(0, len(rows["id"])),
        ~_true(rows["unresolved"][order]),
        _true(rows["kernelMode"][order]),
    )


def _true(values: Int64Array) -> BoolArray:
    is_set: BoolArray = (values != MISSING) & (values != 0)
    return is_set


def _python_domains(database: Database) -> set[tuple[int, int]]:
    """(process key, domain id) of the domain that nsys writes Python stacks to."""
    return {domain for domain, name in domain_names(database).items() if name == PYTHON_DOMAIN}


def _python_marks(database: Database) -> Iterator[tuple[int, int, str]]:
    """(start, global thread id, JSON) of every Python stack that can be read."""
    inline, by_id = (database.optional("NVTX_EVENTS", column) for column in ("jsonText", "jsonTextId"))
    if inline == by_id == "NULL" or not (domains := _python_domains(database)):
        return
    rows = database.rows(
        f"SELECT start, globalTid, domainId, {inline}, {by_id} FROM NVTX_EVENTS NOT INDEXED"
        f" WHERE eventType = {NvtxEvent.MARK:d}"
    )
    for start, tid, domain, text, number in list(rows):
        payload = database.text(number, text)
        if isinstance(start, int) and isinstance(tid, int) and payload and (tid & ~0xFFFFFF, domain) in domains:
            yield start, tid, payload


def _was_launched(database: Database) -> bool:
    """Whether ``boundby profile`` recorded it, with marks."""
    if not database.has("META_DATA_CAPTURE", "value") or not database.has("NVTX_EVENTS", "globalTid"):
        return False
    query = f"SELECT 1 FROM META_DATA_CAPTURE WHERE value LIKE '%/{LAUNCHING_SCRIPT}' LIMIT 1"
    return bool(list(database.rows(query)))


def _line_marks(database: Database) -> Iterator[tuple[int, int, str]]:
    """Lines that ``boundby profile`` marked in a program that it recorded; the thread stands in the JSON."""
    if not _was_launched(database):
        return  # looking through all marks takes time
    inline, by_id = (database.optional("NVTX_EVENTS", column) for column in ("text", "textId"))
    rows = database.rows(
        f"SELECT start, globalTid, {inline}, {by_id} FROM NVTX_EVENTS NOT INDEXED WHERE eventType = {NvtxEvent.MARK:d}"
    )
    thread_of: dict[str, int | None] = {}
    for start, tid, text, number in list(rows):
        payload = database.text(number, text) or ""
        if not (isinstance(start, int) and isinstance(tid, int) and payload.startswith(LINE_MARK)):
            continue
        payload = payload.removeprefix(LINE_MARK)
        if payload not in thread_of:
            match = re.match(r'\{"tid": (\d{1,8}),', payload)
            thread_of[payload] = int(match[1]) if match else None
        if (thread := thread_of[payload]) is not None:
            yield start, tid & ~0xFFFFFF | thread & 0xFFFFFF, payload


def _every_python_mark(database: Database) -> Iterator[tuple[int, int, str]]:
    yield from _python_marks(database)
    yield from _line_marks(database)


def _read_python(database: Database, names: NamePool) -> _ChainPart | None:
    starts, tids, chains, flat = [], [], [], []
    number_of: dict[str, int] = {}  # equal payloads are equal stacks; 0: nothing could be read
    for start, tid, payload in _every_python_mark(database):
        if payload not in number_of:
            frames = python_frames(payload)
            number_of[payload] = len(number_of) + 1 if frames else 0
            flat += [(number_of[payload], names.add(name), names.add(file), line) for name, file, line in frames]
        if number_of[payload]:
            starts.append(start)
            tids.append(tid)
            chains.append(number_of[payload])
    if not starts:
        return None
    chain, symbol, module, line = np.array(flat, np.int64).T
    return _ChainPart(
        StackSource.PYTHON,
        np.array(starts, np.int64),
        np.array(tids, np.int64),
        np.array(chains, np.int64),
        chain,
        symbol,
        module,
        line,
        np.ones(len(chain), bool),
        np.zeros(len(chain), bool),
    )


def python_frames(payload: str) -> list[tuple[str, str, int]]:
    """(function, file, line) of each frame in a Python stack's payload, in its order; empty if it is another thing.

    The frames are the first list of objects that name a function, wherever it stands.
    """
    try:
        pending: list[object] = [json.loads(payload)]
    except ValueError:
        return []
    while pending:
        item = pending.pop(0)
        if isinstance(item, list):
            frames = [
                {str(key).lower(): value for key, value in each.items()} for each in item if isinstance(each, dict)
            ]
            if frames and all(isinstance(frame.get(_FUNCTION), str) for frame in frames):
                return [_python_frame(frame) for frame in frames]
            pending += item
        elif isinstance(item, dict):
            pending += item.values()
    return []


def _python_frame(frame: Mapping[str, object]) -> tuple[str, str, int]:
    file, line = frame.get(_FILE), frame.get(_LINE)
    number = int(line) if isinstance(line, int | str) and str(line).isdecimal() else 0
    return str(frame[_FUNCTION]), file if isinstance(file, str) else "", min(number, np.iinfo(np.int32).max)


def _assemble(parts: list[_ChainPart], names: NamePool, identities: Identities) -> Backtraces:
    """One table of distinct frames, one of distinct stacks, and the events of all parts."""
    if not parts:
        return no_backtraces()
    columns = [
        joined([getattr(part, column) for part in parts])
        for column in ("symbol", "module", "line", "is_resolved", "is_kernel")
    ]
    distinct, frame = factorize(*columns)
    frames = Frames(
        distinct[:, 0].astype(np.int32),
        distinct[:, 1].astype(np.int32),
        distinct[:, 2].astype(np.int32),
        distinct[:, 3] != 0,
        distinct[:, 4] != 0,
    )
    # A chain is a run of rows of one part with one id.
    part_of = np.repeat(np.arange(len(parts), dtype=np.int8), [len(part.frame_chain) for part in parts])
    chain_id = joined([part.frame_chain for part in parts])
    changes = (np.diff(chain_id) != 0) | (np.diff(part_of) != 0)
    begins = np.append(0, np.flatnonzero(changes) + 1)[: len(chain_id)]
    size = np.diff(np.append(begins, len(chain_id)))
    first, kept, stack_of_run = _distinct_runs(frame, begins, size)
    events = [
        _events(part, number, part_of[begins], chain_id[begins], stack_of_run, identities)
        for number, part in enumerate(parts)
    ]
    start, thread, source, stack = (np.concatenate(column) for column in zip(*events, strict=True))
    order = np.lexsort((stack, start, thread, source))
    return Backtraces(
        StackEvents(
            start[order], thread[order].astype(np.int32), source[order].astype(np.int8), stack[order].astype(np.int32)
        ),
        first,
        kept,
        frames,
        names.names(),
    )


def _distinct_runs(
    frame: Int64Array, begins: Int64Array, size: Int64Array
) -> tuple[Int64Array, Int32Array, Int64Array]:
    """Equal runs of frames once: (offsets, frames, number of each run's stack).

    Runs are told apart by their length and two 64-bit sums of well mixed frame numbers and places.
    """
    if len(begins) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64)
    depth = (np.arange(len(frame)) - np.repeat(begins, size)).view(np.uint64)
    sums = [
        np.add.reduceat(_mix(frame.astype(np.uint64) * np.uint64(odd) + _mix(depth + np.uint64(odd))), begins).view(
            np.int64
        )
        for odd in _ODD
    ]
    stack = factorize(*sums, size)[1]
    chosen = first_rows(stack)
    # Numbered in order of first sight, so that nothing depends on the hash.
    order = np.argsort(chosen)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    chosen = chosen[order]
    lengths = size[chosen]
    first = np.append(0, np.cumsum(lengths)).astype(np.int64)
    rows = np.repeat(begins[chosen] - first[:-1], lengths) + np.arange(first[-1])
    return first, frame[rows].astype(np.int32), rank[stack]


_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)  # odd, so that multiplication loses nothing


def _mix(value: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A bijection of 64 bits in which every bit of the input moves every bit of the output (splitmix64's end)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray[tuple[int], np.dtype[np.uint64]] = value ^ (value >> np.uint64(31))
    return mixed


def _events(
    part: _ChainPart,
    number: int,
    run_part: Int64Array,
    run_chain: Int64Array,
    stack_of_run: Int64Array,
    identities: Identities,
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Start, thread, source and stack of each event that has a stack, a time and a known thread."""
    own = run_part == number
    chains, stacks = run_chain[own], stack_of_run[own]
    position = np.minimum(np.searchsorted(chains, part.chain), max(len(chains) - 1, 0))
    thread = np.minimum(np.searchsorted(identities.thread_ids, part.global_tid), max(len(identities.thread_ids) - 1, 0))
    if len(chains) == 0 or len(identities.thread_ids) == 0:
        is_kept = np.zeros(len(part.chain), bool)
        return (np.empty(0, np.int64),) * 4
    is_kept = (chains[position] == part.chain) & (identities.thread_ids[thread] == part.global_tid)
    is_kept &= part.start_ns != MISSING
    return (
        part.start_ns[is_kept],
        thread[is_kept].astype(np.int64),
        np.full(int(is_kept.sum()), int(part.source), np.int64),
        stacks[position[is_kept]],
    )
