"""Give the program the user's own streams, past nsys.

nsys puts pipes between a program and the terminal, so that a progress bar no longer sees a terminal, output arrives
late, and all of it ends up in the report. So nsys starts three lines of shell instead. They take the user's streams
from where boundby left them, say which process they are, and become the program: same process, same arguments,
same environment, same exit code.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from boundby.model import door

SCRIPT_NAME = "boundby-run"
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
        return ["/bin/sh", str(self.folder / SCRIPT_NAME), *program]

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
    mask = os.umask(0)  # nsys zeroes it: the program's files would be anybody's to write
    os.umask(mask)
    script = f'{_SCRIPT}umask {mask:04o}\n{own}\nexec "$@" {take} {close}\n'
    (folder / SCRIPT_NAME).write_bytes(os.fsencode(script))
    return Handover(folder, {**env, "TMPDIR": str(folder)})


def park_streams(command: Sequence[str], log: Path) -> list[str]:
    """A command that runs ``command`` with the caller's streams parked, and writes its own words to ``log``."""
    park = " ".join(f"{there}{'<' if here == 0 else '>'}&{here}" for here, there in PARKED.items() if _is_open(here))
    return ["/bin/sh", "-c", f'exec "$@" {park} </dev/null >>{shlex.quote(str(log))} 2>&1', "sh", *command]


def typed_command(recorded: str | None) -> str | None:
    """A command as the user typed it, from what nsys recorded of it: without the script in front."""
    if recorded is None:
        return None
    script, found, program = recorded.partition(f"/{SCRIPT_NAME} ")
    return program if found and script.startswith("sh ") else recorded


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
