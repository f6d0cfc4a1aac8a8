"""How sure a verdict is, and why not surer. Missing data lowers it and is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from boundby.claims.bound import (
    BUSY_KEYS,
    CLOSE,
    IDLE_WORTH,
    LEAST_SAVING,
    LEAST_SHARE,
    Case,
    Decision,
    host_together_ns,
    shown_most_ns,
)
from boundby.claims.limits import NOTABLE_UNSEEN
from boundby.model.causes import BUSY_CAUSES, NOUN, REMOVABLE, SHORT_LABEL, Cause
from boundby.model.scale import NOTABLE, QUARTER, SMALL
from boundby.model.units import duration, percent, plural
from boundby.replay.counterfactuals import LEAST_SHOWN, MOST_OF_IT
from boundby.results.report import CONFIDENCES

# A verdict on host time of which so much is unattributed loses a step, or two.
UNEXPLAINED_SOME = SMALL
UNEXPLAINED_MUCH = QUARTER
MUCH_PREEMPTED = NOTABLE  # others on the machine then decide as much as the program
SOME_CALLS_LOST = SMALL  # or time that has none on record: as many waits may be lost among them, and nothing replays
MUCH_UNWOKEN = QUARTER  # of the time that the host slept: who did not appear may as well have computed
_HOST = tuple(cause for cause in REMOVABLE if cause not in BUSY_CAUSES)
_ON_CPU_OR_NOT = (Cause.CPU.key, Cause.HOST_BLOCKED.key)
_OUTSIDE = (Cause.HOST_BLOCKED.key, Cause.GPU_COMM.key)  # what may wait for other ranks and processes
_KEYS = tuple(cause.key for cause in REMOVABLE)
_OF_LAUNCHED = (*sorted(BUSY_KEYS), Cause.CUDA_API.key, Cause.INIT.key)
_NAMED = frozenset((*_KEYS, "mixed"))


class Doubt(NamedTuple):
    """Something that is not known. What it leaves open counts as far as it may turn the verdict: ``less_ns`` and
    ``more_ns``: how much less, and how much more, the removal of these causes may save. ``steps``: by how many it
    lowers the confidence whatever it leaves open."""

    sentence: str
    steps: int = 0
    less_ns: Mapping[str, int] = {}
    more_ns: Mapping[str, int] = {}


def _open(sentence: str, keys: Iterable[str], less_ns: int, more_ns: int, steps: int = 0) -> Doubt:
    return Doubt(sentence, steps, dict.fromkeys(keys, less_ns), dict.fromkeys(keys, more_ns))


def confidence(case: Case, decision: Decision) -> tuple[str, tuple[str, ...]]:
    """Level and reasons, in order of weight: a doubt that cannot turn the verdict is none."""
    if not case.has_gpu_work:
        lost = list(_doubts_of_host(case))
        return _level(sum(doubt.steps for doubt in lost)), tuple(doubt.sentence for doubt in lost)
    doubts = list(_doubts(case, decision)) if case.window_ns else []
    if decision.host_limit_fraction is None and decision.bound in _NAMED and len(decision.savings) > 1:
        doubts += _turned(case, decision, doubts)
    doubts = [doubt for doubt in doubts if doubt.steps]
    return _level(max((doubt.steps for doubt in doubts), default=0)), tuple(doubt.sentence for doubt in doubts)


def _level(steps: int) -> str:
    return CONFIDENCES[min(steps, len(CONFIDENCES) - 1)]


def _turned(case: Case, decision: Decision, doubts: Iterable[Doubt]) -> Iterator[Doubt]:
    """What all doubts together make of the lead: whether another cause may save as much, or is close behind."""
    named = decision.mixed_of or (decision.bound,)
    less, more = defaultdict[str, int](int), defaultdict[str, int](int)
    for doubt in doubts:
        for side, open_ns in ((less, doubt.less_ns), (more, doubt.more_ns)):
            for key, ns in open_ns.items():
                side[key] += ns
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    own = {key: ns for key, ns in saved.items() if key in named}
    most = {key: _most_ns(case, decision, key, saved.get(key, 0)) + more[key] for key in _KEYS if key not in named}
    least = {rival: max(_least_ns(case, key, ns, rival) - less[key] for key, ns in own.items()) for rival in most}
    rival = min(most, key=lambda key: least[key] - most[key])
    matters_ns = LEAST_SAVING * case.window_ns
    lead_ns = least[rival] - max(most[rival], matters_ns)
    if lead_ns >= 0 and (decision.mixed_of is not None or lead_ns >= CLOSE * case.window_ns):
        return
    for doubt in doubts:
        if not doubt.steps and max(0, *doubt.less_ns.values(), doubt.more_ns.get(rival, 0)) >= matters_ns:
            yield doubt._replace(steps=1)
    if lead_ns < 0:
        yield Doubt(f"what is not on record could make {SHORT_LABEL[rival]} the bigger cause", 2)
    elif saved.get(rival, 0) >= matters_ns:
        yield Doubt(f"{SHORT_LABEL[rival]} is close behind", 1)


def _least_ns(case: Case, key: str, saved_ns: int, rival: str) -> int:
    """What removing a cause saves at least by the replay: no less than the idle time that the account shows of it. What
    is waited for outside of the trace holds every removal up alike, but for that of the wait."""
    least_ns = saved_ns - case.open_ns.get(key, (0, 0))[0]
    least_ns += 0 if rival in _OUTSIDE else min(case.held_ns.get(key, 0), saved_ns - least_ns)
    cause = Cause[key.upper()]
    return least_ns if cause in BUSY_CAUSES else max(least_ns, min(saved_ns, case.time[cause]))


def _most_ns(case: Case, decision: Decision, key: str, saved_ns: int) -> int:
    """What removing a cause saves at most: by the replay no more than the account can hold of it (`shown_most_ns`); by
    the account alone as much of the device's work as there is, but for kernels no more than the time in which the host
    is not at work: that takes as long without them. A cause that the account does not show is no rival, nor
    is work of the device that takes less than what the verdict names, whatever the time that is not known was."""
    cause = Cause[key.upper()]
    own_ns = case.time[cause] + case.time[Cause.UNATTRIBUTED]
    if case.replayed is None:
        is_apart = cause != Cause.GPU_COPY and not case.is_part  # from what the host does
        host_ns = case.host_active_ns if is_apart else 0
        return max(saved_ns, min(case.time[cause], case.window_ns - host_ns) if cause in BUSY_CAUSES else 0)
    more_ns = saved_ns + case.open_ns.get(key, (0, 0))[1]
    if cause in BUSY_CAUSES:
        named = [Cause[one.upper()] for one in (decision.mixed_of or (decision.bound,)) if one in BUSY_KEYS]
        return saved_ns if named and own_ns < max(case.time[one] for one in named) else more_ns
    if cause == Cause.SYNC or case.is_part:
        return more_ns
    return saved_ns if own_ns < LEAST_SHARE * case.window_ns else min(more_ns, shown_most_ns(case, cause))


def _doubts(case: Case, decision: Decision) -> Iterator[Doubt]:
    named = {decision.bound, *(decision.mixed_of or ())}
    is_saturated, unknown_ns = decision.host_limit_fraction is not None, case.time[Cause.UNATTRIBUTED]
    if not case.captured.cuda_api:
        yield Doubt("CUDA API calls were not captured, so idle time has no owner", 2)
    if case.is_unbelievable:
        yield Doubt("the times of many rows contradict others: no time in this report is sure", 2)
    elif case.is_damaged:
        yield Doubt("some rows of the report hold values that cannot be right: others may, too", 1)
    if (alone_ns := case.unconfirmed_ns) > 0:
        part = percent(alone_ns / case.window_ns)
        sentence = f"of {part} of the time, at the ends of the window, a single row of the report tells"
        yield _open(sentence, _KEYS, alone_ns, alone_ns)
    if unknown_ns:
        yield _open(f"{percent(case.share(Cause.UNATTRIBUTED))} of the time is not recorded", _KEYS, 0, unknown_ns)
    if (overhead_ns := case.time[Cause.PROFILER]) > 0:
        yield _open(f"{percent(case.share(Cause.PROFILER))} of the time is the profiler's own", _KEYS, 0, overhead_ns)
    yield from _doubts_of_sleep(case, named, is_saturated=is_saturated)
    if case.unreliable is not None and case.captured.cuda_api:
        yield from _doubts_of_replay(case, decision)
    if Cause.GPU_COMPUTE.key in named and case.opaque_ns >= UNEXPLAINED_MUCH * case.window_ns:
        part = percent(min(case.opaque_ns / case.window_ns, 1.0))
        yield Doubt(f"{part} of the time is CUDA graphs recorded as one piece each, not as kernels, copies and gaps", 1)
    if case.is_clock_shifted:
        yield Doubt("the device's clock was off and was corrected", 1)
    if case.clock_ahead_ns and not is_saturated:  # a busy device is so on its own clock
        ahead = duration(case.clock_ahead_ns)
        yield Doubt(f"no operation starts within {ahead} of its launch: the device's clock may be ahead by so much", 2)
    if case.launches_lost_before and (case.launches_lost_before >= case.operations or _may_lead(case, decision)):
        before = f"{plural(case.launches_lost_before, 'launch', 'launches')} before the window"
        yield Doubt(f"the work of {before} is not on record", 2)
    if case.unseen_ns >= NOTABLE_UNSEEN * case.window_ns:
        part = percent(case.unseen_ns / case.window_ns)
        yield Doubt(f"for {part} of the time the GPU's counters show work of which no operation is on record", 2)
    if case.silent_ns > 0:
        silent = duration(case.silent_ns)
        yield Doubt(f"CUDA calls stop on record {silent} before the end, while ranges go on", 1)
    if (unshown := _unshown(case, decision)) is not None:
        label = SHORT_LABEL[unshown.key]
        yield Doubt(f"the GPU is rarely idle because of {label} here: the predicted saving comes from elsewhere", 2)
    if (unsaved := _unsaved(case, decision)) is not None:
        part = percent(case.share(unsaved))
        yield Doubt(
            f"the GPU idles {part} of the time because of {SHORT_LABEL[unsaved.key]}; the replay saves little", 1
        )
    if decision.why_not is not None:
        yield Doubt("no verdict can be given", 2)
    elif decision.bound == "unknown":
        yield Doubt("no cause stands out", 1)
    elif decision.mixed_of is None and not is_saturated:
        if host_together_ns(case, decision) is not None:
            yield Doubt("the host's causes together would save more", 1)
        if (other := _more_alone(case, decision)) is not None:
            yield Doubt(f"while the host's waits stay, removing {NOUN[other]} would save more", 1)


def _doubts_of_sleep(case: Case, named: set[str], *, is_saturated: bool) -> Iterator[Doubt]:
    """Whether the host was on a CPU, asleep, or waited for a thread that is not on record."""
    if not case.has_cpu_evidence and named & set(_ON_CPU_OR_NOT):
        yield Doubt("neither CPU scheduling nor OS calls were captured: host code may have been blocked", 1)
    if case.preempted_ns and named & set(_ON_CPU_OR_NOT):
        # A sleep whose OS call is missing looks so.
        part = percent(case.preempted_ns / case.window_ns)
        sentence = f"{part} of the time the host's thread was runnable and waited for a core (preempted)"
        yield _open(sentence, _ON_CPU_OR_NOT, case.preempted_ns, case.preempted_ns)
    if Cause.HOST_BLOCKED.key in named and case.unwoken_ns:
        sentence = "the thread that the host waits for is not on record: it may have worked or slept"
        yield _open(sentence, _ON_CPU_OR_NOT, case.unwoken_ns, case.unwoken_ns)
    if named & BUSY_KEYS and not is_saturated and (nobody_ns := case.asleep_for_nobody_ns):
        part = percent(nobody_ns / case.window_ns)  # whoever it is: as long whatever the device does
        sentence = f"for {part} of the time the host waits for a thread that is not on record: it may set the pace"
        yield _open(sentence, (*BUSY_KEYS, *_ON_CPU_OR_NOT), nobody_ns, nobody_ns)
    if case.is_cpu_thinned and not is_saturated:
        yield Doubt(
            "context switches are missing: when the host computed, slept or waited for another thread is not sure", 2
        )


def _doubts_of_replay(case: Case, decision: Decision) -> Iterator[Doubt]:
    """Nothing then shows how far host and device hide behind each other, nor what lost calls waited for."""
    sentence, limit = f"the trace cannot be replayed reliably: {case.unreliable}", decision.host_limit_fraction
    is_lost = case.calls_lost_fraction >= SOME_CALLS_LOST or case.unsure_ns >= SOME_CALLS_LOST * case.window_ns
    # Nor which of the two sets the pace, where the host's own work takes as long as the device's.
    is_open = is_lost if limit is None else limit < IDLE_WORTH
    # Work that is launched waits for the device, or for its own launch to arrive, and for nothing that the host does.
    waiting_ns = 0 if limit is not None else case.time[Cause.DEVICE_WAIT]
    yield _open(sentence, _OF_LAUNCHED, 0, waiting_ns, 2 if is_open else 1)


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


def _unsaved(case: Case, decision: Decision) -> Cause | None:
    """A cause of the host for which a device idles longer than any removal would save by the replay, its own included:
    something that the account does not show would take as long."""
    if case.replayed is None or case.is_part:
        return None
    most = max(_HOST, key=lambda cause: case.time[cause])
    left_ns = case.alone_ns.get(most.key)
    saved_ns = max(case.replayed.get(most.key, 0), 0 if left_ns is None else case.window_ns - left_ns)
    best_ns = max((saving.saving_ns for saving in decision.savings), default=0)
    return most if case.time[most] > best_ns and saved_ns < MOST_OF_IT * case.time[most] else None


def _more_alone(case: Case, decision: Decision) -> str | None:
    """What else, beside waits, saves more from the program as it ran; the verdict is of one that no longer waits."""
    alone = {key: ns for key, ns in sorted(case.alone_ns.items()) if ns is not None and key != Cause.SYNC.key}
    if decision.bound not in alone:
        return None
    best = min(alone, key=lambda key: alone[key])
    return best if alone[decision.bound] - alone[best] > LEAST_SAVING * case.window_ns else None


def _doubts_of_host(case: Case) -> Iterator[Doubt]:
    """Of a verdict on host time alone: it is never sure, since it is not what a GPU waits for."""
    yield Doubt("no GPU work is on record", 1) if case.no_verdict is None else Doubt("no verdict can be given", 2)
    if not case.has_cpu_evidence:
        yield Doubt("neither CPU scheduling, samples nor OS calls were captured", 2)
    elif case.window_ns:
        if (unexplained := case.share(Cause.UNATTRIBUTED)) >= UNEXPLAINED_SOME:
            steps = 2 if unexplained >= UNEXPLAINED_MUCH else 1
            yield Doubt(f"{percent(unexplained)} of the time is not recorded", steps)
        if case.preempted_ns >= MUCH_PREEMPTED * case.window_ns:
            part = percent(case.preempted_ns / case.window_ns)
            yield Doubt(f"for {part} of it the thread was runnable and waited for a core (preempted)", 1)
