"""Exports as large as you like: a short simulated run, repeated with its times and correlation ids moved on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.simulated.counterfactual import Case
from boundby.simulate.instructions import US, Instruction, Launch, Loop, Program, Range, Sleep, Sync, Work, program
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import Capture, new_file, to_export

KERNELS_PER_OPERATOR, KERNELS_PER_STEP = 5, 200
TEMPLATE_STEPS = 10
_KERNEL_NAMES = 40
#: Rows that are put together in memory at once.
_ROWS_AT_ONCE = 200_000
_TIMES = frozenset(("start", "end"))
_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API",
           "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_MEMCPY")  # fmt: skip


def training(steps: int) -> Program:
    """Steps of 200 short kernels in 40 operators, with about 1.25 calls, 0.2 ranges and 0.1 OS calls a kernel."""
    operators: list[Instruction] = []
    for number in range(KERNELS_PER_STEP // KERNELS_PER_OPERATOR):
        names = [f"kernel_{(number * 5 + place) % _KERNEL_NAMES}" for place in range(KERNELS_PER_OPERATOR)]
        launches = [part for name in names for part in (Launch(name, 4 * US), Work(1 * US))]
        rest = [Sync("stream"), Sleep(2 * US, "poll")] if number % 2 else [Sync("stream")]
        operators.append(Range(f"aten::{'add' if number % 2 else 'mm'}", [*launches, *rest]))
    body = Range("step", [Range("forward", operators[:20]), Range("backward", operators[20:])])
    return program(Loop(steps, [body]), Sync(), name="large")


def write_large(path: Path, kernels: int, schema: str = "2023", seed: int = 0) -> int:
    """Write an export with at least this many kernels (whole steps), and return how many there are."""
    steps = max(1, min(TEMPLATE_STEPS, -(-kernels // KERNELS_PER_STEP)))
    times = max(1, -(-kernels // (steps * KERNELS_PER_STEP)))
    machine = Machine(host_jitter=0.1, device_jitter=0.05, launch_call_ns=3 * US)
    run = Case("large", training(steps), machine, seed).run()
    period = max(ends[-1] for ends in run.end_ns) + 10 * US
    with new_file(path) as place:
        to_export(run, Capture(sched=False, registered_ranges=True)).write(place, schema)
        repeat(place, times, period)
    return times * steps * KERNELS_PER_STEP


def repeat(path: Path, times: int, period_ns: int) -> None:
    """Let everything in an export happen ``times`` times in all, ``period_ns`` apart."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN")
        known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        stride = _greatest(connection, "CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId")
        for table in _TABLES:
            if table in known:
                _repeat_table(connection, table, times, {"correlationId": stride} | dict.fromkeys(_TIMES, period_ns))
        connection.execute("COMMIT")


def _greatest(connection: sqlite3.Connection, table: str, column: str) -> int:
    return int(connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0])


@dataclass(frozen=True)
class _Column:
    """One column of the rows to repeat: ``values`` as they are, or numbers that grow by ``stride`` each time."""

    values: list[object]
    numbers: npt.NDArray[np.int64] | None
    stride: int

    def turns(self, first: int, last: int) -> list[object]:
        """The values of some turns, one after the other."""
        if self.numbers is None:
            return self.values * (last - first)
        moved = self.numbers[None, :] + self.stride * np.arange(first, last)[:, None]
        return list(moved.ravel().tolist())


def _repeat_table(connection: sqlite3.Connection, table: str, times: int, strides: dict[str, int]) -> None:
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    words, columns = [], []
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        if name in strides and None not in values:
            columns.append(_Column([], np.array(values, np.int64), strides[name]))
        elif len(set(values)) > 1 or isinstance(values[0], str | bytes | float):
            columns.append(_Column(list(values), None, 0))
        else:
            words.append("NULL" if values[0] is None else str(values[0]))
            continue
        words.append("?")
    statement = f'INSERT INTO "{table}" VALUES ({", ".join(words)})'
    connection.executemany(statement, _rows(columns, times, max(1, _ROWS_AT_ONCE // len(rows))))


def _rows(columns: Sequence[_Column], times: int, turns_at_once: int) -> Iterator[tuple[object, ...]]:
    for first in range(1, times, turns_at_once):
        last = min(times, first + turns_at_once)
        yield from zip(*(column.turns(first, last) for column in columns), strict=True)


__all__ = ["repeat", "training", "write_large"]
