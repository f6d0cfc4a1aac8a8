"""Small indexes for what the tables name: threads and processes (nsys packs both into one 64-bit id), texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from boundby.model.arrays import Int32Array, Int64Array, is_even, translated, unique
from boundby.readers.nsys.database import MISSING, Database, Reads, as_text
from boundby.readers.sanitize import LONGEST_NAME, bounded
from boundby.trace.tables import ProcessRow, ThreadRow

LOW_24 = 0xFFFFFF
DECLARED = (
    Reads("ThreadNames", ("nameId", "globalTid"), "names of threads"),
    Reads("PROCESSES", ("pid", "name"), "names of processes"),
)


def process_key(global_tid: Int64Array) -> Int64Array:
    """The global process id inside a global thread id (both may already be one)."""
    first = global_tid[:1] if is_even(global_tid) else global_tid
    return np.broadcast_to(np.where(first == MISSING, MISSING, first & ~LOW_24), global_tid.shape)


def pid_of(key: int) -> int:
    """The operating system's process id inside a global process or thread id."""
    return (key >> 24) & LOW_24


class Identities(Struct, frozen=True):
    """Dense indexes for the global ids of one trace, in ascending order of the ids."""

    thread_ids: Int64Array
    process_ids: Int64Array

    @classmethod
    def collect(cls, threads: Sequence[Int64Array], processes: Sequence[Int64Array]) -> Identities:
        """All ids that occur in any table."""
        tids = unique(np.concatenate([unique(ids) for ids in threads]))
        tids = tids[tids != MISSING]
        pids = np.concatenate([process_key(tids), *[process_key(unique(ids)) for ids in processes]])
        pids = unique(pids)
        return cls(tids, pids[pids != MISSING])

    def threads(self, global_tid: Int64Array) -> Int32Array:
        """Index of each thread. Every id must be known (rows without one are dropped before)."""
        return translated(global_tid, lambda tid: int(np.searchsorted(self.thread_ids, tid)), np.int32)

    def processes(self, global_pid: Int64Array) -> Int32Array:
        """Index of each process; rows without one belong to the only process there is, else to none (-1)."""
        alone = 0 if len(self.process_ids) == 1 else -1

        def place(pid: int) -> int:
            return alone if pid == MISSING else int(np.searchsorted(self.process_ids, pid & ~LOW_24))

        return translated(global_pid, place, np.int32)

    def has_process(self, global_pid: int) -> bool:
        """Whether the process of a global id is known."""
        return bool((self.process_ids == (global_pid & ~LOW_24)).any())

    def describe(self, database: Database) -> tuple[tuple[ThreadRow, ...], tuple[ProcessRow, ...]]:
        """Thread and process records with the names the trace gives them."""
        names = _thread_names(database)
        commands = _process_names(database)
        pids = [pid_of(key) for key in self.process_ids.tolist()]
        processes = tuple(ProcessRow(pid, commands.get(pid, "")) for pid in pids)
        owner = np.searchsorted(self.process_ids, process_key(self.thread_ids))
        threads = tuple(
            ThreadRow(pids[process], int(key) & LOW_24, int(process), names.get(int(key), ""))
            for key, process in zip(self.thread_ids, owner, strict=True)
        )
        return threads, processes


def _thread_names(database: Database) -> dict[int, str]:
    if not database.has("ThreadNames", "nameId", "globalTid"):
        return {}
    rows = database.columns("ThreadNames", ("nameId", "globalTid"))
    named = zip(rows["globalTid"].tolist(), rows["nameId"].tolist(), strict=True)
    return {tid: database.texts[name] for tid, name in named if name in database.texts}


def _process_names(database: Database) -> dict[int, str]:
    if not database.has("PROCESSES", "pid", "name"):
        return {}
    rows = database.rows("SELECT pid, name FROM PROCESSES WHERE pid IS NOT NULL")
    return {pid: as_text(name) or "" for pid, name in rows if isinstance(pid, int)}


class NamePool:
    """Gives every distinct text one index."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The index of a text, new or known."""
        return self._index.setdefault(bounded(text), len(self._index))

    def add_all(self, texts: Sequence[str]) -> Sequence[int]:
        """The index of each text."""
        index = self._index
        if max(map(len, texts), default=0) > LONGEST_NAME:
            texts = [bounded(text) for text in texts]
        numbers = range(len(index), len(index) + len(texts))
        new = dict(zip(texts, numbers, strict=True))
        if len(new) == len(texts) and index.keys().isdisjoint(new):  # mostly so, and sooner done all at once
            index.update(new)
            return numbers
        return [index.setdefault(text, len(index)) for text in texts]

    def add_ids(self, database: Database, ids: Int64Array, *, unknown: str = "(unnamed)") -> Int32Array:
        """Indexes for StringIds ids. An id without a text, or MISSING, becomes ``unknown``."""
        return translated(ids, lambda number: self.add(database.texts.get(number, unknown)), np.int32)

    def names(self) -> tuple[str, ...]:
        """All texts, in index order."""
        return tuple(self._index)


class Indexes(Struct, frozen=True):
    """What turns the ids of an export into indexes, for the builders of all tables."""

    database: Database
    identities: Identities
    pool: NamePool
    last_ns: int  # when the trace ends: so do events that are still open then

    def names(self, ids: Int64Array, *, unknown: str = "(unnamed)") -> Int32Array:
        """Indexes of names for StringIds ids."""
        return self.pool.add_ids(self.database, ids, unknown=unknown)

    def ends(self, end_ns: Int64Array) -> Int64Array:
        """Ends, with those of open events put where the trace ends."""
        is_open = end_ns == MISSING
        return np.where(is_open, self.last_ns, end_ns) if is_open.any() else end_ns
