"""The clause that says why a verdict fell: the two or three numbers that decide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from boundby.claims.bound import (
    FIXED,
    IDLE_WORTH,
    LEAST_SHARE,
    BoundCase,
    Decision,
    host_together_ns,
    is_covered,
)
from boundby.model.causes import BUSY_CAUSES, NOUN, REMOVABLE, SHORT_LABEL, Cause
from boundby.model.scale import A_FEW_LINES, DISPATCH_NS, HALF, HARDLY, MANY, NOTABLE, QUARTER, SMALL
from boundby.model.units import duration, duration_range, percent, percent_range
from boundby.trace.vocabulary.os import MESSAGES, worth_naming

LEAST_TOLD = HARDLY  # less reads as "under 1 %"
# Where the account's sync time is less than this part of what the replay saves, the waits cost the host its lead, and
# what was lost shows as gaps later on.
LEAD_LOST = HALF
MUCH_FIXED = NOTABLE  # time that no change removes is told from a tenth on
MUCH_WAITING = NOTABLE  # a thread that waits less for a core is on a machine that others use, too
MOST_PARTS = A_FEW_LINES  # of host time that one clause names
MOST_CALLS = A_FEW_LINES  # that one clause names
_DOES = {
    Cause.CPU: "runs its own code",
    Cause.SYNC: "waits for the GPU",
    Cause.CUDA_API: "launches work",
    Cause.INIT: "initializes",
    Cause.PROFILER: "is held up by the profiler",
    Cause.UNATTRIBUTED: "does what is not on record",
}
#: Of what the host sleeps on: how it is told where nothing else on a screen explains it.
_WAITS_IN = {"poll": "poll, a wait for another process, a file or a socket"}
_WORK = {"gpu_compute": "kernels", "gpu_comm": "communication", "gpu_copy": "copies"}


def because(case: BoundCase, decision: Decision) -> str:
    """One clause, by the kind of verdict."""
    if not case.has_gpu_work:
        return _host(case)
    if case.window_ns == 0 and decision.bound != "hidden":
        return "it launches no GPU work and delays none, so the verdict is on its host time"
    clause, together = _CLAUSES[decision.bound](case, decision), host_together_ns(case, decision)
    if together is None:
        return f"{clause}{_although(case, decision)}"
    share = percent(together / case.window_ns)
    return f"{clause}; each cause on the host costs less than that, but all of them together cost {share}"


def _although(case: BoundCase, decision: Decision) -> str:
    """Where the bar of a device has more of another cause than of those that the verdict names: that removing it from
    the program as it ran saves less. Empty of waits, which are removed before all else."""
    named = [Cause[key.upper()] for key in decision.mixed_of or (decision.bound,) if key not in ("hidden", "unknown")]
    if case.is_part or not named or Cause.SYNC in named:
        return ""
    largest = max(REMOVABLE, key=lambda cause: (case.time[cause], -cause))
    if case.time[largest] - max(case.time[cause] for cause in named) < SMALL * case.window_ns:
        return ""
    saved_ns = _saved_alone_ns(case, decision, largest)
    if not decision.savings or saved_ns >= decision.savings[0].saving_ns:
        return ""
    saved = f"up to {percent(saved_ns / case.window_ns)}" if saved_ns > LEAST_TOLD * case.window_ns else "nothing"
    return (
        f"; {SHORT_LABEL[largest.key]} takes {percent(case.share(largest))}, but removing it alone would save {saved}"
    )


def _saved_alone_ns(case: BoundCase, decision: Decision, cause: Cause) -> int:
    """At most so much is saved without this cause alone, in the program as it ran."""
    if (alone := case.replay.alone.get(cause.key)) is not None:
        return alone.saving_ns[1]
    saved_ns = next((saving.saving_ns for saving in decision.savings if saving.cause == cause.key), 0)
    if case.replayed is None and cause in BUSY_CAUSES:  # the host's own work takes as long without it
        saved_ns = max(saved_ns, min(case.time[cause], case.window_ns - case.host.active_ns))
    return saved_ns


def _busy(case: BoundCase) -> str:
    """The end of a clause about idle time."""
    return f"it is busy {_busy_share(case)} of the time" if case.share(*BUSY_CAUSES) else "it is never busy"


def _busy_share(case: BoundCase) -> str:
    return percent(case.share(*BUSY_CAUSES))


def _per(case: BoundCase) -> str:
    return f" in each of {case.instances:,} instances" if case.instances > 1 else ""


def _each(case: BoundCase, cause: Cause) -> str:
    return _each_ns(case, case.time[cause], case.replay.unexplained.get(cause, 0))


def _each_ns(case: BoundCase, idle_ns: int, unexplained_ns: int = 0) -> str:
    least_ns, each = idle_ns - unexplained_ns, max(case.instances * case.devices_each, 1)
    of_each = duration_range(round(least_ns / each), round(idle_ns / each))
    return f"{of_each}{_per(case)} ({_share(case, idle_ns, unexplained_ns)})"


def _share(case: BoundCase, ns: int, unexplained_ns: int) -> str:
    """Of the window: a range where a part of it may be another cause's."""
    return percent_range((ns - unexplained_ns) / case.window_ns, ns / case.window_ns)


def _hidden(case: BoundCase, _: Decision) -> str:
    if case.window_ns:
        return "it is off the critical path: removing any one cause in it saves nothing"
    return "other GPU work runs at the same time as all of its own"


def _gpu(case: BoundCase, decision: Decision) -> str:
    share = case.share(Cause[decision.bound.upper()])
    covered = (
        "; its other GPU work is hidden behind other work"
        if case.is_part and 2 * share < case.share(*BUSY_CAUSES)
        else ""
    )
    busy, own = _busy_share(case), percent(share)
    work = _WORK[decision.bound]
    if decision.bound == Cause.GPU_COPY.key and is_filling(case):
        work = "fills of its memory"
    elif case.missing.opaque_ns > HALF * case.time[Cause.GPU_COMPUTE]:
        work = "CUDA graphs"
    doing = f"with {work}" if busy == own else f"{own} with {work}"
    between = " " if busy == own else ", "
    return f"the GPU is busy {busy} of the time{between}{doing}{covered}{_host_limit(case, decision)}"


def is_filling(case: BoundCase) -> bool:
    """Whether most of what counts as copies fills memory."""
    return _copying_ns(case) < HALF * case.time[Cause.GPU_COPY]


def _copying_ns(case: BoundCase) -> int:
    """For how long copies run: the rest of the cause's work fills memory."""
    return sum(copies.total_ns for copies in case.memcpy.values())


def _host_limit(case: BoundCase, decision: Decision) -> str:
    """Of a saturated device: how close the host is behind it."""
    limit = decision.host_limit_fraction
    if limit is None:
        return ""
    alone = case.replay.alone.get(decision.bound)  # whose window is told below: no more is left then
    left = 1 - limit if alone is None else min(1 - limit, alone.predicted_ns / case.window_ns)
    if alone is not None and alone.predicted_ns <= (1 - limit + SMALL) * case.window_ns and limit >= IDLE_WORTH:
        return ""  # what is told below
    rest = percent(left) if left > LEAST_TOLD else "less than 1 %"
    if case.replayed is None:  # the account alone does not show what waits for what
        if limit < IDLE_WORTH:
            return "; the host works just as long meanwhile, and the trace cannot tell which of the two sets the pace"
        faster = f"faster {_WORK[decision.bound]} alone can save at most {percent(1 - left)}"
        return f"; the host works {rest} of the time as well, so {faster}" if limit < QUARTER else ""
    if limit < IDLE_WORTH:
        why = "other work hides it" if is_covered(case, decision.bound) else "what is left takes as long"
        return f"; {little_alone(case, decision.bound)}: {why}"
    return f"; the host itself needs {rest} of the time"


def little_alone(case: BoundCase, cause: str) -> str:
    """``removing copies alone saves little``; that it may, where the replay's range is open to more."""
    alone = case.replay.alone.get(cause)
    least_ns = None if alone is None else alone.low_ns
    is_open = least_ns is not None and case.window_ns - least_ns >= IDLE_WORTH * case.window_ns
    return f"removing {NOUN[cause]} alone {'may save' if is_open else 'saves'} little"


def _drain(case: BoundCase, count: float, number: str) -> str:
    """Subject and verb, of so many host syncs in each instance."""
    if count < 1:
        return f"{case.sync.count:,} host syncs in {case.instances:,} instances drain"
    return f"1 host sync{_per(case)} drains" if count == 1 else f"{number} host syncs{_per(case)} drain"


def _sync(case: BoundCase, decision: Decision) -> str:
    saved = decision.savings[0].saving_ns if decision.savings else 0
    is_lead_lost = case.time[Cause.SYNC] < LEAD_LOST * saved
    pageable = sum(copies.pageable_count for copies in case.memcpy.values())
    copying = _copying_ns(case)
    if pageable and is_lead_lost and LEAD_LOST * saved <= copying:
        hold = "copy blocks the host until it ends" if pageable == 1 else "copies block the host until they end"
        return f"{pageable:,} pageable {hold}, and the GPU idles until new work arrives; {_busy(case)}"
    count = case.sync.count / max(case.instances, 1)
    number = f"{count:,.0f}" if count >= MANY else f"{count:.3g}"
    if case.sync.count and is_lead_lost:
        drain = _drain(case, count, number)
        return f"{drain} the launch queue, and the GPU idles until new work arrives; {_busy(case)}"
    waits, them = ("1 sync waits", "it") if count == 1 else (f"{number} syncs wait", "them")
    return f"{waits}, and the GPU idles {_each(case, Cause.SYNC)} because of {them}; {_busy(case)}"


def _cuda_api(case: BoundCase, _: Decision) -> str:
    inside_ns = max(case.api.in_window[1] - case.sync.blocked_ns, 0)  # the rest is what a program does between calls
    inside, idle = min(inside_ns / case.window_ns, 1.0), case.share(Cause.CUDA_API)
    pauses = "; most of the idle time lies in the short pauses after them" if inside < HALF * idle else ""
    calls = "" if case.is_part or not case.api.per_ms else f" (CUDA calls take {percent(inside)} of the time{pauses})"
    return f"the GPU idles {percent(idle)} of the time because launches come too slowly{calls}; {_busy(case)}"


def _cpu(case: BoundCase, _: Decision) -> str:
    if case.time[Cause.CPU] < min(LEAST_SHARE * case.window_ns, case.time[Cause.HOST_BLOCKED]):
        asleep = f"the GPU idles {_each(case, Cause.HOST_BLOCKED)} while the launching thread is blocked"
        return f"{asleep}, by the replay mostly for another thread's own code; {_busy(case)}"
    if is_for_pages(case):
        idle = _each_ns(case, case.host.paging_ns)
        both = " and blocked" if case.host.paging_ns > case.time[Cause.CPU] else ""
        where = f" (in the bar: host code{both})"
        return f"the GPU idles {idle} while the host reads managed memory by page faults{where}; {_busy(case)}"
    waiting = case.host.preempted_ns / max(case.time[Cause.CPU], 1)
    core = f", or waits for a core ({percent(waiting)} of that)" if waiting >= MUCH_WAITING else ""
    return f"the GPU idles {_each(case, Cause.CPU)} while the host runs its own code{core}; {_busy(case)}"


def _host_blocked(case: BoundCase, _: Decision) -> str:
    on = _mostly_on(case)
    where = f" (mostly in {_WAITS_IN.get(on, on)})" if on and on != "unknown" else ""
    if is_for_ranks(case):
        where = f"{f' in {calls},' if (calls := _calls(case)) else ''} waiting for other ranks"
    return f"the GPU idles {_each(case, Cause.HOST_BLOCKED)} while the host is blocked{where}; {_busy(case)}"


def _mostly_on(case: BoundCase) -> str:
    return max(case.host.blocked_on, key=lambda name: (case.host.blocked_on[name], name), default="")


def is_for_pages(case: BoundCase) -> bool:
    """Whether most of the host's time is page faults: it reads managed memory that lies on the device."""
    return case.host.paging_ns > HALF * (case.time[Cause.CPU] + case.time[Cause.HOST_BLOCKED])


def is_for_ranks(case: BoundCase) -> bool:
    """Whether the host, where it is blocked, mostly waits for other ranks; of a region its calls are not known."""
    return _mostly_on(case) == MESSAGES and (case.is_part or bool(case.host.waited_in))


def _calls(case: BoundCase) -> str:
    """The calls in which the host waits for other ranks, those that hold most of it."""
    whole = sum(case.host.waited_in.values())
    return " and ".join([name for name, ns in case.host.waited_in.items() if ns >= LEAST_TOLD * whole][:MOST_CALLS])


def _init(case: BoundCase, _: Decision) -> str:
    idle_ns, unexplained_ns = case.time[Cause.INIT], case.replay.unexplained.get(Cause.INIT, 0)
    idle = f"{duration_range(idle_ns - unexplained_ns, idle_ns)} ({_share(case, idle_ns, unexplained_ns)})"
    return f"the GPU idles {idle} while code or memory is prepared for it; {_busy(case)}"


def _mixed(case: BoundCase, decision: Decision) -> str:
    named, busy = decision.mixed_of or (), f"the GPU is busy {_busy_share(case)}"
    if decision.host_limit_fraction is not None:
        first, second = (NOUN[key] for key in named)
        return (
            f"{first} and {second} run side by side, so that removing one alone would save little; {busy} of the time"
        )
    saved = {saving.cause: saving.saving_ns for saving in decision.savings}
    return f"{' and '.join(_of_either(case, decision, key, saved.get(key, 0)) for key in named)} of the time; {busy}"


def _of_either(case: BoundCase, decision: Decision, key: str, saving_ns: int) -> str:
    """What one of two causes takes; of waits that cost the host its lead, which shows elsewhere, what they cost."""
    own_ns = case.time[Cause[key.upper()]]
    if own_ns < LEAD_LOST * saving_ns:
        share = f"{percent(own_ns / case.window_ns)} of the time; " if own_ns >= LEAST_TOLD * case.window_ns else ""
        takes = f" ({share}later work would start earlier)" if own_ns else ""
        return f"removing {NOUN[key]}{takes} would save {percent(saving_ns / case.window_ns)}"
    what = "the host is blocked for" if key == Cause.HOST_BLOCKED.key else f"{SHORT_LABEL[key]} takes"
    if key == Cause.CUDA_API.key and Cause.CPU.key in (decision.mixed_of or ()):  # whose code is it between two calls?
        what = f"launch overhead (idle time in a launching call, or up to {duration(DISPATCH_NS)} after it) takes"
    return f"{what} {_share(case, own_ns, case.replay.unexplained.get(Cause[key.upper()], 0))}"


def _unknown(case: BoundCase, _: Decision) -> str:
    rest = max(FIXED, key=lambda cause: (case.time[cause], -cause))
    if case.share(rest) >= MUCH_FIXED:
        fixed = f"{SHORT_LABEL[rest.key]} {percent(case.share(rest))}"
        return f"the GPU is busy {_busy_share(case)} of the time; {fixed}, which no change removes"
    busy = "never busy" if not case.share(*BUSY_CAUSES) else f"busy {_busy_share(case)} of the time"
    return f"the GPU is {busy}, and removing any one cause would save less than 1 % of the time"


_CLAUSES: Mapping[str, Callable[[BoundCase, Decision], str]] = {
    "hidden": _hidden,
    "gpu_compute": _gpu,
    "gpu_comm": _gpu,
    "gpu_copy": _gpu,
    "sync": _sync,
    "cuda_api": _cuda_api,
    "cpu": _cpu,
    "host_blocked": _host_blocked,
    "init": _init,
    "mixed": _mixed,
    "unknown": _unknown,
}


def _host(case: BoundCase) -> str:
    """The clause for host time: on a CPU, blocked (and on what), unknown."""
    if case.window_ns == 0:
        return "outside the analysed time"
    doing: list[tuple[str, float, str]] = []  # what the host does, in which share of the time, and in what
    waiting = case.host.preempted_ns / case.window_ns
    for cause in sorted(Cause, key=lambda cause: (-case.time[cause], cause))[:MOST_PARTS]:
        share = case.share(cause)
        if share < LEAST_TOLD:
            continue
        if cause == Cause.CPU and waiting >= LEAST_TOLD:
            doing.append(("is in its own code", share, f" ({percent(waiting / share)} of that waiting for a core)"))
        elif cause == Cause.HOST_BLOCKED:
            doing.append((*_blocked(case, share),))
        else:
            doing.append(
                (_DOES.get(cause) or f"spends time on {NOUN.get(cause.key, SHORT_LABEL[cause.key])}", share, "")
            )
    shares = [
        f"{does} {percent(share)}{' of the time' * (not number)}{on}" for number, (does, share, on) in enumerate(doing)
    ]
    return f"the host {' and '.join(filter(None, (', '.join(shares[:-1]), shares[-1])))}" if shares else ""


def _blocked(case: BoundCase, share: float) -> tuple[str, float, str]:
    if next(iter(case.host.blocked_on), "") == MESSAGES and case.host.waited_in:
        return "waits for other ranks", share, f" (in {_calls(case)})"
    on = f" ({', '.join(worth_naming(case.host.blocked_on)[:2])})" if case.host.blocked_on else ""
    return "is blocked", share, on
