"""What the program and the profiler wrote while it was recorded: ProcessStreams and DIAGNOSTIC_EVENT."""

from __future__ import annotations

from boundby.readers.nsys.database import Database, Reads, as_text
from boundby.trace.facts import Diagnostic, Written

DECLARED = (
    Reads("ProcessStreams", ("globalPid", "filenameId", "contentId"), "the program's last words"),
    Reads("DIAGNOSTIC_EVENT", ("severity", "text"), "what the profiler complained about"),
)

# The end of a stream tells how a program ended; a traceback and what its launcher adds take a few thousand characters.
_TAIL_CHARACTERS = 32_768
_PID_SHIFT, _PID_MASK = 24, 0xFFFFFF
_ERRORS, _OUTPUT = "stderr", "stdout"


def read_written(database: Database) -> tuple[Written, ...]:
    """The end of what each process wrote to its standard streams, in the order of processes."""
    if not database.has("ProcessStreams", "globalPid", "filenameId", "contentId"):
        return ()
    rows = database.rows(
        f"SELECT p.globalPid, name.value, substr(content.value, -{_TAIL_CHARACTERS}) FROM ProcessStreams AS p"
        " JOIN StringIds AS name ON name.id = p.filenameId JOIN StringIds AS content ON content.id = p.contentId"
        " ORDER BY p.globalPid, p.filenameId"
    )
    written = []
    for process, name, value in rows:
        kind = next((kind for kind in (_ERRORS, _OUTPUT) if kind in (as_text(name) or "")), None)
        if kind is not None and (text := as_text(value)):
            pid = process >> _PID_SHIFT & _PID_MASK if isinstance(process, int) else 0
            written.append(Written(pid, kind == _ERRORS, text))
    return tuple(written)


def read_diagnostics(database: Database) -> tuple[Diagnostic, ...]:
    """What the profiler noted, each text once and on one line, the most severe first."""
    if not database.has("DIAGNOSTIC_EVENT", "severity", "text"):
        return ()
    rows = database.rows("SELECT DISTINCT severity, text FROM DIAGNOSTIC_EVENT ORDER BY severity DESC, text")
    return tuple(
        Diagnostic(severity, " ".join(text.split()))
        for severity, value in rows
        if isinstance(severity, int) and (text := as_text(value))
    )
