"""How a run ends: exit codes, and errors as a sentence with a next step. docs/exit-codes.md says the same."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import traceback
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from boundby.model.errors import UserError
from boundby.model.late import expression

if TYPE_CHECKING:
    from boundby.results.comparison import GateResult

#: What a stream that takes no more says; of files, what writes them tells.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)
#: Names that no file can have, wherever they are first looked at.
_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
EPILOG = """\b
Exit codes:
  0    all went well
  1    a limit is broken (check, compare)
  2    bad input or usage
  3    a limit cannot be checked with what was recorded (check, compare)
  70   a bug in boundby
  130  interrupted
  141  the reader of the output went away
  143  ended by SIGTERM
"""


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    GATE_FAILED = 1  # a limit of boundby check or boundby compare is broken
    USER_ERROR = 2  # bad input or usage
    CANNOT_TELL = 3  # no limit is broken, but what was recorded does not tell of all
    BUG = 70  # EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130  # 128 + SIGINT
    TERMINATED = 143  # 128 + SIGTERM
    HUNG_UP = 141  # 128 + SIGPIPE


def ending(code: int) -> str:
    """How a program ended, by its exit code."""
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"{signal.Signals(code - 128).name} (exit code {code})"
    return f"exit code {code}"


def of_gate(result: GateResult | None) -> int:
    """The exit code of limits; None: none were held."""
    if result is None or result.passed:
        return Exit.OK
    return Exit.GATE_FAILED if result.broken else Exit.CANNOT_TELL


def _of_system(error: OSError) -> tuple[str, str] | None:
    """What the system refuses that a user can mend, and the next step."""
    if error.filename is None and error.errno in _UNWRITABLE:
        return f"Cannot write to standard output: {error.strerror}.", "Write elsewhere with -o."
    if error.errno in _NO_NAME:
        return f"{error.filename!s:.80} is no file name: {error.strerror}.", "Check the path."
    if error.errno in _AROUND and not (error.filename and error.errno == errno.ENOENT):
        return _AROUND[error.errno]
    return None


def tell(error: Exception) -> int:
    """Say on stderr what went wrong and return the exit code for it."""
    if isinstance(error, MemoryError):
        return _out_of_memory()
    if debugging():
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, UserError):
        return _say(error.message, error.next_step, error.exit_code)
    if isinstance(error, OSError) and (message := _of_system(error)) is not None:
        return _say(*message, Exit.USER_ERROR)
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "Please report it, with the traceback" + ("." if debugging() else ": run again with BOUNDBY_DEBUG=1.")
    return _say(f"This is a bug in boundby ({kind}).", hint, Exit.BUG)


#: What may be wrong around the program, wherever it is met: only the folder that it was started in has no name.
_AROUND = {
    errno.ENOENT: ("The folder that boundby was started in is gone.", "Change to one that is there."),
    errno.EMFILE: ("More files are needed than may be open.", "Raise the limit: ulimit -n 256"),
    errno.ENFILE: ("More files are open than the system allows.", "Close other programs, and try again."),
}

_OUT_OF_MEMORY = (
    b"boundby: There is not enough memory for this report.\n  Try a part of it, with --window, or --max-memory SIZE.\n"
)


def _out_of_memory() -> int:
    """Said as it stands: to import or format anything may take more memory than there is."""
    with contextlib.suppress(OSError):
        os.write(2, _OUT_OF_MEMORY)
    return Exit.USER_ERROR


#: What Python's own modules, NumPy and its linear algebra take of address space on one thread, measured.
_LEAST_ROOM_BYTES = 224 << 20


def check_room() -> None:
    """Where address space is limited (``ulimit -v``): NumPy's linear algebra takes a part for each thread, and ends the
    program with 1, which says that a limit of a gate is broken, where it gets none. Raises MemoryError before that."""
    try:
        import resource
    except ImportError:  # Windows
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import mmap

    try:
        mmap.mmap(-1, _LEAST_ROOM_BYTES).close()
    except OSError:
        raise MemoryError from None
    name, was = "OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ[name] = "1"
    try:
        import numpy  # noqa: F401
    finally:  # the programs that boundby starts are not to know
        del os.environ[name]
        if was is not None:
            os.environ[name] = was


def tell_usage(error: click.ClickException) -> int:
    """Say on stderr what is wrong with the command line; where a command of several names none of them, its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return Exit.USER_ERROR
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "boundby"
    return _say(_in_plain_words(error.format_message()), f"See: {command} --help", Exit.USER_ERROR)


#: What click says of values, and what people say.
_PLAIN_WORDS = (
    (expression(r"is not a valid integer(?: range)?\."), "is not a whole number."),
    (expression(r"is not a valid float(?: range)?\."), "is not a number."),
    (expression(r"(\S+) is not in the range x>(?!=)(\S+)\."), r"\1 is too small: it must be above \2."),
    (expression(r"(\S+) is not in the range x>=(\S+)\."), r"\1 is too small: the least is \2."),
    (expression(r"(\S+) is not in the range x<=(\S+)\."), r"\1 is too large: the most is \2."),
    (expression(r"(\S+) is not in the range (\S+)<=x<=(\S+)\."), r"\1 is not between \2 and \3."),
    (expression(r"Got unexpected extra arguments? \((.+)\)"), r"Not expected: \1."),
)


def _in_plain_words(message: str) -> str:
    for pattern, words in _PLAIN_WORDS:
        message = pattern.sub(words, message)
    return message


def debugging() -> bool:
    return os.environ.get("BOUNDBY_DEBUG", "") not in ("", "0")


def _say(message: str, next_step: str, code: int) -> int:
    click.echo(f"boundby: {_one_line(message)}", err=True)
    if next_step:
        click.echo(f"  {_one_line(next_step)}", err=True)
    return code


def _one_line(text: str) -> str:
    from boundby.document.blocks import clean

    return clean(text)
