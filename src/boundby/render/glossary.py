"""Words besides the causes that a reader may not know: what they mean, and which of them a text uses."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
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
        "boundby (found)",
        r"\[boundby \(found\)\]",
        "regions that boundby found by what repeats in the launches: the program does not name them",
    ),
)


def used(text: str) -> list[Term]:
    """The terms that occur in a text."""
    return [term for term in TERMS if re.search(term.pattern, text)]
