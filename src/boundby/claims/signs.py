"""What such traces are read by: the classic signs of each pattern, as one table (what is usual of each, and how it is
measured here), and the checklist of measured values against rules of thumb."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from boundby.claims.because import LEAST_TOLD
from boundby.claims.bound import LEAST_SAVING, BoundCase, busiest
from boundby.claims.limits import MUCH_USED
from boundby.model.causes import BUSY_CAUSES, NOUN, Cause
from boundby.model.scale import HALF, MANY, MOST, NEARLY_ALL, NOTABLE, QUARTER
from boundby.model.units import NOT_CAPTURED, bandwidth, count, duration, percent, plural
from boundby.results.report import Card, Check, DeviceCounters, DeviceReport, Gaps, RegionReport, Sign, ThreadReport

# A saturated device, a starved one, a host that never rests.
HIGH_UTILIZATION = NEARLY_ALL
LOW_UTILIZATION = MOST
NEAR_ZERO = NOTABLE
BUSY_CPU = NEARLY_ALL
MANY_CALLS_PER_MS = float(MANY)  # a call every 50 us: the host does little else
MANY_SYNCS_PER_MS = 0.5  # one every 2 ms: several in a step of usual length
MUCH_CALLING = QUARTER  # of the window in calls that do not wait
COPY_HEAVY = QUARTER  # of the window: copies then matter as much as kernels or the host
WORTH_BESIDE = QUARTER  # of two ways of waiting, the lesser is told from a quarter of the other on


class Signs(Struct, frozen=True):
    """What the checklist is read off, beside the case of the verdict."""

    case: BoundCase
    gaps: Gaps
    cpu_utilization: float | None
    staging_ns: int = 0  # host time in calls that copy pageable memory, beyond the time blocked in syncs

    def part(self, ns: int) -> float:
        """Of the window."""
        return ns / self.case.window_ns


def checklist(signs: Signs, bounds: Sequence[str] | None = None) -> tuple[Check, ...]:
    """GPU and CPU utilization, gaps, API calls, syncs and small copies, memcpy share.

    ``bounds``: what the verdict names; a sign that speaks for something else says what that costs, and does not point
    there.
    """
    checks = tuple(check(signs) for check in _CHECKS)
    return checks if bounds is None else tuple(_agreeing(check, bounds, signs.case) for check in checks)


def _gpu_utilization(signs: Signs) -> Check:
    busy = signs.case.share(*BUSY_CAUSES)
    # A device left alone: the host computes instead, or it sleeps itself.
    rests = signs.cpu_utilization is not None and signs.cpu_utilization < LOW_UTILIZATION
    unseen = signs.part(_unseen_ns(signs))
    if busy <= HIGH_UTILIZATION and unseen >= LEAST_SAVING:
        reading, points_to = f"at least: for {percent(unseen)} of the time it is not on record whether it works", None
    elif busy > HIGH_UTILIZATION:
        reading, points_to = "over 90 %: the device is the limit", busiest(signs.case.time).key
    elif busy < NEAR_ZERO:
        reading, points_to = "near 0: the device hardly works", "host_blocked" if rests else "cpu"
    elif busy < LOW_UTILIZATION:
        reading, points_to = "under 80 %: something keeps the device waiting", None
    else:
        reading, points_to = "80 to 90 %: moderate", None
    return Check("GPU utilization", percent(busy), reading, points_to)


def _unseen_ns(signs: Signs) -> int:
    """For how long the device may work without a record of it."""
    return sum(signs.case.missing.work.values())


def _cpu_utilization(signs: Signs) -> Check:
    """A thread that spins while it waits for the device is busy, but not with anything."""
    name, utilization = "CPU utilization", signs.cpu_utilization
    if utilization is None:
        return Check(name, "not captured", "CPU scheduling is not on record", None)
    if utilization <= BUSY_CPU:
        reading = "waits that spin included; the rest of the time the launching thread sleeps"
        return Check(name, percent(utilization), reading, None)
    active = signs.part(signs.case.host.active_ns)
    if active >= LOW_UTILIZATION:
        return Check(name, percent(utilization), "over 90 %: the launching thread never rests", "cpu")
    waits = {"copies pageable memory": signs.staging_ns, "spins in waits for the device": signs.case.sync.blocked_ns}
    does = [what for what, ns in waits.items() if ns >= WORTH_BESIDE * max(waits.values())]
    own = f"{percent(active)} of the time" if active > LEAST_TOLD else "under 1 % of the time"
    reading = f"over 90 %, but its own work takes {own}; the rest of the time it {' and '.join(does)}"
    return Check(name, percent(utilization), reading, None)


def _gaps(signs: Signs) -> Check:
    gaps = signs.gaps
    value = f"{gaps.count:,} ({duration(gaps.total_ns)})"
    if not gaps.count:
        return Check("Gaps", value, "none", None)
    mean = duration(gaps.total_ns / gaps.count)
    unseen_ns = min(_unseen_ns(signs), gaps.total_ns)
    beside = f"; in {duration(unseen_ns)} of them work may be missing" if signs.part(unseen_ns) >= LEAST_SAVING else ""
    return Check("Gaps", value, f"mean {mean}, longest {duration(gaps.longest_ns)}{beside}", None)


def _api_calls(signs: Signs) -> Check:
    api = signs.case.api
    value = "not captured" if api.per_ms is None else f"{api.per_ms:.3g} per ms"
    calling = min(signs.part(max(api.total_ns - signs.case.sync.blocked_ns - signs.staging_ns, 0)), 1.0)
    if (api.per_ms or 0.0) >= MANY_CALLS_PER_MS and calling >= MUCH_CALLING:
        return Check("CUDA API calls", value, "the host calls CUDA without pause", "cuda_api")
    reading = f"{percent(calling)} of the time is spent in calls that do not wait"
    if (staging := signs.part(signs.staging_ns)) >= LEAST_SAVING:
        reading += f", {percent(staging)} in copies of pageable memory"
    return Check("CUDA API calls", value, reading, None)


def _syncs(signs: Signs) -> Check:
    sync, readbacks = signs.case.sync, signs.case.memcpy.get("DtoH")
    rate = sync.per_ms or 0.0
    small = plural(readbacks.small_count if readbacks else 0, "small copy to the host", "small copies to the host")
    reading = f"they block the host for {duration(sync.blocked_ns)}; {small}"
    points_to = "sync" if rate >= MANY_SYNCS_PER_MS else None
    return Check("Blocking syncs", f"{sync.count:,} ({rate:.2g} per ms)", reading, points_to)


def _copies(signs: Signs) -> Check:
    share, each = signs.case.share(Cause.GPU_COPY), signs.case.memcpy.values()
    is_heavy = share >= COPY_HEAVY
    reading = "copies are a large part of the device's time" if is_heavy else "copies are a small part"
    if pageable := sum(copies.pageable_count for copies in each):
        linked = [copies for way, copies in signs.case.memcpy.items() if way in ("HtoD", "DtoH")]
        moved, lasted = sum(copies.bytes for copies in linked), sum(copies.total_ns for copies in linked)
        rate = f", {bandwidth(moved / lasted * 1e9)} to and from the host on average" if lasted else ""
        reading += f"; {pageable:,} of them pageable{rate}"
    return Check("Copies", f"{percent(share)} of the time", reading, "gpu_copy" if is_heavy else None)


_CHECKS = (_gpu_utilization, _cpu_utilization, _gaps, _api_calls, _syncs, _copies)
#: bound -> what is added to a sign that speaks for it, where the verdict names another.
_OTHERWISE = {
    "sync": "; many, but the GPU idles for them {cost} of the time",
    "cuda_api": ", but the GPU idles for it {cost} of the time",
    "gpu_copy": "; removing other causes saves more",
}


def _agreeing(check: Check, bounds: Sequence[str], case: BoundCase) -> Check:
    """The check, with no pointer to what the verdict does not name: what speaks for that is told with its cost."""
    if check.points_to is None or check.points_to in bounds:
        return check
    cost = percent(case.share(Cause[check.points_to.upper()]))
    words = _OTHERWISE.get(check.points_to, "").format(cost=cost)
    return replace(check, reading=f"{check.reading}{words}", points_to=None)


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
    """``Not the classic picture (GPU busy: 61 %, usually over 90 %). The verdict stands: in the replay, ...``"""
    verdict = part.verdict
    here = " here" if isinstance(part, RegionReport) else ""
    lacking = "; ".join(f"{sign.name}: {sign.value}, usually {sign.limit}" for sign in missing)
    text = f"Not the classic picture ({lacking})."
    named = verdict.mixed_of or (pattern,)
    best = verdict.savings[0] if verdict.savings else None
    if best is None or best.saving_ns <= 0 or best.cause not in named:
        return text
    if verdict.decided_by == "account":
        return f"{text} The shares of the time alone decide: no prediction for this trace can be trusted."
    causes = " or ".join(NOUN[cause] for cause in named)
    return f"{text} The verdict stands: in the replay, removing {causes}{here} saves most."


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


def _short(part: Part) -> Between | None:
    """Of the idle time, that in gaps which a launch or a framework's dispatch fills. A region's gaps lie between its
    own work: where most of its idle time comes before that work, they tell nothing of it."""
    idle_ns = total(part) - sum(part.time[cause.key] for cause in BUSY_CAUSES)
    return known(part.gaps.short_ns / part.gaps.total_ns) if part.gaps.total_ns > HALF * idle_ns else None


def long_gaps(part: Part) -> Between | None:
    short = _short(part)
    return None if short is None else known(1 - short[0])


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
        SignOf("idle for launches and dispatch", share(Cause.CUDA_API), QUARTER),
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
