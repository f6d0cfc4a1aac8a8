"""Write a large synthetic export and measure how boundby reads and accounts for it.

    python -m benchmarks.large --kernels 1000000

The export is simulated (``benchmarks.large_export``): launches, waits, ranges and OS calls of a training loop in the
schema of nsys 2023.4. Ratios are to a full scan of the same file by SQLite itself.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.large_export import write_large


def measure(path: Path) -> dict[str, float]:
    """Seconds of reading, of everything, and of SQLite's own scan; peak memory in bytes."""
    import boundby
    from boundby.readers import read_trace

    def timed(action: object) -> float:
        begin = time.perf_counter()
        assert callable(action)
        action()
        return time.perf_counter() - begin

    def scan() -> None:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API"):
                connection.execute(
                    f"SELECT sum(start), sum(end), max(globalTid) FROM {table}".replace(
                        "max(globalTid)", "max(globalPid)" if "KERNEL" in table else "max(globalTid)"
                    )
                ).fetchone()

    scanned = timed(scan)
    total = timed(lambda: boundby.analyze(path))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    read = timed(lambda: read_trace(path))
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
            write_large(path, arguments.kernels)
        json.dump({"kernels": arguments.kernels, **measure(path)}, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
