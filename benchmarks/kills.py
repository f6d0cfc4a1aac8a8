"""Is a result ever lost, or half there? What writes is killed at random instants.

    python -m benchmarks.kills --kills 200 --seed 0

Each round adds a report to one database (``--save``) and replaces one file (``-o``), in a process of its own that is
killed (SIGKILL) at an instant drawn from the time that this takes. Afterwards the database is opened as anybody would:
it is sound, each report in it has all of its rows, none that was there is gone, and the file holds the old result or
the new one. Exits with 1 where that was not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from boundby import api
from boundby.render import store
from boundby.results import saved, write
from boundby.results.report import Report

_SAMPLE = Path(__file__).parents[1] / "sample_reports" / "simulated_sync.sqlite"


def put(folder: Path, report: Report, text: str) -> None:
    """What is killed: the report's text becomes ``result.json``, and the report one more of ``runs.db``."""
    write.write_text(folder / "result.json", text)
    store.save(report, folder / "runs.db")


def killed(folder: Path, report: Report, text: str, after_s: float | None) -> bool:
    """Do so in a process that is killed after a while (None: never); whether it was still at it."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            put(folder, report, text)
            os._exit(0)
        os._exit(1)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it could not write"
    return os.WIFSIGNALED(status)


def wrong(folder: Path, results: Sequence[str], least: int) -> str:
    """What is not as it must be; empty: all is well. ``least``: how many reports the database surely has."""
    path = folder / "result.json"
    if path.exists() and path.read_text(encoding="utf-8") not in results:
        return "result.json is half-written"
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as database:
        (sound,) = database.execute("PRAGMA integrity_check").fetchone()
        if sound != "ok":
            return f"runs.db: {sound}"
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'reports'").fetchone():
            return "runs.db has lost its reports" if least else ""
        count = "SELECT (SELECT count(*) FROM {0} WHERE report_id = reports.id) FROM reports"
        for table in ("devices", "regions", "findings"):
            counts = {number for (number,) in database.execute(count.format(table))}
            if len(counts) > 1:
                return f"runs.db: reports of one program have {sorted(counts)} {table}"
        (there,) = database.execute("SELECT count(*) FROM reports").fetchone()
    return f"runs.db has lost {least - there} reports" if there < least else ""


def count(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as database, contextlib.suppress(sqlite3.Error):
        return int(database.execute("SELECT count(*) FROM reports").fetchone()[0])
    return 0


def run(kills: int, seed: int, folder: Path) -> Counter[str]:
    """How often a process was killed at its work, or after it; and what was wrong."""
    chance, found = random.Random(seed), Counter[str]()
    report = api.analyze(_SAMPLE)
    # Two results of one length: what is cut, or a mixture of both, is neither.
    reports = [replace(report, trace=replace(report.trace, path=path)) for path in ("a.sqlite", "b.sqlite")]
    texts = [saved.render(one) for one in reports]
    put(folder, reports[0], texts[0])  # what is imported once is there for all
    begun = time.monotonic()
    killed(folder, reports[1], texts[1], None)
    longest_s = 1.5 * (time.monotonic() - begun)
    for number in range(kills):
        least = count(folder)
        is_killed = killed(folder, reports[number % 2], texts[number % 2], chance.random() * longest_s)
        what = wrong(folder, texts, least)
        found[what or ("killed at work" if is_killed else "had ended")] += 1
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boundby-kills-") as folder:
        found = run(arguments.kills, arguments.seed, Path(folder))
        reports = count(Path(folder))
    for what, number in found.most_common():
        print(f"{number:6,}  {what}")
    print(f"{reports:6,}  reports in the database")
    return 0 if set(found) <= {"killed at work", "had ended"} else 1


if __name__ == "__main__":
    sys.exit(main())
