"""The verdict by the account rule: the cause whose removal would save the most time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boundby.model.causes import BUSY_CAUSES, REMOVABLE, Cause
from boundby.results.report import ApiCalls, Saving, Syncs

# A device this busy, without an idle cause worth more than IDLE_WORTH, is bound by its busiest class.
SATURATED = 0.90
IDLE_WORTH = 0.05
# Two savings this close (of the window) are not told apart: the verdict is mixed.
MIXED_WITHIN = 0.03
# Below this share of the window no saving is worth a name.
LEAST_SAVING = 0.01

_IDLE_REMOVABLE = tuple(cause for cause in REMOVABLE if cause not in BUSY_CAUSES)


@dataclass(frozen=True)
class Decision:
    """A bare verdict: the bound, what removing each cause would save (best first), and what would come next."""

    bound: str
    savings: tuple[Saving, ...]
    mixed_of: tuple[str, str] | None
    bound_next: str | None
    host_limit_fraction: float | None  # saturated devices: how far below the window the host would limit


def decide(
    time: Mapping[Cause, int],
    host_active_ns: int,
    most: Mapping[str, int] | None = None,
    *,
    replayed: Mapping[str, int] | None = None,
    following: Mapping[str, int] | None = None,
    saturated: bool | None = None,
) -> Decision:
    """Decide from an account and the time in which the launching thread neither waits nor sleeps.

    ``replayed`` are savings by cause found by replay; they take the place of the account's. ``following`` are
    those that are left when the best cause is gone. ``saturated``: whether the device is (None: judge it here).

    ``most`` bounds each saving: what lies inside something cannot save more than removing it everywhere there.

    An idle cause saves its share. GPU causes save the headroom, what is left when syncs are gone and only the
    host's own work remains, in proportion to their busy shares.
    """
    window = sum(time.values())
    if window == 0:
        return Decision("hidden", (), None, None, None)
    estimated = _savings(time, window, host_active_ns) if replayed is None else _ranked(replayed)
    savings = _bounded(estimated, most)
    if is_saturated(time, replayed) if saturated is None else saturated and any(time[c] for c in BUSY_CAUSES):
        return _decide_saturated(time, savings, following, window)
    best = savings[0]
    if best.saving_ns < LEAST_SAVING * window:
        return Decision("unknown", savings, None, None, None)
    second = savings[1]
    if second.saving_ns >= LEAST_SAVING * window and best.saving_ns - second.saving_ns < MIXED_WITHIN * window:
        return Decision("mixed", savings, (best.cause, second.cause), None, None)
    if following is not None:
        rest = _ranked(following)[0]
        then = rest.cause if rest.saving_ns >= LEAST_SAVING * window else None
        return Decision(best.cause, savings, None, then, None)
    return Decision(best.cause, savings, None, _next(time, best.cause, host_active_ns), None)


def is_saturated(time: Mapping[Cause, int], replayed: Mapping[str, int] | None = None) -> bool:
    """True if the device is busy nearly always and no idle cause is worth much, by replay or else by its share."""
    window, busy = sum(time.values()), sum(time[cause] for cause in BUSY_CAUSES)
    idle = [time[cause] if replayed is None else replayed.get(cause.key, 0) for cause in _IDLE_REMOVABLE]
    return busy >= SATURATED * window and max(idle) < IDLE_WORTH * window


def _decide_saturated(
    time: Mapping[Cause, int], savings: tuple[Saving, ...], following: Mapping[str, int] | None, window: int
) -> Decision:
    """Only the device's own work competes: what saves most, or the busiest class where none saves anything."""
    keys = {cause.key for cause in BUSY_CAUSES}
    own = [saving for saving in savings if saving.cause in keys]
    busiest = max(BUSY_CAUSES, key=lambda cause: (time[cause], -cause)).key
    bound = own[0].cause if own[0].saving_ns >= LEAST_SAVING * window else busiest
    limit = sum(saving.saving_ns for saving in own) / window
    others = [saving for saving in (savings if following is None else _ranked(following)) if saving.cause != bound]
    then = others[0].cause if others and others[0].saving_ns >= LEAST_SAVING * window else None
    return Decision(bound, savings, None, then, min(limit, 1.0))


def _ranked(savings: Mapping[str, int]) -> tuple[Saving, ...]:
    found = [Saving(cause, saving_ns) for cause, saving_ns in savings.items()]
    return tuple(sorted(found, key=lambda saving: (-saving.saving_ns, saving.cause)))


def _savings(time: Mapping[Cause, int], window: int, host_active_ns: int) -> tuple[Saving, ...]:
    headroom = max(0, window - time[Cause.SYNC] - host_active_ns - time[Cause.HOST_BLOCKED])
    busy = sum(time[cause] for cause in BUSY_CAUSES)
    found = [Saving(cause.key, time[cause]) for cause in _IDLE_REMOVABLE]
    for cause in BUSY_CAUSES:
        share = time[cause] / busy if busy else 0.0
        found.append(Saving(cause.key, min(time[cause], round(headroom * share))))
    return tuple(sorted(found, key=lambda saving: (-saving.saving_ns, saving.cause)))


def _bounded(savings: tuple[Saving, ...], most: Mapping[str, int] | None) -> tuple[Saving, ...]:
    if most is None:
        return savings
    return _ranked({saving.cause: min(saving.saving_ns, most.get(saving.cause, 0)) for saving in savings})


def _next(time: Mapping[Cause, int], removed: str, host_active_ns: int) -> str | None:
    """What would bound once the bound is gone: the same rule on the account without it."""
    cause = Cause[removed.upper()]
    rest = {other: 0 if other == cause else value for other, value in time.items()}
    # Waiting is overlapped away, not worked away; every other host cause leaves the host's own time too.
    active = host_active_ns - (time[cause] if cause in (Cause.CUDA_API, Cause.CPU, Cause.INIT) else 0)
    if sum(rest.values()) == 0:
        return None
    following = _bound_alone(rest, max(active, 0))
    return following if following not in ("unknown", "hidden") else None


def _bound_alone(time: Mapping[Cause, int], host_active_ns: int) -> str:
    """The bound alone, without looking further ahead; of a mixed one the better half."""
    window = sum(time.values())
    if is_saturated(time):
        return max(BUSY_CAUSES, key=lambda cause: (time[cause], -cause)).key
    best = _savings(time, window, host_active_ns)[0]
    return best.cause if best.saving_ns >= LEAST_SAVING * window else "unknown"


def decide_host(host_ns: int, active_ns: int, api: ApiCalls, sync: Syncs, asleep_ns: int) -> Decision:
    """For a region that launches nothing and overlaps no idle time: what its host interval was spent on."""
    calling = max(api.total_ns - sync.blocked_ns, 0)
    parts = {
        Cause.SYNC.key: sync.blocked_ns,
        Cause.CUDA_API.key: calling,
        Cause.HOST_BLOCKED.key: asleep_ns,
        Cause.CPU.key: max(active_ns - calling, 0),
    }
    if host_ns == 0 or sum(parts.values()) == 0:
        return Decision("hidden", (), None, None, None)
    return Decision(max(sorted(parts), key=lambda key: parts[key]), (), None, None, None)
