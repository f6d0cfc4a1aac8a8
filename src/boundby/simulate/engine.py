"""The event-driven machine: host threads and devices, one event after the other in the order of time.

Nothing here looks ahead or sorts afterwards: a host thread runs until something else comes first, a device starts
what is ready when there is room, and whoever waits is woken. Ties go to the device, then to whoever came first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from boundby.simulate.script import Do, Kind, Operation, Script, ScriptThread, Step, Wait
from boundby.simulate.sharing import SharedDevice, Task

_DONE, _READY, _STAGED, _TURN, _RESUME = range(5)  # kinds of events, in the order of equal times


class DeadlockError(ValueError):
    """Threads wait for what never comes: the program is wrong."""


class Executed(Struct, frozen=True):
    """One operation as it ran: of which thread and step (indexes into the script), and when, in ns."""

    thread: int
    step: int
    start_ns: int
    end_ns: int
    spec: Operation


class Run(Struct, frozen=True):
    """What happened. ``start_ns[t][s]`` and ``end_ns[t][s]``: step ``s`` of thread ``t``. ``operations`` in the order
    in which they were launched. A daemon has done only as many steps as it has times."""

    script: Script
    start_ns: tuple[list[int], ...]
    end_ns: tuple[list[int], ...]
    operations: tuple[Executed, ...]


class _Host:
    """A thread: where it is and what it waits for."""

    __slots__ = ("at", "daemon", "ends", "held", "last", "next", "process", "starts", "steps", "waits")

    def __init__(self, at: int, thread: ScriptThread) -> None:
        self.at = at
        self.process = thread.process
        self.daemon = thread.daemon
        self.steps = thread.steps
        self.next = 0  # index of the step to begin, or of the one that waits
        self.starts = [0] * len(thread.steps)
        self.ends = [0] * len(thread.steps)
        self.waits = 0  # unfinished tasks
        self.held = False  # in a call that it has begun, by the driver
        self.last: int | None = None  # when a wait ended, for the step that waited


def simulate(script: Script) -> Run:
    """Run a script from time 0 until every thread is through and every device idle."""
    return _Simulation(script).run()


class _Simulation:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.heap: list[tuple[int, int, int, Task | _Host | SharedDevice]] = []
        self.count = 0
        self.hosts = [_Host(number, thread) for number, thread in enumerate(script.threads)]
        self.devices: dict[int, SharedDevice] = {}
        self.tails: dict[tuple[int, int], dict[int, Task]] = {}  # (process, device) -> stream -> latest
        self.events: dict[tuple[int, str], Task] = {}
        self.signals: dict[tuple[int, str], int] = {}
        self.awaiting: dict[tuple[int, str], deque[_Host]] = {}
        self.queued: dict[tuple[int, int, int], int] = {}
        self.room: dict[tuple[int, int, int], deque[_Host]] = {}
        self.driver: dict[int, tuple[_Host, deque[_Host]]] = {}  # process -> who holds the driver, who waits for it
        self.launched: list[Task] = []
        self.lasting = sum(not thread.daemon for thread in script.threads)  # threads that are not through

    def run(self) -> Run:
        for host in self.hosts:
            self.push(0, _RESUME, host)
        heap = self.heap
        while heap:
            time, kind, _, who = heapq.heappop(heap)
            if isinstance(who, _Host):
                if self.lasting or not who.daemon:
                    self.advance(who, time)
            elif isinstance(who, SharedDevice):
                who.end_turn(time)
            elif kind == _DONE:
                if who.end < 0 and who.due == time:  # else it was told another end since
                    self.finish(who, time)
            elif kind == _READY:
                self.make_ready(who, time)
            elif isinstance(who.staged, _Host):
                self.wake(who.staged, time)
        self.check()
        operations = [
            Executed(*task.place, task.start, task.end, task.spec) for task in self.launched if task.spec is not None
        ]
        return Run(
            self.script,
            tuple(host.starts[: host.next] for host in self.hosts),
            tuple(host.ends[: host.next] for host in self.hosts),
            tuple(operations),
        )

    def push(self, time: int, kind: int, who: Task | _Host | SharedDevice) -> None:
        self.count += 1
        heapq.heappush(self.heap, (time, kind, self.count, who))

    def check(self) -> None:
        stuck = [host for host in self.hosts if host.next < len(host.steps) and not host.daemon]
        if stuck:
            where = ", ".join(f"thread {host.at} in {host.steps[host.next].text!r}" for host in stuck)
            raise DeadlockError(f"The program waits for signals that never come: {where}.")

    # Host

    def advance(self, host: _Host, time: int) -> None:
        """Run a thread's steps until it waits or something else comes first."""
        steps, heap = host.steps, self.heap
        while host.next < len(steps):
            step = steps[host.next]
            if host.last is None:
                host.starts[host.next], host.held = host.starts[host.next] if host.held else time, False
                end = self.begin(host, step, time)
                if end is None:
                    return  # whoever it waits for will wake it
            else:
                begun, host.last = host.starts[host.next], None
                end = self.end_of_wait(step, begun, time)
                self.release(host, end)
            host.ends[host.next] = time = end
            host.next += 1
            if heap and heap[0][0] <= time:
                self.push(time, _RESUME, host)
                return
        self.through(host)

    def through(self, host: _Host) -> None:
        """A thread has done its last step. Daemons end with the last thread that is none."""
        if host.next == len(host.steps) and not host.daemon:
            self.lasting -= 1

    def begin(self, host: _Host, step: Step, time: int) -> int | None:
        """Do a step that begins now; when it ends, or None: it waits."""
        do = step.do
        if do == Do.LAUNCH:
            return self.launch(host, step, time)
        if do == Do.CALL:
            if step.wait != Wait.NONE and self.wait_for(host, self.targets(host, step)):
                return None
            return time + step.host_ns + step.init_ns
        if do in (Do.RECORD, Do.WAIT_EVENT):
            self.mark(host, step, time)
        elif do == Do.SIGNAL:
            self.signal((host.process, step.text), time)
        elif do == Do.AWAIT:
            key = host.process, step.text
            if not self.signals.get(key):
                self.awaiting.setdefault(key, deque()).append(host)
                return None
            self.signals[key] -= 1
        return time + step.host_ns + step.init_ns

    def end_of_wait(self, step: Step, begun: int, done: int) -> int:
        """When a step ends whose wait was over at ``done``."""
        if step.do == Do.AWAIT:
            return done
        if step.do == Do.LAUNCH:
            return max(begun + step.init_ns + step.host_ns, done + step.return_ns)
        return max(begun + step.host_ns, done + step.return_ns) + step.init_ns

    def targets(self, host: _Host, step: Step) -> Iterable[Task]:
        tails = self.tails.get((host.process, step.device), {})
        if step.wait == Wait.DEVICE:
            return tails.values()
        found = self.events.get((host.process, step.text)) if step.wait == Wait.EVENT else tails.get(step.stream)
        return (found,) if found is not None else ()

    def wait_for(self, host: _Host, targets: Iterable[Task]) -> bool:
        for task in targets:
            if task.end < 0:
                task.waiting.append(host)
                host.waits += 1
        return host.waits > 0

    def wake(self, host: _Host, time: int) -> None:
        """What a thread waited for is over; its call returns a little later."""
        host.last = time
        self.push(time, _RESUME, host)

    def signal(self, key: tuple[int, str], time: int) -> None:
        if self.awaiting.get(key):
            host = self.awaiting[key].popleft()
            self.wake(host, time + self.script.machine.wake_ns)
        else:
            self.signals[key] = self.signals.get(key, 0) + 1

    # From host to device

    def launch(self, host: _Host, step: Step, time: int) -> int | None:
        """Hand an operation over. A full queue holds the call up before anything else."""
        key = host.process, step.device, step.stream
        if self.script.machine.driver_release_ns and step.operation and step.operation.kind == Kind.COPY:
            holder = self.driver.get(host.process)
            if holder is not None:
                host.held = True
                holder[1].append(host)
                return None
            if step.wait != Wait.NONE:
                self.driver[host.process] = host, deque()
        limit = self.script.queue_limit
        if limit is not None and self.queued.get(key, 0) >= limit:
            self.room.setdefault(key, deque()).append(host)
            return None
        spec = step.operation
        assert spec is not None
        ready = time + step.init_ns + spec.submit_ns + spec.latency_ns
        task = Task(spec, key, (host.at, host.next), ready)
        self.queued[key] = self.queued.get(key, 0) + 1
        self.launched.append(task)
        self.enqueue(task, spec.switch_ns)
        if step.wait == Wait.OWN_END:
            task.waiting.append(host)
            host.waits += 1
            return None
        if step.wait == Wait.OWN_STAGED:
            task.staged = host
            return None
        return time + step.init_ns + step.host_ns

    def release(self, host: _Host, time: int) -> None:
        """Whoever held the driver returns from its call: those that waited for it go on a little later."""
        holder = self.driver.get(host.process)
        if holder is not None and holder[0] is host:
            del self.driver[host.process]
            for held in holder[1]:
                self.push(time + self.script.machine.driver_release_ns, _RESUME, held)

    def mark(self, host: _Host, step: Step, time: int) -> None:
        """Put an event's record, or a wait for one, into the stream."""
        key = host.process, step.device, step.stream
        task = Task(None, key, (host.at, host.next), time + step.arrive_ns)
        name = host.process, step.text
        if step.do == Do.RECORD:
            self.events[name] = task
        elif name in self.events:
            self.follow(task, self.events[name], 0)
        self.enqueue(task, 0)

    def enqueue(self, task: Task, lag: int) -> None:
        """Behind the stream's latest, and behind other streams where the legacy default stream says so."""
        process, device, stream = task.key
        tails = self.tails.setdefault((process, device), {})
        if self.script.machine.legacy_default_stream:
            before = tails.values() if stream == 0 else [tails[s] for s in (0, stream) if s in tails]
        else:
            before = [tails[stream]] if stream in tails else []
        for earlier in before:
            self.follow(task, earlier, lag)
        tails[stream] = task
        if not task.pending:
            self.push(task.ready, _READY, task)

    def follow(self, task: Task, earlier: Task, lag: int) -> None:
        if earlier.end >= 0:
            task.ready = max(task.ready, earlier.end + lag)
        else:
            earlier.after.append((task, lag))
            task.pending += 1

    # SharedDevice

    def make_ready(self, task: Task, time: int) -> None:
        """All that a task waited for is over."""
        if task.spec is None:
            self.finish(task, time)
        else:
            self.device(task).add(task, time)

    def device(self, task: Task) -> SharedDevice:
        number = task.key[1]
        if number not in self.devices:
            self.devices[number] = SharedDevice(
                self.script.machine,
                self.started,
                lambda task, time: self.push(time, _DONE, task),
                lambda device, time: self.push(time, _TURN, device),
            )
        return self.devices[number]

    def started(self, task: Task, time: int) -> None:
        if task.staged is not None and task.spec is not None:
            self.push(time + task.spec.lead_ns, _STAGED, task)

    def finish(self, task: Task, time: int) -> None:
        task.end = time
        if task.spec is not None:
            self.leave(task, time)
        for later, lag in task.after:
            later.ready = max(later.ready, time + lag)
            later.pending -= 1
            if not later.pending:
                self.push(max(later.ready, time), _READY, later)
        task.after.clear()
        for host in task.waiting:
            assert isinstance(host, _Host)
            host.waits -= 1
            if not host.waits:
                self.wake(host, time)
        task.waiting.clear()

    def leave(self, task: Task, time: int) -> None:
        """Give back its room on the device and its place in the queue."""
        self.device(task).remove(task, time)
        self.queued[task.key] -= 1
        if self.room.get(task.key):
            host = self.room[task.key].popleft()
            end = self.launch(host, host.steps[host.next], time)
            if end is not None:
                host.ends[host.next] = end
                host.next += 1
                self.push(end, _RESUME, host)


__all__ = ["DeadlockError", "Executed", "Run", "simulate"]
