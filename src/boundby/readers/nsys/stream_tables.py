"""What calls say of streams and events: which stream a sync names, which event a call records or waits for."""

from __future__ import annotations

import numpy as np

from boundby.model.arrays import Int32Array, Int64Array, factorize
from boundby.readers.nsys.columns import MISSING, Database
from boundby.readers.nsys.identity import Identities
from boundby.trace.tables import NO_CORRELATION, StreamPoints, StreamRole, Streams

_NOBODY = 0xFFFFFFFF  # how CUPTI writes "no stream" and "no event"
_POINT = ("streamId", "eventId", "correlationId", "globalPid", "deviceId")
_LIMIT = 1 << 32

Raw = dict[str, Int64Array]


def read_points(database: Database) -> Raw:
    """Rows of syncs, stream waits and event records. Their ``syncType`` is not read: its codes cannot be trusted."""
    parts = [
        database.columns(table, _POINT)
        for table in ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    ]
    raw = {column: np.concatenate([part[column] for part in parts]) for column in _POINT}
    raw["isRecord"] = np.repeat(np.array([0, 1], np.int64), [len(part["streamId"]) for part in parts])
    return raw


def points(raw: Raw, device_of: dict[tuple[int, int], int], identities: Identities) -> StreamPoints:
    """The rows that name a call, ordered by process, correlation and then every other column."""
    good = (raw["correlationId"] > NO_CORRELATION) & (raw["correlationId"] < _LIMIT) & (raw["globalPid"] >= 0)
    good &= np.isin(raw["globalPid"] & ~0xFFFFFF, identities.process_ids)  # others have no calls
    raw = {column: values[good] for column, values in raw.items()}
    table = StreamPoints(
        process=identities.processes(raw["globalPid"]),
        correlation=raw["correlationId"],
        device=_devices(raw, device_of),
        stream=_known(raw["streamId"]),
        event=_known(raw["eventId"]),
        is_record=raw["isRecord"] == 1,
    )
    return table.take(
        np.lexsort((table.is_record, table.event, table.stream, table.device, table.correlation, table.process))
    )


def _known(values: Int64Array) -> Int64Array:
    return np.where((values >= 0) & (values < _NOBODY), values, -1)


def _devices(raw: Raw, device_of: dict[tuple[int, int], int]) -> Int32Array:
    """Index of each row's GPU; -1 where it is not told or did nothing."""
    places, inverse = factorize(raw["globalPid"], raw["deviceId"])
    index = np.array([device_of.get((key, ordinal), -1) for key, ordinal in places.tolist()], np.int32)
    return index[inverse]


def streams(database: Database, identities: Identities) -> Streams:
    """What is told of each stream's relation to the null stream."""
    raw = database.columns("TARGET_INFO_CUDA_STREAM", ("streamId", "processId", "flag"))
    process_of = {(int(key) >> 24) & 0xFFFFFF: index for index, key in enumerate(identities.process_ids)}
    known = {role.value for role in StreamRole}
    found = sorted(
        {
            (process_of[pid], stream, flag)
            for stream, pid, flag in zip(*(raw[c].tolist() for c in ("streamId", "processId", "flag")), strict=True)
            if pid in process_of and flag in known and stream != MISSING and 0 <= stream < _NOBODY
        }
    )
    column = np.array(found, np.int64).reshape(-1, 3).T
    return Streams(column[0].astype(np.int32), column[1].copy(), column[2].astype(np.int8))
