"""Runs of ``boundby profile`` as a process of its own, on a program that behaves as it is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boundby.capture.nsys import Nsys
from boundby.cli.main import main
from tests.support.nsys import REPOSITORY

#: One run takes 2 to 3 s, many times that on a busy machine; one that takes this long hangs.
RUN_TIMEOUT_S = 300
#: What a program does is its first argument. It opens 3 ranges ``part`` in a range ``work``, and says "ready".
PROGRAM = """\
import os, signal, sys, time
import nvtx

how = sys.argv[1]
with nvtx.annotate("work"):
    for number in range(3):
        with nvtx.annotate("part"):
            time.sleep(0.02)
print("ready", flush=True)
print("to stderr", file=sys.stderr, flush=True)
if how == "echo":
    print("read", sys.stdin.read().strip(), "tty", sys.stdout.isatty(), "argv", sys.argv[2:], flush=True)
elif how == "exit":
    sys.exit(int(sys.argv[2]))
elif how == "raise":
    raise ValueError("as asked")
elif how == "signal":
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
elif how == "sleep":
    time.sleep(300)
elif how == "deaf":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(300)
elif how == "cleanup":
    try:
        print("cleans up", flush=True)
        time.sleep(300)
    except KeyboardInterrupt:
        print("cleaned up", flush=True)
        sys.exit(9)
elif how == "fork":
    children = [os.fork() for _ in range(3)]
    if 0 in children:
        time.sleep(0.1)
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)
elif how == "ranges":
    for number in range(2):
        with nvtx.annotate("active"):
            for _ in range(4):
                with nvtx.annotate("inner"):
                    time.sleep(0.01)
"""


@dataclass(frozen=True)
class Ran:
    """How a run of boundby ended."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """run.json."""
        told: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return told

    @property
    def ranges(self) -> dict[str, int]:
        """How many push/pop ranges of each name the export holds."""
        return ranges_of(self.folder / "report.sqlite")


def ranges_of(export: Path) -> dict[str, int]:
    """How many push/pop ranges of each name an export holds."""
    query = "SELECT coalesce(text, value), count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId"
    with contextlib.closing(sqlite3.connect(export)) as database:
        try:
            return dict(database.execute(f"{query} WHERE eventType = 59 GROUP BY 1").fetchall())
        except sqlite3.OperationalError:  # no such table: none were recorded
            return {}


@dataclass
class Started:
    """A run that is going on."""

    process: subprocess.Popen[str]
    folder: Path
    said: str = ""
    told: str = ""

    def wait_for(self, word: str) -> None:
        """Read until the program has said a word."""
        assert self.process.stdout is not None
        while word not in self.said:
            line = self.process.stdout.readline()
            assert line, f"ended without saying {word}: {self.said} {self.process.communicate()}"
            self.said += line

    def wait_until_told(self, word: str) -> None:
        """Read until boundby, or the program, has said a word on stderr."""
        assert self.process.stderr is not None
        while word not in self.told:
            line = self.process.stderr.readline()
            assert line, f"ended without telling {word}: {self.told}"
            self.told += line

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, stdin: str | None = None) -> Ran:
        try:
            out, err = self.process.communicate(stdin, timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            while self.process.poll() is None:  # the second one ends nsys and the program too
                self.send(signal.SIGTERM)
                time.sleep(1)
            raise
        return Ran(self.process.returncode, self.said + out, self.told + err, self.folder)


@dataclass(frozen=True)
class Profiler:
    """Starts ``boundby profile`` with one nsys, in one folder."""

    nsys: Nsys
    place: Path
    capfd: pytest.CaptureFixture[str] | None = None
    """Where it is given, runs to the end are made in this process: one start of Python less."""

    @property
    def program(self) -> Path:
        path = self.place / "behave.py"
        path.write_text(PROGRAM)
        return path

    def start(
        self, options: Sequence[str], program: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> Started:
        folder = self.place / "out"
        command = [sys.executable, "-m", "boundby.cli.main", "profile", f"--nsys={self.nsys.path}", f"-o{folder}"]
        process = subprocess.Popen(
            [*command, *options, "--", *map(str, program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.place,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **(env or {})},
        )
        return Started(process, folder)

    def behaving(
        self, *arguments: str, options: Sequence[str] = ("--format=none",), env: Mapping[str, str] | None = None
    ) -> Started:
        """Start the program of this module."""
        return self.start(options, [sys.executable, self.program, *arguments], env)

    def run(self, *arguments: str, options: Sequence[str] = ("--format=none",)) -> Ran:
        """Run the program of this module to its end."""
        return self.run_program(options, [sys.executable, self.program, *arguments])

    def run_program(self, options: Sequence[str], program: Sequence[str | Path]) -> Ran:
        """Run any program to its end."""
        if self.capfd is None:
            return self.start(options, program).finish()
        folder = self.place / "out"
        where = () if any(option.startswith("-o") for option in options) else (f"-o{folder}",)
        arguments = ["profile", f"--nsys={self.nsys.path}", *where, *options, "--", *map(str, program)]
        before = Path.cwd()
        os.chdir(self.place)
        try:
            code = main(arguments)
        finally:
            os.chdir(before)
        out, err = self.capfd.readouterr()
        return Ran(code, out, err, folder)


def processes_with(mark: str) -> list[str]:
    """Command lines of the processes that still run with this in their environment."""
    return [line for folder in Path("/proc").glob("[0-9]*") if (line := _command_line_with(folder, mark))]


def _command_line_with(folder: Path, mark: str) -> str:
    try:
        if mark.encode() not in (folder / "environ").read_bytes():
            return ""
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
