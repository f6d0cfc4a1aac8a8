"""Kernels by name, copies by direction and memory kind, waits for the device by call and region."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import (
    as_rows,
    factorize,
    group_counts,
    group_sums,
    places,
    tally,
    unique,
)
from boundby.plot_data.index import RegionIndex, name_of
from boundby.results.plot_data import CopyRow, KernelRow, SyncRow
from boundby.stats.host import calls_of
from boundby.stats.spread import quantiles
from boundby.trace.tables import Direction, MemoryKind, OpKind
from boundby.trace.vocabulary.cuda import plain_name

# Rows of the tables: beyond them the share is too small to be read.
MOST_KERNELS = 250
MOST_SYNCS = 200

_COPY_KIND = {OpKind.MEMCPY: "copy", OpKind.MEMSET: "set", OpKind.MIGRATION: "migration"}

Rows = slice | npt.NDArray[np.intp]


def kernel_rows(
    timeline: Timeline, inside: Rows, index: RegionIndex
) -> tuple[tuple[KernelRow, ...], tuple[int, int, int]]:
    """Kernels (and graphs traced whole) by name, most time first; names, kernels and time beyond the bound."""
    table = timeline.trace.operations
    mine = as_rows(table.kind[inside] <= OpKind.GRAPH)
    start, end = table.start_ns[inside][mine], table.end_ns[inside][mine]
    if len(start) == 0:
        return (), (0, 0, 0)
    keys, group = factorize(table.kind[inside][mine], table.name[inside][mine])
    found = tally(group, timeline.launch_region[inside][mine], start, end)
    count, total = found.by_group(len(keys))
    region = found.prevailing(np.zeros(len(keys), np.int64))
    median, longest = quantiles(group, end - start, count, (0.5, 1.0))
    communicates = group_counts(group[table.is_communication[inside][mine]], len(keys)) > 0
    names = [name_of(timeline.trace, number) for number in keys[:, 1]]
    order = sorted(range(len(keys)), key=lambda number: (-int(total[number]), names[number], int(keys[number, 0])))
    whole = int(total.sum())
    return (
        tuple(
            KernelRow(
                name=names[number] or ("CUDA graph" if keys[number, 0] == OpKind.GRAPH else "(no name)"),
                count=int(count[number]),
                total_ns=int(total[number]),
                mean_ns=int(total[number]) / int(count[number]),
                median_ns=float(median[number]),
                max_ns=int(longest[number]),
                share=int(total[number]) / whole if whole else 0.0,
                is_communication=bool(communicates[number]),
                is_graph=bool(keys[number, 0] == OpKind.GRAPH),
                region=index.one(int(region[number])),
            )
            for number in order[:MOST_KERNELS]
        ),
        (len(order[MOST_KERNELS:]), int(count[order[MOST_KERNELS:]].sum()), int(total[order[MOST_KERNELS:]].sum())),
    )


def copy_rows(timeline: Timeline, inside: Rows) -> tuple[CopyRow, ...]:
    """Copies, sets and migrations by kind, direction and memory; most time first."""
    table = timeline.trace.operations
    found = np.flatnonzero(table.kind[inside] >= OpKind.MEMCPY)
    if len(found) == 0:
        return ()
    rows = inside.start + found if isinstance(inside, slice) else inside[found]
    is_set = table.kind[rows] == OpKind.MEMSET
    columns = (np.where(is_set, -1, column[rows]) for column in (table.direction, table.source, table.target))
    keys, group = factorize(table.kind[rows], *columns)
    count, largest = np.bincount(group), np.zeros(len(keys), np.int64)
    size = group_sums(group, table.bytes[rows], len(keys))
    time = group_sums(group, table.end_ns[rows] - table.start_ns[rows], len(keys))
    np.maximum.at(largest, group, table.bytes[rows])
    copies = [
        CopyRow(
            kind=_COPY_KIND[OpKind(kind)],
            direction="" if kind == OpKind.MEMSET else _direction(way),
            source="" if kind == OpKind.MEMSET else MemoryKind(source).name.lower(),
            target="" if kind == OpKind.MEMSET else MemoryKind(target).name.lower(),
            count=int(count[number]),
            bytes=int(size[number]),
            total_ns=int(time[number]),
            max_bytes=int(largest[number]),
            bandwidth_bytes_per_s=int(size[number]) / int(time[number]) * 1e9 if time[number] else None,
        )
        for number, (kind, way, source, target) in enumerate(keys.tolist())
    ]
    return tuple(sorted(copies, key=lambda row: (-row.total_ns, row.kind, row.direction, row.source, row.target)))


def _direction(number: int) -> str:
    """``HtoD`` for Direction.HTOD."""
    name = Direction(number).name
    return "other" if number == Direction.OTHER else f"{name[0]}to{name[-1]}"


def sync_rows(timeline: Timeline, index: RegionIndex) -> tuple[tuple[SyncRow, ...], int]:
    """Waits for the device inside the windows by call and region, and how many rows were left out."""
    calls = timeline.calls
    if len(calls) == 0:
        return (), 0
    name, region, waits = calls.name, timeline.call_region, timeline.waits
    is_wait = waits.is_sync & _in_windows(timeline)
    is_told = is_wait.copy()
    is_told[waits.rows[waits.ns[2] > 0]] = True
    chosen = np.flatnonzero(is_told)
    if len(chosen) == 0:
        return (), 0
    texts = {number: plain_name(name_of(timeline.trace, number)) for number in unique(name[chosen]).tolist()}
    labels = sorted(set(texts.values()))  # one call can have several names: cudaFree_v3020, cudaFree
    label_of = np.zeros(len(timeline.trace.names), np.int64)
    label_of[list(texts)] = [labels.index(text) for text in texts.values()]
    keys, group = factorize(label_of[name[chosen]], region[chosen])
    count = group_sums(group, is_wait[chosen], len(keys))
    told = as_rows(is_told[waits.rows])
    of_told = group[places(chosen, waits.rows[told])]
    blocked_ns = np.where(is_wait[waits.rows[told]], waits.ns[0][told], 0)
    blocked, delayed = (group_sums(of_told, ns, len(keys)) for ns in (blocked_ns, waits.ns[2][told]))
    rows = [
        SyncRow(
            call=labels[key[0]],
            region=index.one(key[1]),
            count=int(count[number]),
            blocked_ns=int(blocked[number]),
            idle_ns=int(delayed[number]) if timeline.devices else None,
        )
        for number, key in enumerate(keys.tolist())
    ]
    rows.sort(key=lambda row: (-(row.idle_ns or 0), -row.blocked_ns, row.call, row.region))
    return tuple(rows[:MOST_SYNCS]), max(len(rows) - MOST_SYNCS, 0)


def _in_windows(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """Calls that are counted with a device; without devices, all."""
    inside = np.full(len(timeline.calls), not timeline.devices)
    for device in timeline.devices:
        inside[calls_of(timeline, device)] = True
    return inside
