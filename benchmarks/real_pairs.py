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
from boundby.replay.questions import Answer

PAIRS = Path(__file__).with_suffix(".json")
#: A prediction this near is a hit; and so is a range that holds the measured window, if it is no wider than this.
NEAR, WIDEST = 0.10, 0.25
#: Two runs of one program differ by as much of their window.
NOISE = 0.018


@dataclass(frozen=True)
class Pair:
    """Names of two reports in a folder, and what changed between them."""

    before: str
    after: str
    scenario: str
    what: str
    findings: tuple[str, ...] = ()  # rules whose advice the change follows; none: no finding promised a number for it


@dataclass(frozen=True)
class Outcome:
    """A prediction and what it is held against, of the device with the longest window."""

    pair: Pair
    answer: Answer
    measured_ns: int
    promised_ns: tuple[int, int] | None = None  # what the findings said that the change would save, together

    @property
    def saved_ns(self) -> int:
        return self.answer.baseline_ns - self.measured_ns

    @property
    def beyond(self) -> float:
        """By how much of the window the measured saving lies outside of what was promised; 0: inside."""
        low, high = self.promised_ns or (0, 0)
        return max(low - self.saved_ns, self.saved_ns - high, 0) / self.answer.baseline_ns

    @property
    def error(self) -> float:
        return self.answer.predicted_ns / self.measured_ns - 1

    @property
    def width(self) -> float:
        low_ns, high_ns = self.answer.ends_ns
        return (high_ns - low_ns) / self.measured_ns

    @property
    def is_inside(self) -> bool:
        low_ns, high_ns = self.answer.ends_ns
        return low_ns <= self.measured_ns <= high_ns

    @property
    def verdict(self) -> str:
        if abs(self.error) <= NEAR or (self.is_inside and self.width <= WIDEST):
            return "hit"
        return "inside a wide range" if self.is_inside else "miss"


def read_pairs(file: Path = PAIRS) -> list[Pair]:
    """The pairs of a file."""
    return [Pair(**{**item, "findings": tuple(item.get("findings", ()))}) for item in json.loads(file.read_text())]


def look(folder: Path, pairs: Sequence[Pair]) -> Iterator[Outcome]:
    """Predict every pair of which both reports are there."""
    for pair in pairs:
        before, after = (folder / f"{name}.sqlite" for name in (pair.before, pair.after))
        if before.exists() and after.exists():
            measured = max(item.high_ns - item.low_ns for item in boundby.Analysis(after).timeline.devices)
            analysis = boundby.Analysis(before)
            answer = max(analysis.predict(pair.scenario), key=lambda found: found.baseline_ns)
            yield Outcome(pair, answer, measured, _promised(analysis, pair.findings, answer.baseline_ns))


def _promised(analysis: boundby.Analysis, rules: Sequence[str], window_ns: int) -> tuple[int, int] | None:
    """The range of the best finding of each of these rules, summed; None without rules."""
    found = analysis.report.findings if rules else ()
    best = [next(item.saving_ns for item in found if item.rule == rule and item.saving_ns) for rule in rules]
    return (sum(low for low, _ in best), min(sum(high for _, high in best), window_ns)) if best else None


def promises(outcomes: Sequence[Outcome]) -> list[str]:
    """What findings on "before" said that the change would save, and what it did."""
    told = [outcome for outcome in outcomes if outcome.promised_ns is not None]
    inside = sum(outcome.beyond == 0 for outcome in told)
    near = sum(outcome.beyond <= NOISE for outcome in told)
    rows = [
        "| program and change | finding | would save | saved | |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for outcome in told:
        low, high = outcome.promised_ns or (0, 0)
        cells = (
            outcome.pair.what,
            " and ".join(f"`{rule}`" for rule in outcome.pair.findings),
            duration_range(low, high),
            duration(outcome.saved_ns),
            "inside" if outcome.beyond == 0 else f"outside by {percent(outcome.beyond)} of the window",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return [
        "## What findings promised",
        "",
        "The savings that findings told on the report from before, without knowing of the change, and what the change",
        "saved. Where no finding told a number for a change (kernels rewritten by hand), the pair is left out.",
        "",
        *rows,
        "",
        f"{inside} of {len(told)} inside; {near} of {len(told)} with {NOISE:.1%}".replace("%", " %")
        + " of the window, which is what two runs of one program differ by.",
        "Programs with known answers, whose first response was carried out: [first responses](first-responses.md).",
        "",
    ]


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
            duration_range(*found.ends_ns),
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
            *promises(outcomes),
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=PAIRS)
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("BOUNDBY_TRACES", "../shared/traces")))
    parser.add_argument("--write", type=Path, help="the page to write; without it, it is printed")
    given = parser.parse_args(arguments)
    pairs = read_pairs(given.pairs)
    page = document(list(look(given.folder, pairs)))
    if given.write:
        given.write.write_text(page)
    else:
        print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
