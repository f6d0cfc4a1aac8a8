"""Traces of awkward shapes, at two sizes: how the CPU time of an analysis grows.

    python -m benchmarks.shapes [NAME ...] [--scale 1.0] [--rounds 1]

    python -m benchmarks.shapes lanes --scale 4 --rounds 3

Each shape is an nsys export written row by row; those of lanes are traces of PyTorch's profiler. It is analysed (report
and page data) in a process of its own at a size and at twice that, in turns; the exponent is the binary logarithm of
the ratio of CPU seconds in the program, the least of all rounds, start of Python taken off.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

PROCESS = 0x0100_0000_0000_1000 & ~0xFFFFFF
KERNEL_NS, STEP_NS = 4_000, 10_000
Row = tuple[object, ...]

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
  textId INTEGER, domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER,
  callchainId INTEGER NOT NULL);
"""
_LAUNCH, _SYNC, _POLL, _FIRST_KERNEL = 1, 2, 3, 10


class Export:
    """Rows of one export on their way into it."""

    def __init__(self) -> None:
        self.kernels: list[Row] = []
        self.calls: list[Row] = []
        self.ranges: list[Row] = []
        self.os_calls: Iterable[Row] = []

    def launch(self, at: int, *, name: int = 0, thread: int = 1, stream: int = 7, device: int = 0) -> None:
        """A launch and its kernel, which starts soon after."""
        number = len(self.calls) + 1
        tid = PROCESS + thread
        self.calls.append((at, at + 2_000, 0, tid, number, _LAUNCH, 0, 0))
        start, text = at + 3_000, _FIRST_KERNEL + name
        self.kernels.append((start, start + KERNEL_NS, device, 1, stream, number, PROCESS, text, text))

    def range(self, start: int, end: int, text: str, *, thread: int = 1) -> None:
        """A push/pop range."""
        self.ranges.append((start, end, 59, text, PROCESS + thread, None, 0))

    def write(self, path: Path) -> None:
        """The export as a file."""
        names = 1 + max((int(str(row[7])) - _FIRST_KERNEL for row in self.kernels), default=0)
        texts = [(_LAUNCH, "cudaLaunchKernel_v7000"), (_SYNC, "cudaDeviceSynchronize_v3020"), (_POLL, "poll")]
        texts += [
            (_FIRST_KERNEL + number, f"void kernel_{number}<float, {number % 7}>(int)") for number in range(names)
        ]
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
            for table, rows in (
                ("StringIds", texts),
                ("CUPTI_ACTIVITY_KIND_KERNEL", self.kernels),
                ("CUPTI_ACTIVITY_KIND_RUNTIME", self.calls),
                ("NVTX_EVENTS", self.ranges),
                ("OSRT_API", self.os_calls),
            ):
                width = len(connection.execute(f"PRAGMA table_info({table})").fetchall())
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", rows)
            connection.commit()


def paths(size: int) -> Export:
    """Every range has a path of its own."""
    export = Export()
    for number in range(size):
        at = number * STEP_NS
        export.range(at, at + 9_000, f"part {_word(number)}")
        export.launch(at)
    return export


def deep(size: int) -> Export:
    """Ranges nested as deep as there are of them, a kernel in each."""
    export = Export()
    for number in range(size):
        export.range(number * STEP_NS, (2 * size - number) * STEP_NS, f"level {_word(number)}")
        export.launch(number * STEP_NS + 100)
    return export


def names(size: int) -> Export:
    """Every kernel has a name of its own."""
    export = Export()
    for number in range(size):
        export.launch(number * STEP_NS, name=number)
    return export


def os_calls(size: int) -> Export:
    """Few kernels and many OS calls."""
    export = Export()
    for number in range(0, size, 100):
        export.launch(number * STEP_NS)
    export.os_calls = (  # not written out: millions of rows take gigabytes
        (at + 4_000, at + 8_000, 27, PROCESS + 1 + at // STEP_NS % 4, None, _POLL, 0, None, 0)
        for at in range(0, size * STEP_NS, STEP_NS)
    )
    return export


def overlapping(size: int) -> Export:
    """Ranges that overlap without nesting."""
    export = Export()
    for number in range(size):
        export.range(number * STEP_NS, (number + 40) * STEP_NS, f"request {number}")
        export.launch(number * STEP_NS + 100)
    return export


def threads(size: int) -> Export:
    """Two hundred threads that launch in turn."""
    export = Export()
    for number in range(size):
        export.launch(number * STEP_NS, thread=1 + number % 200)
    return export


def streams(size: int) -> Export:
    """Sixty-four streams of eight devices."""
    export = Export()
    for number in range(size):
        export.launch(number * STEP_NS, stream=7 + number % 64, device=number % 8)
    return export


def instances(size: int) -> Export:
    """Very many instances of one region."""
    export = Export()
    for number in range(size):
        at = number * STEP_NS
        export.range(at, at + 9_000, "step")
        if number % 4 == 0:
            export.launch(at + 100)
    return export


def found(size: int) -> Export:
    """No ranges: iterations have to be found."""
    export = Export()
    for number in range(size):
        at = number * STEP_NS + (number // 20) * 50_000
        export.launch(at, name=(number % 20) * 3 % 17)
        if number % 20 == 19:
            export.calls.append((at + 3_000, at + 8_000, 0, PROCESS + 1, len(export.calls) + 1, _SYNC, 0, 0))
    return export


class Lanes:
    """A trace of PyTorch's profiler in which each operator has a thread and each kernel a stream of its own;
    ``again``: all of them return at the end, so that none takes the turn of another."""

    def __init__(self, size: int, *, again: bool) -> None:
        self.lanes = [*range(size), *(range(size) if again else ())]

    def write(self, path: Path) -> None:
        """The trace as a file."""
        with path.open("w") as file:
            file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "SIM"}], "traceEvents": [{}')
            for number, lane in enumerate(self.lanes):
                at_us, thread, stream = number * STEP_NS // 1000, 1000 + lane, 7 + lane
                for category, name, pid, tid, begin, length, arguments in (
                    ("cpu_op", "aten::mm", 100, thread, 0, 8, {}),
                    ("cuda_runtime", "cudaLaunchKernel", 100, thread, 1, 2, {"correlation": number + 1}),
                    ("kernel", "gemm", 0, stream, 4, 4, {"device": 0, "stream": stream, "correlation": number + 1}),
                ):
                    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": arguments}
                    file.write(",\n" + json.dumps({**event, "ts": at_us + begin, "dur": length}))
            file.write("]}")


def _word(number: int) -> str:
    """A name for a number that is not folded with others."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


SHAPES: dict[str, tuple[Callable[[int], Export | Lanes], int]] = {
    "paths": (paths, 20_000),
    "deep": (deep, 1_000),
    "names": (names, 10_000),
    "os_calls": (os_calls, 200_000),
    "overlapping": (overlapping, 20_000),
    "threads": (threads, 40_000),
    "streams": (streams, 40_000),
    "instances": (instances, 100_000),
    "found": (found, 50_000),
    "lanes": (lambda size: Lanes(size, again=False), 50_000),
    "lanes_open": (lambda size: Lanes(size, again=True), 25_000),
}
_RUN = """
import sys, boundby.api
analysis = boundby.api.Analysis(sys.argv[1]) if sys.argv[1] else None
analysis and (analysis.report, analysis.plot_data)
"""


def cpu_s(path: str) -> float:
    """CPU seconds of an analysis in a process of its own; of none for an empty path."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _RUN, path], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime


def measured(chosen: list[str], scale: float, rounds: int) -> Iterator[tuple[str, int, float, float, float]]:
    """Name, size, CPU seconds at that size and at twice it, exponent."""
    start_s = min(cpu_s("") for _ in range(rounds))
    for name in chosen:
        make, usual = SHAPES[name]
        size = int(usual * scale)
        with tempfile.TemporaryDirectory() as folder:
            files = {rows: Path(folder, f"{rows}.sqlite") for rows in (size, 2 * size)}
            for rows, file in files.items():
                make(rows).write(file)
            runs = [[cpu_s(str(file)) - start_s for file in files.values()] for _ in range(rounds)]
        once_s, twice_s = (max(min(times), 0.001) for times in zip(*runs, strict=True))
        yield name, size, once_s, twice_s, math.log2(twice_s / once_s)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHAPES))
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual size")
    parser.add_argument("--rounds", type=int, default=1, help="of measurements, in turns, of which the least counts")
    arguments = parser.parse_args()
    chosen = arguments.names or list(SHAPES)
    for name, size, once_s, twice_s, exponent in measured(chosen, arguments.scale, arguments.rounds):
        print(f"{name:12} {size:9,} {once_s:7.2f} s, twice that {twice_s:7.2f} s, exponent {exponent:.2f}", flush=True)


if __name__ == "__main__":
    main()
