"""A second, slow and literal reading of the account for one thread: every microsecond is judged by itself.

It shares no code with the package but the tables, the classes of calls and the limits. All times it is given are
whole microseconds.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

from boundby.model.causes import Cause
from boundby.trace.tables import MemoryKind, OpKind, Trace
from boundby.trace.vocabulary.cuda import CallClass, classify_call
from boundby.trace.vocabulary.os import blocked_on

US = 1000
DISPATCH, LAUNCH = 100 * US, 10 * US
FAR = 10**15

Call = tuple[int, int, CallClass, int]
Account = Counter[tuple[Cause, tuple[str, ...]]]


class Brute:
    """Looks everything up by scanning lists."""

    def __init__(self, trace: Trace) -> None:
        self.names = trace.names
        ops, api = trace.operations, trace.api
        self.calls = [
            (int(s), int(e), classify_call(trace.names[n]), int(c))
            for s, e, n, c in zip(api.start_ns, api.end_ns, api.name, api.correlation, strict=True)
        ]
        by_id = {call[3]: call for call in self.calls}
        self.ops = [
            (int(s), int(e), int(k), bool(m), by_id.get(int(c)), MemoryKind.PAGEABLE in (src, dst))
            for s, e, k, m, c, src, dst in zip(
                ops.start_ns,
                ops.end_ns,
                ops.kind,
                ops.is_communication,
                ops.correlation,
                ops.source,
                ops.target,
                strict=True,
            )
        ]
        self.ranges = [
            (int(s), int(e), trace.names[n], bool(p))
            for s, e, n, p in zip(
                trace.ranges.start_ns, trace.ranges.end_ns, trace.ranges.name, trace.ranges.is_start_end, strict=True
            )
        ]
        self.sleeps = [
            (int(s), int(e))
            for s, e, n in zip(trace.os_calls.start_ns, trace.os_calls.end_ns, trace.os_calls.name, strict=True)
            if blocked_on(trace.names[n])
        ]
        self.overheads = [(int(s), int(e)) for s, e in zip(trace.overhead.start_ns, trace.overhead.end_ns, strict=True)]
        self.captures = self._captures(trace)
        self.loads = self._first_loads(trace)
        self.stalls = self._stalls(trace)
        self.low = min(op[0] for op in self.ops)
        self.high = max(op[1] for op in self.ops)

    def _captures(self, trace: Trace) -> list[tuple[int, int]]:
        """When graphs are captured that are launched three times as often, or less than half as often."""
        named = [(call, trace.names[name]) for call, name in zip(self.calls, trace.api.name, strict=True)]
        begun = sorted(call[0] for call, name in named if "BeginCapture" in name)
        ended = sorted(call[1] for call, name in named if "EndCapture" in name)
        launched = sum("GraphLaunch" in name for _, name in named)
        is_once = 2 * launched < len(begun) or launched >= 3 * len(begun)
        return list(zip(begun, ended, strict=True)) if is_once else []

    def _first_loads(self, trace: Trace) -> set[int]:
        """First launches of a kernel, and first bookkeeping calls, that take ten times the later ones and 100 us."""
        groups: dict[tuple[str, str], list[Call]] = {}
        for op, name in zip(self.ops, trace.operations.name, strict=True):
            if op[2] == OpKind.KERNEL and op[4] and op[4][2] == CallClass.LAUNCH:
                groups.setdefault(("kernel", trace.names[name]), []).append(op[4])
        for call, name in zip(self.calls, trace.api.name, strict=True):
            if call[2] == CallClass.OTHER:
                groups.setdefault(("other", trace.names[name]), []).append(call)
        loads = set()
        for (kind, _), group in groups.items():
            group.sort()
            later = sorted(call[1] - call[0] for call in group[1:])
            alike = [call[1] - call[0] for key, calls in groups.items() if key[0] == kind for call in calls]
            usual = later[len(later) // 2] if later else min(median(alike), 10 * US)
            if group[0][1] - group[0][0] > max(10 * usual, 100 * US):
                loads.add(group[0][3])
        return loads

    def _stalls(self, trace: Trace) -> set[int]:
        """Allocation calls that took longer than their like on an idle device by half of the time they shared with
        it; without a like, those that returned sooner after it was done than they had shared."""
        alike: dict[str, list[tuple[Call, int]]] = {}
        for call, name in zip(self.calls, trace.api.name, strict=True):
            if call[2] == CallClass.ALLOC:
                shared = sum(US for time in range(call[0], call[1], US) if self.is_busy(time))
                alike.setdefault(trace.names[name], []).append((call, shared))
        found = set()
        for calls in alike.values():
            alone = [call[1] - call[0] for call, shared in calls if not shared]
            for call, shared in calls:
                last = max(
                    (t + US for t in range(0, call[1], US) if self.is_busy(t) and not self.is_busy(t + US)),
                    default=-FAR,
                )
                late = call[1] - call[0] - median(alone) >= shared / 2 if alone else call[1] - last <= shared
                if shared and late:
                    found.add(call[3])
        return found

    def path(self, time: int) -> tuple[str, ...]:
        """Push/pop ranges around an instant, outermost first; else the latest started start/end range."""
        around = [r for r in self.ranges if r[0] <= time < r[1] and not r[3]]
        if around:
            return tuple(r[2] for r in around)
        wide = [r for r in self.ranges if r[0] <= time < r[1] and r[3]]
        return (max(wide, key=lambda r: r[0])[2],) if wide else ()

    def is_busy(self, time: int) -> bool:
        return any(op[0] <= time < op[1] for op in self.ops)

    def account(self) -> Account:
        """Nanoseconds by cause and owner path."""
        found: Account = Counter()
        gap: list[int] = []
        for time in range(self.low, self.high, US):
            running = [op for op in self.ops if op[0] <= time < op[1]]
            if not running:
                gap.append(time)
                continue
            if gap:
                self._gap(gap, found)
                gap = []
            for cause, chosen in (
                (Cause.GPU_COMPUTE, [op for op in running if op[2] <= OpKind.GRAPH and not op[3]]),
                (Cause.GPU_COMM, [op for op in running if op[3]]),
                (Cause.GPU_COPY, [op for op in running if op[2] >= OpKind.MEMCPY]),
            ):
                if chosen:
                    owner = chosen[0]  # the tables are in order of start
                    found[cause, self.path(owner[4][0]) if owner[4] else ()] += US
                    break
        return found

    def blocked(self, time: int) -> bool:
        """Does the thread wait for the device at this instant?"""
        for start, end, kind, number in self.calls:
            if start <= time < end:
                if kind in (CallClass.SYNC, CallClass.BLOCKING_COPY):
                    return True
                if kind == CallClass.ALLOC:
                    return number in self.stalls and self.is_busy(time)
                copies = [op for op in self.ops if op[4] and op[4][3] == number and op[5] and op[2] == OpKind.MEMCPY]
                return any(time < op[0] for op in copies) and self.is_busy(time)
        return False

    def state(self, time: int) -> Cause:
        """What the thread does at an instant of idle device time."""
        inside = [call for call in self.calls if call[0] <= time < call[1]]
        if any(begin <= time < end for begin, end in self.captures):
            is_watched = any(start <= time < end for start, end in self.overheads)
            return Cause.PROFILER if is_watched else Cause.INIT
        if inside and inside[0][2] == CallClass.SYNC:
            return Cause.SYNC
        if any(start <= time < end for start, end in self.overheads):
            return Cause.PROFILER
        if inside:
            is_init = inside[0][2] in (CallClass.ALLOC, CallClass.INIT) or inside[0][3] in self.loads
            return Cause.INIT if is_init else Cause.CUDA_API
        if any(start <= time < end for start, end in self.sleeps):
            return Cause.HOST_BLOCKED
        before = [call[1] for call in self.calls if call[1] <= time]
        return Cause.CUDA_API if before and time < max(before) + DISPATCH else Cause.CPU

    def _gap(self, times: list[int], found: Account) -> None:
        start, end = times[0], times[-1] + US
        following = next(op for op in self.ops if op[0] == end)
        launched = {op: op[4][0] if op[4] else op[0] for op in self.ops}
        previous = max((op for op in self.ops if op[1] == start), key=lambda op: launched[op])
        call = following[4]
        launch_start, launch_end = (call[0], call[1]) if call else (FAR, FAR)
        since = launched[previous]
        until = max(min(launch_start, end), since)
        budget = sum(US for time in range(since, until, US) if self.blocked(time))
        labels: dict[int, Cause] = {}
        region: dict[int, tuple[str, ...]] = {}
        for time in times:
            if time < launch_end:
                labels[time], region[time] = self.state(time), self.path(time)
            else:
                labels[time] = Cause.CUDA_API if time < launch_end + LAUNCH else Cause.DEVICE_WAIT
                region[time] = self.path(launch_start)
        blame = self._blame(since, until)
        budget -= sum(US for time in times if labels[time] == Cause.SYNC)
        for time in times:
            cause = labels[time]
            if cause not in (Cause.SYNC, Cause.DEVICE_WAIT) and budget > 0:
                budget -= US
                cause = Cause.SYNC
            owner = blame if cause == Cause.SYNC and blame is not None else region[time]
            found[cause, owner] += US

    def _blame(self, since: int, until: int) -> tuple[str, ...] | None:
        """The region in which the longest wait since the operation before began."""
        waits: list[tuple[int, int, int]] = []  # overlap, start, start of the wait
        begin = None
        for time in range(
            min([since, *(c[0] for c in self.calls)]), max([until, *(c[1] for c in self.calls)]) + US, US
        ):
            if self.blocked(time) and begin is None:
                begin = time
            elif begin is not None and not self.blocked(time):
                overlap = min(time, until) - max(begin, since)
                if overlap > 0:
                    waits.append((overlap, begin, begin))
                begin = None
        return self.path(max(waits)[2]) if waits else None
