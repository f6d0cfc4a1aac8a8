"""Which files are read while the GPU waits, and how fast, where file accesses are on record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.model.arrays import group_sums, ranked
from boundby.model.intervals import Coverage, IntervalSet, union
from boundby.model.units import bandwidth, plural, size
from boundby.trace.stacks import file_name


class FilesRead(NamedTuple):
    """What was read inside some intervals: bytes, time in which at least one read ran, files with most bytes first."""

    bytes: int
    reading_ns: int
    paths: tuple[str, ...]

    def __str__(self) -> str:
        """``reads 1.2 GB of train_0.tar and 3 more files at 85.1 MB/s``."""
        more = f" and {plural(len(self.paths) - 1, 'more file')}" if len(self.paths) > 1 else ""
        rate = bandwidth(self.bytes / max(self.reading_ns, 1) * 1e9)
        return f"reads {size(self.bytes)} of {file_name(self.paths[0])}{more} at {rate}"


def files_read(context: RuleContext, inside: IntervalSet) -> FilesRead | None:
    """What any thread of the trace reads in these intervals; None where nothing is on record. Of a read that lies only
    partly inside, as large a part of its bytes."""
    table = context.trace.file_accesses
    overlap_ns = Coverage(inside).within(table.start_ns, table.end_ns)
    rows = np.flatnonzero((overlap_ns > 0) & ~table.is_write)
    if not len(rows):
        return None
    length_ns = np.maximum(table.end_ns[rows] - table.start_ns[rows], 1)
    moved = np.rint(table.bytes[rows] * (overlap_ns[rows] / length_ns)).astype(np.int64)
    names, of_row = ranked(table.name[rows])
    total = group_sums(of_row, moved, len(names))
    order = np.lexsort((names, -total))
    reads = union(table.start_ns[rows], table.end_ns[rows])
    reading_ns = int(Coverage(inside).within(reads.start, reads.end).sum())
    return FilesRead(
        int(moved.sum()), reading_ns, tuple(context.trace.names[names[number]] for number in order.tolist())
    )
