"""All figures of all regions, computed once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.segments import Segments
from boundby.attribution.timeline import Timeline
from boundby.model.arrays import group_counts
from boundby.model.causes import CAUSES
from boundby.results.report import (
    CollectiveSize,
    Copies,
    Counters,
    DeviceCounters,
    Meanwhile,
    Memory,
    OperatorShape,
    Payload,
    RegionMemory,
    Top,
    Work,
)
from boundby.stats.collectives import collectives_by_size
from boundby.stats.counters import metrics_of
from boundby.stats.device_figures import (
    KernelFigures,
    ProjectedFigures,
    calls_by_name,
    copies_by_region,
    kernel_figures,
    operations_in_windows,
    projected_figures,
    top_calls,
    top_kernels,
)
from boundby.stats.host import (
    HostFigures,
    calls_in_windows,
    host_figures,
    launching_thread,
    logical_thread_active,
    meanwhile,
    preempted,
    unwoken,
)
from boundby.stats.instances import RegionSpread, Series, host_series, payloads, projected_series, region_spread
from boundby.stats.memory import memory_of
from boundby.stats.overlap import Overlap, overlap_of
from boundby.stats.program_steps import MeasuredPace, steps_by_parts
from boundby.stats.work import backward_kernels, operators_by_shape, worked_calls, works

Int = npt.NDArray[np.int64]


class Figures(Struct, frozen=True):
    """Arrays by region. ``exclusive`` and ``inclusive`` are the account, shape (regions, causes)."""

    exclusive: Int
    inclusive: Int
    operation_count: Int
    kernels: KernelFigures
    copies: list[dict[str, Copies]]
    projected: ProjectedFigures
    host: HostFigures
    host_spread: RegionSpread
    projected_spread: RegionSpread
    host_series: Series
    projected_series: Series
    open_instances: Int
    root_active_ns: int
    top_kernels: list[tuple[Top, ...]]
    top_calls: list[tuple[Top, ...]]
    missing: Missing
    works: list[Work | None]
    operators: tuple[OperatorShape, ...]
    collectives: tuple[CollectiveSize, ...]
    overlap: Overlap
    steps: MeasuredPace
    device_memory: dict[int, Memory]  # by index into Trace.gpus
    memory: list[RegionMemory | None]
    device_counters: dict[int, DeviceCounters]  # by index into Trace.gpus
    counters: list[Counters | None]
    backward_kernels_ns: Int
    meanwhile: list[Meanwhile | None]
    preempted_ns: Int  # with descendants
    unwoken_ns: Int
    payloads: list[Payload | None]

    @property
    def step_mfu(self) -> float | None:
        """The share of the steps' own time that their matrix products would take at the device's peak."""
        work = self.works[self.steps.region] if self.steps.total_ns else None
        return None if work is None or not work.flops else work.of_window(self.steps.total_ns)


class Missing(Struct, frozen=True):
    """What records are missing of, with descendants. Columns: by region; the first two also by cause, as the account
    would have it had nothing been lost: of the device's work, of the host's calls."""

    work_ns: Int
    calls_ns: Int
    launches: Int  # whose work should be on record
    lost: Int  # whose work is not


def measure(timeline: Timeline) -> Figures:
    """Compute every figure of every region."""
    regions = timeline.ownership.regions
    ranges = timeline.trace.ranges
    device_memory, memory = memory_of(timeline)
    device_counters, counters = metrics_of(timeline)
    exclusive = exclusive_account(timeline)
    chosen = operations_in_windows(timeline, timeline.devices)
    kernels, copies = kernel_figures(timeline, chosen), copies_by_region(timeline, chosen)
    longest, steps = top_kernels(timeline, chosen), steps_by_parts(timeline, chosen)
    del chosen  # what is known of each operation is not needed any more
    counted = np.flatnonzero(timeline.counted_ranges)
    launched = counted[timeline.projected_end_ns[counted] >= timeline.projected_start_ns[counted]]
    projected = (timeline.projected_end_ns - timeline.projected_start_ns)[launched]
    shown = calls_by_name(timeline, calls_in_windows(timeline, of_devices=True))
    worked = worked_calls(timeline)
    open_instances = np.zeros(len(regions), np.int64)
    np.add.at(open_instances, regions.of_range[counted[ranges.is_open[counted]]], 1)
    return Figures(
        exclusive=exclusive,
        inclusive=regions.accumulate(exclusive),
        operation_count=kernels.operations,
        kernels=kernels,
        copies=copies,
        projected=projected_figures(timeline),
        host=host_figures(timeline, shown),
        host_spread=region_spread(len(regions), regions.of_range[counted], (ranges.end_ns - ranges.start_ns)[counted]),
        projected_spread=region_spread(len(regions), regions.of_range[launched], projected),
        host_series=host_series(timeline, counted),
        projected_series=projected_series(timeline, launched),
        open_instances=open_instances,
        root_active_ns=_root_active(timeline),
        top_kernels=longest,
        top_calls=top_calls(timeline, shown),
        missing=_missing(timeline),
        preempted_ns=_of_accounts(timeline, preempted),
        unwoken_ns=_of_accounts(timeline, unwoken),
        works=works(timeline, worked, counters),
        operators=operators_by_shape(timeline, worked),
        collectives=collectives_by_size(timeline),
        overlap=overlap_of(timeline),
        steps=steps,
        device_memory=device_memory,
        memory=memory,
        device_counters=device_counters,
        counters=counters,
        backward_kernels_ns=backward_kernels(timeline),
        meanwhile=meanwhile(timeline),
        payloads=payloads(timeline),
    )


def exclusive_account(timeline: Timeline) -> Int:
    """The account of all devices (without GPU work: of all threads), shape (regions, causes)."""
    regions = len(timeline.ownership.regions)
    exclusive = np.zeros((regions, len(CAUSES)), np.int64)
    for segments in [part.segments for part in timeline.devices] + [part.segments for part in timeline.threads]:
        exclusive += segments.by_region_and_cause(regions)
    return exclusive


def _of_accounts(timeline: Timeline, part: Callable[[Timeline, Segments], Int]) -> Int:
    accounts = [part.segments for part in timeline.devices] + [part.segments for part in timeline.threads]
    total = np.zeros(len(timeline.ownership.regions), np.int64)
    for segments in accounts:
        total += part(timeline, segments)
    return timeline.ownership.regions.accumulate(total)


def _missing(timeline: Timeline) -> Missing:
    regions, losses = timeline.ownership.regions, timeline.losses
    work, called = (np.zeros((len(regions), len(CAUSES)), np.int64) for _ in range(2))
    for device in timeline.devices:
        work += device.withheld.work.by_region_and_cause(len(regions))
        called += device.withheld.calls.by_region_and_cause(len(regions))
    launches, lost = (group_counts(timeline.call_region[rows], len(regions)) for rows in (losses.expected, losses.lost))
    return Missing(*(regions.accumulate(values) for values in (work, called, launches, lost)))


def _root_active(timeline: Timeline) -> int:
    """Time in which the launching logical threads were active, summed over devices."""
    total = 0
    for device in timeline.devices:
        thread = launching_thread(timeline.calls, device)
        if thread is not None:
            total += logical_thread_active(timeline, thread, device.low_ns, device.high_ns).total
    return total
