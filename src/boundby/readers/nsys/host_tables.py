"""CUDA API calls, NVTX ranges, OS runtime calls, context switches, samples and overhead: the host's tables."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import (
    Float64Array,
    Int32Array,
    Int64Array,
    compact,
    factorize,
    is_even,
    joined,
    narrow,
    replaced,
    translated,
)
from boundby.model.expressions import expression
from boundby.readers.nsys import constructs, messages
from boundby.readers.nsys.database import MISSING, Database
from boundby.readers.nsys.declared import Reads
from boundby.readers.nsys.identity import Indexes, process_key
from boundby.readers.nsys.nvtx_events import PUSH_POP, START_END, NvtxEvent
from boundby.readers.nsys.pages import Only, Since, decimals
from boundby.trace.tables import NO_CORRELATION, ApiCalls, Intervals, Ranges, Samples, Schedule

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

Raw = dict[str, Int64Array]

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
    CONSTRUCTS: (tuple(constructs.DOMAINS), constructs.COLUMNS),
    MESSAGES: (messages.TABLES, messages.COLUMNS),
    OS_CALLS: (("OSRT_API",), ("end", "nameId")),
    SWITCHES: (("SCHED_EVENTS",), ("isSchedIn",)),
    SAMPLES: (("COMPOSITE_EVENTS",), ()),
    OVERHEAD: (("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"), ("end", "nameId")),
}

_GIVES = {
    CALLS: "CUDA runtime and driver calls",
    RANGES: "NVTX ranges",
    CONSTRUCTS: "OpenACC and OpenMP constructs, calls of cuDNN and cuBLAS",
    MESSAGES: "calls of MPI and UCX",
    OS_CALLS: "calls of the OS runtime that can block",
    SWITCHES: "when each thread was on a core",
    SAMPLES: "CPU samples",
    OVERHEAD: "the profiler's own time",
}
DECLARED = (
    *(
        Reads(table, ("start", "globalTid", *columns), _GIVES[what])
        for what, (tables, columns) in EVENTS.items()
        for table in tables
    ),
    Reads("NVTX_EVENTS", ("text",), "NVTX ranges"),
)


def read_events(database: Database, what: str, since_ns: int | None = None) -> Raw:
    """The raw columns of one kind of events, of one length. Ranges have their ``row`` besides.

    ``since_ns``: calls and instants that begin then or later, other intervals that end then or later.
    """
    if what == CONSTRUCTS:
        return constructs.read(database, since_ns)
    if what == MESSAGES:
        return messages.read(database, since_ns)
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
        is_range = raw[IS_RANGE[0]] != NvtxEvent.DOMAIN_CREATE
        if is_range.all():
            _DOMAINS[database] = {}  # none is created
        else:
            raw = {column: values[is_range] for column, values in raw.items()}
        raw["row"] = np.arange(len(raw["start"]))
        if since_ns is not None:
            kept = (raw["end"] >= since_ns) | (raw["end"] == MISSING)
            raw = {column: values[kept] for column, values in raw.items()}
    if "eventClass" in raw:
        kept = raw["eventClass"] != _CUDA_BACKTRACE
        raw = raw if bool(kept.all()) else {column: values[kept] for column, values in raw.items()}
    return raw


def api_calls(raw: Raw, indexes: Indexes) -> ApiCalls:
    """Runtime and driver calls."""
    return ApiCalls(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        correlation=narrow(replaced(raw["correlationId"], MISSING, NO_CORRELATION)),
        name=indexes.names(raw["nameId"]),
        has_failed=translated(raw["returnValue"], lambda value: value not in (MISSING, 0), np.bool_),
    ).sorted(indexes.pool.names())


def ranges(raw: Raw, indexes: Indexes) -> tuple[Ranges, tuple[str, ...]]:
    """Push/pop and start/end ranges, and the names of the domains they index.

    Of ranges with the same instants nothing tells which is the outer one, so names do, and not the order of rows.
    """
    domain, domains = _domains(raw, indexes.database)
    table = Ranges(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        name=_range_names(raw, indexes),
        domain=domain,
        is_start_end=translated(raw["eventType"], START_END.__contains__, np.bool_),
        is_open=compact(raw["end"] == MISSING),
        **_payloads(raw, indexes),
    )
    return table.sorted(indexes.pool.names()), domains


def _payloads(raw: Raw, indexes: Indexes) -> dict[str, npt.NDArray[Any]]:
    """The number that each range carries (NaN where it carries none), and what that number is, where it has a name."""
    columns = [replaced_by_nan(raw[column]) for column in _WHOLE if _holds(raw[column])]
    columns += [decimals(raw[column]) for column in _DECIMAL if _holds(raw[column])]
    found: dict[str, npt.NDArray[Any]] = {}
    if _holds(raw[_OBJECT]):
        used, inverse = np.unique(raw[_OBJECT], return_inverse=True)
        texts = indexes.database.texts
        amounts = [amount_of(texts.get(number, "")) for number in used.tolist()]
        columns.append(np.array([number for _, number in amounts])[inverse.reshape(-1)])
        names = [indexes.pool.add(name) if name else -1 for name, _ in amounts]
        found["payload_name"] = np.array(names, np.int32)[inverse.reshape(-1)]
    if columns:
        payload = columns[0]
        for column in columns[1:]:
            payload = np.where(np.isnan(payload), column, payload)
        found["payload"] = payload
    return found


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
        told = json.loads(text)
    except (ValueError, RecursionError):
        return nothing
    while isinstance(told, list | dict) and len(told) == 1 and not _numbers(told):
        told = told[0] if isinstance(told, list) else next(iter(told.values()))
    known = _numbers(told)
    amounts = [key for key in known if _AMOUNT.search(key)] or ([*known] if len(known) == 1 else [])
    return (amounts[0], float(known[amounts[0]])) if amounts else nothing


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
        places = np.zeros(len(texts) + 1, np.int32)
        places[used] = indexes.pool.add_all(
            [text or "(unnamed)" for text in map([*texts, ""].__getitem__, used.tolist())]
        )
        names = names.copy()
        names[inline] = places[number]
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
    places, inverse = factorize(process_key(raw["globalTid"]), number)

    def name(place: tuple[int, int]) -> str:
        if place in created:
            return created[place] or f"domain {place[1]}"
        return f"domain {place[1]}" if place[1] else ""

    names = [name((process, domain)) for process, domain in places.tolist()]
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
