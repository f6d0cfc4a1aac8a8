"""Savings of findings on waits against the truth, on random programs.

``python -m tests.rules.builtin.random_truth 160`` prints the figures that the documentation states.
Findings that stand for all waits of their region are compared with the same program run again without them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from benchmarks.simulated.counterfactual import CostRemoval
from benchmarks.simulated.generate import generate

from boundby.claims.findings import find
from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.results.report import Finding
from boundby.rules.builtin import builtin
from tests.rules.builtin.harness import NO_LIMITS, Source, context_of

# The 95th percentile of predictions' error, of the true time (benchmarks.truth).
STATED_ERROR = 0.048


@dataclass(frozen=True)
class Comparison:
    """One finding: what it says, and what is true. Times in nanoseconds."""

    seed: int
    rule: str
    low_ns: int
    high_ns: int
    true_ns: int
    window_ns: int

    @property
    def holds(self) -> bool:
        """The truth lies in the range, widened by the stated error of the time left."""
        error = STATED_ERROR * (self.window_ns - self.true_ns)
        return self.low_ns - error <= self.true_ns <= self.high_ns + error

    @property
    def error_fraction(self) -> float:
        """Of the middle of the range, as a fraction of the window."""
        return abs((self.low_ns + self.high_ns) / 2 - self.true_ns) / self.window_ns


def compare(seeds: Iterable[int]) -> tuple[list[Comparison], list[str]]:
    """All comparisons, and findings on programs that are healthy."""
    rules = [rule for rule in builtin() if rule.group == "sync" and rule.id != "sync-polling"]
    found: list[Comparison] = []
    accused: list[str] = []
    for seed in seeds:
        made = generate(seed)
        context = context_of(Source(made.program, made.machine, seed=made.seed))
        findings = find(context, rules, limits=NO_LIMITS).found
        accused += [f"{seed} {made.label}: {item.title}" for item in findings if made.healthy]
        if len(made.truths.devices()) > 1:
            continue
        for item in findings:
            if item.saving_ns is None or item.region is None or not _is_whole(context, item):
                continue
            window = made.truths.window()
            true = window - made.truths.window(CostRemoval.WAITS, region=item.region)
            found.append(Comparison(seed, item.rule, *item.saving_ns, true, window))
    return found, accused


def _is_whole(context: RuleContext, finding: Finding) -> bool:
    """Whether a finding stands for all waits of its region, so that it can be compared with the region's."""
    waits = _waits.waits_of(context)
    tree = context.tree
    inside = np.zeros(len(tree), bool)
    for region in range(len(tree)):
        if tree.path(region) == finding.region:
            inside |= context.subtree(region)
    return len(np.unique(waits.incident[inside[waits.region]])) == finding.instances


def main() -> None:
    """Print the figures that docs/findings.md states."""
    found, accused = compare(range(int(sys.argv[1]) if len(sys.argv) > 1 else 160))
    errors = [item.error_fraction for item in found]
    print(f"{len(found)} findings, {sum(item.holds for item in found)} hold the truth")
    print(f"error of the window: median {np.median(errors):.4f}, 95th percentile {np.quantile(errors, 0.95):.4f}")
    print(f"{len(accused)} findings on healthy programs")
    for item in found:
        if not item.holds:
            print(item)


if __name__ == "__main__":
    main()
