"""The classic signs of each pattern, as one table: what is usual of each, and how it is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from boundby.claims.bound import LEAST_SAVING
from boundby.claims.checklist import (
    BUSY_CPU,
    COPY_HEAVY,
    HIGH_UTILIZATION,
    LOW_UTILIZATION,
    MANY_CALLS_PER_MS,
    MANY_SYNCS_PER_MS,
    NEAR_ZERO,
)
from boundby.claims.limits import MUCH_USED
from boundby.model.causes import BUSY_CAUSES, NOUN, Cause
from boundby.model.scale import HALF, NOTABLE, QUARTER
from boundby.model.units import NOT_CAPTURED, count, duration, percent
from boundby.results.report import Card, DeviceCounters, DeviceReport, RegionReport, Sign, ThreadReport

Part = DeviceReport | RegionReport
#: At least and at most: the same, where it is known.
Between = tuple[float, float]
AHEAD = 2.0  # launched and not yet started, at the median launch: the host is ahead
_ALL = float("inf")
_OWN = Cause.CUDA_API, Cause.INIT, Cause.CPU  # what the host does itself


class SignOf(Struct, frozen=True):
    """One row: ``measure`` gives what it is here, None where that was not captured. ``told``: in words, where a number
    alone says too little."""

    name: str
    measure: Callable[[Part], Between | None]
    low: float = 0.0
    high: float = _ALL
    tell: Callable[[float], str] = percent
    told: Callable[[Part], str] | None = None
    is_optional: bool = False  # left out where it is not captured, or where there is nothing of the kind

    @property
    def usual(self) -> str:
        """``over 90 %``, ``10 to 90 %``."""
        if self.high == _ALL:
            return f"over {self.tell(self.low)}" if self.tell is percent else f"at least {self.tell(self.low)}"
        if not self.low:
            return f"under {self.tell(self.high)}"
        return f"{self.tell(self.low).removesuffix(' %')} to {self.tell(self.high)}"

    def of(self, part: Part) -> Sign:
        """The sign as it is here: neither met nor missing where what is known leaves that open."""
        measured = self.measure(part)
        if measured is None:
            return Sign(self.name, NOT_CAPTURED, None, self.usual)
        return self.at(*measured, self.told(part) if self.told else "")

    def at(self, least: float, most: float, told: str = "") -> Sign:
        """The sign of what was measured. ``told``: in words."""
        is_met = True if self.low <= least and most <= self.high else None
        if most < self.low or least > self.high:
            is_met = False
        between = "" if self.tell(least) == self.tell(most) else f"{self.tell(least).removesuffix(' %')} to "
        return Sign(self.name, f"{between}{told or self.tell(most)}", is_met, self.usual)


def card(pattern: str, part: Part) -> Card:
    """The signs of one pattern on one device or region, and why the verdict stands where some are missing."""
    signs = tuple(row.of(part) for row in SIGNS[pattern] if not row.is_optional or row.measure(part) is not None)
    missing = [sign for sign in signs if sign.is_met is False]
    return Card(pattern, signs, _stands(pattern, part, missing) if missing else "")


def card_of_host(pattern: str, part: RegionReport | ThreadReport) -> Card:
    """The card of a pattern in a trace without GPU work: only what the host does is a sign there."""
    own = sum(part.time[cause.key] for cause in _OWN) / max(sum(part.time.values()), 1)
    signs = (row.at(own, own) for row in SIGNS[pattern] if row.measure is own_work)
    return Card(pattern, tuple(replace(sign, name=sign.name.removeprefix("launching ")) for sign in signs))


def _stands(pattern: str, part: Part, missing: list[Sign]) -> str:
    """``Not the classic picture (GPU busy: 61 %, usually over 90 %). The verdict stands: removing kernel time ...``"""
    verdict, total_ns = part.verdict, total(part)
    lacking = "; ".join(f"{sign.name}: {sign.value}, usually {sign.limit}" for sign in missing)
    best = {saving.cause: saving.saving_ns for saving in verdict.savings}
    text = f"Not the classic picture ({lacking})"
    if best.get(pattern, 0) <= 0:
        return f"{text}."
    if verdict.decided_by == "account":
        return f"{text}. The account alone decides: no replay of this trace can be trusted."
    if isinstance(part, RegionReport):  # what it saves the program may be more than the region itself takes
        shorter = f"the program {duration(best[pattern])} shorter"
        return f"{text}. The verdict stands: removing {NOUN[pattern]} here makes {shorter} (replay)."
    left_ns = verdict.without_ns if pattern == verdict.bound else None  # as the headline tells it
    saved = percent(best[pattern] / total_ns if left_ns is None else 1 - left_ns / total_ns)
    once = ""
    if pattern != "sync" and not verdict.mixed_of and best.get("sync", 0) >= LEAST_SAVING * total_ns:
        # What else is removed is so from the program that no longer waits, which is another ranking than from this one.
        once, saved = "once the host no longer waits for the GPU, ", percent(best[pattern] / total_ns)
    return f"{text}. The verdict stands: {once}removing {NOUN[pattern]} makes the program {saved} shorter (replay)."


def total(part: Part) -> int:
    return max(sum(part.time.values()), 1)


def share(*causes: Cause) -> Callable[[Part], Between]:
    """Of the account's time."""

    def measure(part: Part) -> Between:
        of_it = sum(part.time[cause.key] for cause in causes) / total(part)
        return of_it, of_it

    return measure


busy = share(*BUSY_CAUSES)


def known(value: float | None) -> Between | None:
    return None if value is None else (value, value)


def _host_ns(part: Part) -> int:
    """The time of the host that its own work is a part of."""
    return max(part.host.total_ns if isinstance(part, RegionReport) else total(part), 1)


def own_work(part: Part) -> Between | None:
    """What the launching thread does itself: it neither waits for the device, on its core or off it, nor sleeps. Where
    sleep is not told from work, at least what the device idles for it."""
    if part.host_active_ns is None:
        return None
    most = min(part.host_active_ns / _host_ns(part), 1.0)
    is_told = part.cpu_utilization is not None or not part.time[Cause.UNATTRIBUTED.key]
    return most if is_told else min(share(*_OWN)(part)[0], most), most


def _launches_told(part: Part) -> str:
    rate = "" if part.api.per_ms is None else f", {part.api.per_ms:.3g} calls per ms"
    return f"{percent(share(Cause.CUDA_API)(part)[0])}{rate}"


def _short(part: Part) -> Between | None:
    """Of the idle time, that in gaps which a launch or a framework's dispatch fills."""
    return known(part.gaps.short_ns / part.gaps.total_ns) if part.gaps.total_ns else None


def long_gaps(part: Part) -> Between | None:
    return known(1 - part.gaps.short_ns / part.gaps.total_ns) if part.gaps.total_ns else None


def _read_back(part: Part) -> Between | None:
    """Small copies to the host for each sync."""
    copies = part.memcpy.get("DtoH")
    return known((copies.small_count if copies else 0) / part.sync.count) if part.sync.count else None


def _read_back_told(part: Part) -> str:
    copies = part.memcpy.get("DtoH")
    return f"{count(copies.small_count if copies else 0)} for {count(part.sync.count)} syncs"


def _pageable(part: Part) -> Between | None:
    number = sum(copied.count for copied in part.memcpy.values())
    return known(sum(copied.pageable_count for copied in part.memcpy.values()) / number) if number else None


def active(part: Part) -> Between | None:
    counters_of = part.counters
    counters = counters_of.busy if isinstance(counters_of, DeviceCounters) else counters_of
    return None if counters is None or not counters.is_unmixed else known(counters.sm_active)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _per_ms(value: float) -> str:
    return f"{value:.3g} per ms"


def _gpu_busy(low: float = 0.0, high: float = _ALL) -> SignOf:
    return SignOf("GPU busy", busy, low, high)


def _own(low: float = 0.0, high: float = _ALL) -> SignOf:
    return SignOf("launching thread at work", own_work, low, high)


_FEW_COPIES = SignOf("copies alone", share(Cause.GPU_COPY), high=NOTABLE)

#: By the pattern's key; the pages of `boundby.claims.patterns` list the same rows.
SIGNS: Mapping[str, tuple[SignOf, ...]] = {
    "gpu_compute": (
        _gpu_busy(low=HIGH_UTILIZATION),
        _FEW_COPIES,
        SignOf("operations in the launch queue", lambda part: known(part.queue_depth_median), AHEAD, tell=_number),
        SignOf("SMs active while busy", active, MUCH_USED, is_optional=True),
    ),
    "cuda_api": (
        _own(low=BUSY_CPU),
        SignOf("idle for launches and dispatch", share(Cause.CUDA_API), QUARTER, told=_launches_told),
        _gpu_busy(high=LOW_UTILIZATION),
        SignOf("idle time in gaps up to 100 us", _short, HALF, is_optional=True),
        _FEW_COPIES,
    ),
    "sync": (
        _gpu_busy(NEAR_ZERO, HIGH_UTILIZATION),
        _own(NEAR_ZERO, BUSY_CPU),
        SignOf("blocking syncs", lambda part: known(part.sync.per_ms), MANY_SYNCS_PER_MS, tell=_per_ms),
        SignOf("small copies to host per sync", _read_back, HALF, tell=_number, told=_read_back_told),
    ),
    "cpu": (
        _own(low=BUSY_CPU),
        SignOf("CUDA calls", lambda part: known(part.api.per_ms), high=MANY_CALLS_PER_MS, tell=_per_ms),
        _gpu_busy(high=HALF),
    ),
    "host_blocked": (
        _own(high=LOW_UTILIZATION),
        _gpu_busy(high=LOW_UTILIZATION),
        SignOf("idle time in gaps over 100 us", long_gaps, HALF, is_optional=True),
    ),
    "gpu_copy": (
        SignOf("copies alone", share(Cause.GPU_COPY), COPY_HEAVY),
        SignOf("pageable among the copies", _pageable, HALF),
    ),
    "gpu_comm": (SignOf("communication alone", share(Cause.GPU_COMM), NOTABLE),),
    "init": (
        SignOf("idle for initialization", share(Cause.INIT), NOTABLE),
        _gpu_busy(high=HALF),
    ),
}
