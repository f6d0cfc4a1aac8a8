"""Put figures and verdicts together: devices, threads and regions as the report holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from boundby.attribution.account import ThreadAccount
from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.attribution.windows import region_matches
from boundby.claims.bound import (
    BoundCase,
    CaseRecords,
    Host,
    MissingRecords,
    Otherwise,
    Replay,
    is_saturated,
    staying_ns,
    unshown_sleep_ns,
)
from boundby.claims.confidence import MUCH_UNWOKEN
from boundby.claims.doubt import CHANCE, LITTLE
from boundby.claims.laws import Claim, up_to, without
from boundby.claims.phases import find_phases, judge_steady, one_time_parts, split_off_steady
from boundby.claims.signs import Signs, checklist
from boundby.claims.verdict import judge
from boundby.model import stage
from boundby.model.arrays import unique
from boundby.model.causes import BUSY_CAUSES, CAUSE_KEYS, CAUSES, SCENARIO_OF_CAUSE, SCENARIOS, Cause
from boundby.model.intervals import clip
from boundby.model.scale import HALF, NEARLY_ALL, NEGLIGIBLE
from boundby.model.units import percent, plural
from boundby.replay.counterfactuals import Counterfactuals
from boundby.replay.predictor import Predictor
from boundby.replay.questions import Answer
from boundby.replay.trust import OpenRange
from boundby.results.report import (
    CONFIDENCES,
    ApiCalls,
    Communication,
    Copies,
    Coverage,
    DeviceReport,
    Distribution,
    Gaps,
    Instances,
    Kernels,
    LaunchLatency,
    RegionReport,
    Syncs,
    ThreadReport,
    Top,
    Verdict,
    WhatIf,
    Window,
)
from boundby.stats.device_figures import (
    KernelFigures,
    calls_by_name,
    copies_by_region,
    device_gaps,
    kernel_figures,
    operations_in_windows,
    top_calls,
    top_kernels,
)
from boundby.stats.figures import Figures
from boundby.stats.host import (
    WindowCalls,
    asleep_for_nobody,
    blocked_inside,
    calls_of,
    cpu_time_inside,
    figures_of_calls,
    launching_thread,
    logical_thread_active,
    logical_thread_cpu_time,
    paging,
    preempted,
    preempted_within,
    spent_within,
    staging,
    unwoken,
    waited_in,
)
from boundby.stats.instances import RegionSpread
from boundby.stats.instances import instances as instances_of
from boundby.structure.found import is_found
from boundby.trace.program import is_end_unclear
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.cuda import CallWork

# A gap of so much of the window, with no more than this part of all operations and of their time on one side of it:
# these are no part of what the program does.
STRETCHED = HALF
_NOTHING = dict.fromkeys(CAUSES, 0)
_SLEEP = SCENARIO_OF_CAUSE[Cause.HOST_BLOCKED.key]
_ONE_OF_TWO = ({Cause.CPU.key}, {Cause.HOST_BLOCKED.key})


class _Activity(TypedDict):
    """The plain figures beside the account, which devices and regions have alike."""

    gaps: Gaps
    kernels: Kernels
    graphs: Kernels | None
    api: ApiCalls
    sync: Syncs
    memcpy: Mapping[str, Copies]
    launch_latency: LaunchLatency | None
    queue_depth_median: float | None


class _Alike(_Activity):
    """What reports of devices and regions have alike."""

    verdict: Verdict
    time: Mapping[str, int]
    cpu_utilization: float | None
    host_active_ns: int | None
    exposed_by_waits_ns: int | None
    coverage: Coverage
    preempted_ns: int
    communication: Communication | None


class _Row(Struct, frozen=True, kw_only=True):
    """A device, which is the root of its own tree, or a region: what both are judged and told by."""

    by_cause: npt.NDArray[np.int64]
    operations: int
    activity: _Activity
    host: Host
    cpu_utilization: float | None
    records: CaseRecords
    missing: MissingRecords
    savings: Mapping[str, int] | None  # by cause, by a replay; None: none that could be trusted
    replay: Replay

    @property
    def case(self) -> BoundCase:
        """What the verdict is decided from, but for what only one of the two has."""
        return BoundCase(
            time=_time(self.by_cause),
            operations=self.operations,
            api=self.activity["api"],
            sync=self.activity["sync"],
            memcpy=self.activity["memcpy"],
            replayed=_shown(self.savings, self.by_cause),
            beside_ns=_beside_ns(self.activity, self.by_cause),
            host=self.host,
            records=self.records,
            replay=self.replay,
            missing=self.missing,
        )

    def told(self, case: BoundCase, verdict: Verdict, communication: Communication | None) -> _Alike:
        """What the report says of it."""
        return {
            **self.activity,
            "verdict": verdict,
            "time": _by_key(case.time),
            "cpu_utilization": self.cpu_utilization,
            "host_active_ns": case.host.active_ns,
            "exposed_by_waits_ns": self.savings["sync"] if self.savings else None,
            "coverage": _coverage(case),
            "preempted_ns": case.host.preempted_ns,
            "communication": communication,
        }


def devices(
    timeline: Timeline, figures: Figures, replayed: Counterfactuals, predictor: Predictor | None = None
) -> tuple[DeviceReport, ...]:
    """One report per device that did work. ``predictor``: that of the replays, to look at parts of the window."""
    return tuple(_device(timeline, figures, device, replayed, predictor) for device in timeline.devices)


def _device(
    timeline: Timeline,
    figures: Figures,
    device: DeviceTimeline,
    replayed: Counterfactuals,
    predictor: Predictor | None,
) -> DeviceReport:
    trace, launching, chosen = timeline.trace, _launching(timeline, device), calls_of(timeline, device)
    queue_most, row = _device_row(timeline, figures, device, replayed, launching, chosen)
    case = replace(
        row.case,
        following=replayed.following.get(device.index) if row.savings else None,
        costliest_wait_ns=int(device.gaps.sync_ns.max(initial=0)),
    )
    verdict = judge(case)
    part = partial(_part_of, case, launching.thread)
    of_parts = predictor if verdict.decided_by == "replay" and (row.savings or replayed.undelayed) else None
    steps = split_off_steady(timeline, device)
    signs = Signs(case, row.activity["gaps"], launching.utilization, staging(timeline, chosen))
    idle_ns = row.activity["gaps"].total_ns
    facts = row.told(case, verdict, figures.communication.of_device.get(device.index))
    facts["host_active_ns"] = launching.active_ns  # None: no thread on record launches
    return DeviceReport(
        id=trace.gpus[device.index].id,
        name=trace.gpus[device.index].name,
        window=Window(device.low_ns - device.shift.shift_ns, device.high_ns - device.shift.shift_ns),
        busy_ns=device.high_ns - device.low_ns - idle_ns,
        idle_ns=idle_ns,
        startup_ns=max(device.low_ns - trace.span_ns[0], 0),
        shutdown_ns=max(trace.span_ns[1] - device.high_ns, 0),
        queue_depth_max=queue_most,
        checklist=checklist(signs, verdict.mixed_of or (verdict.bound,)),
        clock_shift_ns=device.shift.shift_ns,
        phases=find_phases(timeline, device, case, verdict, of_parts, part),
        steady=judge_steady(timeline, device, steps, of_parts, part) if steps and steps.is_judged else None,
        one_time=one_time_parts(timeline, device, steps) if steps else (),
        doubts=replayed.doubts.get(device.index, ()),
        memory=figures.memory.of_device.get(device.index),
        counters=figures.counters.of_device.get(device.index),
        processes=tuple(trace.processes[number].pid for number in _processes(device)),
        **facts,
    )


def _device_row(
    timeline: Timeline,
    figures: Figures,
    device: DeviceTimeline,
    replayed: Counterfactuals,
    launching: _Launching,
    chosen: WindowCalls,
) -> tuple[int | None, _Row]:
    """A device as a row, and how many operations waited for it at most. ``chosen``: the calls in its window."""
    count, kernels, copies, longest = _work_of(timeline, figures, device)
    calls = figures_of_calls(timeline, chosen)
    activity = _activity(
        kernels,
        ROOT,
        gaps=device_gaps(device),
        memcpy=copies,
        api=[calls.count, calls.total_ns] * 2,
        sync=(calls.syncs, calls.blocked_ns),
        over_ns=device.high_ns - device.low_ns if timeline.trace.captured.cuda_api else 0,
        tops=(longest, top_calls(timeline, calls_by_name(timeline, chosen, np.zeros(calls.count, np.int64)))[ROOT]),
    )
    savings = None if replayed.unreliable else replayed.device.get(device.index)
    return kernels.queue_most, _Row(
        by_cause=device.segments.by_cause(),
        operations=count,
        activity=activity,
        host=_host_of(timeline, figures, device, launching),
        cpu_utilization=launching.utilization,
        records=_records_of(timeline, device, knows_host=launching.is_known),
        missing=_missing_of(timeline, device, replayed, activity),
        savings=savings,
        replay=_replay_of(replayed, device, _predictions(timeline, replayed, device) if savings else {}),
    )


def _processes(device: DeviceTimeline) -> list[int]:
    """Of the work of a device."""
    processes = unique(device.operations.table.process)
    ids: list[int] = processes[processes >= 0].tolist()
    return ids


class _Launching(Struct, frozen=True):
    """The thread that launches on a device, and what it did in the window; of none, nothing."""

    thread: int | None = None
    is_known: bool = False  # whether it was on a CPU or asleep
    utilization: float | None = None
    active_ns: int | None = None
    spent_ns: Mapping[Cause, int] = field(default_factory=dict)
    asleep_for_nobody_ns: int = 0
    off_core_ns: int = 0


def _launching(timeline: Timeline, device: DeviceTimeline) -> _Launching:
    thread, by_frames = launching_thread(timeline.calls, device), timeline.trace.is_told_by_frames
    if thread is None:
        return _Launching(is_known=by_frames)
    span = device.low_ns, device.high_ns
    cpu = logical_thread_cpu_time(timeline, thread, *span)
    return _Launching(
        thread=thread,
        is_known=by_frames or timeline.host_state.evidence(thread).is_known,
        utilization=cpu[0] / cpu[1] if cpu and cpu[1] else None,
        active_ns=logical_thread_active(timeline, thread, *span).total,
        spent_ns=spent_within(timeline, thread, *span),
        asleep_for_nobody_ns=asleep_for_nobody(timeline, thread, *span),
        off_core_ns=preempted_within(timeline, thread, *span),
    )


def _work_of(
    timeline: Timeline, figures: Figures, device: DeviceTimeline
) -> tuple[int, KernelFigures, dict[str, Copies], tuple[Top, ...]]:
    """How many operations a device ran, its kernels, its copies, and the kernels with most time: figures at the root,
    which holds just these where there is no other device."""
    if len(timeline.devices) == 1:
        return int(figures.kernels.operations[ROOT]), figures.kernels, figures.copies[ROOT], figures.top_kernels[ROOT]
    chosen = operations_in_windows(timeline, [device])
    chosen = replace(chosen, region=np.zeros_like(chosen.region))
    copies, longest = copies_by_region(timeline, chosen)[ROOT], top_kernels(timeline, chosen)[ROOT]
    return len(chosen.region), kernel_figures(timeline, chosen), copies, longest


def _host_of(timeline: Timeline, figures: Figures, device: DeviceTimeline, launching: _Launching) -> Host:
    """What the thread that launches on a device did."""
    return Host(
        active_ns=launching.active_ns or 0,
        spent_ns=launching.spent_ns,
        off_core_ns=launching.off_core_ns,
        blocked_on=_by_size(figures.host.idle_on_ns, ROOT),
        waited_in=waited_in(timeline, device.segments),
        preempted_ns=int(preempted(timeline, device.segments).sum()),
        paging_ns=int(paging(timeline, device.segments).sum()),
        asleep_for_nobody_ns=launching.asleep_for_nobody_ns,
        unwoken_ns=int(unwoken(timeline, device.segments).sum()),
    )


def _records_of(timeline: Timeline, device: DeviceTimeline, *, knows_host: bool) -> CaseRecords:
    """What the records of a device's window are worth."""
    trace, is_whole = timeline.trace, timeline.window.kind == "gpu" and not timeline.window.skip_first
    begins_ns, ends_ns = trace.confirmed_ns
    return _records(
        trace,
        has_cpu_evidence=knows_host,
        unconfirmed_ns=max(begins_ns - device.low_ns, 0) + max(device.high_ns - ends_ns, 0),
        is_clock_shifted=device.shift.shift_ns != 0,
        clock_ahead_ns=device.shift.unshown_ns,
        is_end_unclear=is_end_unclear(trace),
        stretched=_stretched(device, knows_host) if is_whole else None,
    )


def _records(trace: Trace, **own: Any) -> CaseRecords:
    """What all records are worth, and what else is known of those of one device or region."""
    made = CaseRecords(captured=trace.captured, is_damaged=trace.is_damaged, is_unbelievable=trace.is_unbelievable)
    return replace(made, **own)


def _replay_of(replayed: Counterfactuals, device: DeviceTimeline, told: Mapping[str, WhatIf]) -> Replay:
    """What the replay says of a device, beside its savings. ``told``: predictions; empty: none can be trusted."""
    undelayed = replayed.undelayed
    return Replay(
        predicted=told,
        unreliable=replayed.unreliable,
        delayed=(replayed.device[device.index], undelayed.device[device.index]) if undelayed else None,
        unexplained=replayed.delayed.get(device.index, {}),
    )


def _missing_of(
    timeline: Timeline, device: DeviceTimeline, replayed: Counterfactuals, activity: _Activity
) -> MissingRecords:
    """What is not on record of a device's work, of the calls for it, and of who made them."""
    losses, filled, number = timeline.losses, replayed.filled, device.index
    missing, processes = losses.of_device(number), unique(device.operations.table.process)
    before_ns = int((device.low_ns - losses.begin_ns[missing]).max(initial=0))
    otherwise = None
    if filled is not None and number in filled.device_ns:
        otherwise = _filled(replayed, filled.device_ns[number], filled.replayed.device.get(number))
    return MissingRecords(
        opaque_ns=activity["graphs"].total_ns if activity["graphs"] else 0,
        is_cpu_thinned=any(timeline.host_state.evidence(thread).is_thinned for thread in _told_of(device)),
        work=_time(device.withheld.work.by_cause()),
        calls=_time(device.withheld.calls.by_cause()),
        unsure_ns=device.withheld.unsure_ns,
        filled=otherwise,
        kinds=_lost_kinds(timeline, missing, number),
        launches=losses.launches_of(number),
        lost=losses.lost_of(number),
        lost_before=len(unique(losses.call[missing[losses.begin_ns[missing] < device.low_ns]])),
        lost_before_ns=clip(losses.spans(number), timeline.trace.span_ns[0], device.low_ns).total,
        before_ns=before_ns if timeline.window.kind == "gpu" else 0,
        calls_fraction=_calls_lost(losses.calls_lost_fraction, processes),
        uncalled=sum(losses.uncalled[process] for process in _processes(device)),
        silent_ns=_silent_ns(timeline, processes),
        unseen_ns=_unseen_ns(timeline, device),
    )


def _unseen_ns(timeline: Timeline, device: DeviceTimeline) -> int:
    """For how long of its window a device's counters show it at work while no operation is on record."""
    return clip(timeline.losses.unseen[device.index], device.low_ns, device.high_ns).total


def _told_of(device: DeviceTimeline) -> list[int]:
    """Threads of which the account of a device tells."""
    threads = unique(device.segments.thread)
    ids: list[int] = threads[threads >= 0].tolist()
    return ids


def _part_of(
    case: BoundCase, thread: int | None, half: Timeline, device: DeviceTimeline, saved: dict[str, int] | None
) -> BoundCase:
    """The case of a part of the window: what of the whole's tells only why is left as it was."""
    own, withheld = device.segments.by_cause(), device.withheld
    active = None if thread is None else logical_thread_active(half, thread, device.low_ns, device.high_ns)
    return replace(
        case,
        time=_time(own),
        operations=int(device.is_inside.sum()),
        replayed=_shown(saved, own),
        following=None,
        costliest_wait_ns=int(device.gaps.sync_ns.max(initial=0)),
        host=replace(case.host, active_ns=0 if active is None else active.total),
        records=replace(case.records, stretched=None),
        replay=replace(case.replay, predicted={}, delayed=None),
        missing=replace(
            case.missing,
            work=_time(withheld.work.by_cause()),
            calls=_time(withheld.calls.by_cause()),
            unsure_ns=withheld.unsure_ns,
            unseen_ns=_unseen_ns(half, device),
            filled=None,
        ),
    )


def prediction(timeline: Timeline, replayed: Counterfactuals, device: DeviceTimeline, scenario: str) -> WhatIf:
    """A device's window under a scenario, and its range: what the trace leaves open; where records are missing, the
    device busy whenever lost work may have run, off by the time in which calls are missing, and by what may hang on
    any of them."""
    length, filled = device.high_ns - device.low_ns, replayed.filled
    reach, number = replayed.between[device.index][scenario], timeline.trace.gpus[device.index].id
    reach = reach.up_to(length)  # a removal never lengthens
    if filled is not None and device.index in filled.replayed.between:
        other = max(filled.replayed.predicted_ns[device.index][scenario], min(reach.told_ns, reach.floor_ns))
        other, otherwise = min(other, length), filled.replayed.between[device.index][scenario]
        reach = reach.reaching("lost-work", min(otherwise.low_ns, other), min(max(otherwise.high_ns, other), length))
        if int(device.withheld.work.length_ns.sum()) <= LITTLE * length:
            reach = reach.told_as(other, "lost-work")
        reach = reach._replace(floor_ns=min(reach.floor_ns, reach.told_ns, other))
    reach = _widened(timeline, replayed, device, reach, frozenset(SCENARIOS[scenario].causes))
    confidence = reach.confidence_of(length)
    return WhatIf(scenario, reach.told_ns, length, number, reach.least_ns, reach.high_ns, confidence, reach.told)


def widened(
    timeline: Timeline, replayed: Counterfactuals, device: DeviceTimeline, answer: Answer, causes: AbstractSet[str]
) -> Answer:
    """The answer to a question that is no named scenario, with what missing records leave open. ``causes``: those that
    are removed."""
    reach = _widened(timeline, replayed, device, OpenRange(answer.predicted_ns, answer.uncertainties), causes)
    worst = max(map(CONFIDENCES.index, (answer.confidence, reach.confidence_of(answer.baseline_ns))))
    confidence, open_parts = CONFIDENCES[worst], reach.told
    return replace(
        answer, low_ns=reach.least_ns, high_ns=reach.high_ns, confidence=confidence, uncertainties=open_parts
    )


def _widened(
    timeline: Timeline, replayed: Counterfactuals, device: DeviceTimeline, found: OpenRange, causes: AbstractSet[str]
) -> OpenRange:
    """The range of a prediction with what is not on record: calls, work, who woke whom."""
    length, unknown = device.high_ns - device.low_ns, device.withheld.unsure_ns
    if found.told_ns < length and (weight := _lost_weight(timeline, device)):
        low, high = found.low_ns, found.high_ns
        found = found.reaching("lost-work", round(low * (1 - weight)), round(high + max(length - high, 0) * weight))
    slept_ns = max(length - replayed.predicted_ns[device.index][_SLEEP], 0)
    if causes in _ONE_OF_TWO and _much_unwoken(timeline, device):
        # Who made what the host slept for is not on record: work is gone with one cause, sleep with the other.
        is_work = Cause.CPU.key in causes
        found = found.reaching(
            "unwoken", max(found.low_ns - slept_ns, 0) if is_work else None, None if is_work else length
        )
    if Cause.HOST_BLOCKED.key in causes:
        by_cause, waitless_ns = (
            device.segments.by_cause(),
            replayed.predicted_ns[device.index][SCENARIO_OF_CAUSE[Cause.SYNC.key]],
        )
        staying = staying_ns(int(by_cause[Cause.SYNC]), {Cause.SYNC.key: length - waitless_ns})
        unshown_ns = unshown_sleep_ns(int(by_cause[Cause.HOST_BLOCKED]) + staying, slept_ns)
        found = found.reaching("idle-sleeps", None, min(found.high_ns + unshown_ns, length))
    if unseen_ns := _unseen_ns(timeline, device):  # what ran may last as long without the cause
        found = found.reaching("unseen", None, min(found.high_ns + unseen_ns, max(length, found.told_ns)), steps=2)
    most_ns = min(found.high_ns + unknown, max(length, found.told_ns))
    found = found.reaching("lost-calls", max(found.low_ns - unknown, 0), most_ns)
    return found.reaching("clock", steps=2 if device.shift.unshown_ns else 0)


def _much_unwoken(timeline: Timeline, device: DeviceTimeline) -> bool:
    """Whether the host waits for threads that are not on record for much of what it sleeps."""
    unwoken_ns = int(unwoken(timeline, device.segments).sum())
    return unwoken_ns > 0 and unwoken_ns > MUCH_UNWOKEN * int(device.segments.by_cause()[Cause.HOST_BLOCKED])


def _lost_weight(timeline: Timeline, device: DeviceTimeline) -> float:
    """What part of a change may hang on launches and calls that are not on record: more than their part of all, since
    one wait or copy decides on many others."""
    losses, processes = timeline.losses, unique(device.operations.table.process)
    lost = int((losses.begin_ns[losses.of_device(device.index)] >= device.low_ns).sum())
    launches = losses.launches_of(device.index) if lost else 1
    parts = [lost / max(launches, 1), _calls_lost(losses.calls_lost_fraction, processes)]
    return min(CHANCE * max(*parts, _calls_lost(losses.waits_lost_fraction, processes)), 1.0)


def _predictions(timeline: Timeline, replayed: Counterfactuals, device: DeviceTimeline) -> dict[str, WhatIf]:
    """By scenario; empty where nothing was replayed."""
    return {
        scenario: prediction(timeline, replayed, device, scenario)
        for scenario in replayed.predicted_ns.get(device.index, {})
    }


def _shown(saved: Mapping[str, int] | None, by_cause: npt.NDArray[np.int64]) -> Mapping[str, int] | None:
    """Savings, that of sleeps as far as idle time shows it."""
    key = Cause.HOST_BLOCKED.key
    if saved is None or key not in saved:
        return saved
    idle_ns = int(by_cause[Cause.HOST_BLOCKED]) + staying_ns(int(by_cause[Cause.SYNC]), saved)
    return {**saved, key: saved[key] - unshown_sleep_ns(idle_ns, saved[key])}


def _filled(replayed: Counterfactuals, time: npt.NDArray[np.int64], savings: Mapping[str, int] | None) -> Otherwise:
    """An account, and what was replayed of it, had the device been busy whenever lost work may have run."""
    trusted = replayed.filled is not None and replayed.filled.replayed.unreliable is None
    return Otherwise(_time(time), savings if trusted else None)


def _silent_ns(timeline: Timeline, processes: npt.NDArray[np.int32]) -> int:
    """How long before the end of the trace calls of these processes stop on record while ranges that call go on."""
    silent = (timeline.losses.silent_from_ns[number] for number in processes.tolist() if number >= 0)
    return max((timeline.trace.span_ns[1] - since for since in silent if since is not None), default=0)


def _coverage(case: BoundCase) -> Coverage:
    idle = case.window_ns - sum(case.time[cause] for cause in BUSY_CAUSES)
    return Coverage(
        1 - case.missing.lost / case.missing.launches if case.missing.launches else None,
        1 - case.time[Cause.UNATTRIBUTED] / idle if idle else None,
        case.missing.launches,
        case.missing.lost,
        sum(case.missing.work.values()) + sum(case.missing.calls.values()),
        case.missing.calls_fraction,
        case.missing.uncalled,
        case.missing.before_ns,
        case.missing.is_cpu_thinned,
        case.missing.unseen_ns,
    )


def _lost_kinds(timeline: Timeline, rows: npt.NDArray[np.intp], *devices: int) -> tuple[Cause, ...]:
    """What the work of these lost launches may have been, and that which counters show on these devices."""
    is_copy = timeline.losses.work[rows] >= CallWork.COPY
    kinds = [Cause.GPU_COPY] if is_copy.any() else []
    if not is_copy.all() or any(len(timeline.losses.unseen[device].start) for device in devices):
        kinds += [Cause.GPU_COMPUTE, *([Cause.GPU_COMM] if timeline.trace.operations.is_communication.any() else [])]
    return tuple(kinds)


def _calls_lost(fractions: tuple[float, ...], processes: npt.NDArray[np.int32]) -> float:
    """The part that is missing of the calls of these processes, of those that left other records."""
    return max((fractions[number] for number in processes.tolist() if number >= 0), default=0.0)


def _stretched(device: DeviceTimeline, knows_host: bool) -> str | None:
    """Why a window does not hold what it is said to be of: a few operations lie far from all others, and what the host
    did in between is not on record. ``knows_host``: whether on-CPU and asleep can be told apart."""
    if (span := span_of_work(device)) is None:
        return None
    longest = int(device.gaps.length_ns.argmax())
    gap_ns = int(device.gaps.length_ns[longest])
    in_gap = device.segments.by_cause_between(int(device.gaps.start_ns[longest]), int(device.gaps.end_ns[longest]))
    untold = [Cause.DEVICE_WAIT, Cause.UNATTRIBUTED, *([] if knows_host else [Cause.CPU])]
    if 2 * int(in_gap[untold].sum()) < gap_ns:
        return None
    starts = device.operations.table.start_ns
    late = int((starts >= int(device.gaps.end_ns[longest])).sum())
    few, share = min(late, len(starts) - late), percent(gap_ns / (device.high_ns - device.low_ns))
    side = "after the first" if 2 * late > len(starts) else "before the last"
    where = f"{side} {f'{few:,} ' if few > 1 else ''}of {plural(len(starts), 'operation')}"
    return f"{where}, no GPU work is on record for {share} of the window. All the other work lies in {span}"


def span_of_work(device: DeviceTimeline) -> str | None:
    """``1.2000s:1.4000s``: the part that holds nearly all operations of a window that is mostly one gap."""
    if not len(device.gaps):
        return None
    longest = int(device.gaps.length_ns.argmax())
    if device.gaps.length_ns[longest] < STRETCHED * (device.high_ns - device.low_ns):
        return None
    table, split = device.operations.table, int(device.gaps.end_ns[longest])
    late = table.start_ns >= split
    is_early = bool(late.sum() > len(late) / 2)
    few = ~late if is_early else late
    begin, end = (split, device.high_ns) if is_early else (device.low_ns, int(device.gaps.start_ns[longest]))
    part = int((table.end_ns - table.start_ns)[few].sum())
    if few.sum() > max(NEGLIGIBLE * len(late), 1) or part > NEGLIGIBLE * int((table.end_ns - table.start_ns).sum()):
        return None
    if not few.any():
        return None  # the head or the tail of a step: the window reaches there for what the host does
    return f"{(begin - device.shift.shift_ns) / 1e9:.4f}s:{(end - device.shift.shift_ns) / 1e9:.4f}s"


def threads(timeline: Timeline, no_verdict: str | None = None) -> tuple[ThreadReport, ...]:
    """One report per annotated thread, for traces without GPU work. ``no_verdict``: why what threads do says nothing
    about the program."""
    return tuple(_thread(timeline, account, no_verdict) for account in timeline.threads)


def _thread(timeline: Timeline, account: ThreadAccount, no_verdict: str | None) -> ThreadReport:
    record = timeline.trace.threads[account.thread]
    cpu = cpu_time_inside(timeline, account.thread, account.covered)
    case = BoundCase(
        time=_time(account.segments.by_cause()),
        has_gpu_work=False,
        is_thread=True,
        host=Host(
            blocked_on=blocked_inside(timeline, account.thread, account.covered),
            waited_in=waited_in(timeline, account.segments),
            preempted_ns=int(preempted(timeline, account.segments).sum()),
        ),
        records=CaseRecords(
            has_cpu_evidence=timeline.host_state.evidence(account.thread).is_known or cpu is not None,
            no_verdict=no_verdict,
        ),
        missing=MissingRecords(
            lost=int(timeline.losses.lost.sum()),
        ),
    )
    return ThreadReport(
        pid=record.pid,
        tid=record.tid,
        name=record.name,
        total_ns=account.total_ns,
        cpu_utilization=cpu[0] / cpu[1] if cpu and cpu[1] else None,
        verdict=judge(case),
        time=_by_key(case.time),
        blocked_on=case.host.blocked_on,
    )


def regions(
    timeline: Timeline,
    figures: Figures,
    replayed: Counterfactuals,
    *,
    glob: str | None = None,
    min_share: float = 0.0,
    no_verdict: str | None = None,
    devices: Sequence[DeviceReport] = (),
) -> tuple[RegionReport, ...]:
    """Every region that counts, depth first, siblings by time. The root comes first, with path ().

    ``no_verdict``: as for `threads`. ``devices``: the root is all of them together; they run at the same time, so that
    its verdict is that of the one that would save most. ``glob`` keeps regions that match and what lies in them;
    ``min_share`` drops those below it.
    """
    tree, total = timeline.ownership.regions, figures.inclusive.sum(axis=1)
    least = min_share * timeline.total_ns
    shared = _Shared(
        timeline,
        figures,
        replayed,
        _all_saturated(timeline, replayed),
        _lost_kinds(timeline, np.arange(len(timeline.losses.call)), *(device.index for device in timeline.devices)),
        _calls_lost(timeline.losses.calls_lost_fraction, unique(timeline.trace.operations.process)),
        any(timeline.host_state.evidence(thread).is_thinned for thread in unique(timeline.calls.thread).tolist()),
        bool(figures.missing.work_ns.any() or figures.missing.calls_ns.any()),
        no_verdict,
        devices,
        _devices_each(timeline),
    )
    reports: dict[int, RegionReport] = {}
    claims: list[Claim] = []
    for region in _in_order(timeline, figures, glob):
        stage.check()
        if region == ROOT or total[region] >= least:
            reports[region] = _region(shared, region, reports.get(int(tree.parent[region])))
            claims += shared.claims(region, reports[region])
    return up_to(tuple(reports.values()), claims)


def _in_order(timeline: Timeline, figures: Figures, glob: str | None) -> list[int]:
    """The regions that hold anything, depth first, siblings by time; the root and those that match ``glob``, with what
    lies in them."""
    tree, total = timeline.ownership.regions, figures.inclusive.sum(axis=1)
    present = (figures.instances.host_spread.count > 0) | (total > 0)
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
        below.sort(key=lambda child: (total[child], figures.instances.host_spread.total[child], -child))
        pending.extend(below)
    if glob is None:
        return ordered
    kept = {ROOT}
    for region in ordered:
        parent = int(tree.parent[region])
        if region_matches(tree, region, glob) or (parent in kept and parent != ROOT):
            kept.add(region)
    return [region for region in ordered if region in kept]


def _devices_each(timeline: Timeline) -> npt.NDArray[np.float64]:
    """By region: how many devices its instances' processes use, on average; 1 where none does."""
    trace, regions = timeline.trace, timeline.ownership.regions
    used = np.zeros(len(trace.processes) + 1)
    for device in timeline.devices:
        used[unique(device.operations.table.process)] += 1
    each = used[trace.process_of_thread[trace.ranges.thread]]
    of_region, counts = (np.bincount(regions.of_range, weight, len(regions)) for weight in (each, None))
    return np.maximum(of_region / np.maximum(counts, 1), 1.0)


class _Shared(Struct, frozen=True, dict=True):
    """What all regions are judged by."""

    timeline: Timeline
    figures: Figures
    replayed: Counterfactuals
    is_saturated: bool  # every device is: then regions are judged on the devices' own work
    lost_kinds: tuple[Cause, ...]  # what lost work may have been, wherever it was
    calls_lost_fraction: float
    is_cpu_thinned: bool
    is_some_lost: bool  # in some region records of work or calls are missing
    no_verdict: str | None  # why what threads do says nothing about the program
    devices: Sequence[DeviceReport]
    devices_each: npt.NDArray[np.float64]  # by region: on how many devices' accounts an instance is

    def filled(self, region: int) -> Otherwise | None:
        """The region's account and replay, had the device been busy whenever lost work may have run."""
        filled = self.replayed.filled
        if filled is None:
            return None
        saved = filled.replayed.region.get(region) if self.is_replayed else None
        return _filled(self.replayed, filled.inclusive[region], saved)

    def host_ns(self, region: int) -> int:
        """Host intervals of its instances."""
        spread = self.figures.instances.host_spread
        return self.timeline.total_ns if region == ROOT else int(spread.total[region])

    def savings(self, region: int) -> Mapping[str, int] | None:
        """By cause, found by replay; None: nothing that could be trusted was."""
        saved = self.replayed.region.get(region) if self.is_trusted else None
        if saved is None or region == ROOT:
            return saved
        longest_ns = max(int(self.figures.inclusive[region].sum()), self.host_ns(region))
        return {cause: min(ns, longest_ns) for cause, ns in saved.items()}

    def delayed(self, region: int) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
        """By cause, found by a replay of which nothing but delays is in doubt: with these, and without."""
        undelayed = self.replayed.undelayed
        if not self.is_replayed:
            return None
        saved = (self.replayed.region.get(region), None if undelayed is None else undelayed.region.get(region))
        return None if saved[0] is None or saved[1] is None else (saved[0], saved[1])

    @cached_property
    def is_replayed(self) -> bool:
        """Whether a replay decides a device: one that decides none decides no part of one either."""
        return any(device.verdict.decided_by == "replay" for device in self.devices)

    @property
    def is_trusted(self) -> bool:
        """Whether what the replay says of regions can be told as it is."""
        return not self.replayed.unreliable and (self.is_replayed or not self.devices)

    @cached_property
    def leading(self) -> Verdict | None:
        """The verdict of the device that would save most, of several alike the first; None: there is no device."""
        if not self.devices:
            return None
        verdicts = [device.verdict for device in self.devices]
        return replace(max(verdicts, key=lambda verdict: verdict.saving_ns or -1), without_ns=None)

    @cached_property
    def most_everywhere(self) -> Mapping[str, int]:
        """What removing each cause saves on the device that it saves most."""
        most: dict[str, int] = {}
        for saving in (saving for device in self.devices for saving in device.verdict.savings):
            most[saving.cause] = max(most.get(saving.cause, 0), saving.saving_ns)
        return most

    def claims(self, region: int, report: RegionReport) -> Iterator[Claim]:
        """What its bound gone there saves, as it ran (`boundby what-if --region`) or once nothing waits; of a region
        too small to be replayed, all of that cause's time there. None where nothing can be told."""
        verdict, path, is_trusted = report.verdict, report.path, self.is_trusted
        is_small = region != ROOT and self.replayed.region and verdict.decided_by == "account" and is_trusted
        if verdict.saving_ns is None and not (is_small and verdict.saving_range_ns is not None):
            return
        bounds = verdict.mixed_of or (verdict.bound,)
        yield without(verdict.bound, verdict.saving_ns or 0, verdict.decided_by, path)
        if is_small:
            yield from (without(bound, report.time[bound], "account", path) for bound in bounds)
        if is_trusted:
            yield from (without(bound, ns, "replay", path) for bound in bounds for ns in self._alone(region, bound))

    def _alone(self, region: int, bound: str) -> Iterator[int]:
        """What the program as it ran saves without this cause in a region."""
        yield self.replayed.alone.get(region, {}).get(bound, 0)
        for device in self.timeline.devices if region == ROOT else ():
            left_ns = self.replayed.alone_ns(device.index, bound)
            if left_ns is not None:
                yield device.high_ns - device.low_ns - left_ns


def _of_whole(verdict: Verdict, own_ns: int, shared: _Shared) -> Verdict:
    """A region's verdict; where the region is nearly all of a program of two equal causes, and its own is one of them,
    the program's."""
    leading = shared.leading
    if leading is None or verdict.bound not in (leading.mixed_of or ()):
        return verdict
    return leading if own_ns >= NEARLY_ALL * shared.timeline.total_ns else verdict


def _region(shared: _Shared, region: int, parent: RegionReport | None) -> RegionReport:
    """What lies inside a region cannot save more than removing the same cause everywhere in ``parent``."""
    timeline, figures, is_root = shared.timeline, shared.figures, region == ROOT
    host, tree, projected, instances = figures.host, timeline.ownership.regions, figures.projected, figures.instances
    row, host_ns = _region_row(shared, region), shared.host_ns(region)
    case = replace(
        row.case,
        instances=1 if is_root else int(instances.host_spread.count[region]),
        devices_each=float(shared.devices_each[region]),
        has_gpu_work=bool(timeline.devices),
        is_part=not is_root,
        most=_most_of(shared, parent),
        is_saturated=shared.is_saturated if row.savings else None,
    )
    verdict = (
        _of_whole(judge(case), case.window_ns, shared) if shared.leading is None or not is_root else shared.leading
    )
    facts = row.told(case, verdict, figures.communication.of_region[region])
    if is_root:
        exposed = [device.exposed_by_waits_ns for device in shared.devices if device.exposed_by_waits_ns is not None]
        facts["exposed_by_waits_ns"] = max(exposed, default=None)
    return RegionReport(
        path=tree.path(region),
        domain=tree.domain[region],
        instances=case.instances,
        devices_each=case.devices_each,
        share=case.window_ns / timeline.total_ns if timeline.total_ns else 0.0,
        time_exclusive=_by_key(_time(figures.exclusive[region])),
        host=_whole(timeline.total_ns) if is_root else _distribution(instances.host_spread, region),
        projected=_distribution(instances.projected_spread, region)
        if instances.projected_spread.count[region]
        else None,
        gpu_utilization=_ratio(projected.projected_busy_ns[region], projected.projected_ns[region]),
        gpu_utilization_host=_ratio(projected.host_busy_ns[region], projected.host_ns[region]),
        blocked_on=_by_size(host.os_blocked_ns, region),
        threads=int(host.threads[region]),
        open_instances=int(instances.open[region]),
        found=is_found(tree.domain[region]),
        instance_ns=_instances(timeline, figures, region, host_ns),
        work=figures.works[region],
        memory=figures.memory.of_region[region],
        payload=instances.payloads[region],
        counters=figures.counters.of_region[region],
        backward_kernels_ns=int(figures.backward_kernels_ns[region]),
        meanwhile=figures.meanwhile[region],
        **facts,
    )


def _region_row(shared: _Shared, region: int) -> _Row:
    timeline, figures, trace, host = shared.timeline, shared.figures, shared.timeline.trace, shared.figures.host
    active_ns = (
        sum(device.host_active_ns or 0 for device in shared.devices) if region == ROOT else host.active_ns[region]
    )
    return _Row(
        by_cause=figures.inclusive[region],
        operations=int(figures.kernels.operations[region]),
        activity=_activity_in(shared, region, shared.host_ns(region)),
        host=Host(
            active_ns=int(active_ns),
            starting_ns=int(host.starting_ns[region]),
            total_ns=shared.host_ns(region),
            asleep_ns=sum(int(asleep_ns[region]) for asleep_ns in host.os_blocked_ns.values()),
            blocked_on=_by_size(host.idle_on_ns, region),
            preempted_ns=int(host.preempted_ns[region]),
            paging_ns=int(host.paging_ns[region]),
            unwoken_ns=int(host.unwoken_ns[region]),
        ),
        cpu_utilization=_ratio(host.cpu_ns[region], host.cpu_of_ns[region]),
        records=_records(
            trace,
            has_cpu_evidence=bool(host.cpu_of_ns[region]) or trace.captured.osrt or trace.is_told_by_frames,
            is_clock_shifted=any(device.shift.shift_ns for device in timeline.devices),
            clock_ahead_ns=max((device.shift.unshown_ns for device in timeline.devices), default=0),
            no_verdict=shared.no_verdict,
        ),
        missing=_missing_in(shared, region),
        savings=shared.savings(region),
        replay=Replay(unreliable=shared.replayed.unreliable, delayed=shared.delayed(region)),
    )


def _activity_in(shared: _Shared, region: int, host_ns: int) -> _Activity:
    timeline, figures = shared.timeline, shared.figures
    host, projected = figures.host, figures.projected
    return _activity(
        figures.kernels,
        region,
        gaps=Gaps(
            *(
                int(column[region])
                for column in (projected.gap_count, projected.gap_ns, projected.longest_gap_ns, projected.short_gap_ns)
            )
        ),
        memcpy=figures.copies[region],
        api=tuple(
            map(int, (column[region] for column in (host.api_calls, host.api_ns, host.window_calls, host.window_ns)))
        ),
        sync=(int(host.syncs[region]), int(host.blocked_ns[region])),
        over_ns=host_ns if timeline.trace.captured.cuda_api else 0,
        tops=(figures.top_kernels[region], figures.top_calls[region]),
    )


def _missing_in(shared: _Shared, region: int) -> MissingRecords:
    """What is not on record of a region's work, and of the calls in it."""
    missing = shared.figures.missing
    is_lacking = bool(missing.lost[region]) or bool(missing.work_ns[region].any())
    return MissingRecords(
        is_cpu_thinned=shared.is_cpu_thinned,
        work=_time(missing.work_ns[region]) if shared.is_some_lost else _NOTHING,
        calls=_time(missing.calls_ns[region]) if shared.is_some_lost else _NOTHING,
        kinds=shared.lost_kinds,
        filled=shared.filled(region) if is_lacking else None,
        launches=int(missing.launches[region]),
        lost=int(missing.lost[region]),
        calls_fraction=shared.calls_lost_fraction,
    )


def _most_of(shared: _Shared, parent: RegionReport | None) -> Mapping[str, int] | None:
    """What a part of this saves at most, by cause; None: it is all there is."""
    if parent is None or (not parent.path and shared.devices):
        return None if parent is None else shared.most_everywhere
    return {saving.cause: saving.saving_ns for saving in parent.verdict.savings}


def _activity(
    kernels: KernelFigures,
    row: int,
    *,
    gaps: Gaps,
    memcpy: Mapping[str, Copies],
    api: Sequence[int],
    sync: tuple[int, int],
    over_ns: int,
    tops: tuple[tuple[Top, ...], tuple[Top, ...]],
) -> _Activity:
    """``api`` and ``sync``: count and nanoseconds; of calls then those of the window, too. ``over_ns``: the host time
    that rates are of; 0: they have none. ``tops``: kernels and calls with most time."""
    median, p95 = _number(kernels.latency_median_ns[row]), _number(kernels.latency_p95_ns[row])
    count = int(kernels.graphs[row])
    graphs = Kernels(count, int(kernels.graph_ns[row]), _number(kernels.graph_median_ns[row])) if count else None
    return {
        "gaps": gaps,
        "kernels": Kernels(
            int(kernels.count[row]), int(kernels.total_ns[row]), _number(kernels.median_ns[row]), tops[0]
        ),
        "graphs": graphs,
        "api": ApiCalls(api[0], api[1], _per_ms(api[0], over_ns), tops[1], api[2], api[3]),
        "sync": Syncs(*sync, _per_ms(sync[0], over_ns)),
        "memcpy": memcpy,
        "launch_latency": None if median is None or p95 is None else LaunchLatency(median, p95),
        "queue_depth_median": _number(kernels.queue_median[row]),
    }


def _beside_ns(activity: _Activity, by_cause: npt.NDArray[np.int64]) -> int:
    """For how long work ran beside other work: what operations take, beyond the time that the account gives them."""
    work_ns = activity["kernels"].total_ns + sum(copies.total_ns for copies in activity["memcpy"].values())
    work_ns += activity["graphs"].total_ns if activity["graphs"] else 0
    return max(work_ns - int(by_cause[list(BUSY_CAUSES)].sum()), 0)


def _instances(timeline: Timeline, figures: Figures, region: int, host_ns: int) -> Instances:
    if region == ROOT:
        return Instances()
    time = max(int(figures.inclusive[region].sum()), host_ns)
    share = time / timeline.total_ns if timeline.total_ns else 0.0
    return instances_of(figures.instances, region, share)


def _all_saturated(timeline: Timeline, replayed: Counterfactuals) -> bool:
    return all(
        is_saturated(_time(device.segments.by_cause()), replayed.device.get(device.index))
        for device in timeline.devices
    )


def _time(by_cause: npt.NDArray[np.int64]) -> dict[Cause, int]:
    return dict(zip(CAUSES, by_cause.tolist(), strict=True))


def _by_key(time: Mapping[Cause, int]) -> dict[str, int]:
    return dict(zip(CAUSE_KEYS, map(time.__getitem__, CAUSES), strict=True))


def _whole(total_ns: int) -> Distribution:
    return Distribution(1, total_ns, float(total_ns), float(total_ns), float(total_ns), total_ns)


def _distribution(values: RegionSpread, region: int) -> Distribution:
    count, total = int(values.count[region]), int(values.total[region])
    if count == 0:
        return Distribution(0, 0, 0.0, 0.0, 0.0, 0)
    median, p95 = float(values.median[region]), float(values.p95[region])
    return Distribution(count, total, total / count, median, p95, int(values.longest[region]))


def _by_size(values: Mapping[str, npt.NDArray[np.int64]], region: int) -> dict[str, int]:
    """One region's entries, largest first."""
    sizes = {what: int(by_region[region]) for what, by_region in values.items() if by_region[region]}
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def _per_ms(count: int, ns: int) -> float | None:
    return count / (ns / 1e6) if ns > 0 else None


def _ratio(part: np.int64, whole: np.int64) -> float | None:
    return float(part) / float(whole) if whole else None


def _number(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
