"""What a file is, from its first bytes, and what to do about one that no reader takes."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from boundby.model import door
from boundby.model.errors import InputError
from boundby.model.inputs import input_kind

_READS = "boundby reads .nsys-rep and .qdrep reports, .sqlite files exported from them, and traces of torch.profiler."
_EXPORT = "Give the report it was made from, or export that as SQLite: nsys export --type sqlite REPORT.nsys-rep"

PROFILE_AGAIN = (
    "Copy it again, or let the profiler write it again: export_chrome_trace must finish before the program ends."
)

# (first bytes, what the file is, next step)
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"NVIDIA Tegra Profiler Report",
        "is an nsys report, not an export",
        "Rename it so that its name ends in .nsys-rep.",
    ),
    (b"version https://git-lfs", "is a Git LFS pointer: the file itself was not fetched", "Fetch it: git lfs pull"),
    (b"\x1f\x8b", "is compressed (gzip)", "Unpack it first: gzip -dc FILE > UNPACKED"),
    (b"\x28\xb5\x2f\xfd", "is compressed (zstd)", "Unpack it first: zstd -dc FILE > UNPACKED"),
    (b"\xfd7zXZ", "is compressed (xz)", "Unpack it first: xz -dc FILE > UNPACKED"),
    (b"BZh", "is compressed (bzip2)", "Unpack it first: bzip2 -dc FILE > UNPACKED"),
    (b"PK\x03\x04", "is a zip archive", "Unpack it first: unzip FILE"),
    (b"\x89HDF", "is an HDF5 file", _EXPORT),
    (b"ARROW1", "is an Arrow file", _EXPORT),
    (b"PAR1", "is a Parquet file", _EXPORT),
    (b"{", "is a result that boundby saved, not a report", "Give the report that it was made from."),
    (b"<!DOCTYPE", "is a web page: the download did not give the file itself", "Download the file again."),
    (b"<html", "is a web page: the download did not give the file itself", "Download the file again."),
    (b"\x7fELF", "is a program", "Capture a report of it first: nsys profile --trace=cuda,nvtx,osrt FILE"),
)


def _recognise(header: bytes) -> tuple[str, str]:
    """What the file is, as the end of a sentence that begins with its name, and the next step (FILE: its path)."""
    if not header.strip(b"\0"):
        return "holds nothing but zeros: the copy did not finish", "Copy it again."
    if b"Nsight Systems Stream" in header:
        return "is a raw capture (.qdstrm), not a report yet", "Make a report of it: QdstrmImporter --input-file FILE"
    plain = header.lstrip()
    for start, what, next_step in _KINDS:
        if plain.lower().startswith(start.lower()) if start.startswith(b"<") else plain.startswith(start):
            return what, next_step
    return "is neither an SQLite database nor a report that boundby knows", _READS


def no_report(path: Path, header: bytes) -> InputError:
    """The error for a file that no reader takes."""
    what, next_step = _recognise(header)
    return InputError(f"{path} {what}.", next_step.replace("FILE", shlex.quote(str(path))))


def export_again(path: Path) -> str:
    """The next step where the export is at fault. nsys overwrites no file unless it is told to."""
    report = shlex.quote(path.with_suffix(".nsys-rep").name)
    return f"Export it again (nsys export --type sqlite --force-overwrite true {report}), or give {report} itself."


def first_bytes(path: Path, count: int = 100) -> bytes:
    """The begin of an ordinary file that is not empty. Raises InputError with the reason and the next step."""
    try:
        status = path.stat()
    except ValueError:  # a NUL in the name
        raise InputError(f"{str(path)!r} is not a file name.", "Check the path.") from None
    except FileNotFoundError:
        link = f" (a link to {path.readlink()})" if path.is_symlink() else ""
        raise InputError(f"{path}{link} does not exist.", "Check the path.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).", "Check the path and its permissions.") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a folder.", "Name a report in it: a .nsys-rep file or its .sqlite export.")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            f"{path} is not a regular file: a report cannot be read from a pipe or a device.",
            "Write it to a file first, and name that.",
        )
    if status.st_size == 0:
        kind = input_kind(path)
        if kind is not None and not kind.is_nsys:
            raise InputError(f"{path} is empty: the profiler or the copy did not finish.", PROFILE_AGAIN)
        raise InputError(f"{path} is empty: the export or the copy did not finish.", export_again(path))
    try:
        return door.first_of(path, count)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}).", f"You need read permission: chmod +r {shlex.quote(str(path))}"
        ) from None
