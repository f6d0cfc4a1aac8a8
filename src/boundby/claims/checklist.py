"""The classic checklist: measured values set against the rules of thumb by which such traces are read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from boundby.claims.because import LEAST_TOLD
from boundby.claims.bound import LEAST_SAVING, BoundCase, busiest
from boundby.model.causes import BUSY_CAUSES, Cause
from boundby.model.scale import MANY, MOST, NEARLY_ALL, NOTABLE, QUARTER
from boundby.model.units import bandwidth, duration, percent, plural
from boundby.results.report import Check, Gaps

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
        return Check(name, percent(utilization), "the launching thread also waits or sleeps", None)
    active = signs.part(signs.case.host.active_ns)
    if active >= LOW_UTILIZATION:
        return Check(name, percent(utilization), "over 90 %: the launching thread never rests", "cpu")
    waits = {"copies pageable memory": signs.staging_ns, "spins in waits for the device": signs.case.sync.blocked_ns}
    does = [what for what, ns in waits.items() if ns >= WORTH_BESIDE * max(waits.values())]
    own = f"{percent(active)} of the time" if active > LEAST_TOLD else "under 1 % of the time"
    reading = f"over 90 %, but its own work takes {own}: otherwise it {' and '.join(does)}"
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
    small = plural(readbacks.small_count if readbacks else 0, "small DtoH copy", "small DtoH copies")
    reading = f"{duration(sync.blocked_ns)} blocked, {small}"
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
        reading += f"; {pageable:,} pageable{rate}"
    return Check("Copies", f"{percent(share)} of the time", reading, "gpu_copy" if is_heavy else None)


_CHECKS = (_gpu_utilization, _cpu_utilization, _gaps, _api_calls, _syncs, _copies)
#: bound -> what is added to a sign that speaks for it, where the verdict names another.
_OTHERWISE = {
    "sync": "; many, but the GPU idles for them {cost} of the time",
    "cuda_api": ", but the GPU idles for it {cost} of the time",
    "gpu_copy": "; other things limit more",
}


def _agreeing(check: Check, bounds: Sequence[str], case: BoundCase) -> Check:
    """The check, with no pointer to what the verdict does not name: what speaks for that is told with its cost."""
    if check.points_to is None or check.points_to in bounds:
        return check
    cost = percent(case.share(Cause[check.points_to.upper()]))
    words = _OTHERWISE.get(check.points_to, "").format(cost=cost)
    return replace(check, reading=f"{check.reading}{words}", points_to=None)
