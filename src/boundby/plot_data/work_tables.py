"""What pages list beside the lanes: kernels by name, copies, waits, the longest gaps, and each region's instances."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from boundby.attribution.regions import ROOT, Regions
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import (
    Int64Array,
    as_rows,
    factorize,
    group_counts,
    group_sums,
    in_order,
    into_groups,
    largest,
    narrow,
    pick,
    places,
    quantile,
    tally,
    unique,
)
from boundby.model.causes import BUSY_CAUSES, CAUSES, Cause
from boundby.model.intervals import NOTHING, expand
from boundby.model.scale import DRAWN, PAGE_ROWS, TABLE
from boundby.model.units import PERCENT
from boundby.results.plot_data import NO_REGION, CopyRow, Gap, InstanceSeries, KernelRow, RegionName, Spread, SyncRow
from boundby.stats.host import calls_of
from boundby.stats.instances import lengths_of, projected, quantiles
from boundby.structure.steps import count_warm_up
from boundby.trace.tables import Direction, MemoryKind, OpKind, Trace
from boundby.trace.vocabulary.cuda import plain_name

# Names come from the trace and can be of any length (C++ templates): what is longer loses its middle.
LONGEST_NAME = 400
# Regions that a plot data names, numbered in the order in which they are first asked for.


class RegionIndex:
    """Hands out small numbers for the timeline's regions; 0 is the root."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._number = np.full(len(regions), NO_REGION, np.int64)
        self._number[ROOT] = 0
        self._used = [ROOT]

    def of(self, region: npt.NDArray[Any]) -> Int64Array:
        """The plot data's numbers of these regions; negative ones stay NO_REGION."""
        self._use(unique(region).tolist())
        return pick(self._number, region, NO_REGION)

    def _use(self, regions: Iterable[int]) -> None:
        for number in regions:
            if number >= 0 and self._number[number] == NO_REGION:
                self._number[number] = len(self._used)
                self._used.append(number)

    def one(self, region: int) -> int:
        """The page's number of one region."""
        self._use((region,))
        return int(self._number[region]) if region >= 0 else NO_REGION

    def names(self) -> tuple[RegionName, ...]:
        """Paths and domains, by number."""
        paths = self._regions.paths([shorten(name) for name in self._regions.name])
        return tuple(RegionName(paths[region], self._regions.domain[region]) for region in self._used)


def shorten(text: str) -> str:
    """The text with at most LONGEST_NAME characters: the middle goes, both ends of a name tell it apart."""
    if len(text) <= LONGEST_NAME:
        return text
    half = (LONGEST_NAME - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def name_of(trace: Trace, number: int) -> str:
    """A name of the trace, shortened; ``""`` for none."""
    return shorten(trace.names[number]) if 0 <= number < len(trace.names) else ""


_COPY_KIND = {OpKind.MEMCPY: "copy", OpKind.MEMSET: "set", OpKind.MIGRATION: "migration"}

AnyRows = slice | npt.NDArray[np.intp]


def kernel_rows(
    timeline: Timeline, inside: AnyRows, index: RegionIndex
) -> tuple[tuple[KernelRow, ...], tuple[int, int, int]]:
    """Kernels (and graphs traced whole) by name, most time first; names, kernels and time beyond the bound."""
    table = timeline.trace.operations
    is_kernel = as_rows(table.kind[inside] <= OpKind.GRAPH)
    start, end = table.start_ns[inside][is_kernel], table.end_ns[inside][is_kernel]
    if len(start) == 0:
        return (), (0, 0, 0)
    keys, group = factorize(table.kind[inside][is_kernel], table.name[inside][is_kernel])
    sums = tally(group, timeline.launch_region[inside][is_kernel], start, end)
    count, total = sums.by_group(len(keys))
    region = sums.prevailing(np.zeros(len(keys), np.int64))
    median, longest = quantiles(group, end - start, count, (0.5, 1.0))
    communicates = group_counts(group[table.is_communication[inside][is_kernel]], len(keys)) > 0
    names = [name_of(timeline.trace, number) for number in keys[:, 1]]
    order = sorted(range(len(keys)), key=lambda number: (-int(total[number]), names[number], int(keys[number, 0])))
    whole = np.maximum(np.where(communicates, total[communicates].sum(), total[~communicates].sum()), 1)
    return (
        tuple(
            KernelRow(
                name=names[number] or ("CUDA graph" if keys[number, 0] == OpKind.GRAPH else "(no name)"),
                count=int(count[number]),
                total_ns=int(total[number]),
                mean_ns=int(total[number]) / int(count[number]),
                median_ns=float(median[number]),
                max_ns=int(longest[number]),
                share=int(total[number]) / int(whole[number]),
                is_communication=bool(communicates[number]),
                is_graph=bool(keys[number, 0] == OpKind.GRAPH),
                region=index.one(int(region[number])),
            )
            for number in order[:PAGE_ROWS]
        ),
        (len(order[PAGE_ROWS:]), int(count[order[PAGE_ROWS:]].sum()), int(total[order[PAGE_ROWS:]].sum())),
    )


def copy_rows(timeline: Timeline, inside: AnyRows) -> tuple[CopyRow, ...]:
    """Copies, sets and migrations by kind, direction and memory; most time first."""
    table = timeline.trace.operations
    copied = np.flatnonzero(table.kind[inside] >= OpKind.MEMCPY)
    if len(copied) == 0:
        return ()
    rows = inside.start + copied if isinstance(inside, slice) else inside[copied]
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
    lengths = _in_windows(timeline)
    is_wait = waits.is_sync & (lengths >= 0)
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
    is_shown = as_rows(is_told[waits.rows])
    of_told = group[places(chosen, waits.rows[is_shown])]
    call = waits.rows[is_shown]
    blocked_ns = np.where(is_wait[call], np.minimum(waits.ns[0][is_shown], lengths[call]), 0)
    blocked, delayed = (group_sums(of_told, ns, len(keys)) for ns in (blocked_ns, waits.ns[2][is_shown]))
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
    return tuple(rows[:PAGE_ROWS]), max(len(rows) - PAGE_ROWS, 0)


def _in_windows(timeline: Timeline) -> npt.NDArray[np.int64]:
    """How much of each call is counted with a device, of several the most; -1: none. Without devices, all of each."""
    calls = timeline.calls
    if not timeline.devices:
        return calls.end_ns - calls.start_ns
    lengths = (calls_of(timeline, device).lengths(len(calls)) for device in timeline.devices)
    return reduce(np.maximum, lengths)


# The longest gaps of every device with what brought them about, and which wait is behind each gap's sync time.


Rows = npt.NDArray[np.intp]


def longest_gaps(timeline: Timeline, index: RegionIndex) -> tuple[tuple[Gap, ...], int]:
    """The longest gaps of all devices in order of time, and how many there are in all."""
    longest: list[tuple[int, int, int, Gap]] = []  # -length, device, row of its gaps
    for device in timeline.devices:
        rows = largest(device.gaps.length_ns, PAGE_ROWS)
        described = _describe(timeline, device, rows)
        longest += [
            (gap.start_ns - gap.end_ns, device.index, row, gap)
            for row, gap in zip(rows.tolist(), described, strict=True)
        ]
    longest.sort(key=lambda item: item[:3])
    shown = [replace(gap, region=index.one(gap.region)) for *_, gap in longest[:PAGE_ROWS]]
    total = sum(len(device.gaps) for device in timeline.devices)
    return tuple(sorted(shown, key=lambda gap: (gap.start_ns, gap.device, gap.end_ns))), total


def _describe(timeline: Timeline, device: DeviceTimeline, rows: Rows) -> list[Gap]:
    """Of these gaps what they are; regions by the trace's own numbers."""
    trace, segments, gaps = timeline.trace, device.segments, device.gaps
    start, end = gaps.start_ns[rows], gaps.end_ns[rows]
    gap, piece = expand(np.searchsorted(segments.start_ns, start), np.searchsorted(segments.start_ns, end))
    begin, until, cause = segments.start_ns[piece], segments.end_ns[piece], segments.cause[piece]
    sums, by_cause = tally(gap, cause, begin, until), np.zeros((len(rows), len(CAUSES)), np.int64)
    by_cause[sums.group, sums.label] = sums.ns
    by_cause[:, [int(cause) for cause in BUSY_CAUSES]] = 0  # none can be there
    dominant = by_cause.argmax(axis=1)
    is_dominant = cause == dominant[gap]
    thread = tally(
        gap[is_dominant], segments.thread[piece[is_dominant]], begin[is_dominant], until[is_dominant]
    ).prevailing(gaps.thread[rows])
    region = tally(gap, segments.region[piece], begin, until).prevailing(np.full(len(rows), ROOT))
    call = _calls(timeline, start, end, thread)
    call[dominant == Cause.CPU] = NOTHING  # in its own code it was in none
    is_wait = (dominant == Cause.SYNC) & (gaps.wait[rows] != NOTHING)
    call[is_wait] = timeline.calls.name[gaps.wait[rows[is_wait]]]
    texts = {name: plain_name(name_of(trace, name)) if name != NOTHING else "" for name in set(call.tolist())}
    columns = (start, end, dominant, by_cause, call, thread, region, _ended_at(device, start), gaps.operation[rows])
    return [
        Gap(
            device=trace.gpus[device.index].id,
            start_ns=low,
            end_ns=high,
            cause=main,
            cause_ns=tuple(cause_ns),
            call=texts[name],
            thread=trace.threads[of].name if of >= 0 else "",
            tid=trace.threads[of].tid if of >= 0 else None,
            region=of_region,
            before=_operation(timeline, before),
            after=_operation(timeline, after),
        )
        for low, high, main, cause_ns, name, of, of_region, before, after in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _calls(timeline: Timeline, start: Int64Array, end: Int64Array, thread: Int64Array) -> Int64Array:
    """The names of the calls that these threads (NO_THREAD: none) were in for the longest, meanwhile; NOTHING."""
    calls, name = timeline.calls, np.full(len(start), NOTHING, np.int64)
    for number in unique(thread[thread >= 0]).tolist():
        gaps_of, rows = np.flatnonzero(thread == number), calls.rows_of(number)
        first = rows.start + np.searchsorted(calls.end_ns[rows], start[gaps_of], side="right")
        stop = rows.start + np.searchsorted(calls.start_ns[rows], end[gaps_of], side="left")
        gap, call = expand(first, np.maximum(stop, first))
        inside = (
            np.maximum(calls.start_ns[call], start[gaps_of][gap]),
            np.minimum(calls.end_ns[call], end[gaps_of][gap]),
        )
        name[gaps_of] = tally(gap, calls.name[call], *inside).prevailing(name[gaps_of])
    return name


def _ended_at(device: DeviceTimeline, time_ns: Int64Array) -> npt.NDArray[np.intp]:
    """The last operation that ended at each instant, rows of Trace.operations; NOTHING for none."""
    end = device.operations.table.end_ns
    if len(end) == 0:
        return np.full(len(time_ns), NOTHING, np.intp)
    by_end = in_order(end)
    last = np.maximum(np.searchsorted(end[by_end], time_ns, side="right") - 1, 0)
    if not isinstance(by_end, slice):
        last = by_end[last]
    return np.where(end[last] == time_ns, device.operations.rows.start + last, NOTHING)


_KIND = {
    OpKind.KERNEL: "kernel",
    OpKind.GRAPH: "CUDA graph",
    OpKind.MEMCPY: "copy",
    OpKind.MEMSET: "memset",
    OpKind.MIGRATION: "page migration",
}


def _operation(timeline: Timeline, row: int) -> str:
    """A kernel's name, else what the operation is."""
    if row == NOTHING:
        return ""
    operations = timeline.trace.operations
    kind = OpKind(int(operations.kind[row]))
    name = name_of(timeline.trace, int(operations.name[row])) if kind == OpKind.KERNEL else ""
    return name or _KIND[kind]


# Durations of every region's instances in order of time: warm-up told apart, too many thinned, all in a histogram.

# Regions with a series of their own: those with the most time.
MOST_REGIONS = TABLE
# Bars of a histogram. Instances beyond the quantile go to one last bar, so that a single outlier leaves the rest
# readable.
BARS = 40
LEAST_FOR_LAST_BAR = PERCENT  # instances: of fewer, one is more than that 1 %
LAST_BAR_FROM = 1 - 1 / LEAST_FOR_LAST_BAR


def instance_series(timeline: Timeline, index: RegionIndex) -> tuple[InstanceSeries, ...]:
    """A series for every region with at least two instances, most time first."""
    ranges, regions = timeline.trace.ranges, timeline.ownership.regions
    rows = as_rows(timeline.counted_ranges)
    region, start, end = regions.of_range[rows], ranges.start_ns[rows], ranges.end_ns[rows]
    host, is_open = end - start, ranges.is_open[rows]
    device, over = projected(timeline, rows, end)
    count = group_counts(region, len(regions))
    time = group_sums(region, np.maximum(host, device), len(regions))
    several = np.flatnonzero(count >= 2)
    chosen = several[np.lexsort((several, -time[several]))][:MOST_REGIONS]
    most = max(DRAWN // max(len(chosen), 1), PAGE_ROWS)
    by_time = in_order(start)
    order = into_groups(region[by_time], np.arange(len(start))[by_time], count)
    stop = np.cumsum(count)[chosen]
    bounds = np.stack((stop - count[chosen], stop), axis=1)
    series, is_any_open = [], bool(is_open.any())
    for number, members in zip(chosen.tolist(), [order[low:high] for low, high in bounds.tolist()], strict=True):
        closed = members[~is_open[members]] if is_any_open else members
        warm = count_warm_up(lengths_of(host[closed], device[closed], over[closed]))
        series.append(_series(index.one(number), start[members], host[members], device[members], warm, most))
    return tuple(series)


def _series(
    region: int, start: Int64Array, host: Int64Array, device: Int64Array, warm: int, most: int
) -> InstanceSeries:
    shown = _thin(np.maximum(host, device), most)
    launched = device >= 0
    usual = np.sort(narrow(host[warm:]))  # half as wide, they take half as long
    usual_projected = np.sort(narrow(device[warm:][launched[warm:]]))
    return InstanceSeries(
        region=region,
        count=len(host),
        warm_up=warm,
        thinned=len(shown) < len(host),
        index=shown.astype(np.int64),
        start_ns=start[shown],
        host_ns=host[shown],
        projected_ns=device[shown],
        host_median_ns=_middle(usual),
        projected_median_ns=_middle(usual_projected) if len(usual_projected) else None,
        host=_spread(usual),
        projected=_spread(usual_projected) if len(usual_projected) else None,
    )


def _thin(duration_ns: Int64Array, most: int) -> Rows:
    """All rows, or the shortest and the longest of each run of neighbours: what a plot of all would show."""
    count = len(duration_ns)
    if count <= most:
        return np.arange(count)
    group = np.arange(count) * (most // 2) // count
    first = np.flatnonzero(np.append(True, np.diff(group) > 0))
    size = np.diff(np.append(first, count))
    least, greatest = (np.repeat(of.reduceat(duration_ns, first), size) for of in (np.minimum, np.maximum))
    shortest, longest = np.flatnonzero(duration_ns == least), np.flatnonzero(duration_ns == greatest)
    is_first, is_last = np.append(True, np.diff(group[shortest]) > 0), np.append(np.diff(group[longest]) > 0, True)
    return unique(np.concatenate((shortest[is_first], longest[is_last])))


def _middle(duration_ns: Int64Array) -> float:
    """The median of durations that ascend."""
    half = len(duration_ns) // 2
    return (float(duration_ns[half]) + float(duration_ns[(len(duration_ns) - 1) // 2])) / 2


def _spread(duration_ns: Int64Array) -> Spread:
    """Of durations that ascend."""
    low, high = float(duration_ns[0]), float(duration_ns[-1])
    top = quantile(duration_ns, LAST_BAR_FROM, ascend=True) if len(duration_ns) >= LEAST_FOR_LAST_BAR else high
    if high == low:
        return Spread(np.array([low, low + 1.0]), np.array([len(duration_ns)], np.int64))
    edges = np.linspace(low, top, BARS + 1) if top > low else np.array([low])
    if high > top:
        edges = np.append(edges, high)
    below = np.append(np.searchsorted(duration_ns, edges[:-1]), len(duration_ns))
    return Spread(edges, np.diff(below).astype(np.int64), has_last=high > top)
