"""Hear what a program says last, and pass every byte on as it comes.

Standard error is replaced by one of the same kind: a terminal by a terminal, anything else by a pipe; standard output
with it where both are one, so that the order of what comes stays. A file needs neither: it is read afterwards.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path

from boundby.model import door

_OUTPUT, _ERRORS = 1, 2
_CHUNK_BYTES = 1 << 16
KEPT_BYTES = 1 << 16  # of the end: a traceback and what a launcher adds take a few thousand
#: A helper that the program leaves behind holds its streams open: nobody waits for that longer than this.
_DRAIN_S = 1.0


class Overheard:
    """Standard error (and output) of a program, from before it starts to after its end."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._source: int | None = None  # where what the program writes arrives
        self._end: int | None = None  # what the program gets
        self._thread: threading.Thread | None = None
        self._file_begin: int | None = None
        self._is_shared = False  # standard output is heard, too
        with contextlib.suppress(OSError):
            self._open()

    def _open(self) -> None:
        errors = os.fstat(_ERRORS)
        if stat.S_ISREG(errors.st_mode):
            self._file_begin = errors.st_size
            return
        with contextlib.suppress(OSError):
            self._is_shared = os.path.samestat(errors, os.fstat(_OUTPUT))
        if os.isatty(_ERRORS):
            self._source, self._end = os.openpty()
            _like_the_terminal(self._end)
        else:
            self._source, self._end = os.pipe()

    @property
    def errors(self) -> int | None:
        """What the program gets as standard error; None: its own."""
        return self._end

    @property
    def output(self) -> int | None:
        """What the program gets as standard output; None: its own."""
        return self._end if self._is_shared else None

    def started(self) -> None:
        """The program has them now: pass on what comes."""
        if self._end is None:
            return
        os.close(self._end)
        self._end = None
        self._thread = threading.Thread(target=self._pass_on, daemon=True, name="boundby overhears")
        self._thread.start()

    def close(self) -> None:
        """The program has ended: take what is on its way."""
        if self._thread is not None:
            self._thread.join(_DRAIN_S)
        if self._file_begin is not None:
            self._tail += _end_of_file(self._file_begin)

    @property
    def text(self) -> str:
        """The end of what it said."""
        return bytes(self._tail[-KEPT_BYTES:]).decode("utf-8", "replace")

    def _pass_on(self) -> None:
        assert self._source is not None
        while True:
            try:
                data = os.read(self._source, _CHUNK_BYTES)
            except OSError:  # the last one closed its end of the terminal
                data = b""
            if not data:
                with contextlib.suppress(OSError):
                    os.close(self._source)
                return
            self._tail += data
            if len(self._tail) > 2 * KEPT_BYTES:
                del self._tail[:-KEPT_BYTES]
            with contextlib.suppress(OSError):  # who listened has gone: the program need not know
                while data:
                    data = data[os.write(_ERRORS, data) :]


def _like_the_terminal(end: int) -> None:
    """Of the same size, and passing on what is written as it is: the user's own terminal does the rest."""
    import fcntl
    import termios

    with contextlib.suppress(OSError, termios.error):
        size = fcntl.ioctl(_ERRORS, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(end, termios.TIOCSWINSZ, size)
        settings = termios.tcgetattr(_ERRORS)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(end, termios.TCSANOW, settings)


def _end_of_file(begin: int) -> bytes:
    """What was added to the file that standard error is; nothing where it cannot be read."""
    with contextlib.suppress(OSError), door.opened(Path(f"/proc/self/fd/{_ERRORS}")) as file:
        file.seek(max(begin, os.fstat(_ERRORS).st_size - KEPT_BYTES))
        return file.read(KEPT_BYTES)
    return b""
