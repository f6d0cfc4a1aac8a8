"""Threads and processes: nsys packs both, with machine bits, into one 64-bit global id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boundby.model.arrays import Int32Array, Int64Array
from boundby.readers.nsys.columns import MISSING, Database, as_text
from boundby.trace.tables import Process, Thread

_LOW_24 = 0xFFFFFF


def process_key(global_tid: Int64Array) -> Int64Array:
    """The global process id inside a global thread id (both may already be one)."""
    return np.where(global_tid == MISSING, MISSING, global_tid & ~_LOW_24)


@dataclass(frozen=True)
class Identities:
    """Dense indexes for the global ids of one trace, in ascending order of the ids."""

    thread_ids: Int64Array
    process_ids: Int64Array

    @classmethod
    def collect(cls, threads: Sequence[Int64Array], processes: Sequence[Int64Array]) -> Identities:
        """All ids that occur in any table."""
        tids = np.unique(np.concatenate([np.unique(ids) for ids in threads]))
        tids = tids[tids != MISSING]
        pids = np.concatenate([process_key(tids), *[process_key(np.unique(ids)) for ids in processes]])
        pids = np.unique(pids)
        return cls(tids, pids[pids != MISSING])

    def threads(self, global_tid: Int64Array) -> Int32Array:
        """Index of each thread. Every id must be known (rows without one are dropped before)."""
        return np.searchsorted(self.thread_ids, global_tid).astype(np.int32)

    def processes(self, global_pid: Int64Array) -> Int32Array:
        """Index of each process; rows without one belong to the only process there is, else to none (-1)."""
        known = global_pid != MISSING
        index = np.searchsorted(self.process_ids, np.where(known, process_key(global_pid), 0))
        alone = 0 if len(self.process_ids) == 1 else -1
        return np.where(known, index, alone).astype(np.int32)

    def describe(self, database: Database) -> tuple[tuple[Thread, ...], tuple[Process, ...]]:
        """Thread and process records with the names the trace gives them."""
        names = _thread_names(database)
        commands = _process_names(database)
        pids = [(int(key) >> 24) & _LOW_24 for key in self.process_ids]
        processes = tuple(Process(pid, commands.get(pid, "")) for pid in pids)
        owner = np.searchsorted(self.process_ids, process_key(self.thread_ids))
        threads = tuple(
            Thread(pids[process], int(key) & _LOW_24, int(process), names.get(int(key), ""))
            for key, process in zip(self.thread_ids, owner, strict=True)
        )
        return threads, processes


def _thread_names(database: Database) -> dict[int, str]:
    if not database.has("ThreadNames", "nameId", "globalTid"):
        return {}
    rows = database.columns("ThreadNames", ("nameId", "globalTid"))
    texts = database.strings(rows["nameId"])
    named = zip(rows["globalTid"].tolist(), rows["nameId"].tolist(), strict=True)
    return {tid: texts[name] for tid, name in named if name in texts}


def _process_names(database: Database) -> dict[int, str]:
    if not database.has("PROCESSES", "pid", "name"):
        return {}
    rows = database.rows("SELECT pid, name FROM PROCESSES WHERE pid IS NOT NULL")
    return {pid: as_text(name) or "" for pid, name in rows if isinstance(pid, int)}
