"""Device clocks that run apart from the host's: detect it, estimate the shift.

No operation can start before the call that launches it, and a copy that holds its call ends before the call returns.
Timestamps of both sides are fitted to one clock by the profiler, good to a few microseconds; when many operations start
earlier than that the device's clock is behind, when many end later it is ahead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.model.arrays import Int64Array
from boundby.model.scale import HABIT, HALF, MANY, NEGLIGIBLE
from boundby.model.units import percent

# Fits between the clocks err by this much in healthy traces, so earlier starts are not evidence of a shift.
CLOCK_NOISE_NS = 20_000
# Fewer copies that hold their call say nothing of a clock that is ahead.
LEAST_COPIES = HABIT
# More than this fraction of operations starting before their launch is beyond noise and broken rows.
SKEWED_FRACTION = NEGLIGIBLE
# More than this fraction of such copies ending after their call is no row that is broken here or there.
AHEAD_FRACTION = HALF
# The shift is taken from this quantile of (launch - start): the few beyond it are broken rows, not the clock.
ROBUST_QUANTILE = 0.999
# Of so many operations one starts within this of its call's end: in 30 real traces 170 us at most, mostly 10 us.
LEAST_LAUNCHED, MOST_LATENCY_NS = MANY, 300_000
# The quickest operation of any healthy trace starts about this long after its launching call has begun.
LEAST_LATENCY_NS = 2_000


class ClockShift(Struct, frozen=True):
    """``shift_ns`` is to be added to device times. ``early_fraction`` of operations start before their launch;
    ``late_fraction`` of the copies that hold their call end after it returned."""

    shift_ns: int
    early_fraction: float
    late_fraction: float = 0.0
    unshown_ns: int = 0  # so far ahead it may be besides: no operation starts sooner after its call

    @property
    def because(self) -> str:
        """What shows that the clock is off."""
        if self.shift_ns < 0:
            return f"{percent(self.late_fraction)} of the copies that hold their call end after it returned"
        return f"{percent(self.early_fraction)} of its operations start before their launch"


NO_SHIFT = ClockShift(0, 0.0)


def estimate_shift(operation_start: Int64Array, launch_start: Int64Array, late: Int64Array | None = None) -> ClockShift:
    """The shift that puts one device's operations after their launches, or NO_SHIFT for a healthy clock.

    Shapes: both (n,), for operations whose launching call is known; ``late``: (m,), by how much copies that hold their
    call end after it has returned (negative: before). The estimate is the smallest shift that is consistent with
    causality, so true launch latencies are at least those reported, and true returns at most as late.
    """
    if len(operation_start) == 0:
        return NO_SHIFT
    early: npt.NDArray[np.int64] = launch_start - operation_start
    fraction = float((early > CLOCK_NOISE_NS).mean())
    if fraction > SKEWED_FRACTION:
        shift = int(np.quantile(early, ROBUST_QUANTILE, method="inverted_cdf")) + LEAST_LATENCY_NS
        return ClockShift(max(shift, 0), fraction)
    # Where every operation starts late after its launch as well, one wait that returned too early is enough.
    is_slow = len(early) >= LEAST_LAUNCHED and -int(early.max()) > MOST_LATENCY_NS
    enough = 1 if is_slow else LEAST_COPIES
    ahead = float((late > CLOCK_NOISE_NS).mean()) if late is not None and len(late) >= enough else 0.0
    if late is None or ahead <= AHEAD_FRACTION:
        return ClockShift(0, fraction, ahead)
    # Never so far that operations would start before their launch.
    room = -int(np.quantile(early, ROBUST_QUANTILE, method="inverted_cdf")) - LEAST_LATENCY_NS
    back = min(int(np.quantile(late, ROBUST_QUANTILE, method="inverted_cdf")), room)
    if is_slow and room - back > MOST_LATENCY_NS:  # it is ahead, and the quickest launch shows by how much
        back = room
    return ClockShift(-max(back, 0), fraction, ahead)
