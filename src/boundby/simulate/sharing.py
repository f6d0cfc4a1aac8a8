"""How operations that are on one device at a time share it: room, slowing each other down, turns of processes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from boundby.simulate.machine import Machine
from boundby.simulate.script import Engine, Operation

WHOLE_GPU = 1000  # thousandths


class Task:
    """An operation or an event's record on its way: what it waits for, and who waits for it."""

    __slots__ = (
        *("after", "due", "end", "key", "left", "pending", "place", "rate", "ready", "since", "spec", "staged"),
        *("start", "waiting"),
    )

    def __init__(self, spec: Operation | None, key: tuple[int, int, int], place: tuple[int, int], ready: int) -> None:
        self.spec = spec
        self.key = key  # process, device, stream
        self.place = place
        self.ready = ready  # not before
        self.pending = 0
        self.start = -1
        self.end = -1
        self.after: list[tuple[Task, int]] = []  # who needs this one, and how long after its end
        self.waiting: list[object] = []  # hosts
        self.staged: object | None = None
        self.left = 0.0  # work that was left at ``since``, in ns at full rate
        self.since = 0
        self.rate = 0.0
        self.due = -1  # when it ends, as things are now


class SharedDevice:
    """One device. Operations get room in the order in which they become ready: none overtakes one that does not fit.

    Kernels that run together slow each other down by ``Machine.contention``. With ``Machine.slice_ns`` the kernels of
    one process at a time run, the others' stand still. ``started(task, time)`` and ``ends(task, time)`` are told what
    begins, and when it would end as things are now; a later word replaces an earlier one.
    """

    def __init__(
        self,
        machine: Machine,
        started: Callable[[Task, int], None],
        ends: Callable[[Task, int], None],
        turn_ends: Callable[[SharedDevice, int], None],
    ) -> None:
        self.machine = machine
        self.started, self.ends, self.turn_ends = started, ends, turn_ends
        self.is_shared = bool(machine.contention or machine.slice_ns)
        self.free: dict[tuple[Engine, int], int] = {}
        self.queue: dict[tuple[Engine, int], deque[Task]] = {}
        self.running: list[Task] = []  # kernels, where they do not simply last what they last
        self.turn = 0  # the process whose kernels run, where processes take turns
        self.is_turn_limited = False

    def add(self, task: Task, time: int) -> None:
        """A task is ready: start it, or let it queue for room."""
        place = self.place(task)
        if place[0] == Engine.NONE:
            self.start(task, time)
            return
        self.queue.setdefault(place, deque()).append(task)
        self.fill(place, time)

    def remove(self, task: Task, time: int) -> None:
        """A task has ended: its room is free."""
        place = self.place(task)
        if place[0] == Engine.NONE:
            return
        self.free[place] += _need(task)
        if self.is_shared and place[0] == Engine.COMPUTE:
            self.running.remove(task)
            self.change_rates(time)
        self.fill(place, time)

    def end_turn(self, time: int) -> None:
        """The time slice of a process is over: the next that has work gets the device."""
        self.is_turn_limited = False
        self.fill((Engine.COMPUTE, self.turn), time, is_over=True)

    def place(self, task: Task) -> tuple[Engine, int]:
        """The engine that a task needs and, where processes take turns, whose share of it."""
        assert task.spec is not None
        return task.spec.engine, task.key[0] if self.machine.slice_ns and task.spec.engine == Engine.COMPUTE else 0

    def fill(self, place: tuple[Engine, int], time: int, *, is_over: bool = False) -> None:
        if place[0] == Engine.COMPUTE and self.machine.slice_ns:
            place = Engine.COMPUTE, self.take_turns(time, is_over=is_over)
        queue = self.queue.get(place)
        room = {Engine.COMPUTE: WHOLE_GPU}.get(place[0], self.machine.copy_engines)
        while queue and self.free.setdefault(place, room) >= _need(queue[0]):
            task = queue.popleft()
            self.free[place] -= _need(task)
            self.start(task, time)

    def take_turns(self, time: int, *, is_over: bool) -> int:
        """Whose turn it is now: a process keeps it while it has work and its slice lasts."""
        busy = {number for (engine, number), queue in self.queue.items() if engine == Engine.COMPUTE and queue}
        busy |= {task.key[0] for task in self.running}
        if busy and (is_over or self.turn not in busy):
            later = [number for number in busy if number > self.turn]
            self.turn = min(later or busy)
            self.change_rates(time)
        if len(busy) > 1 and not self.is_turn_limited:
            self.is_turn_limited = True
            self.turn_ends(self, time + self.machine.slice_ns)
        return self.turn

    def start(self, task: Task, time: int) -> None:
        assert task.spec is not None
        task.start = time
        self.started(task, time)
        if self.is_shared and task.spec.engine == Engine.COMPUTE:
            task.since, task.left = time, task.spec.ns
            self.running.append(task)
            self.change_rates(time)
        else:
            task.due = time + task.spec.ns
            self.ends(task, task.due)

    def change_rates(self, time: int) -> None:
        """Work out again how fast every kernel goes, and when it will end."""
        moves = [not self.machine.slice_ns or task.key[0] == self.turn for task in self.running]
        total = sum(_need(task) for task, is_moving in zip(self.running, moves, strict=True) if is_moving)
        for task, is_moving in zip(self.running, moves, strict=True):
            beside = (total - _need(task)) / WHOLE_GPU
            rate = 1 / (1 + self.machine.contention * beside) if is_moving else 0.0
            if rate != task.rate:
                task.left = max(task.left - (time - task.since) * task.rate, 0.0)
                task.since, task.rate = time, rate
                task.due = time + math.ceil(task.left / rate) if rate else -1
                if rate:
                    self.ends(task, task.due)


def _need(task: Task) -> int:
    assert task.spec is not None
    return task.spec.share if task.spec.engine == Engine.COMPUTE else 1


__all__ = ["WHOLE_GPU", "SharedDevice", "Task"]
