"""Device clocks that run apart from the host's: detect it, estimate the shift.

No operation can start before the call that launches it. Timestamps of both sides are fitted to one clock by the
profiler, good to a few microseconds; when many operations start earlier than that, the device's clock is off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import Int64Array
from boundby.model.records import dataclass

# Fits between the clocks err by this much in healthy traces, so earlier starts are not evidence of a shift.
CLOCK_NOISE_NS = 20_000
# More than this fraction of operations starting before their launch is beyond noise and broken rows.
SKEWED_FRACTION = 0.01
# The shift is taken from this quantile of (launch - start): the few beyond it are broken rows, not the clock.
ROBUST_QUANTILE = 0.999
# The quickest operation of any healthy trace starts about this long after its launching call has begun.
LEAST_LATENCY_NS = 2_000


@dataclass(frozen=True)
class ClockShift:
    """``shift_ns`` is to be added to device times; ``early_fraction`` of operations start before their launch."""

    shift_ns: int
    early_fraction: float


NO_SHIFT = ClockShift(0, 0.0)


def estimate_shift(operation_start: Int64Array, launch_start: Int64Array) -> ClockShift:
    """The shift that puts one device's operations after their launches, or NO_SHIFT for a healthy clock.

    Shapes: both (n,), for operations whose launching call is known. The estimate is the smallest shift that
    is consistent with causality, so true launch latencies are at least those reported.
    """
    if len(operation_start) == 0:
        return NO_SHIFT
    early: npt.NDArray[np.int64] = launch_start - operation_start
    fraction = float((early > CLOCK_NOISE_NS).mean())
    if fraction <= SKEWED_FRACTION:
        return ClockShift(0, fraction)
    shift = int(np.quantile(early, ROBUST_QUANTILE, method="inverted_cdf")) + LEAST_LATENCY_NS
    return ClockShift(max(shift, 0), fraction)
