"""How sure a verdict is, and why not surer. Missing data lowers it and is named."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.model.causes import BUSY_CAUSES, REMOVABLE, SHORT_LABEL, WITHOUT, Cause
from boundby.model.units import duration, percent, plural
from boundby.replay.predictor import SHARED_WAIT
from boundby.results.report import CONFIDENCES
from boundby.verdict.bound import CLOSE, IDLE_WORTH, LEAST_SAVING, LEAST_SHOWN, Case, Decision, host_together_ns

# Shares of the window above which something lowers the confidence by one step, or by two: a twentieth cannot turn a
# verdict that leads clearly, a fifth can.
UNEXPLAINED_SOME = 0.05
UNEXPLAINED_MUCH = 0.20
PROFILER_SOME = 0.05
GUESSED_HOST = 0.10  # host time split into cpu and blocked without scheduling data
MOSTLY_COMPUTES = 4  # times what it waits for a core: then it is bound by that, whatever the waits were
MUCH_PREEMPTED = 0.10  # others on the machine then decide as much as the program
SOME_CALLS_LOST = 0.05  # or time that has none on record: as many waits may be lost among them, and nothing replays
MUCH_UNWOKEN = 0.25  # of the time that the host slept: who did not appear may as well have computed
FEW_OPERATIONS = 20  # fewer are an anecdote
MUCH_OPEN, MANY_TIMES = 0.5, 10  # of the window, and what a cause is said to save: next to nothing is known of it then
MOSTLY_OPEN = 0.5  # of what a cause saves, left open: it may then not be one of two that are alike
_HOST = tuple(cause for cause in REMOVABLE if cause not in BUSY_CAUSES)

Doubt = tuple[int, str]  # by how many steps it lowers the confidence, and why


def confidence(case: Case, decision: Decision) -> tuple[str, tuple[str, ...]]:
    """Level and reasons, in order of weight."""
    doubts = list(_doubts(case, decision) if case.has_gpu_work else _doubts_of_host(case))
    lost = sum(steps for steps, _ in doubts)
    return CONFIDENCES[min(lost, len(CONFIDENCES) - 1)], tuple(reason for _, reason in doubts)


def _doubts(case: Case, decision: Decision) -> Iterator[Doubt]:
    if not case.window_ns:
        return
    named = {decision.bound, *(decision.mixed_of or ())}
    if not case.captured.cuda_api:
        yield 2, "CUDA API calls were not captured, so idle time has no owner"
    yield from _unexplained(case)
    if not case.has_cpu_evidence and case.share(Cause.CPU, Cause.HOST_BLOCKED) >= GUESSED_HOST:
        yield 1, "neither CPU scheduling nor OS calls were captured: cpu may be time spent blocked"
    if case.share(Cause.CPU) and case.preempted_ns >= MUCH_PREEMPTED * case.window_ns:
        part = percent(case.preempted_ns / case.window_ns)
        # A sleep whose OS call is missing looks so: of a thread that sleeps in others, or computes for little more.
        may_sleep = case.time[Cause.CPU] < MOSTLY_COMPUTES * case.preempted_ns or any(case.blocked_on.values())
        is_open = may_sleep and bool(named & {Cause.CPU.key, Cause.HOST_BLOCKED.key})
        yield (
            2 if is_open else 1,
            f"{part} of the time the host's thread was runnable and waited for a core (preempted)",
        )
    if Cause.HOST_BLOCKED.key in named and case.unwoken_ns > MUCH_UNWOKEN * case.time[Cause.HOST_BLOCKED]:
        yield 2, "the thread that the host waits for is not on record: it may have worked or slept"
    is_busy = bool(named & {cause.key for cause in BUSY_CAUSES}) and decision.host_limit_fraction is None
    if is_busy and case.asleep_for_nobody_ns >= UNEXPLAINED_SOME * case.window_ns:
        part = percent(case.asleep_for_nobody_ns / case.window_ns)  # whoever it is: as long whatever the device does
        yield 2, f"for {part} of the time the host waits for a thread that is not on record: it may set the pace"
    if case.is_cpu_thinned and decision.host_limit_fraction is None:
        yield 2, "context switches are missing: when the host computed, slept or waited for another thread is not sure"
    if case.unreliable is not None and case.captured.cuda_api:
        is_shared = case.share(Cause.DEVICE_WAIT) >= SHARED_WAIT
        # Nothing then shows how far host and device hide behind each other, nor what lost calls waited for.
        is_open = bool(named & {cause.key for cause in BUSY_CAUSES}) or case.calls_lost_fraction >= SOME_CALLS_LOST
        is_open |= case.unsure_ns >= SOME_CALLS_LOST * case.window_ns
        is_open &= decision.host_limit_fraction is None
        # Nor which of the two sets the pace, where the host's own work takes as long as the device's.
        is_open |= decision.host_limit_fraction is not None and decision.host_limit_fraction < IDLE_WORTH
        yield 2 if is_shared or is_open else 1, f"the trace cannot be replayed reliably: {case.unreliable}"
    if Cause.GPU_COMPUTE.key in named and case.opaque_ns >= UNEXPLAINED_MUCH * case.window_ns:
        part = percent(min(case.opaque_ns / case.window_ns, 1.0))
        yield 1, f"{part} of the time is CUDA graphs recorded as one piece each, not as kernels, copies and gaps"
    if (overhead := case.share(Cause.PROFILER)) >= PROFILER_SOME:
        yield 1, f"{percent(overhead)} of the time is the profiler's own"
    if case.is_clock_shifted:
        yield 1, "the device's clock was off and was corrected"
    if case.clock_ahead_ns and decision.host_limit_fraction is None:  # a busy device is so on its own clock
        ahead = duration(case.clock_ahead_ns)
        yield 2, f"no operation starts within {ahead} of its launch: the device's clock may be ahead by so much"
    if case.launches_lost_before:
        before = f"{plural(case.launches_lost_before, 'launch', 'launches')} before the window"
        decides = case.launches_lost_before >= case.operations or _may_lead(case, decision)
        yield 2 if decides else 0, f"the work of {before} is not on record"
    if case.silent_ns > 0:
        yield (
            1,
            f"CUDA calls stop on record {duration(case.silent_ns)} before the end, while ranges go on",
        )
    hangs_on_few = case.operations < FEW_OPERATIONS and not case.is_outside(decision.bound)
    if hangs_on_few and decision.bound not in ("host_blocked", "cpu"):
        number = plural(case.operations, "GPU operation")
        yield 1, f"only {number}" if case.operations else "no GPU operation of its own"
    if (unshown := _unshown(case, decision)) is not None:
        yield 2, f"the device hardly idles here for {SHORT_LABEL[unshown.key]}: what it would save lies elsewhere"
    for saving in decision.savings:
        more = case.open_ns.get(saving.cause, (0, 0))[1]
        if saving.cause in named and more > max(MUCH_OPEN * case.window_ns, MANY_TIMES * saving.saving_ns):
            yield 2, f"what the trace leaves open is many times what {SHORT_LABEL[saving.cause]} is seen to cost"
            break
    if decision.why_not is not None:
        yield 2, "no verdict can be given"
    elif decision.bound == "unknown":
        yield 1, "no cause stands out"
    elif decision.mixed_of is not None:
        may_not = [
            SHORT_LABEL[saving.cause]
            for saving in decision.savings[:2]
            if case.open_ns.get(saving.cause, (0, 0))[0] > MOSTLY_OPEN * saving.saving_ns
        ]
        if may_not:
            yield len(may_not), f"what the trace leaves open may be most of what {' and '.join(may_not)} would save"
    elif decision.host_limit_fraction is None and len(decision.savings) > 1:
        if host_together_ns(case, decision) is not None:
            yield 1, "the host's causes together would save more"
        best, second = decision.savings[:2]
        if (other := _more_alone(case, decision)) is not None:
            yield 1, f"{WITHOUT[other]} more would be saved while the host's waits stay as they are"
        if (rival := _rival(case, decision)) is not None:
            yield 2, f"what the trace leaves open may change it: {SHORT_LABEL[rival]} may save as much"
        elif best.saving_ns - second.saving_ns < CLOSE * case.window_ns:
            yield 1, f"{SHORT_LABEL[second.cause]} is close behind"


def _may_lead(case: Case, decision: Decision) -> bool:
    """Work lost before the window, as long as it may have been, would have another of the device's causes lead."""
    named = decision.mixed_of or (decision.bound,)
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    best = max(saved.get(cause, 0) for cause in named)
    others = [kind.key for kind in case.lost_kinds if kind.key not in named]
    return any(saved.get(key, 0) and saved[key] + case.lost_before_ns > best for key in others)


def _unshown(case: Case, decision: Decision) -> Cause | None:
    """A cause of the host that is named although hardly any time of its own shows it."""
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    for cause in _HOST:
        if cause.key in (decision.mixed_of or (decision.bound,)):
            own = case.time[cause] + (case.sync.blocked_ns if cause == Cause.SYNC else 0)
            if not case.time[cause] or own < LEAST_SHOWN * saved.get(cause.key, 0):
                return cause
    return None


def _rival(case: Case, decision: Decision) -> str | None:
    """A cause that may save more than the best one does at the least, by what the trace leaves open of both."""
    if not case.open_ns:
        return None
    best = decision.savings[0]
    least = best.saving_ns - case.open_ns.get(best.cause, (0, 0))[0]
    most = {one.cause: one.saving_ns + case.open_ns.get(one.cause, (0, 0))[1] for one in decision.savings[1:]}
    rival = max(sorted(most), key=lambda cause: most[cause])
    return rival if most[rival] > max(least, LEAST_SAVING * case.window_ns) else None


def _more_alone(case: Case, decision: Decision) -> str | None:
    """What else, beside waits, saves more from the program as it ran; the verdict is of one that no longer waits."""
    alone = {key: ns for key, ns in sorted(case.alone_ns.items()) if ns is not None and key != Cause.SYNC.key}
    if decision.bound not in alone:
        return None
    best = min(alone, key=lambda key: alone[key])
    return best if alone[decision.bound] - alone[best] > LEAST_SAVING * case.window_ns else None


def _doubts_of_host(case: Case) -> Iterator[Doubt]:
    """Of a verdict on host time alone: it is never sure, since it is not what a GPU waits for."""
    yield (1, "no GPU work is on record") if case.no_verdict is None else (2, "no verdict can be given")
    if not case.has_cpu_evidence:
        yield 2, "neither CPU scheduling, samples nor OS calls were captured"
    elif case.window_ns:
        yield from _unexplained(case)
        if case.preempted_ns >= MUCH_PREEMPTED * case.window_ns:
            part = percent(case.preempted_ns / case.window_ns)
            yield 1, f"for {part} of it the thread was runnable and waited for a core (preempted)"


def _unexplained(case: Case) -> Iterator[Doubt]:
    if (unexplained := case.share(Cause.UNATTRIBUTED)) >= UNEXPLAINED_SOME:
        steps = 2 if unexplained >= UNEXPLAINED_MUCH else 1
        yield steps, f"{percent(unexplained)} of the time is unattributed"
