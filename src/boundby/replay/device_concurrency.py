"""Who gets in whose way on a device: kernels that fill it, and copies of one direction."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import BoolArray, Int32Array, Int64Array, as_rows, ranked, spread, unique
from boundby.model.intervals import taking_turns
from boundby.model.scale import MARGIN, NOTABLE, SEVERAL
from boundby.native.passes import FIRST_KERNEL
from boundby.replay.graph import Graph
from boundby.replay.streams import SWITCH_LIMIT_NS
from boundby.trace.facts import CLOCKS_APART_NS
from boundby.trace.tables import Direction, Operations, OpKind, Trace

# Kernels seen to run at once for this much of the shorter one fit on the device together.
TOGETHER_FRACTION = NOTABLE
# Kinds of kernels beyond this many are not told apart (the table of pairs grows with the square).
MOST_KINDS = 512
# A kernel that is held up for longer, for no known reason, may have waited for room.
LEAST_HELD_NS = CLOCKS_APART_NS
# The last blocks of a kernel leave room for the next one: it may begin this part of the kernel's length before its end.
TAIL_FRACTION = MARGIN
# Kernels that end about then, of which one made room.
ENDS_LOOKED_AT = SEVERAL
WARP = 32  # threads
MOST_BLOCKS = 32  # blocks that a multiprocessor holds at most


class Concurrency(Struct, frozen=True):
    """``lane``: each operation's stream (of very many those that take turns), numbered across devices; -1 where its
    device has only one. ``lanes``: first
    and last + 1 lane of its device, per lane. ``kind``: what it is to others; ``excludes``: pairs (kind * kinds +
    kind) that cannot run at once."""

    lane: Int32Array
    first: Int32Array
    stop: Int32Array
    kind: Int32Array
    kinds: int
    excludes: BoolArray


def find_concurrency(trace: Trace, stream: Int64Array) -> Concurrency:
    """``stream``: number of each operation's stream (of one device and process)."""
    table = trace.operations
    count = len(table)
    lane = np.full(count, -1, np.int32)
    bounds: list[tuple[int, int]] = []
    for device in unique(table.device).tolist():
        rows = as_rows(table.device == device)
        keys, inverse = ranked(stream[rows])
        if len(keys) > 1:
            turns = taking_turns(inverse, len(keys), table.start_ns[rows], table.end_ns[rows])
            lane[rows] = turns[inverse] + len(bounds)
            lanes = int(turns.max()) + 1
            bounds += [(len(bounds), len(bounds) + lanes)] * lanes
    shared = np.flatnonzero(lane >= 0)
    kind, kinds = _kinds(table, shared)
    excludes = _exclusions(trace, shared, lane, kind, kinds) if len(shared) else np.zeros(kinds * kinds, bool)
    first, stop = (np.array(bounds, np.int32).reshape(-1, 2)[:, column].copy() for column in (0, 1))
    return Concurrency(lane, first, stop, kind, kinds, excludes)


class _Other(IntEnum):
    """Kinds of what is no kernel; from FIRST_KERNEL on they are kernels, by name and shape."""

    IN_NOBODYS_WAY = 0
    HTOD = 1
    DTOH = 2


def _kinds(table: Operations, rows: npt.NDArray[np.intp]) -> tuple[Int32Array, int]:
    kind = np.full(len(table), _Other.IN_NOBODYS_WAY, np.int32)
    if len(rows) == 0:
        return kind, 1
    copies = np.isin(table.kind, (OpKind.MEMCPY, OpKind.MIGRATION))
    kind[copies & (table.direction == Direction.HTOD)] = _Other.HTOD
    kind[copies & (table.direction == Direction.DTOH)] = _Other.DTOH
    computes = rows[table.kind[rows] <= OpKind.GRAPH]
    what = table.name[computes].astype(np.int64) * 2 + (table.kind[computes] == OpKind.GRAPH)
    shape = table.shape[computes].astype(np.int64) + 1
    names, inverse = ranked(what * (int(shape.max(initial=0)) + 1) + shape)
    if len(names) <= MOST_KINDS:
        kind[computes] = FIRST_KERNEL + inverse
        return kind, FIRST_KERNEL + len(names)
    kind[computes] = FIRST_KERNEL + table.is_communication[computes]
    return kind, FIRST_KERNEL + 2


def _exclusions(trace: Trace, rows: npt.NDArray[np.intp], lane: Int32Array, kind: Int32Array, kinds: int) -> BoolArray:
    """Kernels exclude each other unless their blocks fit on the device together, copies of one direction do, unless
    they were seen to run at once."""
    table = trace.operations
    largest = np.zeros(kinds)
    np.maximum.at(largest, kind[rows], _shares(trace, rows))
    excludes = np.zeros((kinds, kinds), bool)
    kernels = largest[FIRST_KERNEL:]
    excludes[FIRST_KERNEL:, FIRST_KERNEL:] = kernels[:, None] + kernels[None, :] > 1
    excludes[_Other.HTOD, _Other.HTOD] = excludes[_Other.DTOH, _Other.DTOH] = True
    order = rows[np.lexsort((table.end_ns[rows], table.start_ns[rows], table.device[rows]))]
    for step in range(1, 9):  # the operations that started next after each one: few run at once
        a, b = order[:-step], order[step:]
        together = np.minimum(table.end_ns[a], table.end_ns[b]) - table.start_ns[b]
        shorter = np.minimum(table.end_ns[a] - table.start_ns[a], table.end_ns[b] - table.start_ns[b])
        seen = (table.device[a] == table.device[b]) & (lane[a] != lane[b]) & (together > 0)
        if not seen.any():
            break
        seen &= together >= TOGETHER_FRACTION * shorter
        excludes[kind[a[seen]], kind[b[seen]]] = False
        excludes[kind[b[seen]], kind[a[seen]]] = False
    return excludes.reshape(-1)


def _shares(trace: Trace, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """The part of its device that each kernel's blocks fill, by warps and registers; 1 where that is not told."""
    table, shapes = trace.operations, trace.shapes
    share = np.ones(len(rows))
    if len(shapes) == 0 or len(trace.gpu_facts) != len(trace.gpus):
        return share
    facts = np.array(
        [(f.multiprocessors, f.warps_per_multiprocessor, f.registers_per_multiprocessor) for f in trace.gpu_facts]
    ).reshape(-1, 3)[table.device[rows]]
    shape = table.shape[rows]
    blocks, threads = shapes.blocks[np.maximum(shape, 0)], shapes.threads[np.maximum(shape, 0)]
    is_on_record = (shape >= 0) & (blocks > 0) & (threads > 0) & (facts[:, 0] > 0) & (facts[:, 1] > 0)
    warps = -(-threads // WARP)
    each = np.minimum(facts[:, 1] // np.maximum(warps, 1), MOST_BLOCKS)
    registers = shapes.registers[np.maximum(shape, 0)] * warps * WARP
    by_registers = facts[:, 2] // np.maximum(registers, 1)
    each = np.where((registers > 0) & (facts[:, 2] > 0), np.minimum(each, by_registers), each)
    fill = blocks / np.maximum(np.maximum(each, 1) * facts[:, 0], 1)
    shares: npt.NDArray[np.float64] = np.where(is_on_record, np.minimum(fill, 1.0), share)
    return shares


def held_until(table: Operations, concurrency: Concurrency, near_ns: int) -> Int64Array:
    """When what got in each operation's way was over, if it started within ``near_ns`` of that; else long ago."""
    until_ns = spread(np.iinfo(np.int64).min // 2, len(table))
    rows = np.flatnonzero(concurrency.lane >= 0)
    until_ns = until_ns.copy() if len(rows) else until_ns
    for device in unique(table.device[rows]).tolist():
        own = rows[table.device[rows] == device]
        by_end = own[np.lexsort((table.start_ns[own], table.end_ns[own]))]
        position = np.searchsorted(table.end_ns[by_end], table.start_ns[own], side="right") - 1
        for step in range(4):
            other = by_end[np.maximum(position - step, 0)]
            near = (position >= step) & (table.start_ns[own] - table.end_ns[other] <= near_ns)
            if not near.any():
                break
            near &= concurrency.lane[other] != concurrency.lane[own]
            near &= concurrency.excludes[concurrency.kind[own] * concurrency.kinds + concurrency.kind[other]]
            until_ns[own] = np.where(near, np.maximum(until_ns[own], table.end_ns[other]), until_ns[own])
    return until_ns


def find_exclusions(graph: Graph, delay_ns: Int64Array) -> BoolArray | None:
    """The pairs of kinds that exclude each other once unexplained delays are looked at; None: the same as before.

    A kernel that was ready, and began just when a kernel of another stream ended, had waited for room on the device,
    whatever launch shapes say of the two.
    """
    links = graph.links
    held = np.flatnonzero((delay_ns > LEAST_HELD_NS) & (links.lane >= 0) & (links.kind >= FIRST_KERNEL))
    if len(held) == 0:
        return None
    start, end = links.start_ns, links.start_ns + graph.costs.duration_ns
    excludes = links.excludes.copy()
    for device in unique(graph.device[held]).tolist():
        rows = held[graph.device[held] == device]
        kernels = np.flatnonzero((graph.device == device) & (links.kind >= FIRST_KERNEL))
        by_end = kernels[np.argsort(end[kernels], kind="stable")]
        position = np.searchsorted(end[by_end], start[rows] - SWITCH_LIMIT_NS)
        for step in range(ENDS_LOOKED_AT):
            other = by_end[np.minimum(position + step, len(by_end) - 1)]
            near = np.maximum(LEAST_HELD_NS, TAIL_FRACTION * graph.costs.duration_ns[other])
            waited = (position + step < len(by_end)) & (np.abs(end[other] - start[rows]) <= near)
            waited &= (start[other] < start[rows] - delay_ns[rows]) & (links.lane[other] != links.lane[rows])
            kind, two = links.kind[rows[waited]], links.kind[other[waited]]
            excludes[kind * links.kinds + two] = excludes[two * links.kinds + kind] = True
    return None if np.array_equal(excludes, links.excludes) else excludes
