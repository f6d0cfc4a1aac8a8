"""A machine whose kernels slow each other down, and whose processes take turns on a device."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from boundby.simulate.machine import WHOLE_GPU, DeviceEvents, Engine, Machine, Room, SharedDevice, Task, need


class ContendedMachine(Machine, frozen=True, dict=True):
    """Times in ns."""

    #: What kernels that run beside each other lose (memory, caches): each takes 1 + contention * (the share of the GPU
    #: that the others take) times as long.
    contention: float = 0.0
    #: Kernels of several processes: 0 runs them beside each other, as MPS does; else one process at a time has the
    #: device, for so long while others have work. What runs when its process loses the turn stands still.
    slice_ns: int = 0

    def device(self, hears: DeviceEvents) -> SharedDevice:
        """One of its devices."""
        return ContendedDevice(self, hears)


def contended(machine: Machine, **changes: Any) -> ContendedMachine:
    """The same machine with these changes."""
    return ContendedMachine(**{**asdict(machine), **changes})


class _Progress(Struct):
    """How far a kernel is: the work that was left at ``since``, in ns at full rate, and how fast it goes."""

    left: float
    since: int
    rate: float = 0.0


class ContendedDevice(SharedDevice):
    """One device, whose kernels may stand still or go slower while others run."""

    def __init__(self, machine: ContendedMachine, hears: DeviceEvents) -> None:
        super().__init__(machine, hears)
        self.contention, self.slice_ns = machine.contention, machine.slice_ns
        self.running: dict[Task, _Progress] = {}  # kernels
        self.turn = 0  # the process whose kernels run, where processes take turns
        self.is_turn_limited = False

    def remove(self, task: Task, time: int) -> None:
        """A task has ended: its room is free, and the others go on faster."""
        if self.running.pop(task, None) is not None:
            self.change_rates(time)
        super().remove(task, time)

    def room_for(self, task: Task) -> Room:
        """What a task needs; where processes take turns, of the share of its own."""
        engine, _ = super().room_for(task)
        return engine, task.key[0] if self.slice_ns and engine == Engine.COMPUTE else 0

    def fill(self, room: Room, time: int, *, is_over: bool = False) -> None:
        """Start what fits, of the process whose turn it is."""
        if room[0] == Engine.COMPUTE and self.slice_ns:
            room = Engine.COMPUTE, self.take_turns(time, is_over=is_over)
        super().fill(room, time)

    def end_turn(self, time: int) -> None:
        """The time slice of a process is over: the next that has work gets the device."""
        self.is_turn_limited = False
        self.fill((Engine.COMPUTE, self.turn), time, is_over=True)

    def take_turns(self, time: int, *, is_over: bool) -> int:
        """Whose turn it is now: a process keeps it while it has work and its slice lasts."""
        busy = {number for (engine, number), queue in self.queue.items() if engine == Engine.COMPUTE and queue}
        busy |= {task.key[0] for task in self.running}
        if busy and (is_over or self.turn not in busy):
            self.turn = min([number for number in busy if number > self.turn] or busy)
            self.change_rates(time)
        if len(busy) > 1 and not self.is_turn_limited:
            self.is_turn_limited = True
            self.hears.later(time + self.slice_ns, self.end_turn)
        return self.turn

    def start(self, task: Task, time: int) -> None:
        """A kernel goes as fast as the others let it; anything else lasts as long as it lasts."""
        assert task.spec is not None
        if task.spec.engine != Engine.COMPUTE:
            super().start(task, time)
            return
        task.start = time
        self.hears.started(task, time)
        self.running[task] = _Progress(task.spec.ns, time)
        self.change_rates(time)

    def change_rates(self, time: int) -> None:
        """Work out again how fast every kernel goes, and when it will end."""
        moving = {task for task in self.running if not self.slice_ns or task.key[0] == self.turn}
        total = sum(map(need, moving))
        for task, progress in self.running.items():
            beside = (total - need(task)) / WHOLE_GPU
            rate = 1 / (1 + self.contention * beside) if task in moving else 0.0
            if rate != progress.rate:
                progress.left = max(progress.left - (time - progress.since) * progress.rate, 0.0)
                progress.since, progress.rate = time, rate
                task.due = time + math.ceil(progress.left / rate) if rate else -1
                if rate:
                    self.hears.ends(task, task.due)
