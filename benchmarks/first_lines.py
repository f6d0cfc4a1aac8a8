"""What the first response of each report is: ``python -m benchmarks.first_lines REPORT|FOLDER ...``.

Counts how many have code or an exact command, how many name a line of the user's own program where stacks or Python
frames are on record, and which are observations or tautologies. Exit status 1 where the counts miss the marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from boundby import api
from boundby.attribution.timeline import Timeline
from boundby.document import sentences, view
from boundby.evidence.code_lines import own_line
from boundby.evidence.operators import has_sources, stack_of_call
from boundby.model.errors import UserError
from boundby.results.report import FirstResponse, Report

SUFFIXES = (".sqlite", ".json", ".gz")
#: Of all firsts so many have code or a command.
MOSTLY_CODE = 0.8
_EMPTY = ("make the costliest kernel faster", "a phase without gpu work", "the gpu idles", "the host sleeps")
#: What the user did not write.
_OTHERS = ("torch/", "boundby/", "site-packages/", "dist-packages/", "/nsight", "libtorch", "libcuda")


class Counted(Struct, frozen=True):
    """One report's first response."""

    name: str
    has_code: bool
    where: str
    could_have_where: bool
    is_empty: bool  # an observation or a tautology in place of what to do
    is_foreign: bool  # its line is not the user's

    @property
    def text(self) -> str:
        """One line."""
        flags = ("code" if self.has_code else "no code", "EMPTY" * self.is_empty, "FOREIGN" * self.is_foreign)
        place = self.where or ("no line, though stacks of other calls hold own code" if self.could_have_where else "")
        return f"{self.name:45} {' '.join(filter(None, flags)):20} {place}"


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


def holds_own_lines(timeline: Timeline) -> bool:
    """Whether any call's stack holds code of the user's own, be it of a call that costs nothing."""
    return has_sources(timeline.trace) and any(
        own_line(stack_of_call(timeline, call)) for call in range(len(timeline.calls))
    )


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
    return Counted(
        path.name,
        bool(one.code),
        where,
        bool(where) or holds_own_lines(analysis.timeline),
        title.startswith(_EMPTY),
        one.where is not None and any(part in one.where.file for part in _OTHERS),
    )


def main(paths: Sequence[str]) -> int:
    """Print a line a report, and the counts."""
    found = [one for path in reports(paths) if (one := counted(path)) is not None]
    print("\n".join(one.text for one in found))
    with_code, lines = sum(one.has_code for one in found), sum(bool(one.where) for one in found)
    could = sum(one.could_have_where for one in found)
    print(f"{len(found)} firsts: {with_code} with code or a command")
    print(f"{lines} with a line, of {could} whose stacks hold the user's own code at any call")
    wrong = sum(one.is_empty or one.is_foreign for one in found)
    print(f"{wrong} observations, tautologies or lines of others")
    return int(wrong > 0 or with_code < MOSTLY_CODE * len(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
