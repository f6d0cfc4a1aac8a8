"""What is known of a trace before any device is accounted for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.host_state import HostState
from boundby.attribution.regions import ROOT, Ownership, project
from boundby.correlation.correlate import Calls
from boundby.correlation.logical_threads import LogicalThreads
from boundby.model.arrays import Int32Array, Int64Array, as_rows, group_counts, group_sums, is_any, rows_of
from boundby.model.intervals import IntervalSet
from boundby.structure.steps import Candidate, find_steps
from boundby.trace.tables import Operations, Trace
from boundby.trace.vocabulary.cuda import CallClass


class TraceContext(Struct, frozen=True, dict=True):
    """A trace with its calls joined to its operations, its threads and ranges understood."""

    trace: Trace  # operations already on the host's clock
    calls: Calls
    logical_threads: LogicalThreads
    ownership: Ownership
    host_state: HostState
    call_range: Int32Array  # per call: the innermost range around its start; NOTHING where there is none
    call_region: Int32Array  # that range's region
    launch_range: (
        Int32Array  # per operation: the range of the call that launched it, or inside a graph that of its capture
    )
    launch_region: Int32Array  # that range's region

    @cached_property
    def projected(self) -> tuple[Int64Array, Int64Array]:
        """When each range begins and ends on the devices, by all operations (`project`)."""
        return project(self.trace, self.calls, self.ownership.regions, self.launch_range)

    @cached_property
    def step_candidates(self) -> list[Candidate]:
        """Every region, the root with all time and launches."""
        regions, ranges = self.ownership.regions, self.trace.ranges
        instances = np.bincount(regions.of_range, minlength=len(regions))
        time_ns = group_sums(regions.of_range, ranges.end_ns, len(regions), ranges.start_ns)
        time_ns[ROOT] = int(time_ns[regions.parent == ROOT].sum())
        launching = as_rows(is_any(self.calls.kind, (CallClass.LAUNCH, CallClass.BLOCKING_COPY)))
        launches = regions.accumulate(group_counts(self.call_region[launching], len(regions)))
        return [
            Candidate(regions.path(number), *columns)
            for number, columns in enumerate(zip(instances.tolist(), time_ns.tolist(), launches.tolist(), strict=True))
        ]

    @cached_property
    def step_region(self) -> int | None:
        """The region that is plainly the step of the program; None: none is."""
        return find_steps(self.step_candidates, self.step_candidates[ROOT])


class DeviceOperations(Struct, frozen=True):
    """One device's operations in order of start, and their rows in the trace."""

    rows: slice
    table: Operations

    def at(self, some: slice | npt.NDArray[np.intp]) -> slice | npt.NDArray[np.intp]:
        """The rows in the trace of some of them (of a slice, both bounds are told)."""
        first = int(self.rows.start)
        return slice(first + some.start, first + some.stop) if isinstance(some, slice) else some + first

    def busy(self) -> IntervalSet:
        """When at least one operation runs."""
        return self.table.busy


def operations_of(trace: Trace, device: int) -> DeviceOperations:
    """The operations of one device (they are stored in that order)."""
    rows = rows_of(trace.operations.device, device)
    is_sole = rows == slice(0, len(trace.operations))
    return DeviceOperations(rows, trace.operations if is_sole else trace.operations.take(rows))
