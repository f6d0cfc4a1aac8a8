"""Write a large synthetic export and measure how boundby reads and accounts for it.

    python -m benchmarks.large --kernels 1000000

The export is simulated and only for speed: launches, syncs and ranges of a training loop in the schema of nsys
2023.4, without meaning beyond their number. Ratios are to a full scan of the same file by SQLite itself.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KERNELS_PER_STEP = 200
KERNEL_NS, LAUNCH_NS, PERIOD_NS = 4_000, 3_000, 6_000
TID = (1 << 56) | (1000 << 24) | 1000
PID = TID & ~0xFFFFFF

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
  blockX INTEGER, blockY INTEGER, blockZ INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, globalTid INTEGER,
  textId INTEGER, domainId INTEGER, text TEXT);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER, callchainId INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
"""
_STRINGS = ("cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020", "poll", "aten::mm", "aten::add", "step", "forward")
_KERNEL_NAMES = 40


def write_export(path: Path, kernels: int) -> None:
    """Write an export with this many kernels, 1.25 calls and 0.2 ranges each."""
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
    names = [*_STRINGS, *(f"void kernel_{number}(float*)" for number in range(_KERNEL_NAMES))]
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
    connection.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'Simulated GPU')")
    connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2023.4.4.54')")
    marks = {"CUPTI_ACTIVITY_KIND_KERNEL": 16, "CUPTI_ACTIVITY_KIND_RUNTIME": 8, "NVTX_EVENTS": 7, "OSRT_API": 8}
    for table, rows in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", _kernels(kernels)),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", _calls(kernels)),
        ("NVTX_EVENTS", _ranges(kernels)),
        ("OSRT_API", _os_calls(kernels)),
    ):
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * marks[table])})", rows)
    connection.commit()
    connection.close()


def _kernels(count: int) -> Iterator[tuple[int | None, ...]]:
    for number in range(count):
        start = number * PERIOD_NS + LAUNCH_NS + 2_000
        name = len(_STRINGS) + number % _KERNEL_NAMES
        yield (start, start + KERNEL_NS, 0, 1, 7, number + 1, PID, name, name, 64, 1, 1, 128, 1, 1, None)


def _calls(count: int) -> Iterator[tuple[int | None, ...]]:
    for number in range(count):
        start = number * PERIOD_NS
        yield (start, start + LAUNCH_NS, 0, TID, number + 1, 0, 0, None)
        if number % 4 == 3:
            yield (start + LAUNCH_NS, start + LAUNCH_NS + 500, 0, TID, count + number, 1, 0, None)


def _ranges(count: int) -> Iterator[tuple[int | str | None, ...]]:
    for first in range(0, count, KERNELS_PER_STEP):
        low, high = first * PERIOD_NS - 100, (first + KERNELS_PER_STEP) * PERIOD_NS - 200
        yield (low, high, 59, TID, 5, 0, None)
        yield (low + 10, high - 10, 59, TID, 6, 0, None)
        for number in range(first, min(first + KERNELS_PER_STEP, count), 5):
            start = number * PERIOD_NS - 50
            yield (start, start + 5 * PERIOD_NS - 100, 59, TID, 3 + number % 2, 0, None)


def _os_calls(count: int) -> Iterator[tuple[int, ...]]:
    for number in range(0, count, 10):
        start = number * PERIOD_NS + LAUNCH_NS + 600
        yield (start, start + 1_000, 27, TID, 2, 0, 0, 0)


def measure(path: Path) -> dict[str, float]:
    """Seconds of reading, of everything, and of SQLite's own scan; peak memory in bytes."""
    import boundby
    from boundby.read import read_sqlite

    def timed(action: object) -> float:
        begin = time.perf_counter()
        assert callable(action)
        action()
        return time.perf_counter() - begin

    def scan() -> None:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API"):
                connection.execute(f"SELECT sum(start), sum(end), max(globalTid) FROM {table}".replace(
                    "max(globalTid)", "max(globalPid)" if "KERNEL" in table else "max(globalTid)"
                )).fetchone()

    scanned = timed(scan)
    total = timed(lambda: boundby.analyze(path))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    read = timed(lambda: read_sqlite(path))
    return {
        "file_bytes": path.stat().st_size,
        "sqlite_scan_s": scanned,
        "read_s": read,
        "analyze_s": total,
        "analyze_over_scan": total / scanned,
        "peak_bytes": peak,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="write the export here and leave it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder) / "large.sqlite"
        if not path.exists():
            write_export(path, arguments.kernels)
        json.dump({"kernels": arguments.kernels, **measure(path)}, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
