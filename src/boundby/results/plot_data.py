"""What pages and figures draw beside the Report: time in bins, lanes, gaps, instances and tables. Plain frozen data.

All times are int64 nanoseconds on the trace's (host's) clock, like the Report's windows. Regions and names are indexes
into ``PlotData.regions`` and ``PlotData.names`` (-1: none). The size is bounded whatever the trace's size: what is too
fine is merged or binned, and every part says so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import Int64Array
from boundby.model.intervals import NOTHING

Float64Array = npt.NDArray[np.float64]

NO_REGION = NOTHING


class RegionName(Struct, frozen=True):
    """A region as the Report names it: the root, which holds what no range owns, has the path ()."""

    path: tuple[str, ...]
    domain: str


class CauseBins(Struct, frozen=True):
    """Time by cause in bins. ``cause_ns`` sums to the account of what it covers, to the nanosecond."""

    edges_ns: Int64Array  # (bins + 1,), ascending
    cause_ns: npt.NDArray[np.int64]  # (bins, causes in the order of causes.CAUSES)

    @property
    def total_ns(self) -> Int64Array:
        """Accounted time per bin, shape (bins,): less than the bin's width where it reaches out of the window."""
        total: Int64Array = self.cause_ns.sum(axis=1)
        return total


class CauseSegments(Struct, frozen=True):
    """Disjoint stretches of one cause each, in order of start; columns of equal length."""

    start_ns: Int64Array
    end_ns: Int64Array
    cause: Int64Array  # index into causes.CAUSES
    region: Int64Array  # index into PlotData.regions, NO_REGION where stretches of several regions were merged

    def __len__(self) -> int:
        return len(self.start_ns)


class AccountLane(Struct, frozen=True):
    """One device's account over time; without GPU work, one host thread's.

    ``segments`` is exact (neighbours of one cause and region joined) or None where there are too many of them; then
    ``fine`` holds the same time in narrow bins. ``cpu_ns`` is how long the launching threads (of a thread's lane: the
    thread) were on a CPU in each bin of ``bins``, ``cpu_known_ns`` for how much of it that is known.
    """

    kind: str  # "device" | "thread"
    id: int  # the Report's device id, or the thread's tid
    name: str
    window_start_ns: int
    window_end_ns: int
    bins: CauseBins  # on PlotData.edges_ns
    segments: CauseSegments | None
    fine: CauseBins | None  # within the lane's own window; None where segments is there
    cpu_ns: Int64Array | None  # (bins,); None: not captured
    cpu_known_ns: Int64Array | None
    cpu_source: str | None  # "context switches" | "CPU samples"

    @property
    def gpu_utilization(self) -> Float64Array:
        """Busy part of the accounted time of each bin, shape (bins,); NaN outside the window."""
        return _ratio(self.bins.cause_ns[:, :3].sum(axis=1), self.bins.total_ns)  # the three busy causes come first

    @property
    def cpu_utilization(self) -> Float64Array | None:
        """On-CPU part of the known time of each bin, shape (bins,), NaN where nothing is known; None: not captured."""
        if self.cpu_ns is None or self.cpu_known_ns is None:
            return None
        return _ratio(self.cpu_ns, self.cpu_known_ns)


class RangeLane(Struct, frozen=True):
    """NVTX ranges of one thread at one nesting depth (or start/end ranges of one process), in order of start.

    ``count`` is 1 for a range, more for neighbours too short to be drawn apart: then ``start_ns`` to ``end_ns`` holds
    them all, ``covered_ns`` is what they cover of it, and ``region`` the one that covers most.
    """

    pid: int
    tid: int | None  # None: start/end ranges, which belong to their process
    thread: str
    depth: int
    start_ns: Int64Array
    end_ns: Int64Array
    region: Int64Array
    count: Int64Array
    covered_ns: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)


class WorkLane(Struct, frozen=True):
    """What one stream of a device ran, or which CUDA calls one thread made (nested ones left out), in order of start.

    ``count``, ``covered_ns`` as in RangeLane; ``name`` and ``cause`` are of what takes most of the time then.
    """

    kind: str  # "stream" | "calls"
    device: int  # the Report's device id; -1: calls
    pid: int
    number: int  # of the stream; of calls: the thread's tid
    thread: str  # its name; "" of a stream
    start_ns: Int64Array
    end_ns: Int64Array
    name: Int64Array  # index into PlotData.names
    cause: Int64Array  # one of the three busy causes; -1: a call
    count: Int64Array
    covered_ns: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)


class Gap(Struct, frozen=True):
    """One idle interval of a device. ``cause_ns`` follows causes.CAUSES and sums to its length.

    ``call`` is the call to blame: where the dominant cause is sync, the one that waited; else the one in which the
    responsible thread spent most of the gap, the launch that ended it included; "" where it was in none, or in the
    host's own code.
    """

    device: int  # the Report's device id
    start_ns: int
    end_ns: int
    cause: int  # the dominant one
    cause_ns: tuple[int, ...]
    call: str
    thread: str  # the responsible thread's name, "" if it has none
    tid: int | None
    region: int  # that owns most of the gap
    before: str  # the operation that ended before the gap, and the one that ends it; "" at the window's edges
    after: str

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def cause_fraction(self) -> float:
        """What the dominant cause takes of it."""
        return self.cause_ns[self.cause] / self.length_ns


class Spread(Struct, frozen=True):
    """All instances of a region as a histogram: ``counts[i]`` of them last from ``edges_ns[i]`` to the next edge."""

    edges_ns: Float64Array  # (k + 1,)
    counts: Int64Array  # (k,), warm-up left out
    has_last: bool = False  # the last bar is wider than the others and holds the longest 1 %


class InstanceSeries(Struct, frozen=True):
    """Durations of a region's instances in order of time.

    ``index`` is the instance's number; where there are too many, of each run of neighbours only the shortest and the
    longest are kept (``thinned``). The first ``warm_up`` instances differ from the later ones: see structure/steps.py.
    Medians are of all instances after warm-up.
    """

    region: int
    count: int
    warm_up: int
    thinned: bool
    index: Int64Array
    start_ns: Int64Array
    host_ns: Int64Array
    projected_ns: Int64Array  # -1 where the instance launched nothing
    host_median_ns: float
    projected_median_ns: float | None
    host: Spread
    projected: Spread | None


class KernelRow(Struct, frozen=True):
    """All kernels of one name in the windows. ``share`` is of the summed time of kernels that compute; of one that
    communicates, of those that do."""

    name: str
    count: int
    total_ns: int
    mean_ns: float
    median_ns: float
    max_ns: int
    share: float
    is_communication: bool
    is_graph: bool  # a whole CUDA graph traced as one operation
    region: int  # in which most of its time was launched


class CopyRow(Struct, frozen=True):
    """Copies, sets or migrations of one direction between two kinds of memory."""

    kind: str  # "copy" | "set" | "migration"
    direction: str  # "HtoD", "DtoH", ...; "" for sets
    source: str  # "pageable", "pinned", "device", "managed", "unknown"; "" for sets
    target: str
    count: int
    bytes: int
    total_ns: int
    max_bytes: int
    bandwidth_bytes_per_s: float | None  # bytes over summed time; None where no time was measured


class SyncRow(Struct, frozen=True):
    """Waits for the device by call and region. ``idle_ns`` is the account's sync time that those waits brought
    about; None in traces without GPU work."""

    call: str
    region: int
    count: int
    blocked_ns: int
    idle_ns: int | None


class PlotData(Struct, frozen=True):
    """Everything drawn about one analysis. ``edges_ns`` spans all windows; lanes share it."""

    start_ns: int
    end_ns: int
    edges_ns: Int64Array  # (bins + 1,)
    regions: tuple[RegionName, ...]  # those that appear here; index 0 is the root
    lanes: tuple[AccountLane, ...]
    ranges: tuple[RangeLane, ...]
    lanes_left_out: int  # range lanes beyond the bound, those that cover least
    work: tuple[WorkLane, ...]  # streams by device, then calls by thread
    work_left_out: int  # streams and threads with less time
    names: tuple[str, ...]  # of kernels and calls
    gaps: tuple[Gap, ...]  # the longest, in order of time
    gap_count: int  # of all
    instances: tuple[InstanceSeries, ...]  # most time first
    kernels: tuple[KernelRow, ...]  # most time first
    kernels_left_out: tuple[int, int, int]  # names, kernels and summed nanoseconds beyond the bound
    copies: tuple[CopyRow, ...]
    syncs: tuple[SyncRow, ...]  # most idle time first, then most blocked time
    syncs_left_out: int


def _ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> Float64Array:
    ratios: Float64Array = np.full(len(part), np.nan)
    is_known = whole > 0
    ratios[is_known] = np.minimum(part[is_known] / whole[is_known], 1.0)
    return ratios
