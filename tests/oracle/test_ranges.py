"""NVTX ranges, their projections and their kernels agree with NVIDIA's reports, range by range.

Where boundby counts more than NVIDIA on purpose, what it adds is left out by its rule, never by a tolerance:
operations launched by helper threads (whose work boundby gives to the range that waits for them), CUDA graphs
traced whole (which NVIDIA's reports do not read), and calls that outlast the range they began in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

from boundby.attribution.regions import Regions, project
from boundby.model.intervals import NOTHING, depths
from boundby.results.report import RegionReport
from boundby.trace.tables import OpKind
from tests.oracle.nsys_reports import NsysReports, Row
from tests.oracle.ours import Analysis, Sum, analysis, full_name, query, sum_of, summarize
from tests.support.traces import programs, trace_path

pytestmark = pytest.mark.nsys
TRACES = programs()

_STYLE = {False: "PushPop", True: "StartEnd"}


@pytest.mark.parametrize("name", TRACES)
def test_ranges_by_name(nvidia: NsysReports, name: str) -> None:
    check_ranges(nvidia, trace_path(name))


def check_ranges(nvidia: NsysReports, path: Path) -> None:
    """Ranges and regions of one trace against ``nvtx_sum``."""
    ours = analysis(path)
    table = ours.trace.ranges
    if not nvidia.has(path, "nvtx_sum"):
        assert len(table) == 0
        return
    theirs = {(row["Style"], row["Range"]): sum_of(row, "Instances") for row in nvidia.rows(path, "nvtx_sum")}
    # Named difference: a range left open ends with the trace, for NVIDIA with the last NVTX event of any kind.
    (last,) = query(path, "SELECT max(max(start), max(end)) FROM NVTX_EVENTS")[0]
    end = np.where(table.is_open, last, table.end_ns).tolist()
    found = summarize(
        ((_STYLE[bool(table.is_start_end[row])], ours.range_name(row)), end[row] - int(table.start_ns[row]))
        for row in range(len(table))
    )
    assert found == theirs
    _check_regions(ours, theirs)


def _check_regions(ours: Analysis, theirs: dict[tuple[str, str], Sum]) -> None:
    """The report's regions: counts and totals of all of one name; the median where there is but one of it."""
    styles, regions_of = Counter(name for _, name in theirs), _by_name(ours)
    has_lost = any(device.coverage.before_ns for device in ours.report.devices)
    for (_, name), entry in theirs.items():
        regions = regions_of[name]
        if styles[name] > 1 or any(region.open_instances for region in regions):
            continue
        # Named difference: instances before the window, all of whose work the profiler lost, are not counted.
        if has_lost and sum(region.instances for region in regions) < entry.count:
            continue
        assert sum(region.instances for region in regions) == entry.count
        assert sum(region.host.total_ns for region in regions) == entry.total_ns
        assert max(region.host.max_ns for region in regions) == entry.longest_ns
        if len(regions) == 1:
            assert round(regions[0].host.median_ns, 1) == entry.median_ns


def _by_name(ours: Analysis) -> dict[str, list[RegionReport]]:
    """The report's regions by the name of their ranges, as nsys prints it."""
    found: dict[str, list[RegionReport]] = defaultdict(list)
    for region in ours.report.regions:
        if region.path:
            found[full_name(region.domain, region.path[-1])].append(region)
    return found


Projection = tuple[str, str, int, int, int, int, int, int]


@pytest.mark.parametrize("name", TRACES)
def test_projections_by_instance(nvidia: NsysReports, name: str) -> None:
    path = trace_path(name)
    ours = analysis(path)
    theirs = Counter(map(_projected, _projection_rows(nvidia, path)))
    found = Counter(_projections(ours, *_as_nvidia(ours)))
    # Named difference: a start/end range holds what any thread of its process launched (test_differences.py).
    assert _push_pop(found) == _push_pop(theirs)


def _push_pop(projections: Counter[Projection]) -> Counter[Projection]:
    return Counter({projection: count for projection, count in projections.items() if projection[1] == "PushPop"})


@pytest.mark.parametrize("name", TRACES)
def test_helpers_only_widen_projections(nvidia: NsysReports, name: str) -> None:
    """Named difference: boundby's own projection holds NVIDIA's, and equals it where no helper or graph adds."""
    path = trace_path(name)
    ours = analysis(path)
    rows = _projection_rows(nvidia, path)
    timeline = ours.timeline
    every = np.arange(len(ours.trace.operations))
    whole = dict(_keyed(_projections(ours, timeline.ownership.regions, timeline.launch_range, every)))
    for *key, start, end in map(_projected, rows):
        assert whole[tuple(key)][0] <= start
        assert whole[tuple(key)][1] >= end
    regions, launch_range, seen = _as_nvidia(ours)
    same = len(seen) == len(every) and np.array_equal(launch_range, timeline.launch_range)
    if same and np.array_equal(regions.range_parent, timeline.ownership.regions.range_parent):
        assert whole == dict(_keyed(map(_projected, rows)))
        _check_projected_regions(ours, rows)


def _check_projected_regions(ours: Analysis, rows: list[Row]) -> None:
    """The report's projected distributions: counts, totals and longest of all regions of one name."""
    found = summarize((row["Name"], int(row["Projected Duration (ns)"])) for row in rows)
    regions_of = _by_name(ours)
    for region_name, entry in found.items():
        projected = [region.projected for region in regions_of[region_name] if region.projected]
        assert sum(distribution.count for distribution in projected) == entry.count
        assert sum(distribution.total_ns for distribution in projected) == entry.total_ns
        assert max(distribution.max_ns for distribution in projected) == entry.longest_ns


def _projection_rows(nvidia: NsysReports, path: Path) -> list[Row]:
    """NVIDIA's projections, without those of calls outside any range; none where it says there is no such data."""
    if not nvidia.has(path, "nvtx_gpu_proj_trace"):
        return []
    if analysis(path).trace.ranges.is_open.any():
        pytest.skip("a range was left open, and NVIDIA ends it with the last NVTX event: see test_differences.py")
    return [row for row in nvidia.rows(path, "nvtx_gpu_proj_trace") if row["RangeId"]]


def _keyed(projections: Iterable[Projection]) -> Iterator[tuple[tuple[object, ...], tuple[int, int]]]:
    for *key, start, end in projections:
        yield tuple(key), (start, end)


def _projected(row: Row) -> Projection:
    start, projected = int(row["Orig Start (ns)"]), int(row["Projected Start (ns)"])
    return (
        row["Name"],
        row["Style"],
        int(row["PID"]),
        int(row["TID"]),
        start,
        start + int(row["Orig Duration (ns)"]),
        projected,
        projected + int(row["Projected Duration (ns)"]),
    )


def _projections(
    ours: Analysis, regions: Regions, launch_range: npt.NDArray[np.integer], rows: npt.NDArray[np.intp]
) -> Iterator[Projection]:
    """The projection of each range that launched some of these operations, at device times as recorded."""
    ranges = ours.trace.ranges
    start, end = project(ours.trace, ours.timeline.calls, regions, launch_range, rows)
    for row in np.flatnonzero(end >= start).tolist():
        thread = int(ranges.thread[row])
        yield (
            ours.range_name(row),
            _STYLE[bool(ranges.is_start_end[row])],
            ours.pid(thread),
            ours.tid(thread),
            int(ranges.start_ns[row]),
            int(ranges.end_ns[row]),
            int(start[row]),
            int(end[row]),
        )


def _as_nvidia(ours: Analysis) -> tuple[Regions, npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """Nesting on one thread only, the innermost range on its own thread of each operation, and no graphs."""
    regions, ranges = ours.timeline.ownership.regions, ours.trace.ranges
    parent, launch_range = regions.range_parent.copy(), ours.timeline.launch_range.copy()
    if len(ranges):
        parent[ranges.thread[parent] != ranges.thread] = NOTHING
        launch_range[ranges.thread[launch_range] != ours.call_thread] = NOTHING
    seen = np.flatnonzero(ours.trace.operations.kind != OpKind.GRAPH)
    return replace(regions, range_parent=parent), launch_range, seen


@pytest.mark.parametrize("name", TRACES)
def test_nesting(nvidia: NsysReports, name: str) -> None:
    """How deep each projected range lies in others of its own thread."""
    path = trace_path(name)
    ours = analysis(path)
    rows = _projection_rows(nvidia, path)
    theirs = Counter((*_projected(row)[2:6], int(row["Lvl"])) for row in rows)
    ranges, level = ours.trace.ranges, depths(_as_nvidia(ours)[0].range_parent)
    found = Counter(
        (
            ours.pid(int(ranges.thread[row])),
            ours.tid(int(ranges.thread[row])),
            int(ranges.start_ns[row]),
            int(ranges.end_ns[row]),
            int(level[row]),
        )
        for row in range(len(ranges))
    )
    assert not theirs - found


@pytest.mark.parametrize("name", TRACES)
def test_kernels_by_range(nvidia: NsysReports, name: str) -> None:
    path = trace_path(name)
    ours = analysis(path)
    if not nvidia.has(path, "nvtx_kern_sum"):
        owned = ours.timeline.launch_range != NOTHING
        assert not (owned & (ours.trace.operations.kind == OpKind.KERNEL)).any()
        return
    theirs = {
        (row["NVTX Range"], row["Kernel Name"], int(row["PID"] or -1), int(row["TID"] or -1)): (
            int(row["Kern Inst"]),
            int(row["Total Time (ns)"]),
        )
        for row in nvidia.rows(path, "nvtx_kern_sum")
    }
    regions, launch_range, _ = _as_nvidia(ours)
    assert _kernels_by_range(ours, regions, launch_range) == theirs


@pytest.mark.parametrize("name", TRACES)
def test_regions_add_kernels_of_helpers_only(nvidia: NsysReports, name: str) -> None:
    """Named difference: a region's kernels are NVIDIA's, and those that helper threads launched for it."""
    path = trace_path(name)
    ours = analysis(path)
    regions, launch_range = ours.timeline.ownership.regions, ours.timeline.launch_range
    nested, innermost, _ = _as_nvidia(ours)
    theirs, added = Counter[str](), Counter[str]()
    for row in nvidia.rows(path, "nvtx_kern_sum") if nvidia.has(path, "nvtx_kern_sum") else ():
        theirs[row["NVTX Range"]] += int(row["Kern Inst"])
    for row in np.flatnonzero(ours.trace.operations.kind == OpKind.KERNEL).tolist():
        around = set(_names_around(ours, regions, int(launch_range[row])))
        added.update(around - set(_names_around(ours, nested, int(innermost[row]))))
    found, around_region = Counter[str](), list[str]()
    for region in ours.report.regions[1:]:
        around_region[region.depth - 1 :] = [full_name(region.domain, region.path[-1])]
        if around_region[-1] not in around_region[:-1]:  # counted in the outer one of that name
            found[around_region[-1]] += region.kernels.count
    del theirs[""]
    assert +found == theirs + added


def _names_around(ours: Analysis, regions: Regions, inner: int) -> Iterator[str]:
    """Names of a range and of those around it."""
    while inner != NOTHING:
        yield ours.range_name(inner)
        inner = int(regions.range_parent[inner])


def _kernels_by_range(
    ours: Analysis, regions: Regions, launch_range: npt.NDArray[np.int64]
) -> dict[tuple[str, str, int, int], tuple[int, int]]:
    """Kernels and their time in every range around their launch, on its thread. NVIDIA counts time once for
    each of several nested ranges of one name, and the kernel once."""
    table, threads = ours.trace.operations, ours.call_thread.tolist()
    found: dict[tuple[str, str, int, int], tuple[int, int]] = {}
    for row in np.flatnonzero(table.kind == OpKind.KERNEL).tolist():
        thread, duration = threads[row], int(table.end_ns[row] - table.start_ns[row])
        place = (ours.pid(thread), ours.tid(thread)) if thread >= 0 else (-1, -1)
        around = Counter(_names_around(ours, regions, int(launch_range[row])))
        for range_name, times in (around or {"": 1}).items():
            key = (range_name, ours.trace.names[table.name[row]], *place)
            count, total = found.get(key, (0, 0))
            found[key] = (count + 1, total + times * duration)
    return found
