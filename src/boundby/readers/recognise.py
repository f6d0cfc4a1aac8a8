"""What a file that is no SQLite database is, from its first bytes, and what to do about it."""

from __future__ import annotations

_READS = "boundby reads .nsys-rep and .qdrep reports and the .sqlite files that nsys exports from them."
_EXPORT = "Give the report it was made from, or export that as SQLite: nsys export --type sqlite REPORT.nsys-rep"

# (first bytes, what the file is, next step)
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"NVIDIA Tegra Profiler Report", "is an nsys report, not an export", "Rename it so that it ends in .nsys-rep."),
    (b"version https://git-lfs", "is a Git LFS pointer: the file itself was not fetched", "Fetch it: git lfs pull"),
    (b"\x1f\x8b", "is compressed (gzip)", "Unpack it first: gzip -dc FILE > UNPACKED"),
    (b"\x28\xb5\x2f\xfd", "is compressed (zstd)", "Unpack it first: zstd -dc FILE > UNPACKED"),
    (b"\xfd7zXZ", "is compressed (xz)", "Unpack it first: xz -dc FILE > UNPACKED"),
    (b"BZh", "is compressed (bzip2)", "Unpack it first: bzip2 -dc FILE > UNPACKED"),
    (b"PK\x03\x04", "is a zip archive", "Unpack it first: unzip FILE"),
    (b"\x89HDF", "is an HDF5 file", _EXPORT),
    (b"ARROW1", "is an Arrow file", _EXPORT),
    (b"PAR1", "is a Parquet file", _EXPORT),
    (b"{", "is a JSON file", _EXPORT),
    (b"[", "is a JSON file", _EXPORT),
    (b"<!DOCTYPE", "is a web page: the download did not give the file itself", "Download the file again."),
    (b"<html", "is a web page: the download did not give the file itself", "Download the file again."),
    (b"\x7fELF", "is a program", "Capture a report of it first: nsys profile --trace=cuda,nvtx,osrt FILE"),
)


def recognise(header: bytes) -> tuple[str, str]:
    """What the file is, as the end of a sentence that begins with its name, and the next step (FILE: its path)."""
    if not header.strip(b"\0"):
        return "holds nothing but zeros: the copy did not finish", "Copy it again."
    if b"Nsight Systems Stream" in header:
        return "is a raw capture (.qdstrm), not a report yet", "Make one of it: QdstrmImporter --input-file FILE"
    plain = header.lstrip()
    for start, what, next_step in _KINDS:
        if plain.lower().startswith(start.lower()) if start.startswith(b"<") else plain.startswith(start):
            return what, next_step
    return "is neither an SQLite database nor a report that boundby knows", _READS
