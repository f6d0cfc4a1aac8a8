"""Whether a verdict would stand whatever the records that are missing would have said; if not, why none is given.

Time that lost operations may have filled is put on the device's side, on the host's, or where the account would have
had it, and each of these cases is decided again: a verdict that is not the same in all of them is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from boundby.claims.bound import BUSY_KEYS, LEAST_SAVING, BoundCase, Decision, decide
from boundby.model.causes import BUSY_CAUSES, SHORT_LABEL, Cause
from boundby.model.scale import HABIT, NOTABLE, QUARTER, SMALL
from boundby.model.units import duration, percent
from boundby.replay.counterfactuals import MOST_OF_IT
from boundby.replay.trust import OpenRange
from boundby.rules.builtin.trace_quality import CAPTURE_AGAIN

# Calls that left no other record are lost as often as those that did; more often by chance, up to so many times.
CHANCE = HABIT
# So much waiting of the device for nothing on record, and more of it than any cause could save, decides nothing.
MUCH_WAITING = QUARTER
# With so many calls lost that left other records, waits that left none are lost as well.
MANY_CALLS_LOST = NOTABLE
# Lost work that can have taken so little of the window is put where it can have run.
LITTLE = SMALL
_HOST = (Cause.CPU, Cause.SYNC, Cause.CUDA_API)

Time = Mapping[Cause, int]


def settled(case: BoundCase) -> BoundCase:
    """Where hardly any time can hold the lost work, the replay of the trace with the work in it: what was launched did
    run, and waits for it are explained. Where nothing but delays is in doubt, the replay as well, if its verdict is the
    same whether they stay or go, and the delays are less than what it would save. That nothing saves anything, such a
    replay cannot tell."""
    filled = case.missing.filled
    if case.replayed is None and case.replay.delayed is not None:
        ways = [replace(case, replayed=_of_own_time(case, saved)) for saved in case.replay.delayed]
        decisions = [decide(way) for way in ways]
        bounds = {decision.bound for decision in decisions}
        says_something = decisions[0].savings and decisions[0].savings[0].saving_ns >= LEAST_SAVING * case.window_ns
        if (
            len(bounds) == 1
            and says_something
            and not bounds & {"mixed", "unknown", "hidden"}
            and not _waits_most(case, decisions[0])
        ):
            case = ways[0]
    if filled is None or filled.replayed is None or sum(case.missing.work.values()) > LITTLE * case.window_ns:
        return case
    return replace(
        case,
        replayed=filled.replayed,
        following=None,
        replay=replace(case.replay, unreliable=None, unexplained={}),
        missing=replace(case.missing, filled=None),
    )


def _of_own_time(case: BoundCase, saved: Mapping[str, int]) -> Mapping[str, int]:
    """Savings of which the device's work has no more than its own time: delays that nothing explains, which are
    removed with it, may be anybody's."""
    return {key: min(ns, case.time[Cause[key.upper()]]) if key in BUSY_KEYS else ns for key, ns in saved.items()}


def saving_range(case: BoundCase, decision: Decision) -> tuple[int, int] | None:
    """What removing the bound saves at least and at most, whatever the missing records would have said and what the
    trace leaves open turns out to be; None: it is all there.

    Without a replay nothing shows how far the host's work hides behind the device's: its work may save all of its time,
    or nothing."""
    named = decision.mixed_of[0] if decision.mixed_of else decision.bound
    saved = {item.cause: item.saving_ns for item in decision.savings}
    if named not in saved:
        return None
    reach, (less, more) = OpenRange(saved[named]), case.replay.open_ns(named)
    if case.replayed is None and named in BUSY_KEYS:
        reach = reach.reaching("unreplayed", 0, case.time[Cause[named.upper()]])
        return reach.low_ns, reach.high_ns
    ways = [{item.cause: item.saving_ns for item in other.savings} for other in _alternatives(case)]
    if not ways and not less and not more:
        return None
    reach = reach.between("lost-work", *(way[named] for way in ways if named in way))
    # A region's work may hold up more than the time that the account gives it.
    whole_ns = max(case.window_ns, saved[named])
    reach = reach.reaching("unexplained", max(reach.low_ns - less, 0), min(reach.high_ns + more, whole_ns))
    return min(reach.low_ns, whole_ns), min(reach.high_ns, whole_ns)


def why_not(case: BoundCase, decision: Decision) -> str | None:
    """Why nothing can be said, with the capture that would tell; None: the verdict stands."""
    if not case.has_gpu_work:
        return _no_device(case)
    if case.window_ns == 0 or decision.bound == "hidden":
        return _hidden(case, decision)
    if decision.bound == "unknown":
        return None if case.is_part else _waiting(case, decision)  # nothing is claimed
    if case.records.stretched is not None:
        return case.records.stretched
    return _lost(case, decision) or _undecided(case, decision)


def _lost(case: BoundCase, decision: Decision) -> str | None:
    """So much is not on record that the rest decides nothing."""
    unknown = case.share(Cause.UNATTRIBUTED)
    if unknown > MOST_OF_IT and not case.missing.lost and not case.missing.unseen_ns:
        return f"{percent(unknown)} of the time nothing of the host is on record. {HOST_TOO}"
    if case.missing.calls_fraction >= MANY_CALLS_LOST and decision.host_limit_fraction is None:
        return _told(case, [decision.bound])
    is_whole = case.replayed is None and not case.is_part and decision.host_limit_fraction is None
    return _told(case, [decision.bound]) if is_whole and _is_outweighed(case, decision) else None


def _is_outweighed(case: BoundCase, decision: Decision) -> bool:
    """Whether lost work may take longer than what the verdict leads by, in a trace that cannot be replayed. One copy or
    wait that is not on record decides when many launches happen."""
    lost = case.missing.lost - case.missing.lost_before
    open_ns = max(sum(case.missing.work.values()), CHANCE * lost * case.window_ns // max(case.missing.launches, 1))
    return lost > 0 and case.replay.unreliable is not None and open_ns > _lead_ns(decision)


def _undecided(case: BoundCase, decision: Decision) -> str | None:
    """The device waits for what is not on record, or the verdict would be another one, had it been."""
    if (case.replay.unreliable is not None or not case.is_part) and (waits := _waiting(case, decision)) is not None:
        return waits
    others = sorted({other.bound for other in _alternatives(case) if not _agree(decision, other)})
    return _told(case, [decision.bound, *others]) if others or case.share(Cause.UNATTRIBUTED) > MOST_OF_IT else None


def _lead_ns(decision: Decision) -> int:
    """How much more the best removal saves than the next that the verdict does not name."""
    rest = decision.savings[2 if decision.mixed_of else 1 :]
    return decision.savings[0].saving_ns - max((saving.saving_ns for saving in rest), default=0)


def _waiting(case: BoundCase, decision: Decision) -> str | None:
    """Nothing replays, and the device waits for nothing on record for longer than any cause could save."""
    if case.replayed is not None or not _waits_most(case, decision):
        return None
    waiting = percent(case.share(Cause.DEVICE_WAIT))
    return f"{waiting} of the time the device waits for what the trace does not show. {CLOCKS}"


def _waits_most(case: BoundCase, decision: Decision) -> bool:
    waiting_ns = case.time[Cause.DEVICE_WAIT]
    best_ns = max((item.saving_ns for item in decision.savings), default=0)
    return waiting_ns >= MUCH_WAITING * case.window_ns and waiting_ns > best_ns


def _agree(one: Decision, other: Decision) -> bool:
    """The same bound, or one of the two of a mixed verdict."""
    return bool({one.bound, *(one.mixed_of or ())} & {other.bound, *(other.mixed_of or ())})


def _alternatives(case: BoundCase) -> Iterator[Decision]:
    """What would be decided, had the missing records said otherwise."""
    work, calls = sum(case.missing.work.values()), sum(case.missing.calls.values())
    ways_of_work: list[Time] = [case.missing.work, *({kind: work} for kind in case.missing.kinds)] if work else [{}]
    ways_of_calls: list[Time] = [case.missing.calls, *({cause: calls} for cause in _HOST)] if calls else [{}]
    guessed = _unseen_calls(case)
    if guessed:
        ways_of_calls += [
            {**way, Cause.CPU: way.get(Cause.CPU, 0) - guessed, cause: way.get(cause, 0) + guessed}
            for way in tuple(ways_of_calls)
            for cause in (Cause.SYNC, Cause.CUDA_API)
        ]
    for added in itertools.product(ways_of_work, ways_of_calls):
        if any(added):
            yield decide(_with(case, work + calls, *added))
    if case.missing.is_cpu_thinned:
        yield from _other_sleep(case)
    yield from _other_replays(case)
    if case.missing.filled is not None and any(case.missing.filled.time.values()):
        yield decide(
            replace(case, time=case.missing.filled.time, replayed=case.missing.filled.replayed, following=None)
        )


def _other_replays(case: BoundCase) -> Iterator[Decision]:
    """Had delays of ready work gone, and by what a replay of the records makes of the time that they lack."""
    if case.replayed is None:
        return
    if case.replay.delayed is not None:
        yield decide(replace(case, replayed=case.replay.delayed[1], following=None))
    unsure_ns = case.missing.unsure_ns
    for key, saving_ns in case.replayed.items() if unsure_ns else ():
        for ns in (saving_ns + unsure_ns, saving_ns - unsure_ns):
            yield decide(replace(case, replayed={**case.replayed, key: max(ns, 0)}, following=None))


def _other_sleep(case: BoundCase) -> Iterator[Decision]:
    """Had the host been on a CPU all the time, or asleep."""
    for cause, other in ((Cause.CPU, Cause.HOST_BLOCKED), (Cause.HOST_BLOCKED, Cause.CPU)):
        time = {**case.time, cause: case.time[cause] + case.time[other], other: 0}
        replayed = case.replayed
        if replayed is not None:
            replayed = {**replayed, cause.key: replayed.get(cause.key, 0) + replayed.get(other.key, 0), other.key: 0}
        yield decide(replace(case, time=time, replayed=replayed, following=None))


def _unseen_calls(case: BoundCase) -> int:
    """Of the host's own time: what may have been calls that left no record at all."""
    fraction = case.missing.calls_fraction
    if not fraction:
        return 0
    called = case.time[Cause.SYNC] + case.time[Cause.CUDA_API]
    return min(case.time[Cause.CPU], round(CHANCE * fraction / max(1 - fraction, 0.01) * called))


def _with(case: BoundCase, unknown_ns: int, *added: Time) -> BoundCase:
    time = dict(case.time)
    time[Cause.UNATTRIBUTED] -= min(unknown_ns, time[Cause.UNATTRIBUTED])
    replayed = None if case.replayed is None else dict(case.replayed)
    for cause, ns in (item for each in added for item in each.items()):
        time[cause] = max(time[cause] + ns, 0)
        # What the host does while counters show the device at work, the replay has as it was.
        is_there = cause not in BUSY_CAUSES and _is_unseen(case)
        if replayed is not None and cause.key in replayed and not is_there:
            replayed[cause.key] = max(replayed[cause.key] + ns, 0)
    return replace(case, time=time, replayed=replayed, following=None)


# What is no cause, after "bound by".
_SEVERAL = {"mixed": "several alike", "unknown": "nothing in particular"}


def _is_unseen(case: BoundCase) -> bool:
    """Whether most of the work that is not on record is what counters show."""
    return 2 * case.missing.unseen_ns > sum(case.missing.work.values())


def _told(case: BoundCase, bounds: list[str]) -> str:
    may = " or ".join(dict.fromkeys(_SEVERAL.get(bound, SHORT_LABEL.get(bound, bound)) for bound in bounds))
    if _is_unseen(case):
        unseen = percent(case.missing.unseen_ns / case.window_ns)
        tells = len(bounds) > 1 and case.share(Cause.UNATTRIBUTED) <= MOST_OF_IT
        what = f": it may be bound by {may}" if tells else ""
        return (
            f"for {unseen} of the time the GPU's counters show work of which no operation is on record{what}. {ALONE}"
        )
    parts = []
    if case.missing.lost:
        parts.append(f"{case.missing.lost:,} of {case.missing.launches:,} launches are on record without their work")
    if sum(case.missing.calls.values()) or case.missing.calls_fraction:
        parts.append("CUDA calls are missing whose operations or waits are on record")
    elif case.missing.unsure_ns:
        parts.append("the numbers of the CUDA calls leave some out: calls may be missing")
    if not parts:
        return f"context switches are missing: whether the host computed or slept cannot be told. {CAPTURE_AGAIN}"
    missing = duration(max(sum(case.missing.work.values()) + sum(case.missing.calls.values()), case.missing.unsure_ns))
    what = f"; what happened in {missing} is not known: it may be bound by {may}" if len(bounds) > 1 else ""
    return f"{' and '.join(parts)}{what}. {CAPTURE_AGAIN}"


#: What tells whose work it is that the counters of a GPU show.
ALONE = (
    "Either another program uses this GPU (nvidia-smi lists those that do), or operations of this one were lost: "
    "capture again while no other program uses the GPU"
)
#: What records the host, beside its CUDA calls.
HOST_TOO = (
    "Capture the host as well (nsys: --trace=cuda,nvtx,osrt --sample=process-tree; torch.profiler: with_stack=True)"
)
#: What torch.profiler's ``experimental_config`` takes to record which stream and event a call waits for.
SYNC_EVENTS = "_ExperimentalConfig(enable_cuda_sync_events=True)"
CLOCKS = (
    f"Capture events too (nsys: --cuda-event-trace=true; torch.profiler: {SYNC_EVENTS}); where operations lie far from "
    "their launches, the clocks of host and device may be apart: capture again, with another version of the profiler"
)


def _no_device(case: BoundCase) -> str | None:
    if not case.missing.lost:
        unknown_ns = case.time[Cause.UNATTRIBUTED]
        if case.records.no_verdict is None and unknown_ns > MOST_OF_IT * case.window_ns:
            return (
                f"{percent(unknown_ns / case.window_ns)} of the time nothing shows whether the thread works or sleeps"
            )
        return case.records.no_verdict
    lost = f"{case.missing.lost:,} launches are on record, and no work of a GPU is: what it did is not known"
    return f"{lost}. {CAPTURE_AGAIN}"


def _hidden(case: BoundCase, decision: Decision) -> str | None:
    """Work that is not on record hides behind nothing."""
    if not case.missing.lost or decision.bound not in ("hidden", "unknown", *BUSY_KEYS):
        return None
    return _told(case, [decision.bound])
