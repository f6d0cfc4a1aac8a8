"""What an analysis of an export takes of memory, from the numbers of its rows (docs/performance.md has the formula),
and from when on the export fits into the room there is.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array
from boundby.model.errors import SelectionError
from boundby.model.units import percent, size
from boundby.readers.nsys.database import Database
from boundby.readers.room import Room
from boundby.trace.facts import TraceWarning

#: Python, NumPy and boundby itself.
FIXED_BYTES = 70_000_000
#: Bytes of each row, measured at the peak of whole analyses (docs/performance.md): tables, account, graph.
OPERATION_BYTES, CALL_BYTES, RANGE_BYTES, HOST_BYTES = 180, 150, 400, 125
#: Bytes of each frame of a backtrace, measured alike; all backtraces are read, whatever part of the capture is.
FRAME_BYTES = 90
#: Bytes of each sample of a GPU's counter, measured at 1 and at 3 million.
COUNTER_BYTES = 60
_COUNTERS = "GPU_METRICS"
_BACKTRACES = ("SAMPLING_CALLCHAINS", "CUDA_CALLCHAINS", "OSRT_CALLCHAINS")
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": OPERATION_BYTES,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": OPERATION_BYTES,
    "CUPTI_ACTIVITY_KIND_MEMCPY": OPERATION_BYTES,
    "CUPTI_ACTIVITY_KIND_MEMSET": OPERATION_BYTES,
    "CUPTI_ACTIVITY_KIND_RUNTIME": CALL_BYTES,
    "CUPTI_ACTIVITY_KIND_DRIVER": CALL_BYTES,
    "NVTX_EVENTS": RANGE_BYTES,
    "OSRT_API": HOST_BYTES,
    "SCHED_EVENTS": HOST_BYTES,
    "COMPOSITE_EVENTS": HOST_BYTES,
}
#: Rows of each table that are looked at to learn when its events come.
_SAMPLES = 1_000
_MS = 1_000_000


def cut_to_fit(database: Database, room: Room) -> tuple[int, TraceWarning] | None:
    """From when on the export is to be read so that its analysis stays within the room, and what to say of it; None:
    all of it fits. Raises SelectionError where what must be read does not fit."""
    rows = {table: database.row_count(table) for table in _TABLES if database.has(table, "start")}
    frames = sum(database.row_count(table) for table in _BACKTRACES if database.has(table, "symbol"))
    counters = database.row_count(_COUNTERS) if database.has(_COUNTERS, "timestamp") else 0
    fixed = FIXED_BYTES + FRAME_BYTES * frames + COUNTER_BYTES * counters
    need = fixed + sum(_TABLES[table] * number for table, number in rows.items())
    if need <= room.most_bytes:
        return None
    whole = f"All of {database.path} would take about {size(need)} of memory, and {size(room.most_bytes)} are allowed"
    for_all = f"--max-memory {math.ceil(need / 1e6)}M"
    parts = [_sampled(database, table, number) for table, number in rows.items() if number]
    start_ns, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-start_ns, kind="stable")
    fits = int((np.cumsum(weight[order]) <= room.most_bytes - fixed).sum())
    if fits == 0:
        raise SelectionError(f"{whole}.", f"Allow more: {for_all} reads all of it.")
    begin = -(-int(start_ns[order[fits - 1]]) // _MS) * _MS
    if room.from_ns is not None and room.from_ns < begin:
        raise SelectionError(
            f"{whole}.", f"Analyse the last part, which fits: --window {begin // _MS}ms: (or allow more: {for_all})."
        )
    share = float(weight[order[:fits]].sum() / weight.sum())
    text = (
        f"{whole} (--max-memory): only what begins at {begin / 1e9:.3f} s or later was read, the last {percent(share)} "
        f"of it, as if the capture had begun there; {for_all} reads all of it."
    )
    return begin, TraceWarning("max-memory", text)


def _sampled(database: Database, table: str, rows: int) -> tuple[Int64Array, npt.NDArray[np.float64]]:
    """When some rows begin, and how many bytes each stands for."""
    wanted = np.unique(np.linspace(1, rows, _SAMPLES).astype(np.int64))
    if table in database.known_rows:
        start = database.columns(table, ("start",))["start"][wanted - 1]
        return start, np.full(len(start), _TABLES[table] * rows / len(start))
    is_numbered = database.is_numbered(table)
    if is_numbered:
        query = f'SELECT start FROM "{table}" WHERE _rowid_ IN ({", ".join(map(str, wanted.tolist()))})'
    else:
        query = f'SELECT min(start) FROM "{table}" UNION ALL SELECT max(start) FROM "{table}"'
    found = [value for (value,) in database.rows(query) if isinstance(value, int)] or [0]
    if not is_numbered:  # as if its events came evenly
        found = [found[0] + (found[-1] - found[0]) * number // _SAMPLES for number in range(_SAMPLES + 1)]
    return np.array(found, np.int64), np.full(len(found), _TABLES[table] * rows / len(found))
