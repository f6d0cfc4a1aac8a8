"""All figures of all regions, computed once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.timeline import Timeline
from boundby.model.arrays import group_counts
from boundby.model.causes import CAUSES
from boundby.results.report import (
    CollectiveSize,
    Communication,
    Copies,
    Counters,
    DeviceCounters,
    Meanwhile,
    Memory,
    OperatorShape,
    RegionMemory,
    Top,
    Work,
)
from boundby.stats.communication import collectives_by_size, overlap_of
from boundby.stats.counters import memory_of, metrics_of
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
from boundby.stats.host import HostFigures, calls_of_devices, host_figures, meanwhile
from boundby.stats.instances import ByPlace, InstanceFigures, instance_figures
from boundby.stats.step_times import MeasuredPace, steps_by_parts
from boundby.stats.work import backward_kernels, operators_by_shape, worked_calls, works

Int = npt.NDArray[np.int64]


class Figures(Struct, frozen=True):
    """Arrays and lists by region. ``exclusive`` and ``inclusive`` are the account, shape (regions, causes)."""

    exclusive: Int
    inclusive: Int
    missing: Missing
    kernels: KernelFigures
    top_kernels: list[tuple[Top, ...]]
    copies: list[dict[str, Copies]]
    projected: ProjectedFigures
    host: HostFigures
    top_calls: list[tuple[Top, ...]]
    meanwhile: list[Meanwhile | None]
    instances: InstanceFigures
    works: list[Work | None]
    backward_kernels_ns: Int
    operators: tuple[OperatorShape, ...]
    collectives: tuple[CollectiveSize, ...]
    steps: MeasuredPace
    communication: ByPlace[Communication, Communication]
    memory: ByPlace[Memory, RegionMemory]
    counters: ByPlace[DeviceCounters, Counters]

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
    exclusive, counters = exclusive_account(timeline), metrics_of(timeline)
    chosen = operations_in_windows(timeline, timeline.devices)
    kernels, copies = kernel_figures(timeline, chosen), copies_by_region(timeline, chosen)
    longest, steps = top_kernels(timeline, chosen), steps_by_parts(timeline, chosen)
    del chosen  # what is known of each operation is not needed any more
    shown = calls_by_name(timeline, calls_of_devices(timeline))
    worked = worked_calls(timeline)
    return Figures(
        exclusive=exclusive,
        inclusive=regions.accumulate(exclusive),
        missing=_missing(timeline),
        kernels=kernels,
        top_kernels=longest,
        copies=copies,
        projected=projected_figures(timeline),
        host=host_figures(timeline, shown),
        top_calls=top_calls(timeline, shown),
        meanwhile=meanwhile(timeline),
        instances=instance_figures(timeline),
        works=works(timeline, worked, counters.of_region),
        backward_kernels_ns=backward_kernels(timeline),
        operators=operators_by_shape(timeline, worked),
        collectives=collectives_by_size(timeline),
        steps=steps,
        communication=overlap_of(timeline),
        memory=memory_of(timeline),
        counters=counters,
    )


def exclusive_account(timeline: Timeline) -> Int:
    """The account of all devices (without GPU work: of all threads), shape (regions, causes)."""
    regions = len(timeline.ownership.regions)
    exclusive = np.zeros((regions, len(CAUSES)), np.int64)
    for segments in [part.segments for part in timeline.devices] + [part.segments for part in timeline.threads]:
        exclusive += segments.by_region_and_cause(regions)
    return exclusive


def _missing(timeline: Timeline) -> Missing:
    regions, losses = timeline.ownership.regions, timeline.losses
    work, called = (np.zeros((len(regions), len(CAUSES)), np.int64) for _ in range(2))
    for device in timeline.devices:
        work += device.withheld.work.by_region_and_cause(len(regions))
        called += device.withheld.calls.by_region_and_cause(len(regions))
    launches, lost = (group_counts(timeline.call_region[rows], len(regions)) for rows in (losses.expected, losses.lost))
    return Missing(*(regions.accumulate(values) for values in (work, called, launches, lost)))
