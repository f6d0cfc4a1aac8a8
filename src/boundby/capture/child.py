"""Run nsys as a child that never outlives this program, and read what it says.

nsys draws its progress bar with carriage returns, on stdout or stderr by version and subcommand. Both are
read as one stream, and the bar is taken out of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from boundby.model.scale import LOOK_S, MOMENT_S, PAGE_ROWS
from boundby.trace.vocabulary.last_words import BY_SIGNAL

Progress = Callable[[float | None], None]
"""Is told the fraction done (0.0 to 1.0), or None while that is not known."""

#: How much of its output is kept: an nsys that fails says why in its last lines.
LINES_KEPT = PAGE_ROWS
#: A shell tells that its command was killed by signal N with status 128 + N.
_BAR = re.compile(r"\[[=\s]*(\d{1,3})%\s*\]")


class ChildTimeoutError(Exception):
    """The child did not end in the time it was given, and was killed."""


class Finished(Struct, frozen=True):
    """How a child ended, and the last lines it wrote."""

    returncode: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def signal_number(self) -> int | None:
        """The signal that killed it, also where a shell in between tells of it by the exit status."""
        if self.returncode < 0:
            return -self.returncode
        if BY_SIGNAL < self.returncode < BY_SIGNAL + signal.NSIG:
            return self.returncode - BY_SIGNAL
        return None

    @property
    def signal_name(self) -> str | None:
        number = self.signal_number
        if number is None:
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(number).name
        return f"signal {number}"


def run_child(
    command: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str],
    folder: Path | None = None,
    timeout_s: float | None = None,
    progress: Progress | None = None,
    lines_kept: int | None = LINES_KEPT,
) -> Finished:
    """Run a command to its end. Whatever interrupts this (Ctrl-C, a callback that raises) ends the child too.

    Raises:
        ChildTimeoutError: it took longer than ``timeout_s``.
        OSError: it could not be started.
    """
    # A process group of its own: Ctrl-C in the terminal reaches only us, and we can end all that it started.
    child = subprocess.Popen(
        [os.fspath(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(env),
        cwd=folder,
        start_new_session=True,
    )
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    output = _Output(progress, lines_kept)
    try:
        _read(child, output, deadline)
        child.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _end(child)
        raise ChildTimeoutError from None
    except BaseException:
        _end(child)
        raise
    return Finished(child.returncode, output.finish())


def ask(command: Sequence[str], timeout_s: float, folder: Path | None = None) -> Finished | None:
    """Run a small program for what it says; None where it is missing or does not answer."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        return run_child([path, *command[1:]], env=os.environ, folder=folder, timeout_s=timeout_s)
    except (ChildTimeoutError, OSError):
        return None


def _read(child: subprocess.Popen[bytes], output: _Output, deadline: float | None) -> None:
    """Feed ``output`` until the child closes its end."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector, child.stdout as pipe:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if deadline is not None and time.monotonic() > deadline:
                raise ChildTimeoutError
            if selector.select(LOOK_S):
                data = os.read(pipe.fileno(), 1 << 16)
                if not data:
                    return
                output.feed(data)
            elif child.poll() is not None:
                return


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all it started: ask, wait a little, insist."""
    try:
        _signal_group(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(MOMENT_S)
    finally:  # also when a second Ctrl-C cuts the wait short
        _signal_group(child, signal.SIGKILL)
        child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


class _Output(Struct):
    """Splits a byte stream into lines and progress."""

    progress: Progress | None
    lines_kept: int | None
    _rest: bytes = b""
    _percent: int = -1
    _lines: deque[str] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._lines = deque(maxlen=self.lines_kept)

    def feed(self, data: bytes) -> None:
        *whole, self._rest = re.split(rb"[\r\n]", self._rest + data)
        for line in whole:
            self._take(line.decode(errors="replace"))

    def finish(self) -> tuple[str, ...]:
        self.feed(b"\n")
        return tuple(self._lines)

    def _take(self, line: str) -> None:
        bar = _BAR.search(line)
        if bar is None:
            if line.strip():
                self._lines.append(line.rstrip())
            return
        percent = min(int(bar[1]), 100)
        if percent > self._percent and self.progress is not None:
            self.progress(percent / 100)
        self._percent = max(percent, self._percent)
