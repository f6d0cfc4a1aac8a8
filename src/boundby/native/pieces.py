"""The intervals before the nodes of the replay's graph, cut in one pass by ``pieces.c``."""

from __future__ import annotations

from typing import Any

import numpy as np

from boundby.model.arrays import Int8Array, Int32Array, Int64Array
from boundby.model.library import int64, run, struct

#: Columns of equal length, by the field that tells it.
TABLES = {
    "count": ("low", "high", "node"),
    "steps": ("step_time", "step_range"),
    "ranges": ("region_of_range",),
    "states": ("state_time", "state"),
}
#: Pieces that there is room for at first, beside two for each interval.
_MORE = 1 << 16


def cut_intervals(
    columns: dict[str, Int64Array], settings: dict[str, int]
) -> tuple[Int32Array, Int32Array, Int8Array, Int32Array]:
    """Node, nanoseconds, cause and region of each piece, in order of the intervals; what 32 bits do not hold is several
    pieces. The library must be there. Raises ValueError for columns that do not fit together."""
    known: dict[str, Any] = {**settings, **{name: int64(column) for name, column in columns.items()}}
    for table, names in TABLES.items():
        lengths = {len(known[name]) for name in names}
        known[table] = lengths.pop()
        if lengths:
            raise ValueError("columns do not fit together")
    room = 2 * known["count"] + _MORE
    while True:
        node, ns = np.empty(room, np.int32), np.empty(room, np.int32)
        cause, region = np.empty(room, np.int8), np.empty(room, np.int32)
        known |= {"piece_node": node, "piece_ns": ns, "piece_cause": cause, "piece_region": region}
        count = run("boundby_pieces", struct("Intervals", {**known, "room": room}))
        if count < 0:
            raise ValueError("a range is not known")
        if count <= room:
            for column in (node, ns, cause, region):
                column.resize(count, refcheck=False)  # gives back what was not used, without a copy
            return node, ns, cause, region
        room = count
