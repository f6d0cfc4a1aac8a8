"""Threads too many to tell apart, rows that cannot be placed in time, and values that would overflow sums: left
out, and said so.

A damaged or edited file can hold anything in its columns. What comes through here is safe to add and subtract
in 64 bits; whatever was left out or changed becomes a warning, and a table set of which nothing is left an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from boundby.model.arrays import MISSING, BoolArray, Int64Array, bounds, pick, unique
from boundby.model.errors import InputError
from boundby.model.intervals import MOST_APART, taking_turns
from boundby.model.units import EXACT_NS, FURTHEST_NS
from boundby.trace.facts import BROKEN_ROWS, TraceWarning
from boundby.trace.tables import ColumnTable, Trace

Raw = dict[str, Int64Array]

MOST_TIME_NS = FURTHEST_NS  # nsys can write Unix time
MOST_SPAN_NS = EXACT_NS  # no capture is as long, and a thousand such intervals still add up in 64 bits
MOST_SUM = float(1 << 62)
MOST_BYTES = 1 << 48  # 256 TiB in one copy
MOST_SHAPE = int(np.iinfo(np.int32).max)  # no dimension, register count or shared size is larger
_LAST = np.iinfo(np.int64).max
_LEAST_ID = MISSING + (1 << 24)  # below, a thread's process would look like none
LONGEST_NAME = 1 << 14  # of nested C++ templates some thousand characters
CORRELATIONS = int(np.iinfo(np.uint32).max) + 1  # CUPTI counts calls in 32 bits; the join packs (process, id) into 64


def sanitize(path: Path, tables: Mapping[str, Raw], next_step: str) -> tuple[TraceWarning, ...]:
    """Cut rows without a usable time or thread out of the raw tables, in place; keys name the rows for people.
    ``next_step``: what to do about a file of which nothing is left (InputError)."""
    seen = _Bounds()
    near = _near(tables.values(), seen)
    notes: list[str] = []
    left_out = 0
    for what, raw in tables.items():
        good = None if _are_placeable(raw, near, seen) else _placeable(raw, near)
        bad = 0 if good is None else len(good) - int(good.sum())
        if bad:
            raw.update({column: values[good] for column, values in raw.items()})
            notes.append(f"{_count(bad, what)} had no usable time or thread and were left out.")
            left_out += bad
        may_end_early = good is not None or "globalTid" in raw
        notes += _mend(what, raw, seen, may_end_early)
    if left_out and not any(len(raw["start"]) for raw in tables.values()):
        raise InputError(f"{path} is damaged: none of its events has a usable time and thread.", next_step)
    _check_sums(path, tables, next_step, seen)
    return tuple(TraceWarning(BROKEN_ROWS, note) for note in notes)


def bounded(name: str) -> str:
    """A name, cut where it is beyond all that compilers make; what tells such names apart stays."""
    if len(name) <= LONGEST_NAME:
        return name
    import hashlib  # OpenSSL, for once in a thousand reports

    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME // 2]}... ({len(name):,} characters, {digest})"


class _Bounds:
    """The least and the greatest value of columns, looked for once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Int64Array, int, int]] = {}

    def least(self, values: Int64Array) -> int:
        return self._of(values)[1]

    def greatest(self, values: Int64Array) -> int:
        return self._of(values)[2]

    def _of(self, values: Int64Array) -> tuple[Int64Array, int, int]:
        if id(values) not in self._known:
            self._known[id(values)] = (values, *(bounds(values) if len(values) else (_LAST, MISSING)))
        return self._known[id(values)]


def _near(tables: Iterable[Raw], seen: _Bounds) -> tuple[int, int] | None:
    """Bounds around the bulk of the events, or None where all events lie within one possible capture."""
    times = [raw[column] for raw in tables for column in ("start", "end") if column in raw and len(raw[column])]
    lowest = min((_least_told(values, seen) for values in times), default=0)
    highest = max((seen.greatest(values) for values in times), default=0)
    if highest - lowest <= MOST_SPAN_NS and lowest > -MOST_TIME_NS and highest < MOST_TIME_NS:
        return None
    every = np.concatenate([_told(values) for values in times])
    middle = int(np.partition(every, len(every) // 2)[len(every) // 2])
    half = MOST_SPAN_NS // 2
    return max(middle - half, 1 - MOST_TIME_NS), min(middle + half, MOST_TIME_NS - 1)


def _least_told(values: Int64Array, seen: _Bounds) -> int:
    least = seen.least(values)
    return least if least > MISSING else int(_told(values).min(initial=_LAST))


def _told(values: Int64Array) -> Int64Array:
    """Without what is missing."""
    values_told: Int64Array = values[values != MISSING]
    return values_told


def _are_placeable(raw: Raw, near: tuple[int, int] | None, seen: _Bounds) -> bool:
    """Whether it is plain that no row need be left out: see `_placeable`."""
    least = {
        column: seen.least(raw[column]) for column in ("start", "globalTid", "deviceId", "isSchedIn") if column in raw
    }
    if near is not None or MISSING in (least["start"], least.get("isSchedIn")):
        return False
    if least.get("deviceId", 0) < 0 or least.get("globalTid", _LEAST_ID) < _LEAST_ID:
        return False
    return "globalTid" in raw or "end" not in raw or bool((raw["end"] >= raw["start"]).all())


def _placeable(raw: Raw, near: tuple[int, int] | None) -> BoolArray:
    start, end = raw["start"], raw.get("end")
    good: BoolArray = start != MISSING
    if "globalTid" in raw:
        good &= raw["globalTid"] >= _LEAST_ID
    elif end is not None:  # a GPU operation: it has ended, or it would not be there
        good &= (end != MISSING) & (end >= start)
    if "deviceId" in raw:
        good &= raw["deviceId"] >= 0
    if "isSchedIn" in raw:
        good &= raw["isSchedIn"] != MISSING
    if near is not None:
        good &= (start >= near[0]) & (start <= near[1])
        if end is not None:
            good &= (end == MISSING) | ((end >= near[0]) & (end <= near[1]))
    return good


def _mend(what: str, raw: Raw, seen: _Bounds, may_end_early: bool) -> list[str]:
    """Values that only spoil their own column count as not captured."""
    notes = []
    if "end" in raw and may_end_early:
        backwards = raw["end"] < raw["start"]
        if backwards.any() and (backwards := backwards & (raw["end"] != MISSING)).any():
            notes.append(f"{_count(int(backwards.sum()), what)} ended before they started and count as instants.")
            raw["end"] = np.where(backwards, raw["start"], raw["end"])
    if "globalPid" in raw and seen.least(raw["globalPid"]) < _LEAST_ID:
        raw["globalPid"] = np.where(raw["globalPid"] < _LEAST_ID, MISSING, raw["globalPid"])
    return [*notes, *_mend_numbers(what, raw, seen)]


def _mend_numbers(what: str, raw: Raw, seen: _Bounds) -> list[str]:
    notes = []
    for column, limit, text in (
        ("correlationId", CORRELATIONS, "had impossible correlation ids and were matched with nothing."),
        ("bytes", MOST_BYTES, "had impossible sizes and count as 0 bytes."),
    ):
        if column in raw and not (seen.least(raw[column]) >= 0 and seen.greatest(raw[column]) < limit):
            values = raw[column]
            wrong = (values != MISSING) & ((values < 0) | (values >= limit))
            if wrong.any():
                notes.append(f"{_count(int(wrong.sum()), what)} {text}")
                raw[column] = np.where(wrong, MISSING, values)
    return notes


def _check_sums(path: Path, tables: Mapping[str, Raw], next_step: str, seen: _Bounds) -> None:
    """Whatever is added up later stays within 64 bits."""
    starts = [raw["start"] for raw in tables.values() if len(raw["start"])]
    last = max((seen.greatest(values) for values in starts), default=0)
    for what, raw in tables.items():
        sums, count = [], len(raw["start"])
        # Where none can be so long that all of them are too much, they need not be added up.
        if "end" in raw and count:
            longest = max(last, seen.greatest(raw["end"]), 0) - min(seen.least(raw["start"]), last)
            if count * longest > MOST_SUM:
                end = np.where(raw["end"] == MISSING, last, raw["end"])
                sums.append(float(np.sum(end - raw["start"], dtype=np.float64)))
        if "bytes" in raw and count and count * seen.greatest(raw["bytes"]) > MOST_SUM:
            sums.append(float(np.sum(raw["bytes"][raw["bytes"] != MISSING], dtype=np.float64)))
        if any(total > MOST_SUM for total in sums):
            raise InputError(f"{path} is damaged: the times or sizes of its {what} add up to too much.", next_step)


def _count(number: int, what: str) -> str:
    return f"{number:,} of the {what}"


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
        own, rows = np.flatnonzero(process == number), np.flatnonzero(process[who] == number)
        lane = taking_turns(np.searchsorted(own, who[rows]), len(own), begin[rows], end[rows])
        _, first, several = np.unique(lane, return_index=True, return_counts=True)
        stands_for[own] = own[first][lane]
        for thread, count in zip(own[first].tolist(), several.tolist(), strict=True):
            if count > 1:
                threads[thread] = replace(threads[thread], name=f"{count:,} threads in turn")
        notes.append(
            f"Process {trace.processes[number].pid} has {len(own):,} threads, which are shown as {len(first):,}: "
            "those that live one after the other count as one"
            f"{', and still there are too many to tell all of them apart' if len(first) == MOST_APART else ''}."
        )
    kept = unique(stands_for)
    position = np.searchsorted(kept, stands_for)
    moved: dict[str, Any] = {
        name: replace(table, thread=pick(position, table.thread, -1).astype(np.int32)) for name, table in tables.items()
    }
    moved |= {name: moved[name].sorted(trace.names) for name in events}
    return replace(
        trace,
        **moved,
        threads=tuple(threads[thread] for thread in kept.tolist()),
        backtraces=trace.backtraces.of_threads(position),
        warnings=(*trace.warnings, *(TraceWarning("threads-in-turn", note) for note in notes)),
    )


def _on_record(trace: Trace, tables: list[Any]) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of which thread anything is on record, from when to when; the first thread of a process lives all the time."""
    main = [number for number, thread in enumerate(trace.threads) if thread.pid == thread.tid]
    first, last = ([instant] * len(main) for instant in trace.span_ns)
    who = np.concatenate([main, *(table.thread for table in tables)]).astype(np.int64)
    begin = np.concatenate([first, *(table.start_ns for table in tables)]).astype(np.int64)
    end = np.concatenate([last, *(getattr(table, "end_ns", table.start_ns) for table in tables)]).astype(np.int64)
    has_thread = who >= 0
    return who[has_thread], begin[has_thread], end[has_thread]
