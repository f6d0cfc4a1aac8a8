"""Steps of a server of language models whose program names none, found in its launches.

A server waits once a step, for the tokens of this one or of the one before: what is launched between two waits is a
step if it holds a kernel of attention, or launches a CUDA graph. That it is a server, kernels of attention tell that
serve prompts or decoding alone, or graphs beside other attention; and nothing is trained. A step's kind is that of its
attention: where kernels decode alone, other attention serves prompts. One that launches a single graph decodes
(engines capture a whole step for decoding only), and steps of different graphs have different sizes. A step whose kind
is not told stays one of unknown kind.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.correlation.correlate import Calls
from boundby.model.arrays import Int8Array, Int64Array, is_in, median, pick, ranked, unique
from boundby.model.expressions import expression
from boundby.model.scale import HABIT
from boundby.trace.tables import Direction, OpKind, Trace
from boundby.trace.vocabulary.range_names import Kind, found_step, is_told_by_grid, kind_of_attention

_ATTENTION = expression(r"attention|attn|flash_fwd|fmha|(?<![a-z])mla(?![a-z])", re.IGNORECASE)
_OF_PROMPTS = expression(r"flash_fwd|fmha|flash_?attn_?fwd", re.IGNORECASE)
_TRAINS = expression(r"backward|bwd|dgrad|wgrad|adam|sgd|optimizer", re.IGNORECASE)
DECODES, SERVES_PROMPTS = range(1, 3)  # what an operation of attention does; 0: none is told
_Bools = npt.NDArray[np.bool_]


class ServerStep(Struct, frozen=True):
    """Launches ``first`` to before ``stop``, and what the step is called."""

    first: int
    stop: int
    name: str


class _RanForLaunches(Struct, frozen=True):
    """Of each launch, in order: what ran for it."""

    decodes: _Bools
    prefills: _Bools
    attends: _Bools
    is_graph: _Bools
    uploads: _Bools  # nothing but copies to the device, and sets
    reads: _Bools  # copies to the host
    graph: Int64Array  # which one, by its first node; -1: none, or not told


def server_steps(
    trace: Trace, calls: Calls, launches: npt.NDArray[np.intp], syncs_before: Int64Array
) -> list[ServerStep]:
    """The steps in these launches (rows of calls, in order); none where it is no server. ``syncs_before``: how often
    the host had waited before each."""
    seen = _seen(trace, calls, launches)
    if seen is None or not (seen.attends | seen.is_graph).any():
        return []
    bounds = _bounds(seen, syncs_before)
    read = [int(seen.reads[first:stop].sum()) for first, stop in itertools.pairwise(bounds)]
    if read and read[0] > median(read):  # before the first wait there may be two
        bounds = bounds[1:]
    if len(bounds) - 1 < HABIT:
        return []
    pieces = list(itertools.pairwise(bounds))
    kinds = [_kind(seen, first, stop) for first, stop in pieces]
    graphs = [
        _graph(seen, first, stop) if kind == "decode" else -1 for kind, (first, stop) in zip(kinds, pieces, strict=True)
    ]
    order = list(dict.fromkeys(graph for graph in graphs if graph >= 0))
    return [
        ServerStep(first, stop, found_step(kind, order.index(graph) if graph >= 0 and len(order) > 1 else None))
        for kind, graph, (first, stop) in zip(kinds, graphs, pieces, strict=True)
    ]


def kinds_of_attention(trace: Trace, rows: npt.NDArray[np.intp]) -> Int8Array:
    """Of each of these operations: `DECODES`, `SERVES_PROMPTS`, or 0: no attention, or of either."""
    table, found = trace.operations, np.zeros(len(rows), np.int8)
    name = np.where(table.kind[rows] == OpKind.KERNEL, table.name[rows], -1)
    for number in unique(name[name >= 0]).tolist():
        kind, mine = kind_of_attention(trace.names[number]), np.flatnonzero(name == number)
        if kind is not None and is_told_by_grid(trace.names[number]):
            found[mine[pick(trace.shapes.grid_x, table.shape[rows[mine]], 0) == 1]] = DECODES
        elif kind is not None:
            found[mine] = DECODES if kind == "decode" else SERVES_PROMPTS
    return found


def may_serve(trace: Trace) -> bool:
    """Whether kernels of attention ran, and none that trains."""
    kernels = unique(trace.operations.name[trace.operations.kind == OpKind.KERNEL])
    names = [trace.names[number] for number in kernels.tolist() if number >= 0]
    attends = any(kind_of_attention(name) or _ATTENTION.search(name) for name in names)
    return attends and not any(map(_TRAINS.search, names))


def _seen(trace: Trace, calls: Calls, launches: npt.NDArray[np.intp]) -> _RanForLaunches | None:
    """None: it trains, or nothing shows that it serves."""
    table, names = trace.operations, trace.names
    place = np.full(len(calls) + 1, -1, np.int64)
    place[launches] = np.arange(len(launches))
    of = place[calls.of_operation]
    rows = np.flatnonzero(of >= 0)
    of, name = of[rows], table.name[rows]
    kernels = [number for number in unique(name[table.kind[rows] == OpKind.KERNEL]).tolist() if number >= 0]
    if any(_TRAINS.search(names[number]) for number in kernels):
        return None
    kind = kinds_of_attention(trace, rows)

    def marked(wanted: _Bools) -> _Bools:
        found = np.zeros(len(launches), bool)
        found[of[wanted]] = True
        return found

    def named(pattern: re.Pattern[str]) -> _Bools:
        return is_in(name, [number for number in kernels if pattern.search(names[number])])

    decodes, prefills = marked(kind == DECODES), marked(kind == SERVES_PROMPTS)
    if decodes.any():  # whatever generates does so by these: other attention, but for kernels of both, is of prompts
        prefills |= marked((kind == 0) & named(_OF_PROMPTS))
    attends = marked((kind > 0) | named(_ATTENTION))
    is_graph = np.array(["GraphLaunch" in names[number] for number in calls.name[launches].tolist()], bool)
    if not (decodes | prefills).any() and not (is_graph.any() and attends[~is_graph].any()):
        return None
    works = np.zeros(len(launches), bool)
    works[of[~((table.kind[rows] == OpKind.MEMSET) | (table.direction[rows] == Direction.HTOD))]] = True
    graph = np.full(len(launches), np.iinfo(np.int64).max)
    np.minimum.at(graph, of, np.where(table.node[rows] >= 0, table.node[rows], np.iinfo(np.int64).max))
    graph[graph == np.iinfo(np.int64).max] = -1
    reads = np.zeros(len(launches), bool)
    reads[of[table.direction[rows] == Direction.DTOH]] = True
    return _RanForLaunches(decodes, prefills, attends, is_graph, ~works, reads, graph)


def _bounds(seen: _RanForLaunches, syncs_before: Int64Array) -> list[int]:
    """Where steps begin, and where the last one ends: uploads belong to what follows, all else that is no step by
    itself to the step before."""
    starts = [0, *(np.flatnonzero(np.diff(syncs_before)) + 1).tolist(), len(syncs_before)]
    found: list[int] = []
    begin: int | None = None  # of uploads that wait for their step
    for first, stop in itertools.pairwise(starts):
        piece = slice(first, stop)
        if (seen.attends[piece] | seen.is_graph[piece]).any():
            found.append(first if begin is None else begin)
            begin = None
        elif seen.uploads[piece].all():
            begin = first if begin is None else begin
        else:
            begin = None
    return [*found, len(syncs_before)] if found else []


def _kind(seen: _RanForLaunches, first: int, stop: int) -> Kind | None:
    piece = slice(first, stop)
    decodes, prefills = bool(seen.decodes[piece].any()), bool(seen.prefills[piece].any())
    if decodes or prefills:
        return "mixed" if decodes and prefills else "decode" if decodes else "prefill"
    graphs = int(seen.is_graph[piece].sum())
    return "decode" if graphs == 1 and not seen.attends[piece][~seen.is_graph[piece]].any() else None


def _graph(seen: _RanForLaunches, first: int, stop: int) -> int:
    """The graph that a step launches, if it is one; -1: not told."""
    launched = seen.graph[first:stop][seen.is_graph[first:stop]]
    distinct, _ = ranked(launched)
    return int(distinct[0]) if len(distinct) == 1 else -1
