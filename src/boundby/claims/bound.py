"""The bound: the cause whose removal would save the most time, decided once, from one plain input."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from boundby.model.causes import BUSY_CAUSES, CAUSE_INFO, CAUSES, REMOVABLE, SCENARIO_OF_CAUSE, Cause
from boundby.model.scale import HALF, NEARLY_ALL, NEGLIGIBLE, SLIGHT, SMALL
from boundby.model.units import percent
from boundby.replay.counterfactuals import LEAST_SHOWN, MOST_OF_IT
from boundby.replay.predictor import MODEL_ERROR
from boundby.replay.trust import OUTSIDE
from boundby.results.report import ApiCalls, Copies, Saving, Syncs, WhatIf
from boundby.trace.facts import Captured

# A device this busy, without an idle cause worth more than IDLE_WORTH, is bound by its busiest class.
SATURATED = NEARLY_ALL
IDLE_WORTH = SMALL
# Two savings this close (of the window) are not told apart: the verdict is mixed.
MIXED_WITHIN = SLIGHT
# A lead smaller than this is a close call: a small change turns it.
CLOSE = 2 * MIXED_WITHIN
# Below this share of the window no saving is worth a name.
LEAST_SAVING = NEGLIGIBLE
# A part whose time is fixed by this much is not called hidden: what holds it up is there, and no change removes it.
MOSTLY_FIXED = HALF
#: Causes that no change to the program removes.
FIXED = tuple(cause for cause in CAUSES if cause not in REMOVABLE)
BUSY_KEYS = frozenset(cause.key for cause in BUSY_CAUSES)

# A cause to which the account of a device gives less than this (a wait: with what it exposes) is no verdict.
LEAST_SHARE = SMALL

_WITHOUT_HOST = "infinite_host"
NO_CALLS, NO_SYNCS = ApiCalls(0, 0, None), Syncs(0, 0, None)
_HOST_IDLE = tuple(cause for cause in REMOVABLE if cause not in (*BUSY_CAUSES, Cause.SYNC))
_HOST_KEYS = frozenset(cause.key for cause in _HOST_IDLE)
_IDLE_REMOVABLE = tuple(cause for cause in REMOVABLE if cause not in BUSY_CAUSES)
_HOST_WORK = (Cause.CUDA_API, Cause.CPU, Cause.INIT)


class Otherwise(Struct, frozen=True):
    """An account as it could have been, and what a replay of that would save by cause (None: none could be trusted)."""

    time: Mapping[Cause, int]
    replayed: Mapping[str, int] | None


class MissingRecords(Struct, frozen=True, kw_only=True):
    """What is not on record, and where it may have been."""

    work: Mapping[Cause, int] = field(default_factory=dict)  # of ``unattributed``: work may have been lost there
    calls: Mapping[Cause, int] = field(default_factory=dict)  # calls may have; both by what would be said if not
    is_cpu_thinned: bool = False  # context switches are missing, so that on a CPU and asleep are not told apart
    unsure_ns: int = 0  # what a replay may be off by for calls that are missing
    filled: Otherwise | None = None  # had the device been busy whenever lost work may have run
    kinds: tuple[Cause, ...] = ()  # what the lost work may have been
    launches: int = 0  # whose work should be on record
    lost: int = 0  # whose work is not
    lost_before: int = 0  # of these: before the window begins with the first work on record
    lost_before_ns: int = 0  # for how long their work may have run
    before_ns: int = 0  # how much earlier than the window lost work may have begun
    calls_fraction: float = 0.0  # of the calls that left other records
    uncalled: int = 0  # operations and waits that were called after the last call on record
    unseen_ns: int = 0  # idle on record, and at work by the GPU's counters
    silent_ns: int = 0  # from where its calls stop on record to the end of the trace, while ranges that call go on
    opaque_ns: int = 0  # of ``gpu_compute``: graphs that were recorded as one operation each


class CaseRecords(Struct, frozen=True, kw_only=True):
    """What the records are worth."""

    captured: Captured = field(default_factory=Captured)
    has_cpu_evidence: bool = True  # whether on-CPU and asleep can be told apart: by operators and frames, too
    is_damaged: bool = False  # rows whose values cannot be right were left out, or changed
    is_unbelievable: bool = False  # so many that no time can be relied on
    is_end_unclear: bool = False  # an error is the last that the program printed: it may have gone on without something
    unconfirmed_ns: int = 0  # at the ends of the window, of which a single row of the report tells
    is_clock_shifted: bool = False  # the device's clock was off and was corrected
    clock_ahead_ns: int = 0  # it may be ahead by so much: no operation starts sooner after its launch
    stretched: str | None = None  # why the window holds hardly any of the work
    no_verdict: str | None = None  # of host time: why it says nothing about the program


class Host(Struct, frozen=True, kw_only=True):
    """What the launching thread did; of a region, what those that run it did."""

    active_ns: int = 0  # the launching thread neither waits for the device nor sleeps
    total_ns: int = 0  # host intervals of a region's instances
    asleep_ns: int = 0  # of these, in the operating system
    starting_ns: int = 0  # of these, while the thread compiles, or starts or ends a library or message passing
    spent_ns: Mapping[Cause, int] = field(default_factory=dict)  # the launching thread, whatever the device does
    blocked_on: Mapping[str, int] = field(default_factory=dict)  # what the host slept on, largest first
    waited_in: Mapping[str, int] = field(default_factory=dict)  # of that in calls that wait for other ranks, by name
    preempted_ns: int = 0  # of ``cpu``: runnable, and waiting for a core
    paging_ns: int = (
        0  # of ``cpu`` and ``host_blocked``: it touches managed memory that lies on the device, page after page
    )
    off_core_ns: int = 0  # the launching thread, at any time: runnable, as it seems, and waiting for a core
    asleep_for_nobody_ns: int = 0  # the launching thread, at any time: no thread on record can have ended the wait
    unwoken_ns: int = 0  # of ``host_blocked``: no thread on record can have ended the wait


class Replay(Struct, frozen=True, kw_only=True):
    """What a replay says beside its savings, and how far it can be trusted."""

    predicted: Mapping[str, WhatIf] = field(default_factory=dict)  # what the report predicts, by scenario
    unreliable: str | None = None  # why the trace cannot be replayed to be trusted
    #: Where nothing but delays of ready work makes it so: savings by cause with these delays as they were, and gone.
    delayed: tuple[Mapping[str, int], Mapping[str, int]] | None = None
    #: Of the account: idle time in which launched work did not start, for no reason on record.
    unexplained: Mapping[Cause, int] = field(default_factory=dict)

    @property
    def alone(self) -> dict[str, WhatIf]:
        """The program as it ran without one cause alone, by cause."""
        scenarios = SCENARIO_OF_CAUSE.items()
        return {cause: self.predicted[scenario] for cause, scenario in scenarios if scenario in self.predicted}

    @property
    def together_ns(self) -> int | None:
        """What all causes of the host together would save; None: nothing replays."""
        whole = self.predicted.get(_WITHOUT_HOST)
        return None if whole is None else whole.saved_ns

    def open_ns(self, cause: str) -> tuple[int, int]:
        """How much less, and how much more, a removal may save than the replay says, beyond the model's error."""
        item = self.alone.get(cause)
        if item is None or item.low_ns is None or item.high_ns is None:
            return 0, 0
        error_ns = round(MODEL_ERROR * item.predicted_ns)
        less_ns, more_ns = item.high_ns - item.predicted_ns, item.predicted_ns - item.low_ns
        return max(less_ns - error_ns, 0), max(more_ns - error_ns, 0)

    def held_ns(self, cause: str) -> int:
        """Of how much less: what is held up from outside of the trace."""
        item = self.alone.get(cause)
        return 0 if item is None else sum(doubt.high_ns for doubt in item.uncertainties if doubt.kind == OUTSIDE)


class BoundCase(Struct, frozen=True, kw_only=True, dict=True):
    """What one verdict is read off: all that is known of a device, a region or a thread. Times are nanoseconds."""

    time: Mapping[Cause, int]  # the account
    host: Host = Host()
    instances: int = 1
    devices_each: float = 1.0  # on whose accounts one of them is, side by side
    operations: int = 0  # on the device
    api: ApiCalls = NO_CALLS
    sync: Syncs = NO_SYNCS
    memcpy: Mapping[str, Copies] = field(default_factory=dict)
    records: CaseRecords = CaseRecords()
    has_gpu_work: bool = True  # False: the account is of host threads
    is_part: bool = False  # a region of the program, not a whole device
    is_thread: bool = False  # what a thread alone would save says nothing about what waits for it
    replayed: Mapping[str, int] | None = None  # savings by cause, found by replay; None: the account must do
    following: Mapping[str, int] | None = None  # those that are left when the best cause is gone
    replay: Replay = Replay()
    costliest_wait_ns: int = 0  # of ``sync``: what the wait that costs most costs
    most: Mapping[str, int] | None = None  # bounds of savings: what lies inside something saves no more than that does
    is_saturated: bool | None = None  # whether the devices are; None: judged by this account
    beside_ns: int = 0  # of the device's work: others ran at the same time, which own the account's time
    missing: MissingRecords = MissingRecords()

    @cached_property
    def window_ns(self) -> int:
        return sum(self.time.values())

    def share(self, *causes: Cause) -> float:
        """Of the account's time."""
        return sum([self.time[cause] for cause in causes]) / self.window_ns


def staying_ns(waited_ns: int, replayed: Mapping[str, int]) -> int:
    """Of the idle time that waits are to blame for what stays when they go: something else keeps the host then, as a
    camera's pace does."""
    return max(waited_ns - replayed.get(Cause.SYNC.key, 0), 0)


def unshown_sleep_ns(slept_idle_ns: int, saved_ns: int) -> int:
    """What of the saving by a removal of sleeps is open: who sleeps until somebody has work for it cannot run ahead,
    and where such sleeps cost the device hardly any idle time, nothing shows that they are others."""
    return saved_ns - slept_idle_ns if slept_idle_ns < LEAST_SHOWN * saved_ns else 0


class Decision(Struct, frozen=True):
    """A bare verdict: the bound, what removing each cause would save (best first), and what would come next."""

    bound: str
    savings: tuple[Saving, ...] = ()
    mixed_of: tuple[str, str] | None = None
    bound_next: str | None = None
    host_limit_fraction: float | None = None  # saturated devices: how far below the window the host would limit
    why_not: str | None = None  # of ``unknown``: why nothing can be said, and what would tell


def decide(case: BoundCase) -> Decision:
    """What it is bound by.

    Savings are those of the replay, else of the account: an idle cause saves its share; GPU causes save the headroom,
    what is left when syncs are gone and only the host's own work remains, in proportion to their busy shares.
    """
    window = case.window_ns
    if window == 0:
        return Decision("hidden") if case.operations else _decide_host(case)
    savings = _savings_of(case)
    is_busy = any(case.time[cause] for cause in BUSY_CAUSES)
    if is_saturated(case.time, case.replayed) if case.is_saturated is None else case.is_saturated and is_busy:
        return _decide_saturated(case, savings)
    return _decide_idle(case, _shown(case, savings))


def _decide_idle(case: BoundCase, savings: tuple[Saving, ...]) -> Decision:
    """Of what is not busy all the time."""
    window = case.window_ns
    if not savings or savings[0].saving_ns < LEAST_SAVING * window:
        return Decision(_without_saving(case), savings)
    best, second = savings[0], savings[1] if len(savings) > 1 else None
    if second and second.saving_ns >= LEAST_SAVING * window and _are_alike(case, best, second):
        return Decision("mixed", savings, (best.cause, second.cause))
    other = more_alone(case, best.cause)
    if any(saving.cause == other and saving.saving_ns >= LEAST_SAVING * window for saving in savings):
        return Decision("mixed", savings, (best.cause, str(other)))
    if case.following is not None:
        return Decision(best.cause, savings, bound_next=_worth_naming(_ranked(case.following), window))
    return Decision(best.cause, savings, bound_next=_next(case.time, best.cause, case.host.active_ns))


def more_alone(case: BoundCase, bound: str) -> str | None:
    """What else, beside waits, saves more from the program as it ran; savings are of one that no longer waits."""
    alone = {key: answer.predicted_ns for key, answer in sorted(case.replay.alone.items()) if key != Cause.SYNC.key}
    if bound not in alone:
        return None
    best = min(alone, key=lambda key: alone[key])
    return best if alone[bound] - alone[best] > LEAST_SAVING * case.window_ns else None


def _without_saving(case: BoundCase) -> str:
    """The bound where removing no cause saves anything."""
    if case.is_part and case.share(Cause.HOST_BLOCKED) >= MOSTLY_FIXED:  # it sleeps for what lies elsewhere
        return Cause.HOST_BLOCKED.key
    # Replayed without each of its causes, the program takes as long.
    is_hidden = case.is_part and case.replayed is not None and case.share(*FIXED) < MOSTLY_FIXED
    return "hidden" if is_hidden else "unknown"


def _are_alike(case: BoundCase, best: Saving, second: Saving) -> bool:
    """Whether two savings are not told apart: hardly any time is between them, or little, and a device's account has
    more of the second."""
    lead_ns, first_ns, second_ns = (
        best.saving_ns - second.saving_ns,
        *(_idle_ns(case, saving) for saving in (best, second)),
    )
    is_open = second_ns > first_ns and not case.is_part
    return lead_ns < (CLOSE if is_open else MIXED_WITHIN) * case.window_ns


def _idle_ns(case: BoundCase, saving: Saving) -> int:
    """The idle time that the account gives a cause of the host by itself; 0: it is none."""
    return case.time[Cause[saving.cause.upper()]] if saving.cause in _HOST_KEYS else 0


def _savings_of(case: BoundCase) -> tuple[Saving, ...]:
    """What removing each cause would save, most first: by the replay, else by the account."""
    if case.replayed is not None:
        return _ranked(case.replayed)
    savings = _savings(case.time, case.host.active_ns, case.costliest_wait_ns, case.host.spent_ns)
    if not case.is_part:  # the host goes on while the device works: that is not idle time, and goes with the rest
        idle_ns = sum([case.time[cause] for cause in _HOST_IDLE])
        for cause, ns in case.host.spent_ns.items():
            if case.share(cause) >= LEAST_SHARE:
                savings[cause.key] = max(savings[cause.key], min(ns, idle_ns))
    return _ranked(_bounded(savings, case.most))


def _shown(case: BoundCase, savings: tuple[Saving, ...]) -> tuple[Saving, ...]:
    """Of a device's savings those of causes that its account shows. Of a region's all: the truth of simulated programs
    is more often with the replay."""
    if case.replayed is None or case.is_part:
        return savings
    own = {cause.key: ns for cause, ns in case.time.items()}
    for cause in _HOST_IDLE:
        own[cause.key] += staying_ns(case.time[Cause.SYNC], case.replayed)
    own[Cause.SYNC.key] += case.replayed.get(Cause.SYNC.key, 0)
    own[Cause.CUDA_API.key] += own[Cause.DEVICE_WAIT.key]  # launch latency goes with it
    own[Cause.CPU.key] += own[Cause.HOST_BLOCKED.key]  # while one thread sleeps, another may work for it
    return tuple(saving for saving in savings if own[saving.cause] >= LEAST_SHARE * case.window_ns)


def shown_most_ns(case: BoundCase, cause: Cause) -> int:
    """What a cause of the host may save as far as the account shows it: its idle time and that of waits, and all work
    of the device, which it might hide behind; with launches goes their latency, and while one thread sleeps, another
    may work for it."""
    beside = {Cause.CUDA_API: Cause.DEVICE_WAIT, Cause.CPU: Cause.HOST_BLOCKED}.get(cause)
    with_it_ns = 0 if beside is None else case.time[beside]
    return (
        case.time[cause]
        + case.time[Cause.SYNC]
        + sum([case.time[busy_cause] for busy_cause in BUSY_CAUSES])
        + with_it_ns
    )


def as_accounted(case: BoundCase) -> BoundCase:
    """A case to be decided by the account alone, where that contradicts the replay of a device: one cause of the host
    has most of the window, and the replay names another, or another beside it; or a cause of the host would save more
    than all of its idle time and all of the device's work, which it might hide behind."""
    if case.replayed is None or case.is_part:
        return case
    why = _contradiction(case, decide(case), decide(replace(case, replayed=None, following=None)))
    if why is None:
        return case
    return replace(
        case,
        replayed=None,
        following=None,
        replay=replace(case.replay, delayed=None, predicted={}, unreliable=why),
        missing=replace(case.missing, filled=None),
    )


def _contradiction(case: BoundCase, decision: Decision, by_account: Decision) -> str | None:
    """What the account holds against a decision by the replay."""
    most = max(_HOST_IDLE, key=lambda cause: case.time[cause])
    works_for_it = most == Cause.HOST_BLOCKED and Cause.CPU.key in (decision.mixed_of or (decision.bound,))
    is_left = (case.replay.together_ns or 0) < case.time[most]  # else the host's other causes hide behind it
    if decision.bound != most.key and case.share(most) > MOST_OF_IT and not works_for_it and is_left:
        return (
            f"removing {CAUSE_INFO[most.key].label} saves far less there than the {percent(case.share(most))} it takes"
        )
    if decision.bound in _HOST_KEYS and decision.bound != by_account.bound:
        most_ns = shown_most_ns(case, Cause[decision.bound.upper()])
        if decision.savings[0].saving_ns > most_ns + IDLE_WORTH * case.window_ns:
            return f"removing {CAUSE_INFO[decision.bound].label} would save more time than the trace shows of it"
    return None


def host_together_ns(case: BoundCase, decision: Decision) -> int | None:
    """What all causes of the host would save at once, where that is more than the device's work that the verdict names:
    each of them loses alone."""
    named = decision.mixed_of or (decision.bound,)
    together = case.replay.together_ns
    if together is None or not decision.savings or not set(named) & BUSY_KEYS:
        return None
    return together if together - decision.savings[0].saving_ns > MIXED_WITHIN * case.window_ns else None


def is_covered(case: BoundCase, bound: str) -> bool:
    """Whether other work of the device runs for nearly all of the time of what is named: without it that is left."""
    return bound in BUSY_KEYS and case.beside_ns >= NEARLY_ALL * case.time[Cause[bound.upper()]]


def is_saturated(time: Mapping[Cause, int], replayed: Mapping[str, int] | None = None) -> bool:
    """True if the device is busy nearly always and no idle cause is worth much, by replay or else by its share."""
    window, busy = sum(time.values()), sum([time[cause] for cause in BUSY_CAUSES])
    idle = [time[cause] if replayed is None else replayed.get(cause.key, 0) for cause in _IDLE_REMOVABLE]
    return busy >= SATURATED * window and max(idle) < IDLE_WORTH * window


def _decide_saturated(case: BoundCase, savings: tuple[Saving, ...]) -> Decision:
    """Only the device's own work competes: what saves most, or the busiest class of those that save as much, give or
    take what is not told apart. Where no class alone saves much, since another covers it, both are named."""
    own = tuple(saving for saving in savings if saving.cause in BUSY_KEYS)
    is_worth = bool(own) and own[0].saving_ns >= IDLE_WORTH * case.window_ns
    alike = [single.cause for single in own if own[0].saving_ns - single.saving_ns < MIXED_WITHIN * case.window_ns]
    bound = busiest(case.time, [Cause[key.upper()] for key in alike] if is_worth else BUSY_CAUSES).key
    limit = sum(saving.saving_ns for saving in own) / case.window_ns
    rest = savings if case.following is None else _ranked(case.following)
    others = tuple(saving for saving in rest if saving.cause != bound)
    if limit < IDLE_WORTH and (beside := _beside(case, bound, own)) is not None:
        return Decision("mixed", savings, (bound, beside), host_limit_fraction=limit)
    return Decision(bound, savings, None, _worth_naming(others, case.window_ns), min(limit, 1.0))


def _beside(case: BoundCase, bound: str, own: Sequence[Saving]) -> str | None:
    """The other work of a device that covers what it is bound by; None: none does, or no replay tells."""
    if case.is_part or not case.replayed or not is_covered(case, bound):
        return None
    others = (saving.cause for saving in own if saving.cause != bound)
    return next((key for key in others if case.time[Cause[key.upper()]]), None)


def _decide_host(case: BoundCase) -> Decision:
    """For what launches nothing and overlaps no idle time: what its host interval was spent on."""
    calling = max(case.api.total_ns - case.sync.blocked_ns, 0)
    parts = {
        Cause.SYNC.key: case.sync.blocked_ns,
        Cause.CUDA_API.key: calling,
        Cause.HOST_BLOCKED.key: min(case.host.asleep_ns, case.host.total_ns - case.host.starting_ns),
        Cause.INIT.key: case.host.starting_ns,
        Cause.CPU.key: max(case.host.active_ns - calling - case.host.starting_ns, 0),
    }
    if case.host.total_ns == 0 or sum(parts.values()) == 0:
        return Decision("hidden")
    return Decision(max(sorted(parts), key=lambda key: parts[key]))


def busiest(time: Mapping[Cause, int], classes: Collection[Cause] = BUSY_CAUSES) -> Cause:
    """The busy class with most time, of these."""
    return max(classes, key=lambda cause: (time[cause], -cause))


def _worth_naming(savings: Sequence[Saving], window_ns: int) -> str | None:
    """The best cause, if it is worth a name."""
    return savings[0].cause if savings and savings[0].saving_ns >= LEAST_SAVING * window_ns else None


def _ranked(savings: Mapping[str, int]) -> tuple[Saving, ...]:
    ranked = [Saving(cause, saving_ns) for cause, saving_ns in savings.items()]
    return tuple(sorted(ranked, key=lambda saving: (-saving.saving_ns, saving.cause)))


def _savings(
    time: Mapping[Cause, int],
    host_active_ns: int,
    costliest_wait_ns: int = 0,
    spent_ns: Mapping[Cause, int] = MappingProxyType({}),
) -> dict[str, int]:
    """By the account. Where hardly more than one wait keeps host and device apart, that is no trouble of its own: the
    device's work then saves what the program waits for it, too."""
    window = sum(time.values())
    is_one = time[Cause.SYNC] - costliest_wait_ns < LEAST_SHARE * window
    sync_ns = 0 if is_one else time[Cause.SYNC]
    asleep_ns = max(time[Cause.HOST_BLOCKED], spent_ns.get(Cause.HOST_BLOCKED, 0))
    headroom = max(0, window - sync_ns - host_active_ns - asleep_ns)
    busy = sum([time[cause] for cause in BUSY_CAUSES])
    savings = {cause.key: time[cause] for cause in _IDLE_REMOVABLE}
    for cause in BUSY_CAUSES:
        share = time[cause] / busy if busy else 0.0
        savings[cause.key] = min(time[cause], round(headroom * share))
    return savings


def _bounded(savings: dict[str, int], most: Mapping[str, int] | None) -> dict[str, int]:
    return savings if most is None else {cause: min(ns, most.get(cause, 0)) for cause, ns in savings.items()}


def _next(time: Mapping[Cause, int], removed: str, host_active_ns: int) -> str | None:
    """What would bound once the bound is gone: the same rule on the account without it; of mixed ones the better."""
    cause = Cause[removed.upper()]
    rest = {other: 0 if other == cause else value for other, value in time.items()}
    if sum(rest.values()) == 0:
        return None
    if is_saturated(rest):
        return busiest(rest).key
    # Waiting is overlapped away, not worked away; every other host cause leaves the host's own time too.
    active = host_active_ns - (time[cause] if cause in _HOST_WORK else 0)
    savings = _savings(rest, max(active, 0))
    best = min(savings, key=lambda cause: (-savings[cause], cause))
    return _worth_naming([Saving(best, savings[best])], sum(rest.values()))
