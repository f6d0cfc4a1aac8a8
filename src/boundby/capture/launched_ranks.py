"""The ranks of a job: which one this process is, and commands that start them, changed so that each records itself.

A recording of ``torchrun`` or ``mpirun`` from outside holds all ranks of one machine in one report, and those of other
machines not at all. So boundby stands inside: the launcher starts ``boundby profile`` for each rank, and that the
program.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from types import FrameType

from msgspec import Struct

from boundby.capture import folder
from boundby.capture.nsys import handling
from boundby.model.errors import OutputError, UserError

#: What names a job to all its ranks, where no folder was given to them.
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID")
JOB_ANALYSIS, JOB_PAGE, JOB_HTML = "job.json", "job.md", "job.html"
_SCRIPT = "start-rank"
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_MPI = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun")
#: Options whose value, a word of its own, can bear the name of a program (--job-name test).
_VALUES = frozenset(
    (
        *("-J", "--job-name", "-p", "--partition", "-A", "--account", "-q", "--qos", "-C", "--constraint", "-w"),
        *("--nodelist", "-x", "--exclude", "-D", "--chdir", "-o", "--output", "-e", "--error", "--mpi", "--export"),
        *("--container-image", "--container-name", "--reservation", "-M", "--clusters", "-np", "-n", "-N", "-c"),
        *("--hostfile", "-hostfile", "-machinefile", "-f", "-H", "--host", "-host", "-hosts", "-ppn", "--map-by"),
        *("--bind-to", "--rank-by", "-wdir", "--wdir", "-path", "--prefix", "-am", "--am", "-iface", "-launcher"),
        *("-bootstrap",),
    )
)
_TWO_VALUES = frozenset(["-env", "-genv", "--mca", "-mca", "--prtemca", "--pmixmca", "-gmca", "--gmca"])


class RankLaunch(Struct, frozen=True):
    """A launcher's command with ``boundby profile`` before each program that it starts."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def folder_of(rank: int, chosen: Path | None, program: Sequence[str], env: Mapping[str, str] = os.environ) -> Path:
    """Where a rank that nobody sent here puts its run: below a folder that all share, unless what was chosen is named
    for the rank already."""
    if chosen is None:
        job = next((env[name] for name in _JOB_NAMES if env.get(name, "none") != "none"), "")
        name = "-".join(filter(None, (folder.program_name(program), re.sub(r"[^\w.-]+", "_", job))))
        return Path(folder.DEFAULT_PARENT, name, f"rank_{rank}")
    number = re.search(r"(\d+)$", chosen.name)
    return chosen if number is not None and int(number[1]) == rank else chosen / f"rank_{rank}"


def is_launcher(program: Sequence[str]) -> bool:
    """Whether a command starts the ranks of a job."""
    return _is_torch(program) or PurePath(program[0]).name in _MPI


def launch(program: Sequence[str], options: Sequence[str], job: Path) -> RankLaunch:
    """The launcher's command, changed so that each rank is recorded below ``job``. ``options``: of boundby profile.

    Raises:
        UserError: where the launcher's options end cannot be told.
        OutputError: the folder cannot be written.
    """
    inside = [*_BOUNDBY, "profile", "--in-job", "-o", str(job.resolve()), *options, "--"]
    if not _is_torch(program):
        return RankLaunch(_before_programs(program, inside), os.environ)
    if "--no-python" in program or "--no_python" in program:
        at = next(number for number, word in enumerate(program) if word in ("--no-python", "--no_python"))
        return RankLaunch((*program[: at + 1], *_before_programs(program[at:], inside)[1:]), os.environ)
    before = os.environ.get("PYTHON_EXEC")
    again = "unset PYTHON_EXEC" if before is None else f"export PYTHON_EXEC={shlex.quote(before)}"
    python = _python_of(program) if before is None else before
    script = job / _SCRIPT
    text = f'#!/bin/sh\n# boundby profile: record this rank.\n{again}\nexec {shlex.join([*inside, python])} "$@"\n'
    try:
        script.write_text(text, encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    except OSError as error:
        raise OutputError(f"{job} cannot be written: {error.strerror}.", "Name another folder with -o.") from error
    return RankLaunch(tuple(program), {**os.environ, "PYTHON_EXEC": str(script.resolve())})


#: This boundby, with nothing of the working folder in its way.
_BOUNDBY = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); from boundby.cli.main import main; sys.exit(main())",
)


def _is_torch(program: Sequence[str]) -> bool:
    name = PurePath(program[0]).name
    if name == "torchrun":
        return True
    return bool(folder.PYTHON.match(name)) and any(
        word == "-m" and other in _TORCH_MODULES for word, other in itertools.pairwise(program)
    )


def _python_of(program: Sequence[str]) -> str:
    """The Python that a launcher of torch would start its ranks with: its own."""
    from boundby.capture.run_facts import find_python

    return str(find_python(program) or sys.executable)


def _before_programs(program: Sequence[str], inside: Sequence[str]) -> tuple[str, ...]:
    """A command of mpirun or srun with ``inside`` before the program, and before each of several (``:``)."""
    changed = [program[0]]
    is_slurm = PurePath(program[0]).name == "srun"
    at, is_found = 1, False
    while at < len(program):
        word = program[at]
        if is_found:
            is_found = is_slurm or word != ":"
            changed.append(word)
            at += 1
        elif word.startswith("-") and word != "--":
            skipped = 1 + (word in _VALUES) + 2 * (word in _TWO_VALUES)
            changed += program[at : at + skipped]
            at += skipped
        elif word != "--" and _is_program(word):
            changed += [*inside, word]
            is_found = True
            at += 1
        else:
            changed.append(word)
            at += 1
    if len(changed) == len(program):
        raise UserError(
            f"Cannot tell where the options of {program[0]} end and the program begins.",
            f"Start boundby inside: {program[0]} ... boundby profile -o FOLDER -- PROGRAM; then: boundby job FOLDER",
        )
    return tuple(changed)


def _is_program(word: str) -> bool:
    path = shutil.which(word)
    return path is not None and not Path(path).is_dir()


def clear(job: Path) -> None:
    """Remove an earlier job's runs, and nothing else, from a folder that is to be replaced."""
    for rank_folder in sorted(job.glob("rank_*")):
        if folder.is_run(rank_folder):
            for name in folder.FILES:
                (rank_folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                rank_folder.rmdir()
    for name in (JOB_ANALYSIS, JOB_PAGE, JOB_HTML):
        (job / name).unlink(missing_ok=True)


def tidy(job: Path) -> None:
    """Leave nothing in a job's folder that only its start needed."""
    (job / _SCRIPT).unlink(missing_ok=True)


def recorded(job: Path) -> list[Path]:
    """The runs of the ranks in a job's folder."""
    folders = [rank_folder for rank_folder in job.glob("rank_*") if folder.is_run(rank_folder)]
    return sorted(folders, key=lambda rank_folder: (len(rank_folder.name), rank_folder.name))


def run(started: RankLaunch) -> int:
    """Run a launcher to its end; its exit code as a shell tells it. Ctrl-C reaches it from the terminal by itself."""
    child = subprocess.Popen(started.command, env=dict(started.environment))

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    with handling(pass_on, signal.SIGTERM, signal.SIGHUP), handling(signal.SIG_IGN, signal.SIGINT):
        code = child.wait()
    return code if code >= 0 else 128 - code
