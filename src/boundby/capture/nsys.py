"""The nsys to use: the one named, else the first that runs among those usually installed; run as a child that never
outlives this program, what it says, and why it failed.

nsys draws its progress bar with carriage returns, on stdout or stderr by version and subcommand. Both are read as one
stream, and the bar is taken out of it.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct, field

from boundby.capture.folder import disk_full
from boundby.model import door
from boundby.model.errors import InputError, OutputError, ToolError, UserError
from boundby.model.scale import A_FEW_LINES, ANSWER_S, LOOK_S, MOMENT_S, PAGE_ROWS, TWO_LINES
from boundby.trace.vocabulary.last_words import BY_SIGNAL

if TYPE_CHECKING:
    from boundby.capture.flags import CaptureOptions
    from boundby.capture.session import Ran


Handler = Callable[[int, FrameType | None], object] | signal.Handlers
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


@contextlib.contextmanager
def handling(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Signals handled in another way for a block: those that are not ignored (by nohup, by a background job), and only
    in a main thread, which alone may listen."""
    before = {}
    try:
        for number in numbers:
            with contextlib.suppress(ValueError):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


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


# Which nsys. Nothing here starts a capture; a candidate is only asked for its version.

#: Names the nsys to use, as ``--nsys`` does.
NSYS_VARIABLE = "BOUNDBY_NSYS"
#: Where installers put nsys, relative to the root folder.
INSTALL_PATTERNS = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/hpc_sdk/Linux_*/*/profilers/Nsight_Systems/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/local/cuda*/nsight-systems-*/target-linux-*/nsys",
    "usr/lib/nsight-systems/bin/nsys",
    "usr/lib/nsight-systems/target-linux-*/nsys",
    "usr/lib/*-linux-gnu/nsight-systems/target-linux-*/nsys",
)
#: Where people unpack nsys in their home folder.
HOME_PATTERNS = ("nsight-systems*/bin/nsys", "nsight-systems*/target-linux-*/nsys")
NEXT_STEP = (
    "Install Nsight Systems (it comes with the CUDA toolkit; on Debian, scripts/get-nsys fetches it), "
    f"or name its nsys with --nsys or {NSYS_VARIABLE}."
)


class Nsys(Struct, frozen=True):
    """An nsys that runs. ``version`` is None where it does not tell one."""

    path: Path
    version: str | None
    found_in: str
    """How it was found: ``--nsys``, ``BOUNDBY_NSYS``, ``PATH``, ``install folder`` or ``cache``."""

    @property
    def version_tuple(self) -> tuple[int, ...]:
        """The version in numbers, ``(2023, 4, 4, 54)``; empty, and so the lowest, where it is not known."""
        return version_numbers(self.version or "")

    @property
    def release(self) -> str:
        """The version as people write it: ``2023.4.4``, or ``of unknown version``."""
        return ".".join(map(str, self.version_tuple[:3])) or "of unknown version"

    @property
    def importer(self) -> Path | None:
        """The QdstrmImporter beside it. An nsys that has none captures, but writes only a ``.qdstrm``."""
        folder = Path(os.path.realpath(self.path)).parent
        candidates = [folder, *folder.parent.glob("host-linux-*")]
        return next((p / "QdstrmImporter" for p in candidates if (p / "QdstrmImporter").is_file()), None)


class Unusable(Struct, frozen=True):
    """A file that looked like nsys and is not, or does not run."""

    path: Path
    found_in: str
    reason: str


def find_nsys(
    explicit: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Nsys:
    """The nsys to use. ``root`` stands for the root folder, under which install folders are looked for.

    One that is named, by argument or by ``BOUNDBY_NSYS``, is used or is an error: no other is taken silently.

    Raises:
        ToolError: none was found, or the one named does not run.
    """
    unusable: list[Unusable] = []
    for candidate in candidates(explicit, env=env, root=root):
        if isinstance(candidate, Nsys):
            return candidate
        if candidate.found_in in ("--nsys", NSYS_VARIABLE):
            problem = f"{candidate.found_in} names {candidate.path}, but {candidate.reason}."
            raise ToolError(problem, f"Correct it, or leave {candidate.found_in} out to use an installed nsys.")
        unusable.append(candidate)
    if unusable:
        tried = "; ".join(f"{each.path}: {each.reason}" for each in unusable)
        raise ToolError(f"No nsys found that runs ({tried}).", NEXT_STEP)
    raise ToolError("No nsys found in PATH or in the usual install folders.", NEXT_STEP)


def candidates(
    explicit: str | os.PathLike[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Iterator[Nsys | Unusable]:
    """Every nsys on this machine, in the order in which they are preferred, each file once."""
    seen: set[Path] = set()
    for found_in, paths in _places(explicit, env, root):
        probed: list[Nsys | Unusable] = []
        for path in paths:
            real = Path(os.path.realpath(path))
            if real not in seen:
                seen.add(real)
                probed.append(probe(path, found_in, env))
        yield from sorted(probed, key=_newest_first)


def probe(path: Path, found_in: str, env: Mapping[str, str] = os.environ) -> Nsys | Unusable:
    """Ask a file for its nsys version."""
    if not os.access(path, os.F_OK):
        return Unusable(path, found_in, "there is no such file, or it may not be read")
    if not path.is_file() or not os.access(path, os.X_OK):
        return Unusable(path, found_in, "it is not a program that can be run")
    try:
        answer = run_child([path.absolute(), "--version"], env=env, timeout_s=ANSWER_S)
    except ChildTimeoutError:
        return Unusable(path, found_in, f"it did not report its version within {ANSWER_S:.0f} s")
    except OSError as error:
        return Unusable(path, found_in, f"it cannot be run ({error.strerror})")
    said = answer.text
    if "Nsight Systems" not in said:
        first = answer.lines[0].strip() if answer.lines else "nothing"
        return Unusable(path, found_in, f"it is not Nsight Systems (asked for its version it says: {first})")
    version = re.search(r"version\s+(\d[\w.-]*)", said)
    return Nsys(path, version[1] if version else None, found_in)


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where fetched tools are kept: the rule that scripts/get-nsys follows too."""
    if own := env.get("BOUNDBY_CACHE"):
        return _expanded(own, env).absolute()
    return _expanded(env.get("XDG_CACHE_HOME") or "~/.cache", env).absolute() / "boundby"


def version_numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2023.4.4.54-234433681190v0`` -> ``(2023, 4, 4, 54)``."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def _places(
    explicit: str | os.PathLike[str] | None, env: Mapping[str, str], root: Path
) -> Iterator[tuple[str, list[Path]]]:
    """How nsys may be found, in order of preference, with the files that are there."""
    if explicit is not None:
        yield "--nsys", [_named(os.fspath(explicit), env)]
    if env.get(NSYS_VARIABLE):
        yield NSYS_VARIABLE, [_named(env[NSYS_VARIABLE], env)]
    if in_path := shutil.which("nsys", path=env.get("PATH", "")):
        yield "PATH", [Path(in_path)]
    installed = [path for pattern in INSTALL_PATTERNS for path in root.glob(pattern)]
    at_home = [path for pattern in HOME_PATTERNS for path in _expanded("~", env).glob(pattern)]
    yield "install folder", sorted(installed) + sorted(at_home)
    yield "cache", sorted(cache_folder(env).glob("nsys/*/target-linux-*/nsys"))


def _named(text: str, env: Mapping[str, str]) -> Path:
    """The file a user means: a path, a folder that nsys was unpacked to, or the name of a command in PATH."""
    path = _expanded(text, env)
    if path.is_dir():
        inside = [path / "nsys", path / "bin/nsys", *sorted(path.glob("target-linux-*/nsys"))]
        return next((each for each in inside if each.is_file()), path)
    if os.sep not in text and not path.exists():
        return Path(shutil.which(text, path=env.get("PATH", "")) or path)
    return path


def _expanded(text: str, env: Mapping[str, str]) -> Path:
    """``~`` by the given environment, so that a caller decides where home is."""
    if (text == "~" or text.startswith("~/")) and env.get("HOME"):
        return Path(env["HOME"] + text[1:])
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user, or one without a home
        return Path(text)


def _newest_first(candidate: Nsys | Unusable) -> tuple[list[int], str]:
    """What runs comes first, the newest first, then by path."""
    if isinstance(candidate, Unusable):
        return [1], os.fspath(candidate.path)
    return [-number for number in candidate.version_tuple] or [0], os.fspath(candidate.path)


# Why nsys failed, or left nothing to analyse: from how it ended, what it wrote last, and what it was given. The texts
# looked for are those of a real nsys, 2022.4 to 2024.2. Other failures are told in nsys' own words.

_DISK_FULL = re.compile(
    r"disk is full|No space left on device|Disk quota exceeded|disk I/O error|ProtobufSerializeException"
)
_TOO_NEW = (
    re.compile(r"Report was created in [\w ]+ version \(([\w.-]+)\), newer than your current version"),
    re.compile(r"Version number is invalid: ([\w.@-]+)"),  # nsys 2022, of reports of 2023 and later
    re.compile(r"Qdstrm version ([\w.-]+) is not supported"),
)
_NOT_WHOLE = re.compile(
    r"magic number mismatch|Cannot read from stream|Version tag is not found|Invalid version prefix"
    r"|File is corrupted"
)
#: nsys prints these and can leave with status 0 all the same.
_FAILED = re.compile(r"Exportation error|Failed to close database|disk is full")
#: A file begins with what wrote it: "... Report 2023@4@4@54-...", "... Stream 2023.4.4.54-...".
_WRITTEN_BY = re.compile(rb"NVIDIA [\w ]+ (?:Report|Stream) (\d{4}[.@][\d.@]+)")
#: How much of what nsys said goes into a message.
_LINES_QUOTED = A_FEW_LINES
#: Less room than this is none: the smallest report takes 0.2 MB, and nsys writes it twice.
NO_ROOM_BYTES = 1 << 20
_DOCTOR = "boundby doctor looks for the cause."


def admits_failure(finished: Finished) -> bool:
    """Whether nsys left with an error, or said that it failed although it left without one."""
    return finished.returncode != 0 or _FAILED.search(finished.text) is not None


def written_by(report: Path) -> str | None:
    """The nsys that wrote a report, ``2023.4.4.54``; None where the report does not tell (2022)."""
    match = _WRITTEN_BY.search(door.first_of(report, door.HEADER_BYTES))
    return match[1].decode().replace("@", ".").strip(".") if match else None


def is_same_release(report: Path, nsys: Nsys) -> bool:
    """Whether this nsys, as far as is known, is the one that wrote the report."""
    captured_with = version_numbers(written_by(report) or "")
    return bool(captured_with) and captured_with[:3] == nsys.version_tuple[:3]


def export_error(finished: Finished, report: Path, exported: Path, nsys: Nsys) -> UserError:
    """Why ``nsys export`` gave no whole ``exported``."""
    plain = _plain_cause(finished, report, nsys)
    if plain is not None:
        return plain
    size = exported.stat().st_size if exported.exists() else 0
    # An export is larger than its report, so less room than that was not enough, whatever nsys says.
    if shutil.disk_usage(exported.parent).free + size < report.stat().st_size:
        return disk_full(f"the export of {report.name}")
    said = last_lines(finished)
    if finished.returncode == 0:
        wrote = "an incomplete file" if size else "nothing"
        return ToolError(
            f"nsys {nsys.release} ended without an error exporting {report.name}, but wrote {wrote}. {said}",
            "To see more, run it by hand: nsys export --type=sqlite. The .sqlite can be given instead.",
        )
    return ToolError(
        f"nsys {nsys.release} could not export {report.name} (status {finished.returncode}). {said}",
        "Another version of nsys may help: name it with --nsys.",
    )


def import_error(finished: Finished, stream: Path, nsys: Nsys) -> UserError:
    """Why QdstrmImporter gave no report."""
    captured_with = written_by(stream)
    if captured_with and not is_same_release(stream, nsys):
        return _too_new(stream, captured_with, nsys, exactly=True)
    return _plain_cause(finished, stream, nsys, exactly=True) or ToolError(
        f"QdstrmImporter of nsys {nsys.release} could not import {stream.name} "
        f"(status {finished.returncode}). {last_lines(finished)}",
        "Import it with the nsys that captured it, and give the .nsys-rep.",
    )


def last_lines(finished: Finished) -> str:
    """nsys' own last words, for a message."""
    if not finished.lines:
        return "It said nothing."
    words = " / ".join(line.strip() for line in finished.lines[-_LINES_QUOTED:])
    return f"It said: {words[-TWO_LINES:]}"


def _plain_cause(finished: Finished, report: Path, nsys: Nsys, exactly: bool = False) -> UserError | None:
    """The failures whose cause is plain. ``exactly``: only the very version that captured it will do."""
    if _DISK_FULL.search(finished.text):
        return disk_full(f"the export of {report.name}")
    if finished.signal_name is not None:
        return _killed(finished, report)
    needed = written_by(report)
    refusal = next((match for pattern in _TOO_NEW if (match := pattern.search(finished.text))), None)
    if refusal is not None:
        return _too_new(report, needed or refusal[1].replace("@", "."), nsys, exactly)
    # 2022 has other words for other parts of a newer report.
    if needed and nsys.version and version_numbers(needed)[:3] > nsys.version_tuple[:3]:
        return _too_new(report, needed, nsys, exactly)
    if _NOT_WHOLE.search(finished.text):
        problem = f"{report} is truncated, damaged or not an nsys report. {last_lines(finished)}"
        return InputError(problem, "Copy it again, or capture again.")
    return None


def _killed(finished: Finished, report: Path) -> UserError:
    if finished.signal_number == signal.SIGXFSZ:
        problem = f"The export of {report.name} is larger than the file size limit of this shell."
        return OutputError(problem, "Raise the limit: ulimit -f.")
    problem = f"nsys was killed by {finished.signal_name} while working on {report.name}. {last_lines(finished)}"
    if finished.signal_number == signal.SIGKILL:
        return ToolError(problem, "The system does that when memory runs out: export where there is more.")
    return ToolError(problem, "Try again, or with another version of nsys: name it with --nsys.")


def _too_new(report: Path, needed: str, nsys: Nsys, exactly: bool) -> ToolError:
    release = ".".join(map(str, version_numbers(needed)[:3]))
    which = "that very version" if exactly else "that or a newer one"
    return ToolError(
        f"{report.name} was captured with nsys {release} and needs {which}; {nsys.path} is {nsys.release}.",
        "Name one with --nsys, or run nsys export --type=sqlite where it was captured and give the .sqlite.",
    )


def _never_began(ran: Ran, options: CaptureOptions) -> InputError | None:
    """What was asked to be waited for before recording, where that may not have come."""
    if options.capture_range is not None:
        hint = "Its name must be exactly that of an NVTX range, which begins after the program has started."
        if options.capture_range == "cudaProfilerApi":
            hint = "It begins where the program calls torch.cuda.profiler.start() (cudaProfilerStart)."
        problem = f"Nothing was recorded: the program never entered the capture range {options.capture_range}."
        return InputError(problem, hint)
    if options.delay_s and ran.duration_s:
        return InputError(
            f"Nothing was recorded: the program ended before the {options.delay_s:g} s of --delay were over.",
            "Give a shorter --delay, or let the program run longer.",
        )
    return None


def _nsys_killed(number: int) -> UserError:
    problem = f"nsys was killed by {signal.Signals(number).name} while it recorded; the program was stopped."
    why = "The system does that when memory runs out: record less, with --duration or --capture-range."
    return ToolError(problem, why if number == signal.SIGKILL else _DOCTOR)


def why_no_report(ran: Ran, options: CaptureOptions, folder: Path, nsys: Nsys) -> UserError:
    """Why nsys left no report of a run in this folder."""
    said = last_lines(ran.said)
    if ran.nsys_signal is not None and not ran.hung:
        return _nsys_killed(ran.nsys_signal)
    if ran.hung or not ran.started:
        return ToolError(f"nsys {nsys.release} did not start the program. {said}", _DOCTOR)
    kept = next((path for path in ran.files if path.is_file()), None)
    rescue = f" nsys left what it had in {kept}: boundby analyze {kept}." if kept is not None else ""
    if not folder.is_dir():
        hint = f"Does the program tidy up there? Name another folder with -o.{rescue}"
        return OutputError(f"{folder} is gone: something removed it while the program ran.", hint)
    if _DISK_FULL.search(ran.said.text) or shutil.disk_usage(folder).free < NO_ROOM_BYTES:
        return disk_full(f"the report in {folder}", rescue)
    if (unmet := _never_began(ran, options)) is not None:
        return unmet
    return ToolError(f"nsys {nsys.release} ended without an error, but wrote no report. {said}", _DOCTOR)


def why_no_events(warnings: Sequence[str]) -> UserError:
    """Why a report holds nothing, in the profiler's own words."""
    said = f" The profiler says: {' / '.join(warnings[:3])}" if warnings else ""
    return InputError(
        f"The report is there, but it holds no events.{said}",
        "Does the program use CUDA or NVTX, and did it run for more than an instant? boundby doctor checks the rest.",
    )


def check_room(folder: Path, what: str) -> None:
    """Refuse to begin where nothing fits: an nsys without room for its temporary files does not say so, it hangs."""
    if shutil.disk_usage(folder).free < NO_ROOM_BYTES:
        raise disk_full(f"{what} {folder}")
