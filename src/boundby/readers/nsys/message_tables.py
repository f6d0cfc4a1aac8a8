"""Message passing: the tables of MPI and UCX calls, or, in reports of 2022, ranges named for calls of MPI.

Calls are rows of ``Trace.messages``, and ranges beside the program's own, so that time has them as regions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.model.arrays import BoolArray, Int32Array, Int64Array, compact, is_in, joined, replaced, spread, unique
from boundby.model.expressions import expression
from boundby.model.intervals import NOTHING
from boundby.readers.nsys.database import MISSING, Database, Reads, as_text
from boundby.readers.nsys.identity import Identities, Indexes
from boundby.readers.nsys.pages import Since
from boundby.trace.facts import Communicator
from boundby.trace.tables import MessageTable, Trace
from boundby.trace.vocabulary.os import MPI_DOMAIN, is_mpi

TABLES = (
    *("MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS"),
    *("UCP_SUBMIT_EVENTS", "UCP_PROGRESS_EVENTS", "UCP_EVENTS"),
)
COLUMNS = ("end", "textId", "commHandle", "tag", "remoteRank", "rootRank", "size", "recvSize", "packedSize")
_RANK = ("globalTid", "rank")
_COMMUNICATOR = ("rank", "timestamp", "commHandle", "localRank", "size")
DECLARED = (
    Reads("MPI_RANKS", _RANK, "which process is which rank"),
    Reads("MPI_COMMUNICATORS", (*_COMMUNICATOR, "members"), "which ranks communicate"),
)
_RECEIVES = expression(r"recv", re.IGNORECASE)
_RANK_THREAD = expression(r"^MPI Rank (\d+)$")
_MEMBER = expression(r"\d+")
_UNTOLD = NOTHING

Raw = dict[str, Int64Array]


def read(database: Database, since_ns: int | None = None) -> Raw:
    """The raw columns of all calls, of one length; ``table``: a place in ``TABLES``. ``since_ns``: calls that end then
    or later."""
    only = None if since_ns is None else Since("end", since_ns)
    parts = []
    for number, table in enumerate(TABLES):
        part = database.columns(table, ("start", "globalTid", *COLUMNS), only=only)
        parts.append({**part, "table": spread(number, len(part["start"]))})
    return {column: joined([part[column] for part in parts]) for column in parts[0]}


def messages(raw: Raw, indexes: Indexes) -> MessageTable:
    """Calls of MPI and UCX as their tables tell them."""
    if not len(raw["start"]):
        return MessageTable.empty()
    name = indexes.names(raw["textId"])
    texts = indexes.pool.names()
    told = {column: replaced(raw[column], MISSING, _UNTOLD) for column in COLUMNS}
    receives = np.array([bool(_RECEIVES.search(text)) for text in texts], bool)[name]
    size = np.where(told["size"] == _UNTOLD, told["packedSize"], told["size"])
    is_collective = raw["table"] == 0
    return MessageTable(
        start_ns=raw["start"],
        end_ns=indexes.ends(raw["end"]),
        thread=indexes.identities.threads(raw["globalTid"]),
        name=name,
        communicator=told["commHandle"],
        peer=np.where(is_collective, told["rootRank"], told["remoteRank"]),
        tag=told["tag"],
        sent_bytes=np.where(receives & ~is_collective, _UNTOLD, size),
        received_bytes=np.where(is_collective, told["recvSize"], np.where(receives, size, _UNTOLD)),
        is_open=compact(raw["end"] == MISSING),
    ).sorted(texts)


def with_messages(trace: Trace, raw: Raw, indexes: Indexes) -> Trace:
    """The trace with its calls of message passing, its ranks and communicators; itself where there are none."""
    calls = messages(raw, indexes)
    if len(calls):
        trace = _with_ranges(replace(trace, names=indexes.pool.names()), calls)
    else:
        calls = _from_ranges(trace)
    if not len(calls):
        return trace
    communicators, ranks = _communicators(indexes.database, indexes.identities)
    named = {thread.process: int(found[1]) for thread in trace.threads if (found := _RANK_THREAD.match(thread.name))}
    if any(ranks.get(process, rank) != rank for process, rank in named.items()):
        communicators, ranks, named = (), {}, {}  # one of the tables is damaged, and nothing shows which
    return replace(trace, messages=calls, communicators=communicators, ranks={**named, **ranks})


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
    told = database.columns("MPI_RANKS", _RANK)
    for thread, rank in zip(told["globalTid"].tolist(), told["rank"].tolist(), strict=True):
        if rank >= 0 and identities.has_process(thread):
            ranks[int(identities.processes(np.array([thread], np.int64))[0])] = rank
    if not database.has("MPI_COMMUNICATORS", *_COMMUNICATOR):
        return (), ranks
    process_of = {rank: process for process, rank in ranks.items()}
    members = database.optional("MPI_COMMUNICATORS", "members")
    columns = f"rank, timestamp, commHandle, localRank, size, {members}"
    rows = database.rows(f"SELECT {columns} FROM MPI_COMMUNICATORS ORDER BY rank, timestamp")
    found = []
    for rank, since_ns, handle, own, size, inside in rows:
        numbers = (rank, since_ns, handle, own, size)
        if rank not in process_of:
            return (), {}
        if all(isinstance(number, int) for number in numbers):
            of_job = tuple(int(number) for number in _MEMBER.findall(as_text(inside) or ""))
            found.append(Communicator(process_of[rank], handle, since_ns, own, size, of_job))  # type: ignore[arg-type]
    return tuple(found), ranks
