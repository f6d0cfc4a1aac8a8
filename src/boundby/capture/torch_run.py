"""Record one run of a program with PyTorch's own profiler, where nsys is not to be had.

The program runs as it would; what is in ``launcher/program`` starts the profiler inside it. What no profiler within a
process can see (other processes, the operating system, what lies before and after the recorded steps) is not recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from boundby.capture import failure, folder, launcher
from boundby.capture.folder import RunFolder
from boundby.capture.launcher.program.profiler import SETTINGS_VARIABLE
from boundby.capture.profile import check_program, write_facts
from boundby.model.errors import UserError

Say = Callable[[str], None]


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


def record(program: Sequence[str], chosen: Path | None, rhythm: Rhythm, *, force: bool, say: Say) -> TorchRecording:
    """Run the program with PyTorch's profiler in it. A program that fails is no error here.

    Raises:
        ProgramError: there is no such program.
        OutputError: the folder cannot be used.
    """
    check_program(tuple(program))
    now = datetime.now().astimezone()
    made = folder.make_folder(chosen, tuple(program), now, force=force)
    failure.check_room(made.path, "a trace in")
    say(
        f"recording with torch.profiler into {made.path}: {rhythm.active} steps after {rhythm.wait} and "
        f"{rhythm.warmup} to warm up (without steps: from the first module's call to the end)"
    )
    for old in made.path.glob("report*.pt.trace.json.gz"):
        old.unlink()
    told = {"folder": str(made.path.resolve()), **{name: getattr(rhythm, name) for name in Rhythm.__annotations__}}
    with tempfile.TemporaryDirectory(prefix="boundby-") as private:
        notes = Path(private) / "notes"
        environment = launcher.launcher_environment(os.environ, notes)
        environment[SETTINGS_VARIABLE] = json.dumps(told)
        child = subprocess.Popen(list(program), env=environment)
        with _without_interrupts():  # the program gets them itself
            code = child.wait()
        found = launcher.read_notes(notes)
    traces = tuple(sorted(made.path.glob("report*.pt.trace.json.gz")))
    facts = {"command": list(program), "profiler": "torch.profiler", "started": now.isoformat(), "exit_code": code}
    write_facts(made, {**facts, **told, "folder": str(made.path)})
    for problem in sorted({note.problem for note in found if note.problem}):
        say(f"in the program: {problem}")
    return TorchRecording(made, code if code >= 0 else 128 - code, traces)


def check(recording: TorchRecording, *, imported_torch: bool = True) -> Path:
    """The trace to analyse. Raises UserError where there is none, or each rank wrote its own."""
    if len(recording.traces) == 1:
        return recording.traces[0]
    place = recording.folder.path
    if recording.traces:
        names = ", ".join(path.name for path in recording.traces[:3])
        raise UserError(
            f"{len(recording.traces)} processes wrote a trace each into {place} ({names}).",
            "Look at one: boundby analyze FILE; or at all of them together: boundby job FOLDER",
        )
    why = "no module was called and no step ended" if imported_torch else "the program did not import torch"
    raise UserError(
        f"torch.profiler recorded nothing: {why}, or too few steps ended.",
        "Record fewer steps (--torch-steps 0,0,1), mark them with boundby.annotate.steps, or record with nsys.",
    )


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
