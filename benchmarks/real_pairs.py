"""Real programs before and after a change: what the replay predicts from "before" alone, and what "after" measured.

    BOUNDBY_TRACES=FOLDER python -m benchmarks.real_pairs [--pairs FILE] [--write docs/real-pairs.md]

A pair is two reports of one program and the change as a scenario of `boundby what-if`; where only kernels or copies
changed, their factor is the ratio of their summed times. A prediction hits if the measured window lies within 10 % of
it, or in a range no wider than 25 % of the measured window; it misses where the range does not hold it either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import boundby
from boundby.model.units import duration, duration_range, percent
from boundby.replay import Answer

PAIRS = Path(__file__).with_suffix(".json")
#: A prediction this near is a hit; and so is a range that holds the measured window, if it is no wider than this.
NEAR, WIDEST = 0.10, 0.25


@dataclass(frozen=True)
class Pair:
    """Names of two reports in a folder, and what changed between them."""

    before: str
    after: str
    scenario: str
    what: str


@dataclass(frozen=True)
class Outcome:
    """A prediction and what it is held against, of the device with the longest window."""

    pair: Pair
    answer: Answer
    measured_ns: int

    @property
    def error(self) -> float:
        return self.answer.predicted_ns / self.measured_ns - 1

    @property
    def width(self) -> float:
        return (self.answer.high_ns - self.answer.low_ns) / self.measured_ns

    @property
    def is_inside(self) -> bool:
        return self.answer.low_ns <= self.measured_ns <= self.answer.high_ns

    @property
    def verdict(self) -> str:
        if abs(self.error) <= NEAR or (self.is_inside and self.width <= WIDEST):
            return "hit"
        return "inside a wide range" if self.is_inside else "miss"


def look(folder: Path, pairs: Sequence[Pair]) -> Iterator[Outcome]:
    """Predict every pair of which both reports are there."""
    for pair in pairs:
        before, after = (folder / f"{name}.sqlite" for name in (pair.before, pair.after))
        if before.exists() and after.exists():
            measured = max(item.high_ns - item.low_ns for item in boundby.Analysis(after).timeline.devices)
            answers = boundby.Analysis(before).predict(pair.scenario)
            yield Outcome(pair, max(answers, key=lambda found: found.baseline_ns), measured)


def document(outcomes: Sequence[Outcome]) -> str:
    """The page in Markdown."""
    hits = sum(outcome.verdict == "hit" for outcome in outcomes)
    wrong = sum(outcome.verdict == "miss" and outcome.answer.confidence == "high" for outcome in outcomes)
    rows = [
        "| program and change | scenario | before | predicted | between | confidence | measured | error | |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- |",
    ]
    for outcome in outcomes:
        found = outcome.answer
        cells = (
            outcome.pair.what,
            f"`{outcome.pair.scenario}`",
            duration(found.baseline_ns),
            duration(found.predicted_ns),
            duration_range(found.low_ns, found.high_ns),
            found.confidence,
            duration(outcome.measured_ns),
            f"{outcome.error:+.1%}".replace("%", " %"),
            outcome.verdict,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        (
            "# Real pairs",
            "",
            "Each row is one program before and after a change. The replay makes the change in the report from before;",
            "it has not seen the one from after.",
            "Written by `python -m benchmarks.real_pairs --write docs/real-pairs.md`; the pairs are in",
            "`benchmarks/real_pairs.json`.",
            "",
            *rows,
            "",
            f"{hits} of {len(outcomes)} hit: within {percent(NEAR)} of the measured window, or in a range no wider than"
            f" {percent(WIDEST)}. Wrong at high confidence: {wrong}.",
            "",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=PAIRS)
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("BOUNDBY_TRACES", "../shared/traces")))
    parser.add_argument("--write", type=Path, help="the page to write; without it, it is printed")
    given = parser.parse_args(arguments)
    pairs = [Pair(**item) for item in json.loads(given.pairs.read_text())]
    page = document(list(look(given.folder, pairs)))
    if given.write:
        given.write.write_text(page)
    else:
        print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
