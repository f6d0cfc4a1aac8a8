"""The classic signs of each pattern, measured: met, not met, or not captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from boundby.attribution.host_state import DISPATCH_LIMIT_NS
from boundby.claims.bound import LEAST_SAVING
from boundby.claims.checklist import (
    BUSY_CPU,
    COPY_HEAVY,
    HIGH_UTILIZATION,
    LOW_UTILIZATION,
    MANY_CALLS_PER_MS,
    MANY_SYNCS_PER_MS,
    MUCH_CALLING,
    NEAR_ZERO,
)
from boundby.claims.limits import MUCH_USED
from boundby.model.causes import BUSY_CAUSES, NOUN
from boundby.model.scale import HALF, NO_LAUNCH_NS, NOTABLE
from boundby.model.units import change, count, duration, percent, plural
from boundby.results.report import Card, DeviceCounters, DeviceReport, RegionReport, Sign

Part = DeviceReport | RegionReport
FEW_COPIES = NOTABLE  # of the time: copies are then no part of the picture
AHEAD = 2.0  # launched and not yet started, at the median launch: the host is ahead


class _Measured(Struct, frozen=True):
    part: Part

    @property
    def total_ns(self) -> int:
        return max(sum(self.part.time.values()), 1)

    def share(self, *causes: str) -> float:
        return sum(self.part.time[cause] for cause in causes) / self.total_ns

    @property
    def busy(self) -> float:
        return self.share(*(cause.key for cause in BUSY_CAUSES))

    def gpu(self, name: str, *, low: float = 0.0, high: float = 1.0) -> Sign:
        return Sign(name, percent(self.busy), low <= self.busy <= high)

    def cpu(self, name: str, *, low: float = 0.0, high: float = 1.0) -> Sign:
        used = self.part.cpu_utilization
        return Sign(name, percent(used), None if used is None else low <= used <= high)

    def own_work(self, name: str, *, low: float = 0.0, high: float = 1.0) -> Sign:
        """As `cpu`, without waiting: a thread that waits in a sync may spin on its core."""
        used = self.part.cpu_utilization
        if used is not None:
            used = min(used, max(1.0 - self.part.sync.blocked_ns / self.total_ns, 0.0))
        return Sign(name, percent(used), None if used is None else low <= used <= high)

    def copies(self, name: str, *, low: float = 0.0, high: float = 1.0) -> Sign:
        share = self.share("gpu_copy")
        return Sign(name, f"{percent(share)} of the time", low <= share <= high)

    def mean_gap(self, name: str, *, low: float = 0.0, high: float = float("inf")) -> Sign:
        gaps = self.part.gaps
        mean = gaps.total_ns / gaps.count if gaps.count else 0.0
        is_met = gaps.count > 0 and low <= mean <= high
        return Sign(name, f"{plural(gaps.count, 'gap')}, mean {duration(mean)}" if gaps.count else "no gap", is_met)


def card(pattern: str, part: Part) -> Card:
    """The signs of one pattern on one device or region, and why the verdict stands where some are missing."""
    measured = _Measured(part)
    signs = tuple(_SIGNS[pattern](measured))
    missing = [sign for sign in signs if sign.is_met is False]
    return Card(pattern, signs, _stands(pattern, measured, missing) if missing else "")


def _stands(pattern: str, measured: _Measured, missing: list[Sign]) -> str:
    """``Not the classic picture (GPU busy over 90 %: 61 %); the verdict stands because without kernel time ...``"""
    verdict = measured.part.verdict
    lacking = "; ".join(f"{sign.name}: {sign.value}" for sign in missing)
    best = {saving.cause: saving.saving_ns for saving in verdict.savings}
    text = f"Not the classic picture ({lacking})"
    if best.get(pattern, 0) <= 0:
        return f"{text}."
    if verdict.decided_by == "account":
        return f"{text}. The account alone decides: no replay of this trace can be trusted."
    left_ns = verdict.without_ns if pattern == verdict.bound else None  # as the headline tells it
    saved = change(-best[pattern] / measured.total_ns if left_ns is None else left_ns / measured.total_ns - 1)
    more = "" if verdict.mixed_of else ", more than removing anything else"
    once = ""
    if pattern != "sync" and not verdict.mixed_of and best.get("sync", 0) >= LEAST_SAVING * measured.total_ns:
        # What else is removed is so from the program that no longer waits, which is another ranking than from this one.
        once, saved = "once the host no longer waits for the GPU, ", change(-best[pattern] / measured.total_ns)
    return f"{text}. The verdict stands: {once}removing {NOUN[pattern]} changes the time by {saved}{more} (replay)."


def _compute(measured: _Measured) -> Iterator[Sign]:
    yield measured.gpu("GPU busy over 90 %", low=HIGH_UTILIZATION)
    yield measured.copies("few copies", high=FEW_COPIES)
    depth = measured.part.queue_depth_median
    value = "not captured" if depth is None else f"{depth:g} launched and not begun (median)"
    yield Sign("the host launches ahead", value, None if depth is None else depth >= AHEAD)
    found = measured.part.counters
    counters = found.busy if isinstance(found, DeviceCounters) else found
    if counters is not None and counters.sm_active is not None and counters.is_unmixed:
        active = counters.sm_active
        yield Sign("over 60 % of the SMs active", percent(active), active >= MUCH_USED)


def _api(measured: _Measured) -> Iterator[Sign]:
    api, sync = measured.part.api, measured.part.sync
    yield measured.cpu("CPU busy over 90 %", low=BUSY_CPU)
    calling = min(max(api.in_window[1] - sync.blocked_ns, 0) / measured.total_ns, 1.0)
    rate = "not captured" if api.per_ms is None else f"{api.per_ms:.3g} calls per ms, {percent(calling)} of the time"
    is_met = None if api.per_ms is None else calling >= MUCH_CALLING
    yield Sign("the host calls CUDA a quarter of the time", rate, is_met)
    yield measured.gpu("GPU busy under 80 %", high=LOW_UTILIZATION)
    yield measured.mean_gap("many short gaps", high=DISPATCH_LIMIT_NS)
    yield measured.copies("few copies", high=FEW_COPIES)


def _sync(measured: _Measured) -> Iterator[Sign]:
    sync, readbacks = measured.part.sync, measured.part.memcpy.get("DtoH")
    yield measured.gpu("GPU moderately busy", low=NEAR_ZERO, high=HIGH_UTILIZATION)
    yield measured.own_work("CPU moderately busy", low=NEAR_ZERO, high=BUSY_CPU)
    rate = sync.per_ms
    value = "not captured" if rate is None else f"{sync.count:,}, {rate:.2g} per ms"
    yield Sign("many blocking syncs", value, None if rate is None else rate >= MANY_SYNCS_PER_MS)
    small = readbacks.small_count if readbacks else 0
    yield Sign("tiny copies to the host", count(small), small > 0 and 2 * small >= sync.count)


def _cpu(measured: _Measured) -> Iterator[Sign]:
    yield measured.cpu("CPU busy over 90 %", low=BUSY_CPU)
    rate = measured.part.api.per_ms
    value = "not captured" if rate is None else f"{rate:.3g} per ms"
    yield Sign("under 20 CUDA calls per ms", value, None if rate is None else rate < MANY_CALLS_PER_MS)
    yield measured.gpu("GPU mostly idle", high=HALF)


def _blocked(measured: _Measured) -> Iterator[Sign]:
    yield measured.cpu("the launching thread runs little: under 80 %", high=LOW_UTILIZATION)
    yield measured.gpu("GPU busy under 80 %", high=LOW_UTILIZATION)
    yield measured.mean_gap("long gaps", low=NO_LAUNCH_NS)


def _copy(measured: _Measured) -> Iterator[Sign]:
    yield measured.copies("copies take 30 % of the time", low=COPY_HEAVY)
    copies = measured.part.memcpy.values()
    number, pageable = sum(one.count for one in copies), sum(one.pageable_count for one in copies)
    yield Sign("mostly pageable memory", f"{count(pageable)} of {count(number)} copies", 2 * pageable >= number > 0)


def _comm(measured: _Measured) -> Iterator[Sign]:
    share = measured.share("gpu_comm")
    yield Sign("communication exposed", f"{percent(share)} of the time", share >= NOTABLE)


def _init(measured: _Measured) -> Iterator[Sign]:
    share = measured.share("init")
    yield Sign("loading and allocation expose idle time", f"{percent(share)} of the time", share >= NOTABLE)
    yield measured.gpu("GPU mostly idle", high=HALF)


_SIGNS: Mapping[str, Callable[[_Measured], Iterator[Sign]]] = {
    "gpu_compute": _compute,
    "gpu_comm": _comm,
    "gpu_copy": _copy,
    "cuda_api": _api,
    "sync": _sync,
    "cpu": _cpu,
    "host_blocked": _blocked,
    "init": _init,
}
