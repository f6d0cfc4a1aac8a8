"""What the ranges of a region carry (a batch size, tokens), and how long the region takes for each of it."""

from __future__ import annotations

import numpy as np

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import median, unique
from boundby.results.report import Payload
from boundby.stats.instances import instance_lengths


def payloads(timeline: Timeline) -> list[Payload | None]:
    """Of each region; None where its ranges carry no number."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    of_region: list[Payload | None] = [None] * len(regions)
    carrying = np.isfinite(ranges.payload) & timeline.counted_ranges & ~ranges.is_open
    for region in unique(regions.of_range[carrying]).tolist():
        rows = np.flatnonzero(carrying & (regions.of_range == region))
        rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
        number = ranges.payload[rows]
        counts = number > 0
        each_ns = instance_lengths(timeline, rows)[counts] / number[counts]
        told = {timeline.trace.names[name] if name >= 0 else "" for name in unique(ranges.payload_name[rows]).tolist()}
        of_region[region] = Payload(
            count=len(rows),
            total=float(number.sum()),
            least=float(number.min()),
            most=float(number.max()),
            ns_per_unit=median(each_ns) if len(each_ns) else None,
            name=told.pop() if len(told) == 1 else "",
        )
    return of_region
