"""What runs beside a torch program that says nothing itself: the lines that its threads are at, and with
``--torch-ops`` ranges for operators, modules, data and optimizer.

The command is left as it is. Two environment variables reach every Python that it starts, torchrun's workers
too: ``PYTHONPATH`` leads to ``inject/sitecustomize.py``, which Python runs at its start and which waits there for
``import torch``; ``BOUNDBY_TORCH_OPS`` names the file where each of them notes what it did. A Python that is told
to ignore its environment (``-I``, ``-E``, ``-S``) is not reached.

``program/`` is what runs inside the program. It is loaded under a name of its own, and nothing of boundby is
imported before torch is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from boundby.model import door

NOTES_VARIABLE = "BOUNDBY_TORCH_OPS"
WANTED_VARIABLE = "BOUNDBY_TORCH_RANGES"
INJECTED = Path(__file__).parent / "inject"


class Note(Struct, frozen=True):
    """What the launcher did in one process."""

    pid: int
    torch: str = ""
    ranges: str = ""
    """What ranges are written with: ``torch``, ``nvtx`` or ``none``."""
    operators: str = ""
    """``emit_nvtx``, ``dispatch`` (no sequence numbers) or ``none``."""
    problem: str = ""


def launcher_environment(
    env: Mapping[str, str], notes: Path, *, operators: bool = True, collectives: bool = False, lines: bool = False
) -> dict[str, str]:
    """``env`` with the launcher in it: for ranges of operators and modules, of collectives where no device shows them,
    and for marks of the lines that threads are at."""
    path = os.pathsep.join(filter(None, (str(INJECTED), env.get("PYTHONPATH", ""))))
    wanted = ",".join(["operators"] * operators + ["collectives"] * collectives + ["lines"] * lines)
    return {**env, "PYTHONPATH": path, NOTES_VARIABLE: str(notes), WANTED_VARIABLE: wanted}


def read_notes(notes: Path) -> tuple[Note, ...]:
    """What the launcher did, one note for each process that imported torch."""
    try:
        lines = door.read_text(notes, errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(note for line in lines if (note := _read_note(line)) is not None)


def _read_note(line: str) -> Note | None:
    try:
        return msgspec.json.decode(line, type=Note)
    except msgspec.MsgspecError:
        return None


def complaints(notes: tuple[Note, ...]) -> list[str]:
    """What a user has to know of them."""
    if not notes:
        return ["--torch-ops added nothing: no Python of the program that listens to PYTHONPATH imported torch."]
    complaints_found = []
    if all(note.ranges == "none" for note in notes):
        complaints_found.append(
            "--torch-ops added nothing: this torch is a build without CUDA, and the nvtx package is missing."
        )
    complaints_found += sorted({f"--torch-ops: {note.problem}" for note in notes if note.problem})
    return complaints_found
