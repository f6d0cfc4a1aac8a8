"""What is known of the capture of one CUDA graph: what it launched, and in which ranges."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from boundby.model.arrays import Int8Array, Int32Array, Int64Array


class GraphRangeTable(Struct, frozen=True):
    """The ranges that were opened while one graph was captured, each before those in it; arrays of one length."""

    name: Int32Array  # in Trace.names
    domain: Int32Array  # in Trace.domains
    arguments: Int32Array  # in Trace.arguments, else -1
    last: Int64Array  # the place here of the last one that lies in each

    def __len__(self) -> int:
        return len(self.name)


class CapturedGraph(Struct, frozen=True):
    """One graph's capture. Names, domains and arguments count in the trace that holds it."""

    path: str  # of the recording
    pid: int
    ranges: GraphRangeTable
    work: Int8Array  # of each launch, in order: CallWork
    kernel: Int32Array  # what each launches, in Trace.names; -1: no kernel, or not told
    leaf: Int64Array  # the place of the innermost of ``ranges`` around each; -1: none
    nodes: Mapping[int, int]  # the launch of each node, by the node's number, clones' too; empty: not on record
