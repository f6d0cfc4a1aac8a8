"""How a program ended: its last words, held against what is on record."""

from __future__ import annotations

from boundby.trace.facts import ProgramEnd
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.last_words import last_words


def program_end(trace: Trace) -> ProgramEnd | None:
    """How it ended, if it failed or was interrupted; None: nothing says so. The first process speaks for what it
    started: these write to its streams."""
    errors = "".join(one.text for one in trace.written if one.is_error)
    output = "".join(one.text for one in trace.written if not one.is_error)
    said = trace.last_words or last_words(errors, output, trace.exit_code)
    if said is None:
        return None
    return ProgramEnd(
        ended=said.ended,
        words=said.words,
        where=said.where,
        after_ns=trace.span_ns[1] - trace.span_ns[0],
        before_gpu_work=not len(trace.operations),
        exit_code=trace.exit_code,
        lines=said.lines,
    )
