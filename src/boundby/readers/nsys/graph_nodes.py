"""When, and by which thread, CUDA graphs were captured: node by node, or as a whole where they are traced so.

A graph that is traced as a whole counts as one node, with a number that no node has.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.model.arrays import Int32Array, Int64Array
from boundby.readers.nsys.database import MISSING, Database, Reads
from boundby.readers.nsys.identity import Identities
from boundby.trace.tables import GraphNodes

_TABLE = "CUDA_GRAPH_NODE_EVENTS"
_COLUMNS = ("start", "globalTid", "graphNodeId", "originalGraphNodeId")
_GRAPHS = "CUDA_GRAPH_EVENTS"
_OF_GRAPHS = ("start", "globalTid", "graphId", "originalGraphId", "graphExecId")
DECLARED = (
    Reads(_TABLE, _COLUMNS, "when the nodes of CUDA graphs were captured"),
    Reads(_GRAPHS, _OF_GRAPHS, "when CUDA graphs were captured"),
)
#: Where the numbers of graphs that can be launched begin, as nodes; and of those that they are made from.
_LAUNCHED, _MADE = 1 << 61, 1 << 60
#: A graph is captured, cloned where it is instantiated, and perhaps once or twice in between; damage may go in circles.
_MOST_CLONES = 8


def captured_nodes(database: Database, nodes: GraphNodes, identities: Identities) -> GraphNodes:
    """The nodes, with the instant and the thread of the capture of each one's original, where the report tells them.

    A node that is launched is a clone: its row names the node that it was cloned from. The row of the first of these
    was written when the program added it to its graph."""
    if not len(nodes):
        return nodes
    raw = _events(database)
    known = _places(identities.thread_ids, raw["globalTid"])
    told = np.flatnonzero((raw["start"] != MISSING) & (raw["graphNodeId"] != MISSING) & (known >= 0))
    if not len(told):
        return nodes
    start, node, original = (raw[column][told] for column in ("start", "graphNodeId", "originalGraphNodeId"))
    thread = known[told]
    process = identities.processes(raw["globalTid"][told])
    order = np.lexsort((start, original == MISSING, node, process))
    events = _Events(process[order], node[order])
    row = events.of(nodes.process, nodes.node)
    for _ in range(_MOST_CLONES):
        above = np.where(row >= 0, events.of(nodes.process, original[order][np.maximum(row, 0)]), -1)
        if not (above >= 0).any():
            break
        row = np.where(above >= 0, above, row)
    found = order[np.maximum(row, 0)]
    return replace(
        nodes,
        thread=np.where(row >= 0, thread[found], -1).astype(np.int32),
        captured_ns=np.where(row >= 0, start[found], 0),
    )


def whole_graphs(number: Int64Array) -> Int64Array:
    """Launches of graphs by their numbers, as nodes."""
    return np.where((number >= 0) & (number < _MADE), number + _LAUNCHED, MISSING)


def _events(database: Database) -> dict[str, Int64Array]:
    """The making of nodes, of graphs and of what can be launched of them, all as nodes with what each is made from."""
    nodes, graphs = database.columns(_TABLE, _COLUMNS), database.columns(_GRAPHS, _OF_GRAPHS)
    graph, original, launched = (graphs[column] for column in _OF_GRAPHS[2:])
    made, source = (np.where((one >= 0) & (one < _MADE), one + _MADE, MISSING) for one in (graph, original))
    is_launched = launched != MISSING
    told = {
        "start": graphs["start"],
        "globalTid": graphs["globalTid"],
        "graphNodeId": np.where(is_launched, whole_graphs(launched), made),
        "originalGraphNodeId": np.where(is_launched, made, source),
    }
    return {column: np.concatenate((nodes[column], told[column])) for column in _COLUMNS}


def _places(ids: Int64Array, wanted: Int64Array) -> npt.NDArray[np.intp]:
    """Where each id stands among those in ascending order; -1 where it does not."""
    if not len(ids):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[place] == wanted, place, -1)


class _Events:
    """Rows in ascending order of process and node: the first of each is its."""

    def __init__(self, process: Int32Array, node: Int64Array) -> None:
        self._process, self._node = process.astype(np.int64), node
        self._bounds = np.searchsorted(self._process, np.arange(int(self._process.max()) + 2))

    def of(self, process: Int32Array, node: Int64Array) -> npt.NDArray[np.intp]:
        """The row of each node; -1 where there is none."""
        row = np.full(len(node), -1)
        for number in range(len(self._bounds) - 1):
            low, high = self._bounds[number : number + 2].tolist()
            mine = np.flatnonzero(process == number)
            if high > low and len(mine):
                place = np.minimum(np.searchsorted(self._node[low:high], node[mine]), high - low - 1) + low
                row[mine] = np.where(self._node[place] == node[mine], place, -1)
        return row
