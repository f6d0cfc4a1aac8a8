"""What is known of a trace before any device is accounted for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boundby.attribution.host_state import HostState
from boundby.attribution.regions import Ownership
from boundby.correlation.correlate import Calls
from boundby.correlation.logical_threads import LogicalThreads
from boundby.trace.tables import Trace


@dataclass(frozen=True)
class TraceContext:
    """A trace with its calls joined to its operations, its threads and ranges understood."""

    trace: Trace  # operations already on the host's clock
    calls: Calls
    logical_threads: LogicalThreads
    ownership: Ownership
    host_state: HostState
    launch_range: npt.NDArray[np.int64]  # per operation: the innermost range around its launching call
    launch_region: npt.NDArray[np.int64]  # that range's region
