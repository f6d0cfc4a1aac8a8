"""CUDA API calls, NVTX ranges, OS runtime calls, context switches, samples and overhead: the host's tables."""

from __future__ import annotations

import numpy as np

from boundby.model.arrays import Int32Array, Int64Array, factorize
from boundby.readers.nsys.columns import MISSING, Database, as_text
from boundby.readers.nsys.identity import Identities
from boundby.readers.nsys.names import NamePool
from boundby.trace.tables import NO_CORRELATION, ApiCalls, Intervals, Ranges, Samples, Schedule

_CUDA_BACKTRACE = 67  # eventClass of rows that repeat a call to carry its backtrace
_PUSH_POP = (59, 70)
_START_END = (60, 71)
_DOMAIN_CREATE = 75
_RANGE_TYPES = ", ".join(str(code) for code in (*_PUSH_POP, *_START_END))

Raw = dict[str, Int64Array]


def _keep(raw: Raw, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Raw:
    return {column: values[rows] for column, values in raw.items()}


def _events(database: Database, table: str, *columns: str) -> Raw:
    return database.columns(table, ("start", "globalTid", *columns))


def read_api(database: Database) -> Raw:
    """Runtime and driver calls (one table; some exporters split the driver's off)."""
    columns = ("end", "correlationId", "nameId", "eventClass")
    parts = [
        _events(database, table, *columns) for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
    ]
    raw = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    return _keep(raw, raw["eventClass"] != _CUDA_BACKTRACE)


def read_ranges(database: Database) -> Raw:
    """Push/pop and start/end ranges. Marks, categories and payload schemas are not intervals."""
    columns = ("start", "globalTid", "end", "eventType", "textId", "domainId")
    raw = database.columns("NVTX_EVENTS", columns, where=f"eventType IN ({_RANGE_TYPES})")
    raw["row"] = np.arange(len(raw["start"]))
    return raw


def read_os_calls(database: Database) -> Raw:
    """OS runtime calls that can block."""
    return _events(database, "OSRT_API", "end", "nameId")


def read_schedule(database: Database) -> Raw:
    """Context switches."""
    return _events(database, "SCHED_EVENTS", "isSchedIn")


def read_samples(database: Database) -> Raw:
    """CPU samples."""
    return _events(database, "COMPOSITE_EVENTS")


def read_overhead(database: Database) -> Raw:
    """The profiler's and CUPTI's own time."""
    parts = [
        _events(database, table, "end", "nameId") for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
    ]
    return {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}


def _closed(raw: Raw, last: int) -> Int64Array:
    """Ends, with those of events still open at the end of the trace put there."""
    return np.where(raw["end"] == MISSING, last, raw["end"])


def api_calls(database: Database, raw: Raw, identities: Identities, pool: NamePool, last: int) -> ApiCalls:
    """Calls ordered by thread, start, -end."""
    table = ApiCalls(
        start_ns=raw["start"],
        end_ns=_closed(raw, last),
        thread=identities.threads(raw["globalTid"]),
        correlation=np.where(raw["correlationId"] == MISSING, NO_CORRELATION, raw["correlationId"]),
        name=pool.add_ids(database, raw["nameId"]),
    )
    return table.take(
        np.lexsort((pool.ranks(table.name), table.correlation, -table.end_ns, table.start_ns, table.thread))
    )


def ranges(
    database: Database, raw: Raw, identities: Identities, pool: NamePool, last: int
) -> tuple[Ranges, tuple[str, ...]]:
    """Ranges ordered by thread, start, -end, and the domain names they index."""
    domain, domains = _domains(database, raw)
    table = Ranges(
        start_ns=raw["start"],
        end_ns=_closed(raw, last),
        thread=identities.threads(raw["globalTid"]),
        name=_range_names(database, raw, pool),
        domain=domain,
        is_start_end=np.isin(raw["eventType"], _START_END),
        is_open=raw["end"] == MISSING,
    )
    # Ranges of the same instants: nothing tells which is the outer one, so names do, and not the order of rows.
    order = np.lexsort((domain, pool.ranks(table.name), -table.end_ns, table.start_ns, table.thread))
    return table.take(order), domains


def _range_names(database: Database, raw: Raw, pool: NamePool) -> Int32Array:
    names = pool.add_ids(database, raw["textId"])
    inline = np.flatnonzero(raw["textId"] == MISSING)
    if len(inline) and database.has("NVTX_EVENTS", "text"):
        # In the order of ``read_ranges``: an index that somebody added must not change it.
        texts = database.rows(f"SELECT text FROM NVTX_EVENTS NOT INDEXED WHERE eventType IN ({_RANGE_TYPES})")
        wanted = set(raw["row"][inline].tolist())
        found = [as_text(text) or "(unnamed)" for row, (text,) in enumerate(texts) if row in wanted]
        names[inline] = pool.add_texts(found)
    return names


def _domains(database: Database, raw: Raw) -> tuple[Int32Array, tuple[str, ...]]:
    """Domain ids count per process; equal names are one domain. The default domain is ``""``."""
    created: dict[tuple[int, int], str] = {}
    if database.has("NVTX_EVENTS", "domainId", "globalTid", "text"):
        text_id = "textId" if database.has("NVTX_EVENTS", "textId") else "NULL"
        rows = list(
            database.rows(
                f"SELECT globalTid, domainId, {text_id}, text FROM NVTX_EVENTS WHERE eventType = {_DOMAIN_CREATE}"
            )
        )
        texts = database.strings(np.array([row[2] for row in rows if isinstance(row[2], int)], np.int64))
        for tid, number, text_number, text in rows:
            if isinstance(tid, int) and isinstance(number, int):
                known = texts.get(text_number) if isinstance(text_number, int) else as_text(text)
                created[(tid & ~0xFFFFFF, number)] = known or f"domain {number}"
    number = np.where(raw["domainId"] == MISSING, 0, raw["domainId"])
    places, inverse = factorize(raw["globalTid"] & ~0xFFFFFF, number)
    texts_of = [created.get((int(p), int(d)), "" if d == 0 else f"domain {d}") for p, d in places.tolist()]
    domains = tuple(sorted({"", *texts_of}))
    return np.array([domains.index(text) for text in texts_of], np.int32)[inverse], domains


def intervals(database: Database, raw: Raw, identities: Identities, pool: NamePool, last: int) -> Intervals:
    """Named host intervals ordered by thread, start, -end."""
    table = Intervals(
        start_ns=raw["start"],
        end_ns=_closed(raw, last),
        thread=identities.threads(raw["globalTid"]),
        name=pool.add_ids(database, raw["nameId"]),
    )
    return table.take(np.lexsort((pool.ranks(table.name), -table.end_ns, table.start_ns, table.thread)))


def schedule(raw: Raw, identities: Identities) -> Schedule:
    """Context switches ordered by thread, time, out before in."""
    table = Schedule(raw["start"], identities.threads(raw["globalTid"]), raw["isSchedIn"] != 0)
    return table.take(np.lexsort((table.is_in, table.start_ns, table.thread)))


def samples(raw: Raw, identities: Identities) -> Samples:
    """Samples ordered by thread and time."""
    table = Samples(raw["start"], identities.threads(raw["globalTid"]))
    return table.take(np.lexsort((table.start_ns, table.thread)))
