"""The account over time: causes per bin, stretches of one cause, and how busy the launching threads are."""

from __future__ import annotations

import numpy as np

from boundby.attribution.account import ThreadAccount, sample_period
from boundby.attribution.segments import Segments
from boundby.attribution.timeline import Timeline
from boundby.correlation.cpu_evidence import CpuEvidence
from boundby.model.arrays import Int64Array, places, unique
from boundby.model.causes import CAUSES
from boundby.model.intervals import Coverage, IntervalSet, union
from boundby.model.library import int64, run
from boundby.plot_data.index import RegionIndex
from boundby.results.plot_data import AccountLane, CauseBins, CauseSegments
from boundby.stats.host import launching_thread

# Stretches kept exactly, in all lanes together: some 20 characters each in a page.
MOST_SEGMENTS = 60_000
# Bins in all lanes together where there are more stretches than that.
FINE_BINS = 12_000
# Utilization by samples is averaged over this many sampling periods: fewer would show the sampling itself.
SAMPLES_PER_BIN = 10

SWITCHES, SAMPLES = "context switches", "CPU samples"

_Cpu = tuple[Int64Array, Int64Array, str] | tuple[None, None, None]  # on a CPU, known, source; not captured
_NOT_CAPTURED = None, None, None


def account_lanes(timeline: Timeline, edges: Int64Array, index: RegionIndex) -> tuple[AccountLane, ...]:
    """A lane for every device; without GPU work for every thread that has an account."""
    count = max(len(timeline.devices) + len(timeline.threads), 1)

    def lane(kind: str, number: int, name: str, segments: Segments, span: tuple[int, int], cpu: _Cpu) -> AccountLane:
        exact, fine = None, None
        if segments.join_to(MOST_SEGMENTS // count):
            told = segments.joined()
            exact = CauseSegments(told.start_ns, told.end_ns, told.cause.astype(np.int64), index.of(told.region))
        else:
            index.of(unique(segments.region))  # named all the same
            fine = cause_bins(segments, even_edges(*span, FINE_BINS // count))
        return AccountLane(
            kind,
            number,
            name,
            *span,
            bins=(coarser(fine, edges) if fine else None) or cause_bins(segments, edges),
            segments=exact,
            fine=fine,
            cpu_ns=cpu[0],
            cpu_known_ns=cpu[1],
            cpu_source=cpu[2],
        )

    lanes = []
    for device in timeline.devices:
        gpu = timeline.trace.gpus[device.index]
        cpu = _logical_cpu(timeline, launching_thread(timeline.calls, device), edges)
        lanes.append(lane("device", gpu.id, gpu.name, device.segments, (device.low_ns, device.high_ns), cpu))
    for account in timeline.threads:
        thread = timeline.trace.threads[account.thread]
        cpu = _cpu(timeline, account.thread, edges)
        lanes.append(lane("thread", thread.tid, thread.name, account.segments, covered_span(account), cpu))
    return tuple(lanes)


def even_edges(low: int, high: int, bins: int) -> Int64Array:
    """Edges of that many bins of equal width, or of as many as there are nanoseconds."""
    bins = max(min(bins, high - low), 1)
    edges: Int64Array = low + np.arange(bins + 1, dtype=np.int64) * (high - low) // bins
    return edges


def covered_span(account: ThreadAccount) -> tuple[int, int]:
    """From the first to the last instant that a thread's account covers."""
    return int(account.covered.start[0]), int(account.covered.end[-1])


def cause_bins(segments: Segments, edges: Int64Array) -> CauseBins:
    """Nanoseconds of each cause between neighbouring edges; sums to the segments' time inside the edges."""
    causes = len(CAUSES)
    found = np.zeros((len(edges) - 1, causes), np.int64)
    columns = int64(segments.start_ns), int64(segments.end_ns), np.ascontiguousarray(segments.cause), len(segments)
    if run("boundby_bins", *columns, int64(edges), len(found), causes, found) < 0:
        raise IndexError("a segment's cause is none")
    return CauseBins(edges, found)


def coarser(fine: CauseBins, edges: Int64Array) -> CauseBins | None:
    """The same in wider bins; None where an edge of these is none of the finer bins'."""
    first = places(fine.edges_ns, edges)
    if first[0] or first[-1] != len(fine.cause_ns) or not np.array_equal(fine.edges_ns[first], edges):
        return None
    return CauseBins(edges, np.add.reduceat(fine.cause_ns, first[:-1], axis=0))


def _logical_cpu(timeline: Timeline, thread: int | None, edges: Int64Array) -> _Cpu:
    """When at least one member of a logical thread is on a CPU: as the Report's CPU utilization, per bin."""
    if thread is None:
        return _NOT_CAPTURED
    members = [timeline.host_state.evidence(member) for member in timeline.logical_threads.members(thread).tolist()]
    on = [evidence.on_cpu for evidence in members if evidence.on_cpu is not None]
    if len(members) == 1 or not on:
        return _cpu(timeline, thread, edges)
    together = union(np.concatenate([s.start for s in on]), np.concatenate([s.end for s in on]))
    return _within(together, edges), np.diff(edges), SWITCHES


def _cpu(timeline: Timeline, thread: int, edges: Int64Array) -> _Cpu:
    """One thread's time on a CPU per bin, by context switches, else by samples; None: neither was captured."""
    evidence: CpuEvidence = timeline.host_state.evidence(thread)
    if evidence.on_cpu is not None and evidence.off_cpu is not None:
        on = _within(evidence.on_cpu, edges)
        return on, on + _within(evidence.off_cpu, edges), SWITCHES
    samples = timeline.trace.samples
    period = sample_period(timeline.trace) if len(samples) else None
    low, high = np.searchsorted(samples.thread, [thread, thread + 1])
    if period is None or low == high:
        return _NOT_CAPTURED
    width = np.diff(edges)
    count = np.diff(np.searchsorted(samples.start_ns[low:high], edges))
    together = max(int(np.ceil(SAMPLES_PER_BIN * period / max(int(width.max()), 1))), 1)
    group = np.arange(len(width)) // together
    ran = np.minimum(np.bincount(group, count) * period / np.maximum(np.bincount(group, width), 1), 1.0)
    return np.rint(ran[group] * width).astype(np.int64), width, SAMPLES


def _within(intervals: IntervalSet, edges: Int64Array) -> Int64Array:
    covered: Int64Array = np.diff(Coverage(intervals).until(edges))
    return covered
