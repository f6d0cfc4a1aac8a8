"""Record one run of a program with nsys, or with PyTorch's own profiler, and leave a folder that holds everything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from boundby.capture import flags, folder, launcher, run_facts, session
from boundby.capture.export import add_diagnostics, export_sqlite, has_events, strip_environment, warnings_in
from boundby.capture.flags import CaptureOptions, Plan, Support, look_at_machine
from boundby.capture.folder import RunFolder
from boundby.capture.launcher.program.torch_profile import SETTINGS_VARIABLE
from boundby.capture.nsys import (
    Nsys,
    Progress,
    check_room,
    find_nsys,
    handling,
    last_lines,
    why_no_events,
    why_no_report,
)
from boundby.capture.run_facts import NVTX_FIX, nvtx_trap
from boundby.capture.session import Ran, Say
from boundby.model.errors import UserError
from boundby.model.scale import ANSWER_S
from boundby.results import write
from boundby.trace.facts import JobPlace

#: What nsys says of arguments that it does not take.
_REFUSED = re.compile(r"illegal|unrecogni[sz]ed|unknown option|usage: nsys|nsys profile --help", re.IGNORECASE)


class ProgramError(UserError):
    """The program cannot be started. The exit codes are those of ``env`` and ``timeout``."""

    def __init__(self, message: str, next_step: str, exit_code: int) -> None:
        super().__init__(message, next_step)
        self.exit_code = exit_code


class Request(Struct, frozen=True):
    """What to run, and how."""

    program: tuple[str, ...]
    options: CaptureOptions
    folder: Path | None = None
    force: bool = False
    nsys: Path | None = None
    torch_ops: bool = False
    place: JobPlace | None = None
    """Which rank of a job this is."""


class Recording(Struct, frozen=True):
    """A run that has ended."""

    folder: RunFolder
    ran: Ran
    nsys: Nsys
    report: Path | None
    """The report, or the raw stream that one can be made of; None: nsys left neither."""
    problem: UserError | None
    """Why there is none."""

    @property
    def exit_code(self) -> int:
        """The program's own; 0 where it has none: it never ran, or boundby stopped it when the recording was over."""
        ran = self.ran
        return ran.exit_code if ran.started and not ran.outlived and ran.nsys_signal is None and not ran.hung else 0


def record(request: Request, *, say: Say) -> Recording:
    """Run the program under nsys. ``complete`` then makes the report ready for analysis.

    ``say`` is told, in a line each, what a user should know. A program that fails is no error here.

    Raises:
        ProgramError: there is no such program.
        OutputError: the folder cannot be used.
        ToolError: there is no nsys that runs.
        session.GaveUpError: the user interrupted twice.
    """
    check_program(request.program)
    check_room(Path(tempfile.gettempdir()), "temporary files of nsys in")
    nsys = find_nsys(request.nsys)
    support = flags.probe_support(nsys)
    machine = look_at_machine()
    chosen = flags.plan(request.options, support, machine, nsys, request.program)
    python = run_facts.look_at_python(run_facts.find_python(request.program))
    source = run_facts.look_at_git(run_facts.program_folder(request.program))
    now = datetime.now().astimezone()
    made = folder.make_folder(request.folder, request.program, now, force=request.force)
    say(f"recording with nsys {nsys.release} into {made.path}")
    for lack in chosen.lacks:
        say(str(lack))
    trap = nvtx_trap(python.packages if python else {}, nsys)
    if trap is not None:
        say(f"{trap}. {NVTX_FIX}")
    try:
        check_room(made.path, "a report in")
        ran, chosen = _run(request, nsys, support, chosen, made, say)
    except BaseException:
        _clear(made)
        raise
    try:
        report = find_report(made, ran, request.options, nsys)
    except UserError as problem:
        _clear(made)
        return Recording(made, ran, nsys, None, problem)
    run = run_facts.of_run(
        ran,
        chosen,
        nsys,
        machine,
        python,
        program=request.program,
        torch_ops=request.torch_ops,
        place=request.place,
        source=source,
        started=now,
    )
    write_facts(made, run)
    return Recording(made, ran, nsys, report, None)


def complete(recording: Recording, *, progress: Callable[[str, float | None], None] | None = None) -> Path:
    """Export the report beside itself; gives the export.

    Raises:
        UserError: there is nothing to analyse, and why.
    """
    made, nsys = recording.folder, recording.nsys
    if recording.problem is not None:
        raise recording.problem
    assert recording.report is not None

    def exporting(fraction: float | None) -> None:
        if progress is not None:
            progress("exporting with nsys", fraction)

    export_report(recording.report, made.export, nsys, progress=exporting if progress is not None else None)
    return made.export


def find_report(made: RunFolder, ran: Ran, options: CaptureOptions, nsys: Nsys) -> Path:
    """What nsys left of a run, the report or the raw stream. Raises UserError where it left neither, and why."""
    for path in (made.report, made.path / folder.STREAM):
        if path.is_file() and path.stat().st_size:
            with contextlib.suppress(OSError):  # nsys lets all of a group write it, whatever the mask
                path.chmod(path.stat().st_mode & 0o777 & ~write.mask())
            return path
    raise why_no_report(ran, options, made.path, nsys)


def export_report(report: Path, export: Path, nsys: Nsys, *, progress: Progress | None = None) -> None:
    """Export a report, with the profiler's own messages and without the environment's values.

    Raises UserError, also where nothing was recorded.
    """
    export_sqlite(report, export, nsys, progress=progress)
    add_diagnostics(report, export, nsys)
    strip_environment(export)
    if not has_events(export):
        raise why_no_events(warnings_in(export))


def _clear(made: RunFolder) -> None:
    """Leave no half of a report, and no folder made for nothing."""
    for name in (folder.REPORT, folder.STREAM):
        (made.path / name).unlink(missing_ok=True)
    made.remove_if_empty()


def check_program(program: Sequence[str]) -> None:
    """Refuse what no shell could start, before anything is made for it."""
    name = program[0]
    if shutil.which(name) is not None:
        return
    is_there = Path(name).exists()
    script = f"To run a script: python {name}" if is_there and name.endswith(".py") else ""
    if os.sep in name and is_there:
        hint = script or "Is it executable? chmod +x makes it so."
        raise ProgramError(f"{name} is not a program that can be run.", hint, 126)
    hint = script or "Check its name and path. The program is what follows --, as in: -- python train.py"
    raise ProgramError(f"There is no program {name}.", hint, 127)


def write_facts(made: RunFolder, run: Mapping[str, Any]) -> None:
    """Write run.json."""
    text = json.dumps(run, indent=2, ensure_ascii=False, default=str) + "\n"
    write.write_text(made.path / folder.FACTS, text)


def _run(request: Request, nsys: Nsys, support: Support, full: Plan, made: RunFolder, say: Say) -> tuple[Ran, Plan]:
    """As planned. If nsys fails before it has started the program, that is tried again: nothing has happened yet.

    An nsys that refuses its arguments is given the plainest ones; a failure of another kind may pass.
    """
    ran = record_once(request, nsys, support, full, made, say)
    if not _may_try_again(ran, request):
        return ran, full
    if not _REFUSED.search(ran.said.text):
        say(f"nsys failed to start, trying again. {last_lines(ran.said)}")
        ran = record_once(request, nsys, support, full, made, say)
        if not _may_try_again(ran, request):
            return ran, full
    plain = flags.plain(request.options, full)
    say(f"nsys would not start with all that was asked for, so only the plain traces. {last_lines(ran.said)}")
    return record_once(request, nsys, support, plain, made, say), plain


def _may_try_again(ran: Ran, request: Request) -> bool:
    if ran.started or ran.hung or ran.nsys_signal is not None:
        return False
    return not any(f"--{name}" in ran.said.text for name in flags.flag_names(request.options.nsys_args))


def record_once(
    request: Request,
    nsys: Nsys,
    support: Support,
    chosen: Plan,
    made: RunFolder,
    say: Say,
    *,
    start_limit_s: float = ANSWER_S,
) -> Ran:
    """Run the program under nsys with exactly these arguments; what that leaves lies in the folder."""
    with tempfile.TemporaryDirectory(prefix="boundby-", ignore_cleanup_errors=True) as temporary:
        private = Path(temporary)
        notes = private / "torch-ops"
        env = {**os.environ, **chosen.environment}
        marks_collectives = request.place is not None and not look_at_machine().gpus
        has_lines = request.options.lines and not flags.flag_names(chosen.arguments) & flags.PYTHON_STACKS
        if request.torch_ops or marks_collectives or has_lines:
            env = launcher.launcher_environment(
                env, notes, operators=request.torch_ops, collectives=marks_collectives, lines=has_lines
            )
        given = session.prepare(private, env)
        name = f"boundby-{uuid.uuid4().hex[:12]}"
        command = flags.command_line(nsys, chosen, made.path.absolute() / "report", name, support)
        ran = session.run_session(command, request.program, given, nsys, name, say=say, start_limit_s=start_limit_s)
        if request.torch_ops and ran.started:
            for complaint in launcher.complaints(launcher.read_notes(notes)):
                say(complaint)
        return _rescued(ran, private)


def _rescued(ran: Ran, private: Path) -> Ran:
    """What nsys could not put where it belongs, out of the folder that is going to be removed."""
    files = [path for path in ran.files if path.is_file()]
    with contextlib.suppress(OSError):
        inside = [path for path in files if private in path.parents]
        moved = {path: Path(shutil.move(path, Path(tempfile.gettempdir()) / path.name)) for path in inside}
        files = [moved.get(path, path) for path in files]
    return replace(ran, files=tuple(files))


# Record one run of a program with PyTorch's own profiler, where nsys is not to be had.
#
# The program runs as it would; what is in ``launcher/program`` starts the profiler inside it. What no profiler within
# a process can see (other processes, the operating system, what lies before and after the recorded steps) is not
# recorded.


class Rhythm(Struct, frozen=True):
    """How many steps to let pass, to warm up with, and to record; and what of each operator."""

    wait: int = 1
    warmup: int = 1
    active: int = 3
    stacks: bool = True
    shapes: bool = True
    memory: bool = True


class TorchRecording(Struct, frozen=True):
    """A run that has ended, and what its processes wrote."""

    folder: RunFolder
    exit_code: int
    traces: tuple[Path, ...]


def record_with_torch(
    program: Sequence[str], chosen: Path | None, rhythm: Rhythm, *, force: bool, say: Say
) -> TorchRecording:
    """Run the program with PyTorch's profiler in it. A program that fails is no error here.

    Raises:
        ProgramError: there is no such program.
        OutputError: the folder cannot be used.
    """
    check_program(tuple(program))
    now = datetime.now().astimezone()
    made = folder.make_folder(chosen, tuple(program), now, force=force)
    check_room(made.path, "a trace in")
    say(
        f"recording with torch.profiler into {made.path}: {rhythm.active} steps after {rhythm.wait} and "
        f"{rhythm.warmup} to warm up (without steps: from the first module's call to the end)"
    )
    for old in made.path.glob("report*.pt.trace.json.gz"):
        old.unlink()
    rhythm_facts = {
        "folder": str(made.path.resolve()),
        **{name: getattr(rhythm, name) for name in Rhythm.__annotations__},
    }
    with tempfile.TemporaryDirectory(prefix="boundby-") as private:
        notes = Path(private) / "notes"
        environment = launcher.launcher_environment(os.environ, notes)
        environment[SETTINGS_VARIABLE] = json.dumps(rhythm_facts)
        child = subprocess.Popen(list(program), env=environment)
        with handling(signal.SIG_IGN, signal.SIGINT):  # the program gets them itself
            code = child.wait()
        problems_noted = launcher.read_notes(notes)
    traces = tuple(sorted(made.path.glob("report*.pt.trace.json.gz")))
    facts = {"command": list(program), "profiler": "torch.profiler", "started": now.isoformat(), "exit_code": code}
    write_facts(made, {**facts, **rhythm_facts, "folder": str(made.path)})
    for problem in sorted({note.problem for note in problems_noted if note.problem}):
        say(f"in the program: {problem}")
    return TorchRecording(made, code if code >= 0 else 128 - code, traces)


def check(recording: TorchRecording) -> Path:
    """The trace to analyse. Raises UserError where there is none, or each rank wrote its own."""
    if len(recording.traces) == 1:
        return recording.traces[0]
    folder_path = recording.folder.path
    if recording.traces:
        names = ", ".join(path.name for path in recording.traces[:3])
        raise UserError(
            f"{len(recording.traces)} processes wrote a trace each into {folder_path} ({names}).",
            "Look at one: boundby analyze FILE; or at all of them together: boundby job FOLDER",
        )
    raise UserError(
        "torch.profiler recorded nothing: no module was called and no step ended, or too few steps ended.",
        "Record fewer steps (--torch-steps 0,0,1), mark them with boundby.annotate.steps, or record with nsys.",
    )
