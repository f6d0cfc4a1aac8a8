"""The classic checklist with measured values, and the clause that says why a verdict fell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from boundby.model.causes import SHORT_LABEL, Cause
from boundby.model.units import bandwidth, duration, percent, plural
from boundby.results.report import ApiCalls, Check, Copies, Gaps, Syncs
from boundby.verdict.verdict import Decision

# The rules of thumb by which such traces are read: a saturated device, a starved one, a host that never rests.
HIGH_UTILIZATION = 0.90
LOW_UTILIZATION = 0.80
NEAR_ZERO = 0.10
BUSY_CPU = 0.90
MANY_CALLS_PER_MS = 20.0  # a call every 50 us: the host does little else
MANY_SYNCS_PER_MS = 0.5  # one every 2 ms: several in a step of usual length
MUCH_CALLING = 0.25  # of the window in calls that do not wait
COPY_HEAVY = 0.30  # of the window: copies then matter as much as kernels or the host
NO_GAIN = 0.01  # of the window: no verdict is told of less either
LEAST_TOLD = 0.005  # less reads as "under 1 %"
FAR_AHEAD = 0.50  # the host has half its time to spare: say what it needs, not how close it is


def checklist(
    time: Mapping[Cause, int],
    gaps: Gaps,
    api: ApiCalls,
    sync: Syncs,
    memcpy: Mapping[str, Copies],
    cpu_utilization: float | None,
    host_active_ns: int,
    window_ns: int,
    *,
    staging_ns: int = 0,
    bounds: Sequence[str] | None = None,
) -> tuple[Check, ...]:
    """GPU and CPU utilization, gaps, API calls, syncs and small copies, memcpy share.

    ``staging_ns``: host time in calls that copy pageable memory, beyond ``sync.blocked_ns``. ``bounds``: what the
    verdict names; a sign that speaks for something else says what that costs, and does not point there.
    """
    busy = sum(time[cause] for cause in (Cause.GPU_COMPUTE, Cause.GPU_COMM, Cause.GPU_COPY)) / window_ns
    copy = time[Cause.GPU_COPY] / window_ns
    small = memcpy["DtoH"].small_count if "DtoH" in memcpy else 0
    # A device left alone: the host computes instead, or it sleeps itself.
    rests = cpu_utilization is not None and cpu_utilization < LOW_UTILIZATION
    idle_for = "host_blocked" if rests else "cpu"
    if busy > HIGH_UTILIZATION:
        busiest = max((Cause.GPU_COMPUTE, Cause.GPU_COMM, Cause.GPU_COPY), key=lambda cause: (time[cause], -cause))
        gpu = Check("GPU utilization", percent(busy), "over 90 %: the device is the limit", busiest.key)
    elif busy < NEAR_ZERO:
        gpu = Check("GPU utilization", percent(busy), "near 0: the device hardly works", idle_for)
    elif busy < LOW_UTILIZATION:
        gpu = Check("GPU utilization", percent(busy), "under 80 %: something keeps the device waiting", None)
    else:
        gpu = Check("GPU utilization", percent(busy), "80 to 90 %: moderate", None)
    if cpu_utilization is None:
        cpu = Check("CPU utilization", "not captured", "capture with --cpuctxsw=process-tree", None)
    else:
        cpu = _cpu_check(cpu_utilization, host_active_ns / window_ns, staging_ns, sync.blocked_ns)
    mean = duration(gaps.total_ns / gaps.count) if gaps.count else "0"
    gap = Check(
        "Gaps",
        f"{gaps.count:,} ({duration(gaps.total_ns)})",
        f"mean {mean}, longest {duration(gaps.longest_ns)}" if gaps.count else "none",
        None,
    )
    rate = api.per_ms or 0.0
    calling = max(api.total_ns - sync.blocked_ns - staging_ns, 0) / window_ns
    many = rate >= MANY_CALLS_PER_MS and calling >= MUCH_CALLING
    calls = Check(
        "CUDA API calls",
        f"{rate:.3g} per ms" if api.per_ms is not None else "not captured",
        "the host calls CUDA without pause" if many else _calling(calling, staging_ns / window_ns),
        "cuda_api" if many else None,
    )
    sync_rate = sync.per_ms or 0.0
    often = sync_rate >= MANY_SYNCS_PER_MS
    syncs = Check(
        "Blocking syncs",
        f"{sync.count:,} ({sync_rate:.2g} per ms)",
        f"{duration(sync.blocked_ns)} blocked, {plural(small, 'small DtoH copy', 'small DtoH copies')}",
        "sync" if often else None,
    )
    reading = "copies are a large part of the device's time" if copy >= COPY_HEAVY else "copies are a small part"
    pageable = sum(copies.pageable_count for copies in memcpy.values())
    if pageable:
        moved = sum(copies.bytes for copies in memcpy.values())
        lasted = sum(copies.total_ns for copies in memcpy.values())
        reading += f"; {pageable:,} pageable, {bandwidth(moved / lasted * 1e9 if lasted else None)} on average"
    share = Check("Copies", f"{percent(copy)} of the time", reading, "gpu_copy" if copy >= COPY_HEAVY else None)
    checks = (gpu, cpu, gap, calls, syncs, share)
    return checks if bounds is None else tuple(_agreeing(check, bounds, time, window_ns) for check in checks)


def _calling(fraction: float, staging: float) -> str:
    told = f"{percent(fraction)} of the time is spent in calls that do not wait"
    return f"{told}, {percent(staging)} in copies of pageable memory" if staging >= NO_GAIN else told


def _agreeing(check: Check, bounds: Sequence[str], time: Mapping[Cause, int], window_ns: int) -> Check:
    """The check, with no pointer to what the verdict does not name: what speaks for that is told with its cost."""
    if check.points_to is None or check.points_to in bounds:
        return check
    cost = percent(time[Cause[check.points_to.upper()]] / window_ns)
    words = {
        "sync": f"; many, but the GPU idles for them {cost} of the time",
        "cuda_api": f", but the GPU idles for it {cost} of the time",
        "gpu_copy": "; other things limit more",
    }.get(check.points_to, "")
    return replace(check, reading=f"{check.reading}{words}", points_to=None)


def _cpu_check(utilization: float, active: float, staging_ns: int, blocked_ns: int) -> Check:
    """A thread that spins while it waits for the device is busy, but not with anything."""
    value = percent(utilization)
    if utilization <= BUSY_CPU:
        return Check("CPU utilization", value, "the launching thread also waits or sleeps", None)
    if active < LOW_UTILIZATION:
        waits = [(staging_ns, "copies pageable memory"), (blocked_ns, "spins in waits for the device")]
        told = [what for ns, what in waits if ns >= max(staging_ns, blocked_ns) / 4] or ["spins"]
        own = f"{percent(active)} of the time" if active > LEAST_TOLD else "under 1 % of the time"
        reading = f"over 90 %, but its own work takes {own}: otherwise it {' and '.join(told)}"
        return Check("CPU utilization", value, reading, None)
    return Check("CPU utilization", value, "over 90 %: the launching thread never rests", "cpu")


def because(
    decision: Decision,
    time: Mapping[Cause, int],
    *,
    instances: int,
    sync: Syncs,
    api: ApiCalls,
    memcpy: Mapping[str, Copies],
    blocked_on: Mapping[str, int],
) -> str:
    """One clause with the two or three numbers that decide the verdict."""
    bound = decision.bound
    window = sum(time.values())
    if bound == "hidden":
        if window:
            return "off the critical path: without any one cause in it, the program takes as long"
        return "all its GPU work runs behind other GPU work"
    if window == 0:
        return "launches nothing and holds nothing up; judged on its host time"
    busy = sum(time[cause] for cause in (Cause.GPU_COMPUTE, Cause.GPU_COMM, Cause.GPU_COPY)) / window
    per = f" per instance, {instances:,} instances" if instances > 1 else ""

    def each(ns: float) -> str:
        return duration(ns / max(instances, 1)) + per

    if bound in ("gpu_compute", "gpu_comm", "gpu_copy"):
        share = time[Cause[bound.upper()]] / window
        what = {"gpu_compute": "kernels", "gpu_comm": "communication", "gpu_copy": "copies"}[bound]
        limit = decision.host_limit_fraction
        head = ""
        if limit is not None and limit < NO_GAIN:
            head = "; removing it alone gains nothing, other work covers it"
        elif limit is not None and limit >= FAR_AHEAD:
            needs = f"only {percent(1 - limit)}" if 1 - limit > LEAST_TOLD else "under 1 %"
            head = f"; all else needs {needs} of it"
        elif limit is not None:
            head = f"; the host would limit {percent(limit)} below"
        return f"GPU busy {percent(busy)}, {what} {percent(share)}{head}"
    if bound == "sync":
        saved = decision.savings[0].saving_ns if decision.savings else 0
        pageable = sum(copies.pageable_count for copies in memcpy.values())
        lasted = sum(copies.total_ns for copies in memcpy.values())
        if pageable and time[Cause.SYNC] < saved / 2 <= lasted:
            hold = "copy holds the host while it copies" if pageable == 1 else "copies hold the host while they copy"
            return f"{pageable:,} pageable {hold}, GPU busy {percent(busy)}"
        count = sync.count / max(instances, 1)
        if sync.count and time[Cause.SYNC] < saved / 2:  # what was lost of the lead shows as gaps later on
            waits = f"1 wait{per} costs" if count == 1 else f"{count:,.3g} waits{per} cost"
            return f"{waits} the host its lead over the device, GPU busy {percent(busy)}"
        waits = "1 sync waits" if count == 1 else f"{count:,.3g} syncs wait"
        return f"{waits}, GPU idle {each(time[Cause.SYNC])} because of {'it' if count == 1 else 'them'}"
    if bound == "cuda_api":
        rate = f", {api.per_ms:.3g} calls per ms" if api.per_ms else ""
        return f"GPU idle {percent(time[Cause.CUDA_API] / window)} while the host launches{rate}, busy {percent(busy)}"
    if bound == "cpu":
        return f"GPU idle {each(time[Cause.CPU])} while the host runs its own code, busy {percent(busy)}"
    if bound == "host_blocked":
        on = max(blocked_on, key=lambda name: (blocked_on[name], name)) if blocked_on else ""
        waits = f" (mostly {on})" if on else ""
        return f"GPU idle {each(time[Cause.HOST_BLOCKED])} while the host sleeps{waits}, busy {percent(busy)}"
    if bound == "init":
        total = duration(time[Cause.INIT])
        return f"GPU idle {total} in module load, JIT, allocation or pinning, busy {percent(busy)}"
    if decision.mixed_of:
        first, second = decision.mixed_of
        return f"{SHORT_LABEL[first]} and {SHORT_LABEL[second]} weigh the same, GPU busy {percent(busy)}"
    fixed = (Cause.DEVICE_WAIT, Cause.PROFILER, Cause.UNATTRIBUTED)
    rest = max(fixed, key=lambda cause: (time[cause], -cause))
    if time[rest] >= window / 10:
        return (
            f"GPU busy {percent(busy)}; {SHORT_LABEL[rest.key]} {percent(time[rest] / window)}, which no change removes"
        )
    return f"GPU busy {percent(busy)}; no single removal saves 1 % of it"


def host_because(time: Mapping[Cause, int], blocked_on: Mapping[str, int]) -> str:
    """The clause for host time: on-CPU, asleep (and on what), unknown."""
    window = sum(time.values())
    if window == 0:
        return "no time of its own"
    parts: list[str] = []
    for cause in sorted(Cause, key=lambda cause: (-time[cause], cause)):
        share = time[cause] / window
        if share >= 0.005 and len(parts) < 3:
            name = {Cause.CPU: "on CPU", Cause.HOST_BLOCKED: "asleep"}.get(cause, SHORT_LABEL[cause.key])
            on = f" ({', '.join(list(blocked_on)[:2])})" if cause == Cause.HOST_BLOCKED and blocked_on else ""
            parts.append(f"{name} {percent(share)}{on}")
    return ", ".join(parts)
