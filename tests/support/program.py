"""Traces built in memory for property tests: one process, a few threads, any timeline that hypothesis thinks of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from boundby.trace.facts import Captured, GpuInfo
from boundby.trace.tables import (
    CallTable,
    Direction,
    Intervals,
    MemoryKind,
    Operations,
    OpKind,
    ProcessRow,
    Ranges,
    Samples,
    Schedule,
    ThreadRow,
    Trace,
)

OpRow = tuple[int, int, int, int, int, int, int, int, int, int, int, int, bool]


@dataclass
class Program:
    """Collects rows and makes a Trace of them. Times in nanoseconds; returns of ``api`` are correlation ids."""

    threads: int = 1
    processes: int = 1
    devices: int = 1
    names: list[str] = field(default_factory=list)
    ops: list[OpRow] = field(default_factory=list)
    calls: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    ranges: list[tuple[int, int, int, int, int, bool, bool]] = field(default_factory=list)
    os_calls: list[tuple[int, int, int, int]] = field(default_factory=list)
    switches: list[tuple[int, int, bool]] = field(default_factory=list)
    overheads: list[tuple[int, int, int, int]] = field(default_factory=list)
    domains: tuple[str, ...] = ("", "other")
    osrt: bool = False

    def name(self, text: str) -> int:
        """Index of a name."""
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def process_of(self, thread: int) -> int:
        """Threads are dealt out to processes in turn."""
        return thread % self.processes

    def api(self, start: int, end: int, name: str, thread: int = 0) -> int:
        """A CUDA call; its correlation id."""
        self.calls.append((start, end, thread, len(self.calls) + 1, self.name(name)))
        return len(self.calls)

    def kernel(self, start: int, end: int, call: int, name: str = "kernel", device: int = 0, stream: int = 7) -> None:
        """A kernel launched by a call (0: unknown)."""
        self._op(start, end, call, OpKind.KERNEL, name, device, stream)

    def copy(
        self,
        start: int,
        end: int,
        call: int,
        direction: Direction = Direction.HTOD,
        memory: MemoryKind = MemoryKind.PINNED,
        size: int = 4096,
        device: int = 0,
        stream: int = 7,
    ) -> None:
        """A memory copy between host memory of this kind and the device."""
        to_device = direction == Direction.HTOD
        source, target = (memory, MemoryKind.DEVICE) if to_device else (MemoryKind.DEVICE, memory)
        self._op(start, end, call, OpKind.MEMCPY, "", device, stream, size, direction, source, target)

    def migration(self, start: int, end: int, size: int = 65_536, device: int = 0) -> None:
        """Pages of managed memory move to the host at its fault: no call does it."""
        kinds = MemoryKind.DEVICE, MemoryKind.MANAGED
        self._op(start, end, 0, OpKind.MIGRATION, "", device, 0, size, Direction.DTOH, *kinds)

    def _op(
        self,
        start: int,
        end: int,
        call: int,
        kind: OpKind,
        name: str,
        device: int,
        stream: int,
        size: int = 0,
        direction: int = -1,
        source: int = -1,
        target: int = -1,
    ) -> None:
        thread = self.calls[call - 1][2] if call else 0
        row = (start, end, device, self.process_of(thread), stream, call, int(kind), self.name(name), size)
        self.ops.append((*row, int(direction), int(source), int(target), name.startswith("nccl")))

    def push(
        self, start: int, end: int, name: str, thread: int = 0, *, domain: int = 0, is_process: bool = False
    ) -> None:
        """An NVTX push/pop range (or a start/end range of the process)."""
        self.ranges.append((start, end, thread, self.name(name), domain, is_process, False))

    def sleep(self, start: int, end: int, thread: int = 0, name: str = "poll") -> None:
        """An OS call that blocks."""
        self.osrt = True
        self.os_calls.append((start, end, thread, self.name(name)))

    def overhead(self, start: int, end: int, thread: int = 0, name: str = "CUPTI Buffer flush") -> None:
        """The profiler's own time."""
        self.overheads.append((start, end, thread, self.name(name)))

    def trace(self, shift: int = 0, order: int | None = None) -> Trace:
        """The trace, in the order that readers guarantee. ``order`` seeds a permutation of the rows before that."""
        shuffle = np.random.default_rng(order)

        def table(rows: Sequence[tuple[int, ...]], width: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
            array = np.array(rows, np.int64).reshape(-1, width)
            if order is not None:
                array = array[shuffle.permutation(len(array))]
            return list(array.T.copy())

        op = table([tuple(map(int, row)) for row in self.ops], 13)
        operations = Operations(
            op[0] + shift,
            op[1] + shift,
            op[2].astype(np.int32),
            op[3].astype(np.int32),
            op[4],
            op[5],
            op[6].astype(np.int8),
            op[7].astype(np.int32),
            op[8],
            op[9].astype(np.int8),
            op[10].astype(np.int8),
            op[11].astype(np.int8),
            op[12].astype(bool),
        )
        columns = (operations.bytes, operations.name, operations.correlation, operations.stream, operations.kind)
        operations = operations.take(np.lexsort((*columns, operations.end_ns, operations.start_ns, operations.device)))
        call = table(self.calls, 5)
        api = CallTable(call[0] + shift, call[1] + shift, call[2].astype(np.int32), call[3], call[4].astype(np.int32))
        api = api.take(np.lexsort((api.name, api.correlation, -api.end_ns, api.start_ns, api.thread)))
        span = table([tuple(map(int, row)) for row in self.ranges], 7)
        ranges = Ranges(
            span[0] + shift,
            span[1] + shift,
            span[2].astype(np.int32),
            span[3].astype(np.int32),
            span[4].astype(np.int32),
            span[5].astype(bool),
            span[6].astype(bool),
        )
        ranges = ranges.take(np.lexsort((ranges.name, ranges.domain, -ranges.end_ns, ranges.start_ns, ranges.thread)))
        events = [*self.ops, *self.calls, *self.ranges, *self.os_calls]
        first = min((int(row[0]) for row in events), default=0) + shift
        last = max((int(row[1]) for row in events), default=0) + shift
        switch = table([tuple(map(int, row)) for row in self.switches], 3)
        schedule = Schedule(switch[0] + shift, switch[1].astype(np.int32), switch[2].astype(bool))
        return Trace(
            path="built",
            source="built",
            operations=operations,
            api=api,
            ranges=ranges,
            os_calls=self._intervals(table(self.os_calls, 4), shift),
            overhead=self._intervals(table(self.overheads, 4), shift),
            schedule=schedule.take(np.lexsort((schedule.is_in, schedule.start_ns, schedule.thread))),
            samples=Samples.empty(),
            names=tuple(self.names),
            domains=self.domains,
            threads=tuple(
                ThreadRow(
                    self.process_of(t) + 1,
                    (self.process_of(t) + 1) if t < self.processes else 100 + t,
                    self.process_of(t),
                    "",
                )
                for t in range(self.threads)
            ),
            processes=tuple(ProcessRow(number + 1, "") for number in range(self.processes)),
            gpus=tuple(GpuInfo(number, f"GPU {number}") for number in range(self.devices)),
            captured=Captured(
                kernels=bool(self.ops),
                cuda_api=bool(self.calls),
                nvtx=bool(self.ranges),
                osrt=self.osrt,
                cpu_scheduling=bool(self.switches),
            ),
            span_ns=(first, last),
        )

    def _intervals(self, columns: list[np.ndarray[tuple[int], np.dtype[np.int64]]], shift: int) -> Intervals:
        rows = Intervals(
            columns[0] + shift, columns[1] + shift, columns[2].astype(np.int32), columns[3].astype(np.int32)
        )
        return rows.take(np.lexsort((rows.name, -rows.end_ns, rows.start_ns, rows.thread)))
