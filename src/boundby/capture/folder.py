"""The folder of one run: where it lies, what is in it, and that nothing of anybody's is lost in making it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path, PurePath

from msgspec import Struct

from boundby.model import door
from boundby.model.errors import InputError, OutputError
from boundby.model.inputs import INPUTS, input_kind, named
from boundby.model.late import expression
from boundby.model.scale import LABEL, PIECE_BYTES
from boundby.trace.vocabulary.last_words import LastWords

DEFAULT_PARENT = "boundby-out"
REPORT = "report.nsys-rep"
STREAM = "report.qdstrm"
EXPORT = "report.sqlite"
TORCH_TRACE = "report.pt.trace.json.gz"
ANALYSIS = "report.json"
PAGE = "report.md"
HTML = "report.html"
FACTS = "run.json"
#: All that a run writes; --force replaces these and leaves everything else alone.
FILES = (REPORT, STREAM, EXPORT, TORCH_TRACE, ANALYSIS, PAGE, HTML, FACTS)
# tensorboard_trace_handler writes one file a cycle of the schedule: a worker, when it was written.
_CYCLE = expression(r"^(?P<worker>.+)\.(?P<time>\d{10,20})\.pt\.trace\.json(?:\.gz)?$")
_LONGEST_NAME = LABEL
#: Of run.json: with hundreds of packages it has some 20 kB.
_ROOM_STEP = "Free some space, or choose a folder on another disk (for temporary files: TMPDIR)."
PYTHON = expression(r"(?:python|pypy)[\d.]*\Z")


class RunFolder(Struct, frozen=True):
    """A folder that exists and can be written to."""

    path: Path
    is_new: bool

    @property
    def report(self) -> Path:
        return self.path / REPORT

    @property
    def export(self) -> Path:
        return self.path / EXPORT

    def remove_if_empty(self) -> None:
        """Leave nothing behind where nothing came of it."""
        if not self.is_new:
            return
        with contextlib.suppress(OSError):  # not empty, so it is wanted
            self.path.rmdir()
            if self.path.parent.name == DEFAULT_PARENT:
                self.path.parent.rmdir()


def disk_full(name: str, rescue: str = "") -> OutputError:
    """There is no room for what was to be written; ``rescue``: what is left of it."""
    return OutputError(f"The disk is full: there was no room for {name}.{rescue}", _ROOM_STEP)


def cannot_write(place: Path, error: OSError, what: str) -> OutputError:
    """The system refused a folder or a file. ``what`` was to be written: an export, a run."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(f"{what} in {place}")
    return OutputError(f"{place} cannot be written: {os.strerror(error.errno or 0)}.", "Name another folder with -o.")


def make_folder(chosen: Path | None, program: Sequence[str], now: datetime, *, force: bool = False) -> RunFolder:
    """The folder named with -o, or a new one below ``boundby-out``.

    Raises:
        OutputError: it holds something already and ``force`` was not given, or it cannot be written.
    """
    if chosen is None:
        return _make_default(Path(DEFAULT_PARENT), f"{program_name(program)}-{now:%Y%m%d-%H%M%S}")
    is_new = not chosen.exists()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        _claim(chosen)
        holds = sorted(path.name for path in chosen.iterdir())
    except FileExistsError:
        raise OutputError(f"{chosen} is a file, not a folder.", "Name a folder with -o.") from None
    except OSError as error:
        raise cannot_write(chosen, error, "a run") from error
    if holds and not force:
        what = "an earlier run" if FACTS in holds else f"files already ({', '.join(holds[:3])})"
        raise OutputError(f"{chosen} holds {what}.", "Name another folder with -o, or replace the run with --force.")
    _check_writable(chosen)
    for name in FILES if holds else ():
        (chosen / name).unlink(missing_ok=True)
    return RunFolder(chosen, is_new)


#: Folders that this process has claimed, and the descriptors that hold the claims: they end with the process, or when
#: they are released.
_CLAIMS: dict[Path, int] = {}


def release() -> None:
    """Give back all folders that this process has claimed: its runs are done."""
    while _CLAIMS:
        os.close(_CLAIMS.popitem()[1])


def _claim(folder: Path) -> None:
    """Take the folder for this process alone. OutputError where another run is writing into it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    resolved = folder.resolve()
    if resolved in _CLAIMS:
        os.close(_CLAIMS.pop(resolved))
    held = os.open(resolved, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise OutputError(
            f"Another boundby profile is writing into {folder}.",
            "Name another folder with -o, or wait until it is done.",
        ) from None
    except OSError:  # a file system without locks
        os.close(held)
        return
    _CLAIMS[resolved] = held


def find_in_folder(folder: Path) -> Path:
    """What to analyse of a folder: of a run's the export where there is one, else the report; of another's the only
    report in it (an export and the report of its name are one). Of the cycles that one process recorded the last.

    Raises:
        InputError: there is no report in it, or several are and no run tells which is meant.
    """
    if is_run(folder):
        for name in (EXPORT, REPORT, STREAM, TORCH_TRACE):
            if (folder / name).is_file():
                return folder / name
    files = reports_in(folder)
    if cycles := cycles_of(path.name for path in files):
        return folder / cycles[-1]
    if len(files) > 1:
        names = [path.name for path in files]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise InputError(
            f"{folder} holds {len(files)} reports ({', '.join(names[:3])}{more}), and boundby profile did not make it.",
            "Name one report, or several, each by its own path. The ranks of one job: boundby job FOLDER",
        )
    if files:
        return files[0]
    if newest := newest_run(folder):
        return find_in_folder(newest)
    raise InputError(
        f"{folder} is a folder without a report of nsys (.nsys-rep, .qdrep), an export of one (.sqlite), or a trace of "
        f"torch.profiler ({named('pytorch')}).",
        "Give a report file, or a folder that boundby profile made.",
    )


def reports_in(folder: Path) -> list[Path]:
    """The recordings in a folder, one file of each. Raises InputError where it cannot be read."""
    by_name: dict[str, list[Path]] = {}
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read: {os.strerror(error.errno or 0)}.", "Check its permissions, or name a report."
        ) from error
    for path in inside:
        kind = input_kind(path, sought=True)
        if kind is not None and kind.is_nsys and path.is_file():
            by_name.setdefault(path.stem, []).append(path)
        elif is_torch_trace(path):
            by_name.setdefault(path.name, []).append(path)
    return [min(files, key=_preference) for files in by_name.values()]


def _preference(path: Path) -> int:
    kind = input_kind(path)
    return len(INPUTS) if kind is None else INPUTS.index(kind)


def worker_of(name: str) -> str | None:
    """The process that wrote a file of this name as one of the cycles of its schedule; None: the name does not tell."""
    match = _CYCLE.match(name)
    return match and match["worker"]


def cycles_of(names: Iterable[str]) -> list[str]:
    """These files in order of time, where they are the cycles of one process; none where they are not."""
    cycles = [(match["worker"], int(match["time"]), name) for name in names if (match := _CYCLE.match(name))]
    return [name for _, _, name in sorted(cycles)] if len({cycle[0] for cycle in cycles}) == 1 < len(cycles) else []


def is_torch_trace(path: Path) -> bool:
    """Whether a file is a trace of PyTorch's profiler: by its name, and plain JSON by what it begins with."""
    kind = input_kind(path, sought=True)
    if kind is None or kind.is_nsys or not path.is_file():
        return False
    if path.name.lower().endswith(kind.sure_suffixes):
        return True
    with contextlib.suppress(OSError):
        head = door.first_of(path, PIECE_BYTES)
        return b'"traceEvents"' in head or b'"deviceProperties"' in head
    return False


def newest_run(folder: Path) -> Path | None:
    """The last of the runs that lie in a folder (``boundby-out``); None where none does."""
    with contextlib.suppress(OSError):
        runs = [path for path in sorted(folder.iterdir()) if path.is_dir() and is_run(path)]
        return max(runs, key=lambda run: ((run / FACTS).stat().st_mtime_ns, run.name), default=None)
    return None


def is_run(folder: Path) -> bool:
    """Whether boundby profile made this folder."""
    return (folder / FACTS).is_file()


def command_of(folder: Path) -> str | None:
    """The command of a run as run.json tells it; None where that is not to be had."""
    command = _told(folder).get("command")
    return " ".join(map(str, command)) if isinstance(command, list) else None


def rank_of(folder: Path) -> tuple[int, int] | None:
    """Rank and world size of a run as run.json tells them; None where it was no rank of a job."""
    rank, size = (_whole(_told(folder).get(key)) for key in ("rank", "world_size"))
    return None if rank is None or size is None else (rank, size)


def exit_code_of(folder: Path) -> int | None:
    """With what the program of a run ended, as run.json tells it; None where it was stopped, or that is not known."""
    facts = _told(folder)
    return None if facts.get("stopped_by") else _whole(facts.get("exit_code"))


def tells_end(folder: Path) -> bool:
    """Whether run.json can be read, and says with what the program ended, or that this is not known."""
    facts = _told(folder)
    return bool(facts) and (facts.get("exit_code") is None or _whole(facts["exit_code"]) is not None)


def last_words_of(folder: Path) -> LastWords | None:
    """What the program of a run said of how it failed, as run.json tells it."""
    words = _told(folder).get("last_words")
    if not isinstance(words, dict):
        return None
    try:
        where = None if words["where"] is None else str(words["where"])
        return LastWords(str(words["ended"]), str(words["words"]), where, tuple(map(str, words["lines"])))
    except (KeyError, TypeError):
        return None


def not_recorded(folder: Path) -> dict[str, str]:
    """Why kinds of data are not in a run, as run.json tells: kind -> reason."""
    each = _told(folder).get("not_recorded")
    entries = [entry for entry in each if isinstance(entry, dict)] if isinstance(each, list) else []
    return {str(entry["kind"]): str(entry["reason"]) for entry in entries if entry.get("kind") and "reason" in entry}


def _told(folder: Path) -> dict[str, object]:
    """What run.json tells; nothing where it is no regular file, too large, too deep, or no object of JSON."""
    path = folder / FACTS
    try:
        data = json.loads(door.read_text(path, door.MOST_WRITTEN_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _whole(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):  # not a number, or not a finite one
        return None


def program_name(program: Sequence[str]) -> str:
    """What people call a command: ``python -u train.py`` is ``train``, ``python -m pkg.train`` is ``pkg.train``."""
    first = PurePath(program[0]).name
    name = first
    if PYTHON.match(first) and "-m" in program[1:-1]:
        name = program[program.index("-m", 1) + 1]
    else:
        scripts = (PurePath(word).stem for word in program if word.endswith((".py", ".sh")))
        name = next(scripts, first)
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:_LONGEST_NAME].strip("._-") or "run"


def _make_default(parent: Path, name: str) -> RunFolder:
    for number in range(1, 1000):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            parent.mkdir(exist_ok=True)
            path.mkdir()
        except FileExistsError:
            if not parent.is_dir():
                raise OutputError(f"{parent} is a file, not a folder.", "Name a folder with -o.") from None
            continue
        except OSError as error:
            raise cannot_write(parent, error, "a run") from error
        return RunFolder(path, True)
    raise OutputError(f"{parent} holds 999 runs called {name}.", "Name a folder with -o.")


def _check_writable(folder: Path) -> None:
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(folder, error, "a run") from error
