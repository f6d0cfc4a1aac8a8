"""CUDA API calls, NVTX ranges, OS runtime calls, message passing, context switches, samples and overhead: the tables of
the host."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.model.arrays import (
    MISSING,
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    compact,
    factorize,
    is_even,
    is_in,
    joined,
    narrow,
    replaced,
    spread,
    translated,
    unique,
)
from boundby.model.intervals import NOTHING
from boundby.model.late import expression
from boundby.readers.nsys.database import Database, Reads, as_text
from boundby.readers.nsys.identity import Identities, Indexes, process_key
from boundby.readers.nsys.pages import Only, Since, decimals
from boundby.trace.facts import Communicator
from boundby.trace.stacks import file_name
from boundby.trace.tables import (
    NO_CORRELATION,
    CallTable,
    Construct,
    FileAccesses,
    Intervals,
    MessageTable,
    Ranges,
    Samples,
    Schedule,
    Trace,
)
from boundby.trace.vocabulary.os import MPI_DOMAIN, is_mpi, is_symmetric
from boundby.trace.vocabulary.range_names import OWN_DOMAIN, STEPS_RANGE

# Message passing: the tables of MPI and UCX calls, or, in reports of 2022, ranges named for calls of MPI.
#
# Calls are rows of ``Trace.messages``, and ranges beside the program's own, so that time has them as regions.

MESSAGE_TABLES = (
    *("MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS"),
    *("UCP_SUBMIT_EVENTS", "UCP_PROGRESS_EVENTS", "UCP_EVENTS"),
)
_MESSAGE_COLUMNS = ("end", "textId", "commHandle", "tag", "remoteRank", "rootRank", "size", "recvSize", "packedSize")
_RANK = ("globalTid", "rank")
_COMMUNICATOR = ("rank", "timestamp", "commHandle", "localRank", "size")
_OF_MESSAGES = (
    Reads("MPI_RANKS", _RANK, "which process is which rank"),
    Reads("MPI_COMMUNICATORS", (*_COMMUNICATOR, "members"), "which ranks communicate"),
)
_RECEIVES = expression(r"recv", re.IGNORECASE)
_RANK_THREAD = expression(r"^MPI Rank (\d+)$")
_MEMBER = expression(r"\d+")
_UNTOLD = NOTHING


def _read_messages(database: Database, since_ns: int | None = None) -> Raw:
    """The raw columns of all calls, of one length; ``table``: a place in ``MESSAGE_TABLES``. ``since_ns``: calls that
    end then or later."""
    only = None if since_ns is None else Since("end", since_ns)
    parts = []
    for number, table in enumerate(MESSAGE_TABLES):
        part = database.columns(table, ("start", "globalTid", *_MESSAGE_COLUMNS), only=only)
        parts.append({**part, "table": spread(number, len(part["start"]))})
    return {column: joined([part[column] for part in parts]) for column in parts[0]}


def messages(raw: Raw, indexes: Indexes) -> MessageTable:
    """Calls of MPI and UCX as their tables tell them."""
    if not len(raw["start"]):
        return MessageTable.empty()
    name = indexes.names(raw["textId"])
    texts = indexes.pool.names()
    recorded = {column: replaced(raw[column], MISSING, _UNTOLD) for column in _MESSAGE_COLUMNS}
    receives = np.array([bool(_RECEIVES.search(text)) for text in texts], bool)[name]
    size = np.where(recorded["size"] == _UNTOLD, recorded["packedSize"], recorded["size"])
    is_collective = raw["table"] == 0
    return MessageTable(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        name=name,
        communicator=recorded["commHandle"],
        peer=np.where(is_collective, recorded["rootRank"], recorded["remoteRank"]),
        tag=recorded["tag"],
        sent_bytes=np.where(receives & ~is_collective, _UNTOLD, size),
        received_bytes=np.where(is_collective, recorded["recvSize"], np.where(receives, size, _UNTOLD)),
        is_open=compact(raw["end"] == MISSING),
    ).sorted(texts)


def with_messages(trace: Trace, raw: Raw, indexes: Indexes) -> Trace:
    """The trace with its calls of message passing, its ranks and communicators; itself where there are none."""
    calls = messages(raw, indexes)
    communicators, ranks = _communicators(indexes.database, indexes.identities)
    if len(calls):
        process = trace.process_of(calls.thread)
        calls = _left_with_others(calls, indexes.pool.names(), process, communicators, indexes.last_ns)
        trace = _with_ranges(replace(trace, names=indexes.pool.names()), calls)
    else:
        calls = _from_ranges(trace)
    if not len(calls):
        return trace
    named = {thread.process: int(match[1]) for thread in trace.threads if (match := _RANK_THREAD.match(thread.name))}
    if any(ranks.get(process, rank) != rank for process, rank in named.items()):
        communicators, ranks, named = (), {}, {}  # one of the tables is damaged, and nothing shows which
    return replace(trace, messages=calls, communicators=communicators, ranks={**named, **ranks})


def _left_with_others(
    calls: MessageTable,
    names: Sequence[str],
    process: npt.NDArray[np.integer[Any]],
    communicators: Sequence[Communicator],
    last_ns: int,
) -> MessageTable:
    """Calls in which a rank is where the recording ends, without those that held it no longer: who left a collective of
    everybody with everybody shows that all had come to it. It ends when the last of those left it.
    ``process``: of each call."""
    everybody = len({communicator.process for communicator in communicators})
    worlds: dict[int, list[int]] = {}
    for communicator in communicators:
        if communicator.size == everybody:
            worlds.setdefault(communicator.process, []).append(communicator.handle)
    is_left_open = calls.is_open | (calls.end_ns >= last_ns)
    end_ns, is_open = calls.end_ns.copy(), calls.is_open.copy()
    for row in np.flatnonzero(is_left_open).tolist():
        own, handle = int(process[row]), int(calls.communicator[row])
        if not is_symmetric(names[calls.name[row]]) or handle not in worlds.get(own, ()):
            continue
        which = worlds[own].index(handle)
        named = calls.name == calls.name[row]
        theirs = []
        for other, handles in worlds.items():
            if which < len(handles):
                rows = np.flatnonzero(named & (process == other) & (calls.communicator == handles[which]))
                theirs.append(rows[np.argsort(calls.start_ns[rows], kind="stable")])
        number = next(int(np.flatnonzero(rows == row)[0]) for rows in theirs if row in rows)
        met = np.array([rows[number] for rows in theirs if number < len(rows)], np.intp)
        left = met[~is_left_open[met] & (calls.end_ns[met] >= calls.start_ns[row])]
        if len(left):
            end_ns[row], is_open[row] = calls.end_ns[left].max(), False
    return replace(calls, end_ns=end_ns, is_open=is_open)


def _with_ranges(trace: Trace, calls: MessageTable) -> Trace:
    """The trace with its calls of MPI as ranges, where nsys 2022 has them."""
    calls = calls.take(_named_mpi(calls.name, trace.names) & _is_first(calls))
    domains = tuple(sorted({*trace.domains, MPI_DOMAIN}))
    moved = np.array([domains.index(domain) for domain in trace.domains], np.int32)
    ranges, count = trace.ranges, len(calls)
    added: dict[str, npt.NDArray[Any]] = {
        "start_ns": calls.start_ns,
        "end_ns": calls.end_ns,
        "thread": calls.thread,
        "name": calls.name,
        "domain": spread(domains.index(MPI_DOMAIN), count),
        "is_start_end": np.zeros(count, bool),
        "is_open": calls.is_open,
    }
    ranges = replace(ranges, domain=moved[ranges.domain] if len(ranges) else ranges.domain)
    return replace(trace, ranges=ranges.and_more(added).sorted(trace.names), domains=domains)


def _is_first(calls: MessageTable) -> BoolArray:
    """Of a call that waits for several requests nsys writes a row for each: it is one range."""
    columns = (calls.start_ns, calls.end_ns, calls.thread, calls.name)
    first = np.ones(len(calls), bool)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return first


def _from_ranges(trace: Trace) -> MessageTable:
    """Ranges that are named for calls of MPI, as such calls: of which nothing else is told."""
    ranges = trace.ranges.take(_named_mpi(trace.ranges.name, trace.names))
    untold = spread(_UNTOLD, len(ranges))
    return MessageTable(
        start_ns=ranges.start_ns,
        end_ns=ranges.end_ns,
        thread=ranges.thread,
        name=ranges.name,
        communicator=untold,
        peer=untold,
        tag=untold,
        sent_bytes=untold,
        received_bytes=untold,
        is_open=ranges.is_open,
    )


def _named_mpi(name: Int32Array, names: Sequence[str]) -> BoolArray:
    """Which rows are named for a call of MPI."""
    used = unique(name)
    return is_in(name, [number for number in used.tolist() if number >= 0 and is_mpi(names[number])])


def _communicators(database: Database, identities: Identities) -> tuple[tuple[Communicator, ...], dict[int, int]]:
    """The communicators in the order in which each process made them, and the rank of each process; neither where the
    two tables tell of different ranks: then one of them is damaged."""
    ranks: dict[int, int] = {}
    ranks_read = database.columns("MPI_RANKS", _RANK)
    for thread, rank in zip(ranks_read["globalTid"].tolist(), ranks_read["rank"].tolist(), strict=True):
        if rank >= 0 and identities.has_process(thread):
            ranks[int(identities.processes(np.array([thread], np.int64))[0])] = rank
    if not database.has("MPI_COMMUNICATORS", *_COMMUNICATOR):
        return (), ranks
    process_of = {rank: process for process, rank in ranks.items()}
    members = database.optional("MPI_COMMUNICATORS", "members")
    columns = f"rank, timestamp, commHandle, localRank, size, {members}"
    rows = database.rows(f"SELECT {columns} FROM MPI_COMMUNICATORS ORDER BY rank, timestamp")
    communicators = []
    for rank, since_ns, handle, own, size, inside in rows:
        numbers = (rank, since_ns, handle, own, size)
        if rank not in process_of:
            return (), {}
        if all(isinstance(number, int) for number in numbers):
            of_job = tuple(int(number) for number in _MEMBER.findall(as_text(inside) or ""))
            communicators.append(Communicator(process_of[rank], handle, since_ns, own, size, of_job))  # type: ignore[arg-type]
    return tuple(communicators), ranks


# The kinds of rows in NVTX_EVENTS.


class NvtxEvent(IntEnum):
    """``eventType``. The twins with T are those of texts that NVTX registered (nvtxStringHandle)."""

    MARK = 34
    PUSH_POP = 59
    START_END = 60
    PUSH_POP_T = 70
    START_END_T = 71
    DOMAIN_CREATE = 75


PUSH_POP = (NvtxEvent.PUSH_POP, NvtxEvent.PUSH_POP_T)
START_END = (NvtxEvent.START_END, NvtxEvent.START_END_T)

# What compilers and libraries record about themselves: constructs of OpenACC and OpenMP, calls of cuDNN and cuBLAS.
#
# Each becomes a range of a domain of its own: a construct of OpenACC is named by its place in the source, what it does
# and the variable (``heat.c:51 enter data (u)``). Regions, waits, launches and copies inside it are then found like
# those of any range. Sources: the schema that nsys documents for its SQLite exports, and CUPTI's
# CUpti_OpenAccEventKind.

Raw = dict[str, Int64Array]

OPENACC, OPENMP = "OpenACC", "OpenMP"
_ACC, _MP = "CUPTI_ACTIVITY_KIND_OPENACC_", "OPENMP_EVENT_KIND_"
#: The domain of each table's ranges. OpenMP's tables of instants (locks made, tasks switched) hold no intervals.
CONSTRUCT_DOMAINS = {
    **dict.fromkeys((f"{_ACC}DATA", f"{_ACC}LAUNCH", f"{_ACC}OTHER"), OPENACC),
    **dict.fromkeys(
        (
            *(f"{_MP}PARALLEL", f"{_MP}WORKSHARE", f"{_MP}TASK", f"{_MP}MASTER", f"{_MP}REDUCTION"),
            *(f"{_MP}SYNC_REGION", f"{_MP}SYNC_REGION_WAIT", f"{_MP}MUTEX_WAIT", f"{_MP}CRITICAL_SECTION"),
        ),
        OPENMP,
    ),
    "CUDNN_EVENTS": "cuDNN",
    "CUBLAS_EVENTS": "cuBLAS",
}
CONSTRUCT_COLUMNS = ("end", "nameId", "eventKind", "srcFile", "lineNo", "varName")
_ACC_KINDS = {
    1: "device init",
    4: "launch",
    5: "upload",
    6: "download",
    7: "wait",
    8: "implicit wait",
    9: "compute construct",
    10: "update",
    11: "enter data",
    12: "exit data",
}
_NO_NAMES = ("", "<Unknown>")
_LAST_NS = np.iinfo(np.int64).max


def read_constructs(database: Database, since_ns: int | None = None) -> Raw:
    """The raw columns of all constructs that take time (and end at ``since_ns`` or later), and of each the ``table``
    that it stands in, a place in DOMAINS."""
    parts = []
    for number, table in enumerate(CONSTRUCT_DOMAINS):
        raw = database.columns(table, ("start", "globalTid", *CONSTRUCT_COLUMNS))
        end_ns = np.where(raw["end"] == MISSING, _LAST_NS, raw["end"])
        kept = (end_ns > raw["start"]) & (end_ns >= (MISSING if since_ns is None else since_ns))
        part = {column: values[kept] for column, values in raw.items()}
        parts.append(part | {"table": np.full(len(part["start"]), number, np.int64)})
    return {column: joined([part[column] for part in parts]) for column in parts[0]}


def with_constructs(
    ranges: Ranges, domains: tuple[str, ...], raw: Raw, indexes: Indexes
) -> tuple[Ranges, tuple[str, ...], dict[int, Construct]]:
    """Ranges and the names of their domains, with those of the constructs; and what is told of constructs by name."""
    if len(raw["start"]) == 0:
        return ranges, domains, {}
    (name, constructs), of_table = _construct_names(raw, indexes), tuple(CONSTRUCT_DOMAINS.values())
    every = tuple(sorted({*domains, *(of_table[table] for table in unique(raw["table"]).tolist())}))
    index_of = {text: number for number, text in enumerate(every)}
    moved = np.array([index_of[text] for text in domains], np.int32)
    together = replace(ranges, domain=moved[ranges.domain]).and_more(
        {
            "start_ns": raw["start"],
            "end_ns": indexes.ends(raw["end"]),
            "thread": indexes.identities.threads(raw["globalTid"]),
            "name": name,
            "domain": np.array([index_of.get(text, 0) for text in of_table], np.int32)[raw["table"]],
            "is_start_end": np.zeros(len(name), bool),
            "is_open": raw["end"] == MISSING,
        }
    )
    return together.sorted(indexes.pool.names()), every, constructs


def _construct_names(raw: Raw, indexes: Indexes) -> tuple[Int32Array, dict[int, Construct]]:
    """The index of each construct's name, and the constructs of OpenACC by these."""
    kinds, which = factorize(*(raw[column] for column in ("table", *CONSTRUCT_COLUMNS[1:])))
    texts, of_table = indexes.database.texts, tuple(CONSTRUCT_DOMAINS.values())
    names: list[int] = []
    constructs: dict[int, Construct] = {}

    def text(number: int) -> str:
        said = texts.get(number, "")
        return "" if said in _NO_NAMES else said

    for table, name, kind, file, line, variable in kinds.tolist():
        what = text(name) or "(unnamed)"
        if of_table[table] == OPENACC:
            construct = Construct(file_name(text(file)), line, _ACC_KINDS.get(kind, what), text(variable))
            names.append(indexes.pool.add(str(construct)))
            constructs[names[-1]] = construct
        else:
            names.append(indexes.pool.add(what))
    return np.array(names, np.int32)[which], constructs


_AMOUNT = expression(
    r"(?i)(?:^|[\W_])(?:bytes|size|batch|tokens?|samples?|count|elements?|items?|length|rows)(?:$|[\W_])"
)
_CUDA_BACKTRACE = 67  # eventClass of rows that repeat a call to carry its backtrace
#: The numbers that a range can carry, and decimals; and objects, of which one number is taken.
_WHOLE = ("int64Value", "uint64Value", "int32Value", "uint32Value")
_DECIMAL = ("doubleValue", "floatValue")
_OBJECT = "jsonTextId"
#: The rows of NVTX_EVENTS that are intervals.
IS_RANGE = ("eventType", (*PUSH_POP, *START_END))

# The kinds of events, as people call them in messages.
CALLS, RANGES, OS_CALLS = "CUDA API calls", "NVTX ranges", "OS runtime calls"
CONSTRUCTS = "constructs and library calls"
MESSAGES = "calls of MPI and UCX"
SWITCHES, SAMPLES, OVERHEAD = "context switches", "CPU samples", "profiler overheads"

# The tables that hold each kind (some exporters split the driver's calls off), and their columns beside ``start`` and
# ``globalTid``.
EVENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    CALLS: (
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"),
        ("end", "correlationId", "nameId", "eventClass", "returnValue"),
    ),
    RANGES: (("NVTX_EVENTS",), ("end", "eventType", "textId", "domainId", *_WHOLE, *_DECIMAL, _OBJECT)),
    CONSTRUCTS: (tuple(CONSTRUCT_DOMAINS), CONSTRUCT_COLUMNS),
    MESSAGES: (MESSAGE_TABLES, _MESSAGE_COLUMNS),
    OS_CALLS: (("OSRT_API",), ("end", "nameId")),
    SWITCHES: (("SCHED_EVENTS",), ("isSchedIn",)),
    SAMPLES: (("COMPOSITE_EVENTS",), ()),
    OVERHEAD: (("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"), ("end", "nameId")),
}

_GIVES = {
    CALLS: "CUDA runtime and driver calls",
    RANGES: "NVTX ranges",
    OS_CALLS: "calls of the OS runtime that can block",
    SWITCHES: "when each thread was on a core",
    SAMPLES: "CPU samples",
    OVERHEAD: "the profiler's own time",
}
_OF_TABLE = {
    **{
        table: f"constructs of {domain}" if domain in (OPENACC, OPENMP) else f"calls of {domain}"
        for table, domain in CONSTRUCT_DOMAINS.items()
    },
    **{table: "calls of UCX" if table.startswith("UCP_") else "calls of MPI" for table in MESSAGE_TABLES},
}
_EVENTS, _FILES = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS"
_ACCESS = ("startedAt", "endedAt", "threadId", "fileAccessId", "apiCallId", "bytesProcessed")
DECLARED = (
    *(
        Reads(table, ("start", "globalTid", *columns), _OF_TABLE.get(table) or _GIVES[what])
        for what, (tables, columns) in EVENTS.items()
        for table in tables
    ),
    Reads("NVTX_EVENTS", ("text",), "NVTX ranges"),
    Reads(_EVENTS, _ACCESS, "which files were read and written, and how fast"),
    Reads(_FILES, ("fileAccessId", "filePath"), f"paths of the files in {_EVENTS}"),
    *_OF_MESSAGES,
)


def read_events(database: Database, what: str, since_ns: int | None = None) -> Raw:
    """The raw columns of one kind of events, of one length. Ranges have their ``row`` besides.

    ``since_ns``: calls and instants that begin then or later, other intervals that end then or later.
    """
    if what == CONSTRUCTS:
        return read_constructs(database, since_ns)
    if what == MESSAGES:
        return _read_messages(database, since_ns)
    tables, columns = EVENTS[what]
    only: Only | None = None
    if what == RANGES:
        only = (
            IS_RANGE[0],
            (*IS_RANGE[1], NvtxEvent.DOMAIN_CREATE),
        )  # marks, categories and payload schemas are no intervals
    elif since_ns is not None:  # a call before may have launched what ran before, too
        only = Since("end" if "end" in columns and what != CALLS else "start", since_ns)
    parts = [database.columns(table, ("start", "globalTid", *columns), only=only) for table in tables]
    raw = {column: joined([part[column] for part in parts]) for column in parts[0]}
    if what == RANGES:
        raw = _only_ranges(database, raw, since_ns)
    if "eventClass" in raw:
        kept = raw["eventClass"] != _CUDA_BACKTRACE
        raw = raw if bool(kept.all()) else {column: values[kept] for column, values in raw.items()}
    return raw


def _only_ranges(database: Database, raw: Raw, since_ns: int | None) -> Raw:
    """Without the creations of domains, and each with its row."""
    is_range = raw[IS_RANGE[0]] != NvtxEvent.DOMAIN_CREATE
    if is_range.all():
        _DOMAINS[database] = {}  # none is created
    else:
        raw = {column: values[is_range] for column, values in raw.items()}
    raw["row"] = np.arange(len(raw["start"]))
    if since_ns is None:
        return raw
    kept = (raw["end"] >= since_ns) | (raw["end"] == MISSING)
    return {column: values[kept] for column, values in raw.items()}


def api_calls(raw: Raw, indexes: Indexes) -> CallTable:
    """Runtime and driver calls."""
    return CallTable(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        correlation=narrow(replaced(raw["correlationId"], MISSING, NO_CORRELATION)),
        name=indexes.names(raw["nameId"]),
        has_failed=translated(raw["returnValue"], lambda value: value not in (MISSING, 0), np.bool_),
    ).sorted(indexes.pool.names())


def ranges(raw: Raw, indexes: Indexes) -> tuple[Ranges, tuple[str, ...]]:
    """Push/pop and start/end ranges, and the names of the domains they index. Without boundby's own, which tells the
    profiler what to record, and names no part of the program.

    Of ranges with the same instants nothing tells which is the outer one, so names do, and not the order of rows.
    """
    domain, domains = _domains(raw, indexes.database)
    name = _range_names(raw, indexes)
    table = Ranges(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        name=name,
        domain=domain,
        is_start_end=translated(raw["eventType"], START_END.__contains__, np.bool_),
        is_open=compact(raw["end"] == MISSING),
        **_payloads(raw, indexes),
    )
    names = indexes.pool.names()
    if OWN_DOMAIN in domains and STEPS_RANGE in names:
        is_own = (domain == domains.index(OWN_DOMAIN)) & (name == names.index(STEPS_RANGE))
        table = table.take(~is_own)
    return table.sorted(names), domains


def _payloads(raw: Raw, indexes: Indexes) -> dict[str, npt.NDArray[Any]]:
    """The number that each range carries (NaN where it carries none), and what that number is, where it has a name."""
    columns = [replaced_by_nan(raw[column]) for column in _WHOLE if _holds(raw[column])]
    columns += [decimals(raw[column]) for column in _DECIMAL if _holds(raw[column])]
    payloads: dict[str, npt.NDArray[Any]] = {}
    if _holds(raw[_OBJECT]):
        used, inverse = np.unique(raw[_OBJECT], return_inverse=True)
        texts = indexes.database.texts
        amounts = [amount_of(texts.get(number, "")) for number in used.tolist()]
        columns.append(np.array([number for _, number in amounts])[inverse.reshape(-1)])
        names = [indexes.pool.add(name) if name else -1 for name, _ in amounts]
        payloads["payload_name"] = np.array(names, np.int32)[inverse.reshape(-1)]
    if columns:
        payload = columns[0]
        for column in columns[1:]:
            payload = np.where(np.isnan(payload), column, payload)
        payloads["payload"] = payload
    return payloads


def _holds(column: Int64Array) -> bool:
    return len(column) > 0 and not (is_even(column) and column[0] == MISSING)


def replaced_by_nan(column: Int64Array) -> Float64Array:
    """As decimals, NaN where there is none."""
    return np.where(column == MISSING, np.nan, column)


def amount_of(text: str) -> tuple[str, float]:
    """Of a payload that is a JSON object the number that says how much work a range does, and its name: the only number
    in it, else the first whose name is that of an amount. ("", NaN): there is none."""
    nothing = "", float("nan")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return nothing
    while isinstance(payload, list | dict) and len(payload) == 1 and not _numbers(payload):
        payload = payload[0] if isinstance(payload, list) else next(iter(payload.values()))
    numbers = _numbers(payload)
    amounts = [key for key in numbers if _AMOUNT.search(key)] or ([*numbers] if len(numbers) == 1 else [])
    return (amounts[0], float(numbers[amounts[0]])) if amounts else nothing


def _numbers(told: object) -> dict[str, float]:
    """The numbers in an object, by name."""
    if not isinstance(told, dict):
        return {}
    return {key: value for key, value in told.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def _range_names(raw: Raw, indexes: Indexes) -> Int32Array:
    names = indexes.names(raw["textId"])
    inline = np.flatnonzero(raw["textId"] == MISSING)
    if len(inline) and indexes.database.has("NVTX_EVENTS", "text"):
        number, texts = indexes.database.texts_of("NVTX_EVENTS", "text", only=IS_RANGE)
        number = number[raw["row"][inline]]
        first = np.full(len(texts) + 1, len(number))  # where each stands first; the last is for what has no text
        first[number[::-1]] = np.arange(len(number))[::-1]
        used = np.flatnonzero(first < len(number))
        used = used[np.argsort(first[used])]  # in order of first sight, as rows would be added
        name_ids = np.zeros(len(texts) + 1, np.int32)
        name_ids[used] = indexes.pool.add_all(
            [text or "(unnamed)" for text in map([*texts, ""].__getitem__, used.tolist())]
        )
        names = names.copy()
        names[inline] = name_ids[number]
    return names


def domain_names(database: Database) -> dict[tuple[int, int], str]:
    """The name of each domain that a process created, by (process key, domain id); "" where it has none."""
    if database not in _DOMAINS:
        _DOMAINS[database] = _domain_names(database)  # goes through the whole table
    return _DOMAINS[database]


_DOMAINS: WeakKeyDictionary[Database, dict[tuple[int, int], str]] = WeakKeyDictionary()


def _domain_names(database: Database) -> dict[tuple[int, int], str]:
    if not database.has("NVTX_EVENTS", "domainId", "globalTid", "text"):
        return {}
    text_id = database.optional("NVTX_EVENTS", "textId")
    rows = database.rows(
        f"SELECT globalTid, domainId, {text_id}, text FROM NVTX_EVENTS NOT INDEXED"
        f" WHERE eventType = {NvtxEvent.DOMAIN_CREATE:d}"
    )
    return {
        (tid & ~0xFFFFFF, number): database.text(text_number, text) or ""
        for tid, number, text_number, text in list(rows)
        if isinstance(tid, int) and isinstance(number, int)
    }


def _domains(raw: Raw, database: Database) -> tuple[Int32Array, tuple[str, ...]]:
    """Domain ids count per process; equal names are one domain. The default domain is ``""``."""
    created = domain_names(database)
    number = replaced(raw["domainId"], MISSING, 0)
    pairs, inverse = factorize(process_key(raw["globalTid"]), number)

    def name(place: tuple[int, int]) -> str:
        if place in created:
            return created[place] or f"domain {place[1]}"
        return f"domain {place[1]}" if place[1] else ""

    names = [name((process, domain)) for process, domain in pairs.tolist()]
    domains = tuple(sorted({"", *names}))
    return np.array([domains.index(text) for text in names], np.int32)[inverse], domains


def intervals(raw: Raw, indexes: Indexes) -> Intervals:
    """Named host intervals: OS runtime calls that can block, the profiler's and CUPTI's own time."""
    return Intervals(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        name=indexes.names(raw["nameId"]),
    ).sorted(indexes.pool.names())


def schedule(raw: Raw, indexes: Indexes) -> Schedule:
    """Context switches."""
    return Schedule(raw["start"], indexes.identities.threads(raw["globalTid"]), raw["isSchedIn"] != 0).sorted()


def samples(raw: Raw, indexes: Indexes) -> Samples:
    """CPU samples."""
    return Samples(raw["start"], indexes.identities.threads(raw["globalTid"])).sorted()


_READ, _WRITE = (expression(word, re.IGNORECASE) for word in ("read|recv|get", "write|send|put"))


def file_accesses(database: Database, indexes: Indexes) -> FileAccesses:
    """Every access that moved bytes, by the file's path. What it does is told by the name of the call that did it."""
    raw = database.columns(_EVENTS, _ACCESS)
    moved = (raw["bytesProcessed"] > 0) & (raw["endedAt"] >= raw["startedAt"]) & (raw["startedAt"] != MISSING)
    if not moved.any():
        return FileAccesses.empty()
    raw = {column: values[moved] for column, values in raw.items()}
    texts, paths = indexes.database.texts, _paths(database)

    def is_write(call: int) -> bool:
        name = texts.get(call, "")
        return bool(_WRITE.search(name)) and not _READ.search(name)

    return FileAccesses(
        start_ns=raw["startedAt"],
        end_ns=raw["endedAt"],
        tid=raw["threadId"],
        name=translated(raw["fileAccessId"], lambda number: indexes.pool.add(paths.get(number, "(unnamed)")), np.int32),
        bytes=raw["bytesProcessed"],
        is_write=compact(translated(raw["apiCallId"], is_write, np.bool_)),
    ).sorted(indexes.pool.names())


def _paths(database: Database) -> dict[int, str]:
    if not database.has(_FILES, "fileAccessId", "filePath"):
        return {}
    rows = database.rows(f"SELECT fileAccessId, filePath FROM {_FILES}")
    return {number: as_text(path) or "(unnamed)" for number, path in rows if isinstance(number, int)}
