"""Threads by the ten thousand: those that live one after the other are one.

A program that starts a thread for each piece of work has as many as pieces, and few at a time. What is known of a
thread is worked out for each, so that only so many are told apart in a process, as a pool of workers would have run it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from boundby.model.arrays import Int64Array, pick, unique
from boundby.model.intervals import MOST_APART, taking_turns
from boundby.trace.facts import TraceWarning
from boundby.trace.tables import ColumnTable, Trace


def in_turns(trace: Trace) -> Trace:
    """The trace with at most `MOST_APART` threads of each process, and a warning that says so where it had more.

    Threads of which none lives at the same time as another are one; where still more live at a time, some share one.
    """
    process = trace.process_of_thread
    crowded = np.flatnonzero(np.bincount(process[process >= 0]) > MOST_APART).tolist()
    if not crowded:
        return trace
    tables: dict[str, Any] = {
        name: table
        for name, table in ((name, getattr(trace, name)) for name in trace.__struct_fields__)
        if isinstance(table, ColumnTable) and "thread" in table.__struct_fields__
    }
    events = {name for name, table in tables.items() if "start_ns" in table.__struct_fields__}
    who, begin, end = _on_record(trace, [tables[name] for name in sorted(events)])
    stands_for = np.arange(len(process))
    threads, notes = list(trace.threads), []
    for number in crowded:
        mine, rows = np.flatnonzero(process == number), np.flatnonzero(process[who] == number)
        lane = taking_turns(np.searchsorted(mine, who[rows]), len(mine), begin[rows], end[rows])
        _, first, several = np.unique(lane, return_index=True, return_counts=True)
        stands_for[mine] = mine[first][lane]
        for one, count in zip(mine[first].tolist(), several.tolist(), strict=True):
            if count > 1:
                threads[one] = replace(threads[one], name=f"{count:,} threads in turn")
        notes.append(
            f"Process {trace.processes[number].pid} has {len(mine):,} threads, which are shown as {len(first):,}: "
            "those that live one after the other count as one"
            f"{', and still there are too many to tell all of them apart' if len(first) == MOST_APART else ''}."
        )
    kept = unique(stands_for)
    place = np.searchsorted(kept, stands_for)
    moved: dict[str, Any] = {
        name: replace(table, thread=pick(place, table.thread, -1).astype(np.int32)) for name, table in tables.items()
    }
    moved |= {name: moved[name].sorted(trace.names) for name in events}
    return replace(
        trace,
        **moved,
        threads=tuple(threads[one] for one in kept.tolist()),
        backtraces=trace.backtraces.of_threads(place),
        warnings=(*trace.warnings, *(TraceWarning("threads-in-turn", note) for note in notes)),
    )


def _on_record(trace: Trace, tables: list[Any]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of which thread anything is on record, from when to when; the first thread of a process lives all the time."""
    main = [number for number, thread in enumerate(trace.threads) if thread.pid == thread.tid]
    first, last = ([instant] * len(main) for instant in trace.span_ns)
    who = np.concatenate([main, *(table.thread for table in tables)]).astype(np.int64)
    begin = np.concatenate([first, *(table.start_ns for table in tables)]).astype(np.int64)
    end = np.concatenate([last, *(getattr(table, "end_ns", table.start_ns) for table in tables)]).astype(np.int64)
    known = who >= 0
    return who[known], begin[known], end[known]
