"""How sure a verdict is, and why not surer. Missing data lowers it and is named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from boundby.claims.because import little_alone
from boundby.claims.bound import (
    BUSY_KEYS,
    CLOSE,
    IDLE_WORTH,
    LEAST_SAVING,
    LEAST_SHARE,
    MIXED_WITHIN,
    BoundCase,
    Decision,
    host_together_ns,
    is_covered,
    more_alone,
    shown_most_ns,
)
from boundby.claims.doubt import saving_range
from boundby.claims.limits import NOTABLE_UNSEEN
from boundby.model.causes import BUSY_CAUSES, NOUN, REMOVABLE, SHORT_LABEL, Cause
from boundby.model.scale import NEGLIGIBLE, NOTABLE, QUARTER, SMALL
from boundby.model.units import duration, percent, plural
from boundby.replay.counterfactuals import LEAST_SHOWN, MOST_OF_IT
from boundby.replay.trust import level, summed, uncertainty
from boundby.results.report import Uncertainty

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


def _open(kind: str, keys: Sequence[str], less_ns: int, more_ns: int, sentence: str, steps: int = 0) -> Uncertainty:
    """What leaves open by how much less, and by how much more, the removal of each of these causes may save."""
    return uncertainty(kind, less_ns, more_ns, steps, where=keys, sentence=sentence)


def confidence(case: BoundCase, decision: Decision) -> tuple[str, tuple[Uncertainty, ...]]:
    """Level, and what is uncertain, in order of weight. What it leaves open counts as far as it may turn the verdict;
    what neither turns it nor lowers the confidence whatever it leaves open is not uncertain."""
    if not case.has_gpu_work:
        lost = tuple(_doubts_of_host(case))
        return level(sum(doubt.steps for doubt in lost)), lost
    doubts = list(_doubts(case, decision)) if case.window_ns else []
    if decision.host_limit_fraction is None and decision.bound in _NAMED and len(decision.savings) > 1:
        doubts += _turned(case, decision, doubts)
    with_steps = tuple(doubt for doubt in doubts if doubt.steps)
    return level(summed(0, with_steps)[2]), with_steps


def _turned(case: BoundCase, decision: Decision, doubts: Iterable[Uncertainty]) -> Iterator[Uncertainty]:
    """What all doubts together make of the lead: whether another cause may save as much, or is close behind."""
    ends = {key: summed(0, [doubt for doubt in doubts if key in doubt.where]) for key in _KEYS}
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    rivals = sorted(_rivals(case, decision, saved, ends), key=lambda each: each.least_ns - each.most_ns)
    matters_ns = LEAST_SAVING * case.window_ns
    rival = rivals[0]
    lead_ns = rival.least_ns - max(rival.most_ns, matters_ns)
    if lead_ns >= CLOSE * case.window_ns:
        return
    for doubt in doubts:
        open_ns = max(doubt.low_ns, doubt.high_ns if rival.key in doubt.where else 0)
        if not doubt.steps and open_ns >= matters_ns > 0:
            yield replace(doubt, steps=1)
    if lead_ns < 0:
        yield uncertainty("turned", steps=2, where=(rival.key,), sentence=_turning(case, rival.key))
    elif close := [
        each.key
        for each in rivals
        if saved.get(each.key, 0) >= matters_ns and each.least_ns - each.most_ns < CLOSE * case.window_ns
    ]:
        either = " or ".join(NOUN[key] for key in close)
        yield uncertainty("close", steps=1, where=close, sentence=f"removing {either} may save nearly as much")


def _turning(case: BoundCase, key: str) -> str:
    """How a cause may save more than the named one; one that the account hardly shows may lie in what it does not
    know."""
    is_unseen = case.share(Cause[key.upper()]) < NEGLIGIBLE <= case.share(Cause.UNATTRIBUTED)
    if is_unseen:
        return f"what is not recorded may be {NOUN[key]}, and removing that may save more"
    return f"removing {NOUN[key]} may save more: the estimates are too close to tell"


class _Rival(Struct, frozen=True):
    """A cause beside the one that the verdict names: what that saves at least where this is its rival, and this at
    most."""

    key: str
    least_ns: int
    most_ns: int


def _rivals(
    case: BoundCase, decision: Decision, saved: Mapping[str, int], ends: Mapping[str, tuple[int, int, int]]
) -> Iterator[_Rival]:
    named = decision.mixed_of or (decision.bound,)
    alone = _alone(case) if Cause.SYNC.key in named else {}
    for key in _KEYS:
        if key not in named:
            most_ns = _most_ns(case, decision, key, max(saved.get(key, 0), alone.get(key, 0))) + ends[key][1]
            least_ns = max(_least_ns(case, own, ns, key) + ends[own][0] for own, ns in saved.items() if own in named)
            yield _Rival(key, least_ns, most_ns)


def _alone(case: BoundCase) -> dict[str, int]:
    """What removing each cause of the host saves while the waits for the device stay. These savings are rivals of the
    waits' as far as it is open what the program does without its waits."""
    if case.replay.open_ns(Cause.SYNC.key)[0] < LEAST_SAVING * case.window_ns:
        return {}
    return {
        key: answer.saved_ns for key, answer in case.replay.alone.items() if key not in (*BUSY_KEYS, Cause.SYNC.key)
    }


def _least_ns(case: BoundCase, key: str, saved_ns: int, rival: str) -> int:
    """What removing a cause saves at least by the replay: no less than the idle time that the account shows of it. What
    is waited for outside of the trace holds every removal up alike, but for that of the wait."""
    least_ns = saved_ns - case.replay.open_ns(key)[0]
    least_ns += 0 if rival in _OUTSIDE else min(case.replay.held_ns(key), saved_ns - least_ns)
    cause = Cause[key.upper()]
    return least_ns if cause in BUSY_CAUSES else max(least_ns, min(saved_ns, case.time[cause]))


def _most_ns(case: BoundCase, decision: Decision, key: str, saved_ns: int) -> int:
    """What removing a cause saves at most: by the replay no more than the account can hold of it (`shown_most_ns`); by
    the account alone as much of the device's work as there is, but for kernels no more than the time in which the host
    is not at work: that takes as long without them. A cause that the account does not show is no rival, nor
    is work of the device that takes less than what the verdict names, whatever the time that is not known was."""
    cause = Cause[key.upper()]
    own_ns = case.time[cause] + case.time[Cause.UNATTRIBUTED]
    if case.replayed is None:
        return max(saved_ns, _apart_ns(case, cause))
    more_ns = saved_ns + case.replay.open_ns(key)[1]
    if cause in BUSY_CAUSES:
        named = [
            Cause[cause_key.upper()] for cause_key in (decision.mixed_of or (decision.bound,)) if cause_key in BUSY_KEYS
        ]
        return saved_ns if named and own_ns < max(case.time[named_cause] for named_cause in named) else more_ns
    if cause == Cause.SYNC or case.is_part:
        return more_ns
    return saved_ns if own_ns < LEAST_SHARE * case.window_ns else min(more_ns, shown_most_ns(case, cause))


def _apart_ns(case: BoundCase, cause: Cause) -> int:
    """Of the device's work of a cause, as much as may not lie beside what the host does."""
    if cause not in BUSY_CAUSES:
        return 0
    is_apart = cause != Cause.GPU_COPY and not case.is_part
    return min(case.time[cause], case.window_ns - (case.host.active_ns if is_apart else 0))


def _doubts(case: BoundCase, decision: Decision) -> Iterator[Uncertainty]:
    named = {decision.bound, *(decision.mixed_of or ())}
    is_saturated = decision.host_limit_fraction is not None
    yield from _doubts_of_rows(case)
    yield from _doubts_of_sleep(case, named, is_saturated=is_saturated)
    if case.replay.unreliable is not None and case.records.captured.cuda_api:
        yield from _doubts_of_replay(case, decision)
    yield from _doubts_of_device(case, decision, named, is_saturated=is_saturated)
    yield from _doubts_of_savings(case, decision, is_saturated=is_saturated)


def _doubts_of_rows(case: BoundCase) -> Iterator[Uncertainty]:
    """Rows that cannot be believed, and time of which none tells."""
    if not case.records.captured.cuda_api:
        yield uncertainty("no-calls", steps=2)
    if case.records.is_unbelievable:
        yield uncertainty("bad-times", steps=2)
    elif case.records.is_damaged:
        yield uncertainty("bad-rows", steps=1)
    if case.records.is_end_unclear:
        yield uncertainty("error-printed", steps=1)
    open_ns = {
        "single-row": (case.records.unconfirmed_ns, case.records.unconfirmed_ns),
        "unrecorded": (0, case.time[Cause.UNATTRIBUTED]),
        "profiler": (0, case.time[Cause.PROFILER]),
    }
    sentences = {
        "single-row": "of {} of the time, at the ends of the window, a single row of the report tells",
        "unrecorded": "{} of the time is not recorded",
        "profiler": "{} of the time is the profiler's own",
    }
    for kind, (less_ns, more_ns) in open_ns.items():
        if more_ns > 0:
            yield _open(kind, _KEYS, less_ns, more_ns, sentences[kind].format(percent(more_ns / case.window_ns)))


def _doubts_of_device(
    case: BoundCase, decision: Decision, named: Collection[str], *, is_saturated: bool
) -> Iterator[Uncertainty]:
    """What the device did that is not on record, or not as it was."""
    if Cause.GPU_COMPUTE.key in named and case.missing.opaque_ns >= UNEXPLAINED_MUCH * case.window_ns:
        part = percent(min(case.missing.opaque_ns / case.window_ns, 1.0))
        sentence = f"what runs inside CUDA graphs, {part} of the time, is not on record"
        yield uncertainty("opaque-graphs", steps=1, sentence=sentence)
    yield from _doubts_of_clock(case, is_saturated=is_saturated)
    if case.missing.lost_before and (case.missing.lost_before >= case.operations or _may_lead(case, decision)):
        before = f"{plural(case.missing.lost_before, 'launch', 'launches')} before the window"
        yield uncertainty("lost-work", steps=2, sentence=f"the work of {before} is not on record")
    if case.missing.unseen_ns >= NOTABLE_UNSEEN * case.window_ns:
        part = percent(case.missing.unseen_ns / case.window_ns)
        sentence = f"for {part} of the time the GPU's counters show work of which no operation is on record"
        yield uncertainty("unseen", steps=2, sentence=sentence)
    if case.missing.silent_ns > 0:
        silent = duration(case.missing.silent_ns)
        sentence = f"CUDA calls stop on record {silent} before the end, while ranges go on"
        yield uncertainty("silent", steps=1, sentence=sentence)


def _doubts_of_clock(case: BoundCase, *, is_saturated: bool) -> Iterator[Uncertainty]:
    """The device's clock was off, or may be."""
    if case.records.is_clock_shifted:
        yield uncertainty("clock", steps=1, sentence="the GPU's clock was off and was corrected")
    ahead_ns = case.records.clock_ahead_ns
    if ahead_ns and not (is_saturated and ahead_ns < NOTABLE * case.window_ns):  # a busy device is so on its own clock
        sentence = f"the GPU's clock may be {duration(ahead_ns)} ahead of the host's"
        yield uncertainty("clock", steps=1 if is_saturated else 2, sentence=sentence)


def _doubts_of_savings(case: BoundCase, decision: Decision, *, is_saturated: bool) -> Iterator[Uncertainty]:
    """Where account and replay, or one cause and several, say different things."""
    if (unshown := _unshown(case, decision)) is not None:
        bound, noun = SHORT_LABEL[unshown.key], NOUN[unshown.key]
        sentence = f"the bound is {bound}, but the GPU rarely idles because of {noun} there"
        yield uncertainty("unlike-account", steps=2, sentence=sentence)
    if (unsaved := _unsaved(case, decision)) is not None:
        part, label = percent(case.share(unsaved)), SHORT_LABEL[unsaved.key]
        sentence = f"the GPU idles {part} of the time because of {label}, but removing that saves little"
        yield uncertainty("unlike-account", steps=1, sentence=sentence)
    named = decision.mixed_of or ()
    if any(max(case.replay.open_ns(key)) > CLOSE * case.window_ns for key in named):
        yield uncertainty("turned", steps=1, sentence=_between(case))
    yield from _doubts_of_bound(case, decision, is_saturated=is_saturated)


def _between(case: BoundCase) -> str:
    """What leaves open which of two causes saves more."""
    unknown = case.share(Cause.UNATTRIBUTED)
    if unknown >= MIXED_WITHIN:
        return f"{percent(unknown)} of the time has no cause on record, and may belong to either"
    return "the trace does not show exactly how much removing either of the two saves"


def _doubts_of_bound(case: BoundCase, decision: Decision, *, is_saturated: bool) -> Iterator[Uncertainty]:
    """There is none, or it is not what saves most by another reckoning."""
    if decision.why_not is not None:
        yield uncertainty("no-verdict", steps=2)
    elif decision.bound == "unknown":
        yield uncertainty("no-cause", steps=1)
    elif decision.mixed_of is not None:
        return
    elif is_saturated and case.replayed is not None and (decision.host_limit_fraction or 0) < IDLE_WORTH:
        yield uncertainty("unlike-account", steps=1, sentence=little_alone(case, decision.bound))
    elif is_saturated and (rival := _held_up_rival(case, decision)) is not None:
        sentence = f"other ranks may still hold this one up, and removing {NOUN[rival]} would then save more"
        yield uncertainty("outside", steps=1, where=(rival,), sentence=sentence)
    elif not is_saturated:
        yield from _doubts_of_one(case, decision)


def _doubts_of_one(case: BoundCase, decision: Decision) -> Iterator[Uncertainty]:
    """Whether the cause that is named saves anything, and most, alone."""
    if _may_save_nothing(case, decision):
        sentence = f"whether removing {NOUN[decision.bound]} would save anything is open"
        yield uncertainty("unlike-account", steps=2, sentence=sentence)
    if host_together_ns(case, decision) is not None:
        yield uncertainty("together", steps=1)
    if (other := more_alone(case, decision.bound)) is not None:
        sentence = f"removing {NOUN[other]} alone would save more, as long as the host waits as it does now"
        yield uncertainty("waits-stay", steps=1, sentence=sentence)


def _held_up_rival(case: BoundCase, decision: Decision) -> str | None:
    """What may save more than the bound of a busy device, where others hold up from outside what the bound takes."""
    promised, rivals = (
        saving_range(case, decision),
        [saving for saving in decision.savings if saving.cause != decision.bound],
    )
    if promised is None or not rivals or not case.replay.held_ns(decision.bound):
        return None
    return rivals[0].cause if promised[0] < rivals[0].saving_ns else None


def _may_save_nothing(case: BoundCase, decision: Decision) -> bool:
    """Whether the range of what removing the named cause saves begins at nothing, whatever the account shows of it."""
    promised = None if case.replayed is None else saving_range(case, decision)
    return promised is not None and promised[0] < LEAST_SAVING * case.window_ns


def _doubts_of_sleep(case: BoundCase, named: Collection[str], *, is_saturated: bool) -> Iterator[Uncertainty]:
    """Whether the host was on a CPU or asleep."""
    is_host = any(key in named for key in _ON_CPU_OR_NOT)
    if not case.records.has_cpu_evidence and is_host:
        sentence = (
            "neither CPU scheduling nor OS calls were captured: some of the time shown as host code may be waiting"
        )
        yield uncertainty("no-host", steps=1, sentence=sentence)
    if case.host.preempted_ns and is_host:
        # A sleep whose OS call is missing looks so.
        part = percent(case.host.preempted_ns / case.window_ns)
        sentence = f"{part} of the time the host's thread was ready to run and waited for a core (preempted)"
        off_core_ns = max(case.host.preempted_ns, case.host.off_core_ns)
        yield _open("preempted", _ON_CPU_OR_NOT, off_core_ns, off_core_ns, sentence)
    yield from _doubts_of_wakers(case, named, is_saturated=is_saturated)
    if case.missing.is_cpu_thinned and not is_saturated:
        yield uncertainty("thinned", steps=2)


def _doubts_of_wakers(case: BoundCase, named: Collection[str], *, is_saturated: bool) -> Iterator[Uncertainty]:
    """Whether the host waited for a thread that is not on record."""
    if Cause.HOST_BLOCKED.key in named and case.host.unwoken_ns:
        yield _open("unwoken", _ON_CPU_OR_NOT, case.host.unwoken_ns, case.host.unwoken_ns, "")
    if BUSY_KEYS.intersection(named) and not is_saturated and (nobody_ns := case.host.asleep_for_nobody_ns):
        part = percent(nobody_ns / case.window_ns)  # whoever it is: as long whatever the device does
        sentence = f"for {part} of the time the host waits for a thread that is not on record: it may set the pace"
        yield _open("unwoken", (*sorted(BUSY_KEYS), *_ON_CPU_OR_NOT), nobody_ns, nobody_ns, sentence)


def _doubts_of_replay(case: BoundCase, decision: Decision) -> Iterator[Uncertainty]:
    """Nothing then shows how far host and device hide behind each other, nor what lost calls waited for."""
    sentence, limit = case.replay.unreliable or "", decision.host_limit_fraction
    is_lost = (
        case.missing.calls_fraction >= SOME_CALLS_LOST or case.missing.unsure_ns >= SOME_CALLS_LOST * case.window_ns
    )
    # Nor which sets the pace, where the host's own work, or other work of the device, takes as long.
    is_open = is_lost if limit is None else limit < IDLE_WORTH or is_covered(case, decision.bound)
    # Work that is launched waits for the device, or for its own launch to arrive, and for nothing that the host does.
    waiting_ns = 0 if limit is not None else case.time[Cause.DEVICE_WAIT]
    yield _open("unreplayed", _OF_LAUNCHED, 0, waiting_ns, sentence, 2 if is_open else 1)


def _may_lead(case: BoundCase, decision: Decision) -> bool:
    """Work lost before the window, as long as it may have been, would have another of the device's causes lead; or the
    window, which begins with that work, holds as much more as removing what is named would save."""
    named = decision.mixed_of or (decision.bound,)
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    best = max(saved.get(cause, 0) for cause in named)
    if case.missing.before_ns >= best:
        return True
    others = [kind.key for kind in case.missing.kinds if kind.key not in named]
    return any(saved.get(key, 0) and saved[key] + case.missing.lost_before_ns > best for key in others)


def _unshown(case: BoundCase, decision: Decision) -> Cause | None:
    """A cause of the host that is named although hardly any time of its own shows it."""
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    for cause in _HOST:
        if cause.key in (decision.mixed_of or (decision.bound,)):
            own = case.time[cause] + (case.sync.blocked_ns if cause == Cause.SYNC else 0)
            if not case.time[cause] or own < LEAST_SHOWN * saved.get(cause.key, 0):
                return cause
    return None


def _unsaved(case: BoundCase, decision: Decision) -> Cause | None:
    """A cause of the host for which a device idles longer than any removal would save by the replay, its own included:
    something that the account does not show would take as long."""
    if case.replayed is None or case.is_part:
        return None
    most = max(_HOST, key=lambda cause: case.time[cause])
    alone = case.replay.alone.get(most.key)
    saved_ns = max(case.replayed.get(most.key, 0), 0 if alone is None else case.window_ns - alone.predicted_ns)
    best_ns = max((saving.saving_ns for saving in decision.savings), default=0)
    return most if case.time[most] > best_ns and saved_ns < MOST_OF_IT * case.time[most] else None


def _doubts_of_host(case: BoundCase) -> Iterator[Uncertainty]:
    """Of a verdict on host time alone: it is never sure, since it is not what a GPU waits for."""
    yield uncertainty("no-gpu", steps=1) if case.records.no_verdict is None else uncertainty("no-verdict", steps=2)
    if not case.records.has_cpu_evidence:
        yield uncertainty("no-host", steps=2)
    elif case.window_ns:
        if (unexplained := case.share(Cause.UNATTRIBUTED)) >= UNEXPLAINED_SOME:
            steps = 2 if unexplained >= UNEXPLAINED_MUCH else 1
            yield uncertainty("unrecorded", steps=steps, sentence=f"{percent(unexplained)} of the time is not recorded")
        if case.host.preempted_ns >= MUCH_PREEMPTED * case.window_ns:
            part = percent(case.host.preempted_ns / case.window_ns)
            sentence = f"for {part} of its time the thread waited for a core (preempted)"
            yield uncertainty("preempted", steps=1, sentence=sentence)
