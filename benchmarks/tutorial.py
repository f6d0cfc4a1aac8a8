"""The tutorial's output, and the screen of the README, by running their commands.

Every block below a comment ``<!-- output: COMMAND; "START" N -->`` in docs/tutorial.md is what the command prints:
N lines from the first that begins with START. The table below ``<!-- table: NAME -->`` is made of the four steps of its
loss. README.md shows the screen of a real trace (`tests.support.traces`), which not everybody has.
``python -m benchmarks.tutorial --write`` makes them anew; tests hold them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.traces import traces_folder

import boundby
from boundby.cli.main import main
from boundby.measure import waits
from boundby.model.causes import BOUND_LABEL
from boundby.model.units import duration, duration_range
from boundby.results.report import Report

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "tutorial.md"
README = REPOSITORY / "README.md"
README_TRACE = "pytorch_a100_all_cpu_tables.sqlite"
_SCREEN = re.compile(r"(?<=\n\$ boundby report\.sqlite\n).*?(?=```)", re.DOTALL)
STEPS = ("before", "no_nonzero", "no_unique", "after")
_BLOCK = re.compile(
    r'(<!-- output: boundby (?P<command>.+?); "(?P<start>.+?)" (?P<lines>\d+) -->\n+```\n).*?(?=```)', re.DOTALL
)
_TABLE = re.compile(r"(<!-- table: (?P<name>\w+) -->\n\n)(?:\|.*\n)*\n?")


def made(text: str, folder: Path) -> str:
    """The page with every block as its command prints it. The traces are simulated in ``folder``."""

    output = cache(_printed)

    def block(match: re.Match[str]) -> str:
        lines, start = output(match["command"]), match["start"]
        first = next(number for number, line in enumerate(lines) if line.startswith(start))
        shown = lines[first : first + int(match["lines"])]
        return match[1] + "\n".join(line.rstrip() for line in shown) + "\n"

    def table(match: re.Match[str]) -> str:
        rows = ["| " + " | ".join(row) + " |" for row in TABLES[match["name"]]()]
        return match[1] + "\n".join([rows[0], "|" + " --- |" * rows[0].count(" | ") + " --- |", *rows[1:]]) + "\n\n"

    with _working_in(folder):
        shutil.copy(REPOSITORY / "examples" / "segmentation_loss.py", folder)
        for step in STEPS:
            for suffix in ("sqlite", "json"):
                with contextlib.redirect_stdout(io.StringIO()):
                    main(["simulate", "--pattern", f"segmentation_{step}", "-o", f"{step}.{suffix}"])
        return _TABLE.sub(table, _BLOCK.sub(block, text))


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """Commands run there, and print as many columns as into a file."""
    before, columns = Path.cwd(), os.environ.pop("COLUMNS", None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        if columns is not None:
            os.environ["COLUMNS"] = columns


def screen(readme: str, trace: Path, folder: Path) -> str:
    """The README with the screen as boundby prints it for this trace, in a folder where it is called report.sqlite."""
    with _working_in(folder):
        Path("report.sqlite").symlink_to(trace.absolute())
        return _SCREEN.sub(lambda _: "\n".join(line.rstrip() for line in _printed("report.sqlite")) + "\n", readme)


def _printed(command: str) -> list[str]:
    told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
        main(shlex.split(command))
    told.seek(0)
    return told.read().splitlines()


def _reports(suffix: str) -> list[Report]:
    return [boundby.analyze(Path(f"{step}.{suffix}")) for step in STEPS]


def _promises(report: Report) -> tuple[int, int] | None:
    """What the first finding on a wait says that its change saves."""
    return next((finding.saving_ns for finding in report.findings if finding.rule.startswith("sync-")), None)


def _bound(report: Report) -> str:
    return BOUND_LABEL[report.devices[0].verdict.bound].lower()


def _steps() -> Iterator[Sequence[str]]:
    yield "pattern", "takes", "verdict", "GPU busy", "its first wait, removed, would save", "the next one saves"
    reports = _reports("sqlite")
    gains: list[int | None] = [one.devices[0].window_ns - two.devices[0].window_ns for one, two in pairwise(reports)]
    for step, report, gained in zip(STEPS, reports, [*gains, None], strict=True):
        device, promised = report.devices[0], _promises(report)
        busy = sum(device.time[key] for key in ("gpu_compute", "gpu_comm", "gpu_copy")) / device.window_ns
        yield (
            f"`segmentation_{step}`",
            duration(device.window_ns),
            _bound(report),
            f"{100 * busy:.0f} %",
            duration_range(*promised) if promised else "no wait is left",
            duration(gained) if gained is not None else "",
        )


def _traces() -> Iterator[Sequence[str]]:
    yield "pattern", "takes", "verdict", "its first wait, removed, would save"
    for step, report in zip(STEPS, _reports("json"), strict=True):
        promised = _promises(report)
        told = duration_range(*promised) if promised else "no wait is left"
        yield f"`segmentation_{step}`", duration(report.devices[0].window_ns), _bound(report), told


def _waits() -> Iterator[Sequence[str]]:
    yield "step", "waits on a GPU", "in lines"
    sys.path.insert(0, str(REPOSITORY / "examples"))
    example: Any = importlib.import_module("segmentation_loss")
    sys.path.pop(0)
    inputs = example.batch()
    for loss in example.STEPS:
        places = [int(place.rpartition(":")[2]) for place in waits(loss, *inputs)]
        lines = ", ".join(f"{line}" for line in sorted(set(places)))
        yield f"`{loss.__name__}`", str(len(places)), lines or "none"


TABLES = {"steps": _steps, "traces": _traces, "waits": _waits}


def write() -> None:
    """Say whether both are as their commands print them, or make them so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/tutorial.md and README.md")
    is_written = parser.parse_args().write
    new = {}
    with tempfile.TemporaryDirectory() as folder:
        new[PAGE] = made(PAGE.read_text(encoding="utf-8"), Path(folder))
        traces = traces_folder()
        if traces and (traces / README_TRACE).is_file():
            new[README] = screen(README.read_text(encoding="utf-8"), traces / README_TRACE, Path(folder))
    for page, text in new.items():
        is_same = page.read_text(encoding="utf-8") == text
        if is_written:
            page.write_text(text, encoding="utf-8")
        print(f"{page.name}: {'as printed' if is_same else 'written' if is_written else 'not as printed: --write'}")


if __name__ == "__main__":
    write()
