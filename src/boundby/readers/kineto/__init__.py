"""Traces of PyTorch's profiler: Kineto's JSON, plain or compressed, of NVIDIA's and AMD's devices."""

from __future__ import annotations

import zlib
from pathlib import Path

from boundby.model import door
from boundby.model.late import expression
from boundby.model.scale import PIECE_BYTES

GZIP = b"\x1f\x8b"
GZIP_WINDOW = 16 + zlib.MAX_WBITS  # gzip's header and the largest window
# How a report of boundby begins, which is JSON, too; and what stands early in a trace and never in a report.
_REPORT = expression(rb'^\s*\[?\s*\{\s*"(?:format_version|boundby|comparison)')
_TRACE = expression(rb'"(?:traceEvents|schemaVersion|deviceProperties|baseTimeNanoseconds|displayTimeUnit|ph)"\s*:')


def sniff(header: bytes) -> bool:
    """True for JSON, plain or compressed: what is in it is told when it is read."""
    if header.startswith(GZIP):
        try:
            header = zlib.decompressobj(GZIP_WINDOW).decompress(header)
        except zlib.error:
            return False
    header = header.removeprefix(b"\xef\xbb\xbf").lstrip()
    return header[:1] in (b"{", b"[") and not _REPORT.match(header)


def holds_trace(path: Path) -> bool:
    """Whether a plain file of JSON is a trace, and no report of boundby. Raises OSError."""
    early = door.first_of(path, PIECE_BYTES)
    return bool(_TRACE.search(early)) and not _REPORT.match(early.removeprefix(b"\xef\xbb\xbf"))
