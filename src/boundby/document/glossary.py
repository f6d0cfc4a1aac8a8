"""Words that a reader may not know: the causes that an account shows, and those that a text uses."""

from __future__ import annotations

import re

from msgspec import Struct

from boundby.document import sentences
from boundby.document.blocks import FOLD_BELOW
from boundby.model.causes import CAUSE_INFO, HOST_MEANING
from boundby.results.report import Report


class Term(Struct, frozen=True):
    """``pattern`` finds the word in a text, in any of its forms."""

    word: str
    pattern: str
    meaning: str


TERMS = (
    Term("replayed", r"\breplay", "calls and GPU work run again as they depend on each other, with one cost removed"),
    Term("projected", r"\bprojected\b", "of a range: from the first start to the last end of the GPU work it launched"),
    Term("pageable", r"\bpageable\b", "ordinary host memory: copied through a buffer while the host waits"),
    Term("pinned", r"\bpinned\b", "host memory that stays in place: the GPU copies it by itself, beside other work"),
    Term("poll", r"\bpoll\b", "a system call that waits for another process, a file or a socket to have something"),
    Term("(no range)", r"\(no range\)", "time that no NVTX range owns"),
    Term(
        "(found)",
        r"\(found\)",
        "regions that boundby found by what repeats in the launches: the program does not name them",
    ),
)


def words(report: Report, text: str) -> list[tuple[str, str, str]]:
    """(letter, word, meaning) of the causes that show in any account of the report, and of the terms in a text."""
    accounts = [*(device.time for device in report.devices), *(thread.time for thread in report.threads)]
    meanings = sentences.meanings(report.devices) if report.devices else HOST_MEANING
    causes = [
        (cause.letter, cause.label, meanings.get(cause.key, ""))
        for cause in CAUSE_INFO.values()
        if any(time.get(cause.key, 0) > FOLD_BELOW * sum(time.values()) for time in accounts)
    ]
    terms = [(" ", term.word, term.meaning) for term in TERMS if re.search(term.pattern, text)]
    return [entry for entry in (*causes, *terms) if entry[2]]
