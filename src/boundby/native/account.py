"""The account's passes over events: `states` and `divide` are what ``account.c`` is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int8Array, Int32Array, Int64Array, in_order, index_type, is_in
from boundby.model.intervals import IntervalSet, StepFunction
from boundby.model.library import int64, integers, run, struct

NONE = -1
#: Bounds of a layer's first and last interval that are no instants at which anything changes.
EVER, NEVER = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
MOST_LAYERS = 16


class Layer(NamedTuple):
    """Intervals, disjoint and in order, that set a state (one, or one for each), but over ``spared``."""

    start: Int64Array
    end: Int64Array
    state: Int64Array | int
    spared: int = NONE


def states(layers: Sequence[Layer], otherwise: int, extra: Int64Array) -> StepFunction:
    """The latest layer's state at any instant from the first bound on, ``otherwise`` where there is none. ``extra``:
    other instants to begin at, ascending. Raises ValueError for columns that do not fit, or are in no order."""
    full = [layer for layer in layers if len(layer.start)]
    columns = [[int64(column) for column in layer[:3] if isinstance(column, np.ndarray)] for layer in full]
    if len(full) > MOST_LAYERS or any(len({*map(len, of_layer)}) > 1 for of_layer in columns):
        raise ValueError("too many layers, or columns that do not fit")
    room = len(extra) + 2 * sum(len(layer.start) for layer in full)
    time, value = np.empty(room, np.int64), np.empty(room, np.int64)
    tables = [[of_layer[place] if place < len(of_layer) else None for of_layer in columns] for place in range(3)]
    count = run(
        "boundby_states",
        *map(_addresses, tables),
        np.array([len(layer.start) for layer in full], np.int64),
        np.array([NONE if isinstance(layer.state, np.ndarray) else layer.state for layer in full], np.int64),
        np.array([layer.spared for layer in full], np.int64),
        len(full),
        otherwise,
        int64(extra),
        len(extra),
        time,
        value,
    )
    if count < 0:
        raise ValueError("intervals are not in order")
    return StepFunction(time[:count].copy(), value[:count].copy())


def _addresses(columns: Sequence[Int64Array | None]) -> Int64Array:
    return np.array([0 if column is None else column.ctypes.data for column in columns], np.int64)


class Divided(NamedTuple):
    """Pieces of gaps, each with its cause, region and thread; per gap the call to blame and its cost."""

    start: Int64Array
    end: Int64Array
    cause: Int8Array
    region: Int32Array
    thread: Int32Array
    wait: Int32Array
    sync: Int64Array
    asleep: int  # pieces in which every thread that was asked about sleeps


# Room for the pieces of each gap, and for those of the longest: where it is not enough there is more the next time.
_PIECES, _RAW_PIECES = 2, 1 << 12


def divide(
    gaps: dict[str, npt.NDArray[Any]],
    calls: dict[str, npt.NDArray[Any]],
    states: StepFunction,
    others: Sequence[tuple[int, StepFunction]],
    owners: dict[int, StepFunction],
    region_of_range: Int64Array,
    blocked: tuple[Int64Array, Int64Array, Int64Array],
    waits: dict[str, Int64Array],
    settings: dict[str, int],
) -> Divided:
    """The pieces of the gaps of the thread that stands first in ``owners`` (by thread: its ranges over time), which
    holds every thread that is named elsewhere. ``calls``: when they are made and, of each operation, the region of its
    call. Raises ValueError for columns that do not fit."""
    place = {thread: number for number, thread in enumerate(owners)}
    count, waiting = len(gaps["start"]), len(waits["wait_start"])
    columns = [[int64(column) for column in steps] for steps in (states, *(s for _, s in others), *owners.values())]
    of_others, of_owners = columns[1 : 1 + len(others)], columns[1 + len(others) :]
    steps = sum(len(time) for time, _ in columns)
    rooms = ((min(steps + 4, _RAW_PIECES), _PIECES * count + _RAW_PIECES), (steps + 4, 5 * count + steps))
    fits = (
        len(calls["call_start"]) == len(calls["call_end"]) > int(gaps["launch"].max(initial=NONE))
        and len(calls["launch_region"]) > int(gaps["operation"].max(initial=NONE))
        and all(len(column) == count for column in gaps.values())
        and all(len(column) == waiting for column in waits.values())
        and all(len(time) == len(value) for time, value in columns)
        and len(blocked[0]) == len(blocked[1]) == len(blocked[2]) - 1
        and place.keys() >= {thread for thread, _ in others}
        and bool(is_in(waits["wait_owner"], place).all())
    )
    if not fits:
        raise ValueError("columns do not fit together")
    known: dict[str, Any] = {name: integers(column) for name, column in {**gaps, **calls, **waits}.items()}
    threads = np.array(list(place), np.int64)
    owner_of = np.argsort(threads, kind="stable")
    known["wait_owner"] = owner_of[np.searchsorted(threads[owner_of], known["wait_owner"])].astype(np.int64)
    idle: dict[str, Any] = {
        "gaps": count,
        **known,
        **settings,
        "states": len(columns[0][0]),
        "state_time": columns[0][0],
        "state": columns[0][1],
        "others": len(others),
        "other_times": _addresses([time for time, _ in of_others]),
        "other_states": _addresses([value for _, value in of_others]),
        "other_steps": np.array([len(time) for time, _ in of_others], np.int64),
        "other_owner": np.array([place[thread] for thread, _ in others], np.int64),
        "other_near": np.zeros(len(others), np.int64),
        "owners": len(owners),
        "owner_times": _addresses([time for time, _ in of_owners]),
        "owner_ranges": _addresses([value for _, value in of_owners]),
        "owner_steps": np.array([len(time) for time, _ in of_owners], np.int64),
        "owner_thread": threads,
        "owner_near": np.zeros(len(owners), np.int64),
        "ranges": len(region_of_range),
        "region_of_range": int64(region_of_range),
        "blocks": len(blocked[0]),
        "block_start": int64(blocked[0]),
        "block_end": int64(blocked[1]),
        "block_before": int64(blocked[2]),
        "waits": waiting,
        **_room_for(*rooms[0]),
        "blamed": np.empty(count, np.int32),
        "cost": np.empty(count, np.int64),
        "found": np.zeros(2, np.int64),
    }
    if run("boundby_idle", struct("Idle", idle)):
        idle["other_near"][:] = idle["owner_near"][:] = 0
        idle |= _room_for(*rooms[1])
        if run("boundby_idle", struct("Idle", idle)):
            raise ValueError("gaps overlap or steps are not in order")
    count, asleep = idle["found"].tolist()
    found = [idle[f"piece_{name}"] for name in ("start", "end", "cause", "region", "thread")]
    for column in found:
        column.resize(count, refcheck=False)  # what is left goes back, and nothing is copied
    start, end, cause, region, thread = found
    return Divided(start, end, cause, region, thread, idle["blamed"], idle["cost"], asleep)


def _room_for(raw: int, pieces: int) -> dict[str, Any]:
    """Columns for so many pieces, and for so many of one gap before its wait is known."""
    names = ("raw_start", "raw_end", "raw_state", "raw_owner", "raw_region")
    return {name: np.empty(raw, np.int64) for name in names} | {
        "raw_room": raw,
        "room": pieces,
        "piece_start": np.empty(pieces, np.int64),
        "piece_end": np.empty(pieces, np.int64),
        "piece_cause": np.empty(pieces, np.int8),
        "piece_region": np.empty(pieces, np.int32),
        "piece_thread": np.empty(pieces, np.int32),
    }


def around(
    gaps: IntervalSet, start: Int64Array, end: Int64Array, launched: Int64Array, low: int
) -> tuple[Int32Array, Int32Array, Int64Array]:
    """Of each gap, by the operations of its device: the one that follows (NONE), the one that tells who is responsible,
    and when the one before it was launched (``low`` without one)."""
    order, count = in_order(end, launched), len(gaps.start)
    following, telling, since = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int64)
    by_end = np.empty(0, np.int64) if isinstance(order, slice) else int64(order)
    known = int64(start), int64(end[order]), by_end, isinstance(order, slice), len(start), int64(launched), low
    run("boundby_gaps", int64(gaps.start), int64(gaps.end), count, *known, following, telling, since)
    return following, telling, since


def woven(
    one: Mapping[str, npt.NDArray[Any]], other: Mapping[str, npt.NDArray[Any]]
) -> tuple[Int64Array, Int8Array, Int32Array, Int32Array] | None:
    """Two tables of segments in order of time as one: the bounds of its segments (one more than there are), their
    causes, regions and threads (of the narrowest types that hold them). None where they leave time between them, or
    overlap."""
    sides = [struct("Side", {"count": len(side["start"]), **side}) for side in (one, other)]
    size = len(one["start"]) + len(other["start"])

    def room(name: str) -> npt.NDArray[Any]:
        return np.empty(size, index_type(max(int(side[name].max(initial=0)) for side in (one, other))))

    region, thread = room("region"), room("thread")
    bounds, cause = np.empty(size + 1, np.int64), np.empty(size, np.int8)
    is_whole = run("boundby_weave", *sides, bounds, cause, region, region.itemsize, thread, thread.itemsize)
    return (bounds, cause, region, thread) if is_whole else None
