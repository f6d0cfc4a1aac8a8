"""What the first response of each report is: ``python -m benchmarks.first_lines REPORT|FOLDER ...``.

Counts how many have code or an exact command, how many name a line of the program where stacks or Python frames are on
record, and which are observations or tautologies. A line can be told where a stack of a call that gives the GPU work or
waits for it holds one: nsys may record stacks of allocations alone, and no launch, copy or fill is made from their
lines. Where all of a stack is a server's or a library's own code, its line is counted apart: no other is on record.
Exit status 1 where the counts miss the marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from boundby import api
from boundby.attribution.timeline import Timeline
from boundby.document import sentences, view
from boundby.evidence.code_lines import own_line
from boundby.evidence.operators import has_sources, stacks_of_calls
from boundby.model.errors import UserError
from boundby.results.report import FirstResponse, Report
from boundby.trace.vocabulary.cuda import CallClass, classify_call
from boundby.trace.vocabulary.python import library_of

SUFFIXES = (".sqlite", ".json", ".gz")
#: Of all firsts so many have code or a command.
MOSTLY_CODE = 0.8
_EMPTY = ("make the costliest kernel faster", "a phase without gpu work", "the gpu idles", "the host sleeps")
#: Calls that give the GPU work, or wait for it.
_WORK = (CallClass.LAUNCH, CallClass.SYNC, CallClass.BLOCKING_COPY)
#: What the user did not write.
_OTHERS = ("torch/", "boundby/", "site-packages/", "dist-packages/", "/nsight", "libtorch", "libcuda")


class Counted(Struct, frozen=True):
    """One report's first response."""

    name: str
    has_code: bool
    where: str
    is_library: bool  # its line is a server's or a library's
    could_have_where: bool
    has_other_stacks: bool  # stacks hold own code at calls of other kinds alone
    is_empty: bool  # an observation or a tautology in place of what to do
    is_foreign: bool  # its line is not the user's

    @property
    def text(self) -> str:
        """One line."""
        flags = ("code" if self.has_code else "no code", "EMPTY" * self.is_empty, "FOREIGN" * self.is_foreign)
        lacking = (
            "no line, though stacks hold own code" * self.could_have_where
            or "no line: stacks of allocations and set-up alone hold own code" * self.has_other_stacks
        )
        return f"{self.name:45} {' '.join(filter(None, flags)):20} {self.where or lacking}"


def reports(paths: Sequence[str]) -> Iterator[Path]:
    """Reports by name, those of folders too."""
    for path in map(Path, paths):
        inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES) if path.is_dir() else [path]
        yield from (one for one in inside if one.is_file() and one.name not in ("truth.json", "expected.json"))


def first_of(report: Report) -> FirstResponse | None:
    """The first response that the screen shows."""
    for account in view.accounts(report):
        return account.responses[0] if account.responses else None
    return None


def kinds_with_own_lines(timeline: Timeline) -> set[bool]:
    """Of which calls stacks hold the program's own code: True: of those that give the GPU work or wait for it, False:
    of others."""
    found: set[bool] = set()
    if not has_sources(timeline.trace):
        return found
    of_call, stacks = stacks_of_calls(timeline, np.arange(len(timeline.calls)))
    is_own = [own_line(stack) is not None for stack in stacks]
    for call, number in enumerate(of_call):
        if is_own[number]:
            found.add(classify_call(timeline.trace.names[int(timeline.calls.name[call])]) in _WORK)
    return found


def counted(path: Path) -> Counted | None:
    """One report; None where it has no first response, or cannot be read."""
    try:
        analysis = api.examine(path)
    except UserError:
        return None
    one = first_of(analysis.report)
    if one is None:
        return None
    title, where = one.title.lower(), "" if one.where is None else sentences.place(one.where)
    kinds = kinds_with_own_lines(analysis.timeline)
    return Counted(
        path.name,
        bool(one.code),
        where,
        one.where is not None and one.where.line is not None and bool(library_of(one.where.file)),
        bool(where) or True in kinds,
        not where and kinds == {False},
        title.startswith(_EMPTY),
        one.where is not None and any(part in one.where.file for part in _OTHERS),
    )


def main(paths: Sequence[str]) -> int:
    """Print a line a report, and the counts."""
    found = [one for path in reports(paths) if (one := counted(path)) is not None]
    print("\n".join(one.text for one in found))
    with_code, lines = sum(one.has_code for one in found), sum(bool(one.where) for one in found)
    could, of_libraries = sum(one.could_have_where for one in found), sum(one.is_library for one in found)
    print(f"{len(found)} firsts: {with_code} with code or a command")
    print(f"{lines} with a line, of {could} whose stacks hold one at a call that gives the GPU work or waits for it")
    print(f"{of_libraries} of these lines are a server's or a library's: its stacks hold no other code")
    print(f"{sum(one.has_other_stacks for one in found)} without: own code only in stacks of allocations and set-up")
    wrong = sum(one.is_empty or one.is_foreign for one in found)
    print(f"{wrong} observations, tautologies or lines of others")
    return int(wrong > 0 or with_code < MOSTLY_CODE * len(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
