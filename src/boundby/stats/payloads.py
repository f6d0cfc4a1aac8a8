"""What the ranges of a region carry (a batch size, tokens), and how long the region takes for each of it."""

from __future__ import annotations

import numpy as np

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import MISSING, is_even, median, unique
from boundby.results.report import Payload
from boundby.stats.instances import instance_lengths


def payloads(timeline: Timeline) -> list[Payload | None]:
    """Of each region; None where its ranges carry no number."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    of_region: list[Payload | None] = [None] * len(regions)
    if not len(ranges) or (is_even(ranges.payload) and ranges.payload[0] == MISSING):
        return of_region
    carrying = (ranges.payload != MISSING) & timeline.counted_ranges & ~ranges.is_open
    for region in unique(regions.of_range[carrying]).tolist():
        rows = np.flatnonzero(carrying & (regions.of_range == region))
        rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
        number = ranges.payload[rows]
        counts = number > 0
        each_ns = instance_lengths(timeline, rows)[counts] / number[counts]
        total = sum(number.tolist())  # Python's integers: the sum may not fit into 64 bits
        least, most = int(number.min()), int(number.max())
        of_region[region] = Payload(len(rows), total, least, most, median(each_ns) if len(each_ns) else None)
    return of_region
