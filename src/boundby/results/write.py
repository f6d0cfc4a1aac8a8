"""Text or bytes -> a file, whole or not at all. Never over a report: an hour on a GPU may be in it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from boundby.model import door
from boundby.model.errors import OutputError
from boundby.model.inputs import input_kind

SQLITE_MAGIC = b"SQLite format 3\0"
NSYS_MAGIC = b"NVIDIA Tegra Pro"  # the start of every .nsys-rep and .qdrep


def write_text(path: str | Path, text: str, *, force: bool = True, inputs: Iterable[str | Path] = ()) -> None:
    """Write ``text`` to ``path`` whole or not at all.

    An earlier result is replaced only with ``force``. What is one of ``inputs``, or looks like a report or a
    database, is never replaced.
    """
    with open_whole(path, force=force, inputs=inputs) as file:
        file.write(text.encode("utf-8", "replace"))


@contextlib.contextmanager
def open_whole(path: str | Path, *, force: bool = True, inputs: Iterable[str | Path] = ()) -> Iterator[IO[bytes]]:
    """A binary file that becomes ``path`` when the block ends well, and nothing otherwise. Rules as ``write_text``."""
    target = Path(path)
    check(target, force=force, inputs=inputs)
    try:
        if target.exists() and not target.is_file():  # a pipe or device, such as /dev/null: nothing to replace
            with os.fdopen(_into(target), "wb") as file:
                yield file
        else:
            with _replacing(Path(os.path.realpath(target))) as file:  # through a link, not over it
                yield file
    except OSError as error:
        raise OutputError(f"Cannot write {target}: {reason(error)}.", _next_step(error)) from error


def _into(target: Path) -> int:
    """A pipe or device, open for writing. A pipe that nobody reads ends in ENXIO: it is not waited for."""
    handle = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(handle, True)
    return handle


def check(path: str | Path, *, force: bool = True, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a target that must not be written. Cheap: call it before hard work too."""
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(f"Cannot write {target}: it is a folder.", "Give the name of a file in it.")
        if not target.parent.is_dir():
            raise OutputError(f"Cannot write {target}: its folder does not exist.", "Make the folder first.")
        for source in inputs:
            if target.exists() and Path(source).exists() and target.samefile(source):
                raise OutputError(f"Will not write over the report {target}.", "Choose another name.")
        if looks_like_report(target):
            raise OutputError(f"Will not write over {target}: it looks like a report.", "Choose another name.")
        if target.is_file() and not force:
            raise OutputError(f"{target} is already there.", "Choose another name, or remove it.")
    except OSError as error:
        raise OutputError(f"Cannot write {target}: {reason(error)}.", _next_step(error)) from error


def looks_like_report(path: Path) -> bool:
    """Whether a file is there that is an nsys report or a SQLite database, by its name or its first bytes."""
    if not path.is_file():
        return False
    kind = input_kind(path)
    if kind is not None and kind.is_nsys and path.stat().st_size:
        return True
    return door.first_of(path, len(SQLITE_MAGIC)) in (SQLITE_MAGIC, NSYS_MAGIC)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file in the same folder takes the name once it is on the disk."""
    import tempfile  # for who writes: with all that it loads it costs as much as a rule

    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(target))  # by name: Windows has no fchmod
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def give_name(whole: Path, name: Path) -> None:
    """Give a file that is whole its name, unless something has it: a link never replaces; where there are none, a look
    must do. Raises FileExistsError, and OSError as the system does."""
    try:
        os.link(whole, name)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from None
        whole.rename(name)


def _mode(target: Path) -> int:
    """The mode of the file that is replaced, else what the user's mask gives a new one (mkstemp gives 0600)."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    return 0o666 & ~mask()


def mask() -> int:
    """The user's mask for the modes of new files, which can only be read by setting it."""
    was = os.umask(0o077)
    os.umask(was)
    return was


_REASONS = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENOENT: "its folder does not exist",
    errno.ENOTDIR: "its folder is a file",
    errno.EISDIR: "it is a folder",
    errno.ENXIO: "nobody reads from this pipe",
    errno.ENAMETOOLONG: "the name is too long",
}


def reason(error: OSError) -> str:
    """Why the system refused, in words."""
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


def _next_step(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or write elsewhere. Nothing was left behind."
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "Make the folder first, or write elsewhere."
    return "Write elsewhere with -o."
