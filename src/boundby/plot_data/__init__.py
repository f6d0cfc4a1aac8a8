"""What pages and figures draw, worked out from the timeline: bins, lanes, gaps, instances and tables, all bounded.

Pure functions; ``build_plot_data`` is the one entry.
"""

from __future__ import annotations

from boundby.attribution.timeline import Timeline, rows_in_windows
from boundby.plot_data.lanes import account_lanes, covered_span, even_edges, range_lanes, work_lanes
from boundby.plot_data.work_tables import RegionIndex, copy_rows, instance_series, kernel_rows, longest_gaps, sync_rows
from boundby.results.plot_data import PlotData

# Bins of the figures over time: about one for each two pixels of a wide page.
BINS = 600


def build_plot_data(timeline: Timeline) -> PlotData:
    """Everything drawn about one timeline. The account's bins sum to its causes to the nanosecond."""
    spans = [(d.low_ns, d.high_ns) for d in timeline.devices] or [covered_span(t) for t in timeline.threads]
    low = min((span[0] for span in spans), default=0)
    high = max((span[1] for span in spans), default=low)
    edges = even_edges(low, high, BINS)
    index = RegionIndex(timeline.ownership.regions)
    inside = rows_in_windows(timeline.devices)
    gaps, gap_count = longest_gaps(timeline, index)
    kernels, kernels_left_out = kernel_rows(timeline, inside, index)
    syncs, syncs_left_out = sync_rows(timeline, index)
    work = work_lanes(timeline, low, high)
    ranges, lanes_left_out = range_lanes(timeline, low, high, index)
    return PlotData(
        start_ns=low,
        end_ns=high,
        edges_ns=edges,
        lanes=account_lanes(timeline, edges, index),
        ranges=ranges,
        lanes_left_out=lanes_left_out,
        work=work.lanes,
        work_left_out=work.left_out,
        names=work.names,
        gaps=gaps,
        gap_count=gap_count,
        instances=instance_series(timeline, index),
        kernels=kernels,
        kernels_left_out=kernels_left_out,
        copies=copy_rows(timeline, inside),
        syncs=syncs,
        syncs_left_out=syncs_left_out,
        regions=index.names(),
    )


__all__ = ["BINS", "build_plot_data"]
