"""One run of a program under ``nsys profile``, from its start to the report, through Ctrl-C and all.

nsys runs in a session of its own, so that Ctrl-C in a terminal reaches boundby alone, which passes it on to the
program and lets nsys finish its report.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from pty import STDERR_FILENO, STDOUT_FILENO
from types import FrameType

from msgspec import Struct

from boundby.capture.nsys import LINES_KEPT, ChildTimeoutError, Finished, Nsys, handling, run_child
from boundby.model import door
from boundby.model.scale import ANSWER_S, GRACE_S, LOOK_S, MOMENT_S
from boundby.results import write
from boundby.trace.facts import LAUNCHING_SCRIPT
from boundby.trace.vocabulary.last_words import INTERRUPTED, TAIL, LastWords, last_words

# Give the program the user's own streams, past nsys.
#
# nsys puts pipes between a program and the terminal, so that a progress bar no longer sees a terminal, output arrives
# late, and all of it ends up in the report. So nsys starts three lines of shell instead. They take the user's streams
# from where boundby left them, say which process they are, and become the program: same process, same arguments, same
# environment, same exit code.

#: stream -> where it waits. A POSIX shell can name only one digit; nsys opens its own files around these.
PARKED = {0: 7, 1: 8, 2: 9}
_SCRIPT = """\
#!/bin/sh
# boundby profile: hand the user's streams to the program, and become it.
echo $$ >"${0%/*}/pid"
"""


class Handover(Struct, frozen=True):
    """The files of one handover, in a private folder."""

    folder: Path
    environment: Mapping[str, str]
    """That of nsys."""

    def command(self, program: Sequence[str]) -> list[str]:
        """What nsys starts."""
        return ["/bin/sh", str(self.folder / LAUNCHING_SCRIPT), *program]

    @property
    def pid(self) -> int | None:
        """The program's process, None before it has started."""
        try:
            return int(door.read_text(self.folder / "pid"))
        except (OSError, ValueError):
            return None


def prepare(folder: Path, env: Mapping[str, str]) -> Handover:
    """Write the script into a folder that only this user can write to.

    nsys gets that folder for its own temporary files, so that none of them outlives it and no folder of another
    user (``/tmp/nvidia``) is in the way. ``env`` says what the program's folder is.
    """
    streams = [number for number in PARKED if _is_open(number)]
    take = " ".join(f"{'<' if number == 0 else f'{number}>'}&{PARKED[number]}" for number in streams)
    close = " ".join(f"{PARKED[number]}<&-" for number in streams)
    own = f"export TMPDIR={shlex.quote(env['TMPDIR'])}" if "TMPDIR" in env else "unset TMPDIR"
    # nsys zeroes the mask: the program's files would be anybody's to write
    script = f'{_SCRIPT}umask {write.mask():04o}\n{own}\nexec "$@" {take} {close}\n'
    (folder / LAUNCHING_SCRIPT).write_bytes(os.fsencode(script))
    return Handover(folder, {**env, "TMPDIR": str(folder)})


def park_streams(command: Sequence[str], log: Path) -> list[str]:
    """A command that runs ``command`` with the caller's streams parked, and writes its own words to ``log``."""
    park = " ".join(f"{there}{'<' if here == 0 else '>'}&{here}" for here, there in PARKED.items() if _is_open(here))
    return ["/bin/sh", "-c", f'exec "$@" {park} </dev/null >>{shlex.quote(str(log))} 2>&1', "sh", *command]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


# Hear what a program says last, and pass every byte on as it comes.
#
# Standard error is replaced by one of the same kind: a terminal by a terminal, anything else by a pipe; standard output
# with it where both are one, so that the order of what comes stays. A file needs neither: it is read afterwards.


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
        errors = os.fstat(STDERR_FILENO)
        if stat.S_ISREG(errors.st_mode):
            self._file_begin = errors.st_size
            return
        with contextlib.suppress(OSError):
            self._is_shared = os.path.samestat(errors, os.fstat(STDOUT_FILENO))
        if os.isatty(STDERR_FILENO):
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
            self._thread.join(MOMENT_S)
        if self._file_begin is not None:
            self._tail += _end_of_file(self._file_begin)

    @property
    def text(self) -> str:
        """The end of what it said."""
        return bytes(self._tail[-TAIL:]).decode("utf-8", "replace")

    def _pass_on(self) -> None:
        assert self._source is not None
        while True:
            try:
                data = os.read(self._source, TAIL)
            except OSError:  # the last one closed its end of the terminal
                data = b""
            if not data:
                with contextlib.suppress(OSError):
                    os.close(self._source)
                return
            self._tail += data
            if len(self._tail) > 2 * TAIL:
                del self._tail[:-TAIL]
            with contextlib.suppress(OSError):  # who listened has gone: the program need not know
                while data:
                    data = data[os.write(STDERR_FILENO, data) :]


def _like_the_terminal(end: int) -> None:
    """Of the same size, and passing on what is written as it is: the user's own terminal does the rest."""
    import fcntl
    import termios

    with contextlib.suppress(OSError, termios.error):
        size = fcntl.ioctl(STDERR_FILENO, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(end, termios.TIOCSWINSZ, size)
        settings = termios.tcgetattr(STDERR_FILENO)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(end, termios.TCSANOW, settings)


def _end_of_file(begin: int) -> bytes:
    """What was added to the file that standard error is; nothing where it cannot be read."""
    with contextlib.suppress(OSError), door.opened(Path(f"/proc/self/fd/{STDERR_FILENO}")) as file:
        file.seek(max(begin, os.fstat(STDERR_FILENO).st_size - TAIL))
        return file.read(TAIL)
    return b""


Say = Callable[[str], None]

#: The agent is usually gone before nsys is.
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GENERATED = re.compile(r"^Generated:\s*$")


class Ran(Struct, frozen=True):
    """How a run ended."""

    exit_code: int
    """The program's, as a shell tells it (128 + N: ended by signal N). nsys' own where the program never started."""
    started: bool
    nsys_signal: int | None
    """The signal that killed nsys itself."""
    stopped_by: signal.Signals | None
    """What asked boundby to stop the program."""
    outlived: bool
    """The recording ended before the program did, which was then stopped."""
    hung: bool
    """nsys did not start the program in time."""
    duration_s: float
    said: Finished
    files: tuple[Path, ...]
    """What nsys says it wrote."""
    errors: str = ""
    """The end of what the program wrote to standard error."""

    @property
    def last_words(self) -> LastWords | None:
        """What the program says of how it failed, or that it was stopped; None where it did neither."""
        if not self.started or self.outlived or self.nsys_signal is not None:
            return None
        if self.stopped_by is not None:
            return LastWords(INTERRUPTED, "")
        return last_words(self.errors, exit_code=self.exit_code)


class GaveUpError(Exception):
    """The user asked a second time: program and recording were ended, and nothing is analysed."""


def run_session(
    command: Sequence[str],
    program: Sequence[str],
    handover: Handover,
    nsys: Nsys,
    session: str,
    *,
    say: Say,
    start_limit_s: float = ANSWER_S,
) -> Ran:
    """Run ``command`` (nsys profile and its flags) on ``program``.

    Raises:
        GaveUpError: a second signal came before nsys was done.
    """
    log = handover.folder / "log"
    begin = time.monotonic()
    heard = Overheard()
    child = subprocess.Popen(
        park_streams([*command, *handover.command(program)], log),
        env=dict(handover.environment),
        start_new_session=True,
        close_fds=False,  # what the caller left open for the program stays open, as without boundby
        stdout=heard.output,
        stderr=heard.errors,
    )
    heard.started()
    stop = _Stop(child, handover, say)
    try:
        with handling(stop.handle, *_STOPPING):
            hung = not _wait(child, handover, start_limit_s)
            outlived = not hung and stop.asked is None and _is_alive(handover.pid)
            if hung or outlived or child.returncode < 0:
                _end_program(handover.pid)
    except BaseException as error:
        give_up(child, handover, nsys, session)
        if isinstance(error, _AgainError):
            raise GaveUpError from None
        raise
    if hung:
        give_up(child, handover, nsys, session)
    elif handover.pid is None or child.returncode < 0:
        end_agent(handover)
    else:
        await_agent(handover)
    heard.close()
    lines = _read_log(log)
    code = child.returncode
    return Ran(
        exit_code=code if code >= 0 else 128 - code,
        started=handover.pid is not None,
        nsys_signal=-code if code < 0 else None,
        stopped_by=stop.asked,
        outlived=outlived,
        hung=hung,
        duration_s=time.monotonic() - begin,
        said=Finished(code, tuple(line for line in lines if "[1/1]" not in line)),
        files=tuple(_files(lines)),
        errors=heard.text,
    )


def give_up(child: subprocess.Popen[bytes], handover: Handover, nsys: Nsys, session: str) -> None:
    """End program, nsys and the agent that it leaves in the background, without a report."""
    with contextlib.suppress(ChildTimeoutError, OSError):
        command: list[str | Path] = [nsys.path, "shutdown", f"--session={session}", "--kill=sigkill"]
        run_child(command, env=handover.environment, timeout_s=GRACE_S)
    _signal_program(handover.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    end_agent(handover)


def end_agent(handover: Handover) -> None:
    """End what nsys leaves in the background when it is cut short: an agent, known by its temporary folder."""
    for pid in _agents(handover):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def await_agent(handover: Handover) -> None:
    """Wait until the agent is through: it tidies its files up, and would write into a folder that is being removed."""
    deadline = time.monotonic() + MOMENT_S
    while _agents(handover) and time.monotonic() < deadline:
        time.sleep(0.05)


def _agents(handover: Handover) -> list[int]:
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _is_agent(process, handover.folder)]


def _is_agent(place: Path, folder: Path) -> bool:
    try:
        if b"--start-agent" not in door.read_bytes(place / "cmdline").split(b"\0"):
            return False
        return os.fsencode(f"TMPDIR={folder}") in door.read_bytes(place / "environ").split(b"\0")
    except OSError:
        return False


class _AgainError(Exception):
    """A second signal."""


class _Stop:
    """Passes the first signal on to the program; the second one means it."""

    def __init__(self, child: subprocess.Popen[bytes], handover: Handover, say: Say) -> None:
        self.asked: signal.Signals | None = None
        self._child = child
        self._handover = handover
        self._say = say

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is not None:
            raise _AgainError
        self.asked = signal.Signals(number)
        pid = self._handover.pid
        if pid is None:  # nothing has started yet, so there is nothing to keep
            raise _AgainError
        if not _is_alive(pid):
            self._say("nsys is finishing its report; again to give up")
            return
        self._say("stopping the program; its report follows (again to give up)")
        _signal_program(pid, self.asked)


def _wait(child: subprocess.Popen[bytes], handover: Handover, start_limit_s: float) -> bool:
    """Until nsys has ended; False if it has not even started the program in time."""
    deadline = time.monotonic() + start_limit_s
    with _watch(child) as ended:
        while child.poll() is None:
            ended(LOOK_S)
            if handover.pid is None and time.monotonic() > deadline:
                return False
    return True


@contextlib.contextmanager
def _watch(child: subprocess.Popen[bytes]) -> Iterator[Callable[[float], None]]:
    """A wait that ends with the child: asleep, not polling, so as not to disturb what is measured."""
    try:
        handle = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # before Linux 5.3
        yield lambda seconds: time.sleep(min(seconds, 0.1))
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)

    def wait(seconds: float) -> None:
        poll.poll(seconds * 1000)

    try:
        yield wait
    finally:
        os.close(handle)


def _end_program(pid: int | None) -> None:
    """Ask what still runs to end, wait a little, insist."""
    _signal_program(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    if _is_alive(pid):
        _signal_program(pid, signal.SIGKILL)


def _signal_program(pid: int | None, number: signal.Signals) -> None:
    """Signal the program and its children, as a terminal does; nsys makes it the leader of a group."""
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def _is_alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        state = door.read_text(Path(f"/proc/{pid}/stat"), errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def _read_log(log: Path) -> list[str]:
    try:
        text = door.read_text(log, errors="replace")
    except OSError:
        return []
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    return [line for line in lines if line][-LINES_KEPT:]


def _files(lines: Sequence[str]) -> Iterator[Path]:
    """The paths under nsys' last word, ``Generated:``."""
    heads = [number for number, line in enumerate(lines) if _GENERATED.match(line)]
    for line in lines[heads[-1] + 1 :] if heads else ():
        if line.startswith((" ", "\t")) and line.strip().startswith("/"):
            yield Path(line.strip())
