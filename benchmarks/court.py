"""Verdicts held against stated truth: what limits each program, as an expert read it from the rows.

    python -m benchmarks.court FOLDER [--only GLOB] [--screens FOLDER] [--write docs/court.md]

FOLDER holds traces and a ``truth.json``: ``{"traces": {NAME: {"bound": [..], "must": [regex], "not": [words]}}}``.
A verdict is right if it is among the acceptable ones, refused if it is ``unknown`` and that is not among them, else
wrong. ``must`` has to stand on the first screen, ``not`` must not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import boundby
from boundby.model.errors import UserError
from boundby.render import terminal
from boundby.results.report import Report

WIDTH = 100
RIGHT, REFUSED, WRONG = "right", "refused", "WRONG"


@dataclass(frozen=True)
class Truth:
    """What is true of one trace; ``bound`` empty: nothing is stated of the verdict."""

    bound: tuple[str, ...] = ()
    must: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """One trace: (bound, confidence) of its devices, else threads, and what the screen lacks or says."""

    name: str
    verdicts: tuple[tuple[str, str], ...]
    outcome: str
    lacks: tuple[str, ...]
    says: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether verdict and screen agree with the truth."""
        return self.outcome == RIGHT and not self.lacks and not self.says

    @property
    def confidences(self) -> set[str]:
        """How sure the verdicts are."""
        return {confidence for _, confidence in self.verdicts}


def truths(folder: Path) -> dict[str, Truth]:
    """The stated truth of a folder of traces, by name; empty where there is none."""
    file = folder / "truth.json"
    stated = json.loads(file.read_text())["traces"] if file.is_file() else {}
    return {
        name: Truth(*(tuple(facts.get(key, ())) for key in ("bound", "must", "not"))) for name, facts in stated.items()
    }


def screen(report: Report) -> str:
    """What a person sees first."""
    return terminal.render(report, width=WIDTH)


def verdicts_of(report: Report) -> tuple[tuple[str, str], ...]:
    """Bound and confidence of every device; of every thread where nothing ran on a device."""
    judged = [item.verdict for item in report.devices] or [item.verdict for item in report.threads]
    return tuple((verdict.bound, verdict.confidence) for verdict in judged)


def judge(name: str, report: Report, truth: Truth) -> Judged:
    """One report against the truth. Sentences may be broken over lines, so the screen is held as one line."""
    shown = " ".join(screen(report).split())
    verdicts = verdicts_of(report)
    bounds = {bound for bound, _ in verdicts} or {"unknown"}
    wrong = bounds - set(truth.bound) - {"unknown"} if truth.bound else set()
    refused = truth.bound and not wrong and not bounds <= set(truth.bound)
    return Judged(
        name,
        verdicts,
        WRONG if wrong else REFUSED if refused else RIGHT,
        tuple(pattern for pattern in truth.must if not re.search(pattern, shown)),
        tuple(words for words in truth.forbidden if words in shown),
    )


def court(folder: Path, only: str = "*", screens: Path | None = None) -> Iterator[Judged]:
    """Every trace of a folder whose truth is stated."""
    for name, truth in sorted(truths(folder).items()):
        if not fnmatch(name, only):
            continue
        try:
            report = boundby.analyze(folder / name)
        except UserError as error:
            yield Judged(name, (), WRONG, (str(error),), ())
            continue
        if screens is not None:
            screens.mkdir(parents=True, exist_ok=True)
            (screens / f"{name.replace('/', '-')}.txt").write_text(screen(report))
        yield judge(name, report, truth)


def line(judged: Judged, truth: Truth) -> str:
    """One line a trace."""
    verdicts = ", ".join(f"{bound} {confidence}" for bound, confidence in sorted(set(judged.verdicts)))
    told = [f"{judged.outcome:8}{judged.name:45} {verdicts}"]
    if judged.outcome != RIGHT:
        told.append(f"    truth: {', '.join(truth.bound)}")
    told += [f"    lacks: {what}" for what in judged.lacks] + [f"    says: {what}" for what in judged.says]
    return "\n".join(told)


def counted(every: Sequence[Judged]) -> Mapping[str, int]:
    """How many are right, refused, wrong, wrong and sure, and not told rightly on the screen."""
    count = Counter(judged.outcome for judged in every)
    count["wrong and sure"] = sum(judged.outcome == WRONG and "high" in judged.confidences for judged in every)
    count["screens"] = sum(bool(judged.lacks or judged.says) for judged in every)
    return count


#: On the page the table stands under this line.
TABLE = "<!-- written by benchmarks.court -->"


def page(every: Sequence[Judged], stated: Mapping[str, Truth]) -> str:
    """The table of docs/court.md: every trace, misses included."""
    rows = [
        f"| {judged.name} | {', '.join(stated[judged.name].bound) or '(any)'} | "
        f"{', '.join(f'{bound} ({sure})' for bound, sure in sorted(set(judged.verdicts)))} | {judged.outcome} |"
        for judged in every
    ]
    return "\n".join([TABLE, "", "| trace | true | boundby says | |", "| --- | --- | --- | --- |", *rows, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*", help="names of traces, as a glob")
    parser.add_argument("--screens", type=Path, help="write each first screen into this folder")
    parser.add_argument("--write", type=Path, help="write the table into this page")
    chosen = parser.parse_args(arguments)
    stated, every = truths(chosen.folder), []
    for judged in court(chosen.folder, chosen.only, chosen.screens):
        every.append(judged)
        print(line(judged, stated[judged.name]), flush=True)
    count = counted(every)
    if chosen.write is not None:
        chosen.write.write_text(chosen.write.read_text().partition(TABLE)[0] + page(every, stated))
    print(
        f"{len(every)} traces: {count[RIGHT]} right, {count[REFUSED]} refused, {count[WRONG]} wrong "
        f"({count['wrong and sure']} of them sure); {count['screens']} screens lack or say what they should not"
    )
    return 0 if all(judged.is_good for judged in every) else 1


if __name__ == "__main__":
    sys.exit(main())
