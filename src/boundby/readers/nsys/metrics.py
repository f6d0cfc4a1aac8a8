"""Samples of the GPUs' counters: GPU_METRICS, or in exports of 2022 the same as JSON in GENERIC_EVENTS.

A sample tells of the time from its timestamp to the next one's: in a real trace the graphics engine was active for
80 % of a sample, and the last kernel ended 80 us after its timestamp (of 100 us), then 1 % of the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from boundby.model.arrays import MISSING, Int32Array, Int64Array, joined, median, translated, unique
from boundby.model.units import PERCENT
from boundby.readers.nsys.database import Database, Reads, as_text
from boundby.trace.tables import MetricSamples
from boundby.trace.vocabulary.profiler import METRIC_COLUMNS, column_of

_TABLE, _NAMES, _EVENTS = "GPU_METRICS", "TARGET_INFO_GPU_METRICS", "GENERIC_EVENTS"
_SAMPLE, _NAMED = ("timestamp", "typeId", "metricId", "value"), ("typeId", "metricId", "metricName")
_RAW = "rawTimestamp"
_DATA = ("typeId", "data")
DECLARED = (
    Reads(_TABLE, (*_SAMPLE, _RAW), "samples of the GPUs' counters"),
    Reads(_NAMES, _NAMED, "names of the GPUs' counters"),
    Reads(_EVENTS, ("timestamp", _RAW, *_DATA), "in exports of 2022: samples of the GPUs' counters, as JSON"),
)
_DEVICE_BITS = 0xFF  # of a typeId: the GPU's number
Raw = dict[str, Int64Array]  # start, type, place (in COLUMNS), value: of one length


def samples(database: Database, gpu_ids: tuple[int, ...], since_ns: int | None = None) -> MetricSamples:
    """All samples (that begin then or later). ``gpu_ids``: the report's own number of each of Trace.gpus."""
    raw = _from_table(database) if database.holds(_TABLE) else _from_json(database)
    place = {gpu: index for index, gpu in enumerate(gpu_ids)}
    device = translated(raw["type"], lambda kind: place.get(kind & _DEVICE_BITS, -1), np.int32)
    kept = (device >= 0) & (raw["start"] >= (MISSING + 1 if since_ns is None else since_ns))
    kept &= (raw["value"] >= 0) & (raw["value"] <= PERCENT)
    if not kept.any():
        return MetricSamples.empty()
    return _table(device[kept], {column: values[kept] for column, values in raw.items()})


def _table(device: Int32Array, raw: Raw) -> MetricSamples:
    """One row for each device and instant, with what each counter says then."""
    order = np.lexsort((raw["start"], device))
    device, raw = device[order], {column: values[order] for column, values in raw.items()}
    is_first = np.append(True, (np.diff(raw["start"]) != 0) | (np.diff(device) != 0))
    row, first = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    columns = {}
    for place, column in enumerate(METRIC_COLUMNS):
        mine = raw["place"] == place
        sums = np.full(len(first), -1, np.int64)
        sums[row[mine]] = 0
        np.add.at(sums, row[mine], raw["value"][mine])
        columns[column] = np.minimum(sums, PERCENT).astype(np.int8)
    start, device = raw["start"][first], device[first]
    end = np.empty_like(start)
    for one in unique(device).tolist():
        mine = np.flatnonzero(device == one)
        steps = np.diff(start[mine])
        usual = int(median(steps)) if len(steps) else 0
        end[mine] = start[mine] + np.append(np.where(steps > 2 * usual, usual, steps), usual)
    table = MetricSamples(start_ns=start, end_ns=end, device=device, **columns)
    return table.take(end > start)


def _from_table(database: Database) -> Raw:
    places = _places(database)
    numbers = tuple(sorted({number for _, number in places}))
    wanted = (*_SAMPLE, _RAW) if database.has(_TABLE, _RAW) else _SAMPLE
    told = database.columns(_TABLE, wanted, only=("metricId", numbers)) if numbers else {}
    if not told or not len(told["value"]):
        return _none()
    start = np.where(told["timestamp"] == MISSING, told.get(_RAW, told["timestamp"]), told["timestamp"])
    kinds, kind = np.unique(told["typeId"], return_inverse=True)
    ids, number = np.unique(told["metricId"], return_inverse=True)
    known = np.array([[places.get((a, b), -1) for b in ids.tolist()] for a in kinds.tolist()], np.int64)
    place = known[kind, number]
    is_known = (place >= 0) & (start != MISSING)
    columns = {"start": start, "type": told["typeId"], "place": place, "value": told["value"]}
    return {column: values[is_known] for column, values in columns.items()}


def _places(database: Database) -> dict[tuple[int, int], int]:
    """The place in COLUMNS of each counter that is read, by type and number."""
    if not database.has(_NAMES, *_NAMED):
        return {}
    found = {}
    for kind, number, text in database.rows(f"SELECT typeId, metricId, metricName FROM {_NAMES}"):
        column = column_of(as_text(text) or "")
        if column is not None and isinstance(kind, int) and isinstance(number, int):
            found[kind, number] = METRIC_COLUMNS.index(column)
    return found


def _from_json(database: Database) -> Raw:
    """Samples of counters out of events that hold ``{"SM Active": "12", ...}``; other events name no such counter."""
    if not database.has(_EVENTS, *_DATA) or not database.holds(_EVENTS):
        return _none()
    numbers = database.columns(_EVENTS, ("timestamp", _RAW, "typeId"))
    which, texts = database.texts_of(_EVENTS, "data")
    start = np.where(numbers["timestamp"] == MISSING, numbers[_RAW], numbers["timestamp"])
    if len(which) != len(start):
        return _none()
    parts = [_none()]
    values = [_values(text) for text in texts]
    for place in sorted({place for told in values for place in told}):
        of_text = np.array([told.get(place, -1) for told in values] + [-1], np.int64)
        value = of_text[which]
        kept = (value >= 0) & (start != MISSING)
        count = int(np.count_nonzero(kept))
        columns = {"start": start, "type": numbers["typeId"], "place": np.full(len(kept), place), "value": value}
        parts.append({column: told[kept] for column, told in columns.items()} if count else _none())
    return {column: joined([part[column] for part in parts]) for column in parts[0]}


def _values(text: str) -> Mapping[int, int]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found = {}
    for name, value in told.items() if isinstance(told, dict) else ():
        column = column_of(name)
        if column is not None and str(value).isdecimal() and len(str(value)) <= len(str(PERCENT)):
            found[METRIC_COLUMNS.index(column)] = int(value)
    return found


def _none() -> Raw:
    return {column: np.empty(0, np.int64) for column in ("start", "type", "place", "value")}
