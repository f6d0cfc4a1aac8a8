"""Put figures and verdicts together: devices, threads and regions as the report holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.attribution.windows import region_matches
from boundby.model.causes import CAUSES, Cause
from boundby.replay import Counterfactuals
from boundby.results.report import (
    ApiCalls,
    DeviceReport,
    Distribution,
    Gaps,
    Instances,
    Kernels,
    LaunchLatency,
    RegionReport,
    Syncs,
    ThreadReport,
    Verdict,
    Window,
)
from boundby.stats.device import KernelFigures, copies_by_region, device_gaps, kernel_figures, operations_in_windows
from boundby.stats.figures import Figures
from boundby.stats.host import (
    blocked_inside,
    calls_between,
    cpu_time_inside,
    launching_thread,
    logical_thread_active,
    logical_thread_cpu_time,
    staging_between,
)
from boundby.stats.instances import instances as instances_of
from boundby.stats.spread import Spread
from boundby.structure.found import is_found
from boundby.verdict.checklist import because, checklist, host_because
from boundby.verdict.confidence import Confidence, host_confidence, judge
from boundby.verdict.verdict import Decision, decide, decide_host, is_saturated


def devices(timeline: Timeline, figures: Figures, replayed: Counterfactuals) -> tuple[DeviceReport, ...]:
    """One report per device that did work."""
    return tuple(_device(timeline, figures, device, replayed) for device in timeline.devices)


def _device(timeline: Timeline, figures: Figures, device: DeviceTimeline, replayed: Counterfactuals) -> DeviceReport:
    trace = timeline.trace
    chosen = operations_in_windows(timeline, [device])
    chosen = replace(chosen, region=np.zeros_like(chosen.region))  # everything at the root
    kernels = kernel_figures(timeline, chosen)
    copies = copies_by_region(timeline, chosen)[ROOT]
    by_cause = device.segments.by_cause()
    time = {cause: int(by_cause[cause]) for cause in CAUSES}
    window = device.high_ns - device.low_ns
    gaps = device_gaps(device)
    thread = launching_thread(timeline.calls, device)
    cpu = logical_thread_cpu_time(timeline, thread, device.low_ns, device.high_ns) if thread is not None else None
    active = logical_thread_active(timeline, thread, device.low_ns, device.high_ns).total if thread is not None else 0
    processes = np.unique(device.operations.table.process)
    calls = calls_between(timeline, processes, device.low_ns, device.high_ns)
    has_calls = trace.captured.cuda_api
    api = ApiCalls(calls.count, calls.total_ns, _rate(calls.count, window) if has_calls else None)
    sync = Syncs(calls.syncs, calls.blocked_ns, _rate(calls.syncs, window) if has_calls else None)
    savings = None if replayed.unreliable else replayed.device.get(device.index)
    decision = decide(
        time, active, replayed=savings, following=replayed.following.get(device.index) if savings else None
    )
    confidence = judge(
        decision,
        time,
        trace.captured,
        unreliable=replayed.unreliable,
        operations=len(chosen.rows),
        clock_shifted=device.shift.shift_ns != 0,
        has_cpu_evidence=thread is not None and timeline.host_state.evidence(thread).is_known,
    )
    utilization = cpu[0] / cpu[1] if cpu and cpu[1] else None
    idle_on = _by_size(figures.host.idle_on_ns, ROOT)
    clause = because(decision, time, instances=1, sync=sync, api=api, memcpy=copies, blocked_on=idle_on)
    gpu = trace.gpus[device.index]
    return DeviceReport(
        id=gpu.id,
        name=gpu.name,
        window=Window(device.low_ns - device.shift.shift_ns, device.high_ns - device.shift.shift_ns),
        busy_ns=window - gaps.total_ns,
        idle_ns=gaps.total_ns,
        startup_ns=max(device.low_ns - trace.span_ns[0], 0),
        shutdown_ns=max(trace.span_ns[1] - device.high_ns, 0),
        time={cause.key: time[cause] for cause in CAUSES},
        gaps=gaps,
        kernels=_kernels(kernels, ROOT),
        graphs=_graphs(kernels, ROOT),
        api=api,
        sync=sync,
        memcpy=copies,
        launch_latency=_latency(kernels, ROOT),
        queue_depth_median=_number(kernels.queue_median[ROOT]),
        queue_depth_max=int(chosen.queue.max()) if (chosen.queue >= 0).any() else None,
        cpu_utilization=utilization,
        host_active_ns=active if thread is not None else None,
        verdict=replace(
            _verdict(decision, confidence, clause, is_replayed=savings is not None),
            without_ns=replayed.alone_ns(device.index, decision.bound) if savings else None,
        ),
        checklist=checklist(
            time,
            gaps,
            api,
            sync,
            copies,
            utilization,
            active,
            window,
            staging_ns=staging_between(timeline, processes, device.low_ns, device.high_ns),
            bounds=decision.mixed_of or (decision.bound,),
        ),
        clock_shift_ns=device.shift.shift_ns,
        processes=tuple(trace.processes[number].pid for number in processes.tolist() if number >= 0),
    )


def threads(timeline: Timeline) -> tuple[ThreadReport, ...]:
    """One report per annotated thread, for traces without GPU work."""
    found = []
    for account in timeline.threads:
        record = timeline.trace.threads[account.thread]
        by_cause = account.segments.by_cause()
        time = {cause: int(by_cause[cause]) for cause in CAUSES}
        cpu = cpu_time_inside(timeline, account.thread, account.covered)
        blocked = blocked_inside(timeline, account.thread, account.covered)
        known = timeline.host_state.evidence(account.thread).is_known or cpu is not None
        confidence = host_confidence(time, has_cpu_evidence=known)
        found.append(
            ThreadReport(
                pid=record.pid,
                tid=record.tid,
                name=record.name,
                total_ns=account.total_ns,
                time={cause.key: time[cause] for cause in CAUSES},
                blocked_on=blocked,
                cpu_utilization=cpu[0] / cpu[1] if cpu and cpu[1] else None,
                # What a thread alone would save says nothing about what waits for it.
                verdict=replace(
                    _verdict(decide(time, 0), confidence, host_because(time, blocked), is_replayed=False),
                    saving_ns=None,
                    runner_up=None,
                    runner_up_saving_ns=None,
                    bound_next=None,
                ),
            )
        )
    return tuple(found)


def regions(
    timeline: Timeline, figures: Figures, replayed: Counterfactuals, *, glob: str | None = None, min_share: float = 0.0
) -> tuple[RegionReport, ...]:
    """Every region that counts, depth first, siblings by time. The root comes first, with path ().

    ``glob`` keeps regions that match and what lies in them; ``min_share`` drops those below it.
    """
    tree = timeline.ownership.regions
    total = figures.inclusive.sum(axis=1)
    present = (figures.host_spread.count > 0) | (total > 0)
    children: dict[int, list[int]] = {}
    for region in range(1, len(tree)):
        children.setdefault(int(tree.parent[region]), []).append(region)
    ordered: list[int] = []
    pending = [ROOT]
    while pending:
        region = pending.pop()
        if region == ROOT or present[region]:
            ordered.append(region)
        below = children.get(region, [])
        below.sort(key=lambda child: (total[child], figures.host_spread.total[child], -child))
        pending.extend(below)
    if glob is not None:
        kept: set[int] = set()
        for region in ordered:
            if region_matches(tree, region, glob) or int(tree.parent[region]) in kept:
                kept.add(region)
        ordered = [region for region in ordered if region == ROOT or region in kept]
    least = min_share * timeline.total_ns
    most: dict[int, dict[str, int]] = {}  # what removing each cause in a region would save at most
    found = []
    for region in ordered:
        if region == ROOT or total[region] >= least:
            report, most[region] = _region(timeline, figures, region, most.get(int(tree.parent[region])), replayed)
            found.append(report)
    return tuple(found)


def _region(
    timeline: Timeline, figures: Figures, region: int, most: dict[str, int] | None, replayed: Counterfactuals
) -> tuple[RegionReport, dict[str, int]]:
    trace, host, tree = timeline.trace, figures.host, timeline.ownership.regions
    time = {cause: int(figures.inclusive[region, cause]) for cause in CAUSES}
    is_root = region == ROOT
    instances = 1 if is_root else int(figures.host_spread.count[region])
    host_ns = timeline.total_ns if is_root else int(figures.host_spread.total[region])
    active_ns = figures.root_active_ns if is_root else int(host.active_ns[region])
    api, sync = _host_calls(figures, region, host_ns, captured=trace.captured.cuda_api)
    blocked, idle_on = _by_size(host.os_blocked_ns, region), _by_size(host.idle_on_ns, region)
    found = None if replayed.unreliable else replayed.region.get(region)
    if is_root and len(timeline.devices) == 1 and not replayed.unreliable:
        found = replayed.device.get(timeline.devices[0].index)
    decision = decide(
        time,
        active_ns,
        None if found else most,
        replayed=found,
        saturated=_all_saturated(timeline, replayed) if found else None,
    )
    savings = {saving.cause: saving.saving_ns for saving in decision.savings}
    if decision.bound == "hidden" and not figures.operation_count[region]:
        decision = decide_host(host_ns, active_ns, api, sync, sum(blocked.values()))
    if decision.bound == "unknown" and found and not is_root and 2 * _unexplained(time) < sum(time.values()):
        decision = replace(decision, bound="hidden")  # replayed without each of its causes, the program takes as long
    known = bool(host.cpu_of_ns[region]) or trace.captured.osrt
    if timeline.devices:
        confidence = judge(
            decision,
            time,
            trace.captured,
            unreliable=None,
            operations=int(figures.operation_count[region]),
            clock_shifted=any(device.shift.shift_ns for device in timeline.devices),
            has_cpu_evidence=known,
        )
        clause = because(
            decision, time, instances=instances, sync=sync, api=api, memcpy=figures.copies[region], blocked_on=idle_on
        )
    else:
        confidence = host_confidence(time, has_cpu_evidence=known)
        clause = host_because(time, idle_on)
    projected, kernels = figures.projected, figures.kernels
    gaps = (projected.gap_count[region], projected.gap_ns[region], projected.longest_gap_ns[region])
    report = RegionReport(
        path=tree.path(region),
        domain=tree.domain[region],
        instances=instances,
        host=_whole(timeline.total_ns) if is_root else _distribution(figures.host_spread, region),
        projected=_distribution(figures.projected_spread, region) if figures.projected_spread.count[region] else None,
        time={cause.key: time[cause] for cause in CAUSES},
        time_exclusive={cause.key: int(figures.exclusive[region, cause]) for cause in CAUSES},
        verdict=_verdict(decision, confidence, clause, is_replayed=found is not None),
        gpu_utilization=_ratio(projected.projected_busy_ns[region], projected.projected_ns[region]),
        gpu_utilization_host=_ratio(projected.host_busy_ns[region], projected.host_ns[region]),
        cpu_utilization=_ratio(host.cpu_ns[region], host.cpu_of_ns[region]),
        gaps=Gaps(*(int(value) for value in gaps)),
        api=api,
        sync=sync,
        memcpy=figures.copies[region],
        kernels=_kernels(kernels, region),
        graphs=_graphs(kernels, region),
        launch_latency=_latency(kernels, region),
        queue_depth_median=_number(kernels.queue_median[region]),
        blocked_on=blocked,
        share=sum(time.values()) / timeline.total_ns if timeline.total_ns else 0.0,
        threads=int(host.threads[region]),
        open_instances=int(figures.open_instances[region]),
        found=is_found(tree.domain[region]),
        instance_ns=_instances(timeline, figures, region, host_ns),
    )
    return report, savings


def _instances(timeline: Timeline, figures: Figures, region: int, host_ns: int) -> Instances:
    if region == ROOT:
        return Instances()
    time = max(int(figures.inclusive[region].sum()), host_ns)
    share = time / timeline.total_ns if timeline.total_ns else 0.0
    return instances_of(figures.host_series, figures.projected_series, region, share)


def _unexplained(time: Mapping[Cause, int]) -> int:
    """Time of causes that no change to the program removes."""
    return time[Cause.DEVICE_WAIT] + time[Cause.PROFILER] + time[Cause.UNATTRIBUTED]


def _all_saturated(timeline: Timeline, replayed: Counterfactuals) -> bool:
    """True if every device is: then regions are judged on the devices' own work."""
    accounts = [(device.index, device.segments.by_cause()) for device in timeline.devices]
    return all(
        is_saturated({cause: int(total[cause]) for cause in CAUSES}, replayed.device.get(index))
        for index, total in accounts
    )


def _host_calls(figures: Figures, region: int, host_ns: int, *, captured: bool) -> tuple[ApiCalls, Syncs]:
    calls, syncs = int(figures.host.api_calls[region]), int(figures.host.syncs[region])
    has_rate = captured and host_ns > 0
    return (
        ApiCalls(calls, int(figures.host.api_ns[region]), _rate(calls, host_ns) if has_rate else None),
        Syncs(syncs, int(figures.host.blocked_ns[region]), _rate(syncs, host_ns) if has_rate else None),
    )


def _whole(total_ns: int) -> Distribution:
    return Distribution(1, total_ns, float(total_ns), float(total_ns), float(total_ns), total_ns)


def _distribution(values: Spread, region: int) -> Distribution:
    count, total = int(values.count[region]), int(values.total[region])
    if count == 0:
        return Distribution(0, 0, 0.0, 0.0, 0.0, 0)
    median, p95 = float(values.median[region]), float(values.p95[region])
    return Distribution(count, total, total / count, median, p95, int(values.longest[region]))


def _kernels(figures: KernelFigures, region: int) -> Kernels:
    return Kernels(int(figures.count[region]), int(figures.total_ns[region]), _number(figures.median_ns[region]))


def _graphs(figures: KernelFigures, region: int) -> Kernels | None:
    count = int(figures.graphs[region])
    return Kernels(count, int(figures.graph_ns[region]), _number(figures.graph_median_ns[region])) if count else None


def _latency(figures: KernelFigures, region: int) -> LaunchLatency | None:
    median, p95 = _number(figures.latency_median_ns[region]), _number(figures.latency_p95_ns[region])
    return None if median is None or p95 is None else LaunchLatency(median, p95)


def _verdict(decision: Decision, confidence: Confidence, clause: str, *, is_replayed: bool) -> Verdict:
    named = decision.mixed_of[0] if decision.mixed_of else decision.bound
    gains = tuple(saving for saving in decision.savings if saving.saving_ns > 0)
    is_decided = decision.bound not in ("hidden", "unknown")
    second = next((saving for saving in gains if saving.cause != named), None) if is_decided else None
    return Verdict(
        bound=decision.bound,
        confidence=confidence.level,
        reasons=confidence.reasons,
        saving_ns=next((saving.saving_ns for saving in decision.savings if saving.cause == named), None),
        runner_up=second.cause if second else None,
        runner_up_saving_ns=second.saving_ns if second else None,
        bound_next=decision.bound_next,
        mixed_of=decision.mixed_of,
        because=clause,
        savings=gains,
        decided_by="replay" if is_replayed else "account",
    )


def _by_size(values: Mapping[str, npt.NDArray[np.int64]], region: int) -> dict[str, int]:
    """One region's entries, largest first."""
    found = {what: int(by_region[region]) for what, by_region in values.items() if by_region[region]}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _rate(count: int, ns: int) -> float:
    return count / (ns / 1e6)


def _ratio(part: np.int64, whole: np.int64) -> float | None:
    return float(part) / float(whole) if whole else None


def _number(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
