"""The experiment on a virtual clock: 1,000 pipelines at random, with the truth at hand.

    python -m benchmarks.prove_virtual [--pipelines 1000] [--seed 0]

Every pace has 10 % jitter and another 1 % of error. Printed beside: what the slope of the part alone says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.simulated import virtual_clock
from benchmarks.simulated.virtual_clock import Float, Pipelines
from boundby.experiment import cycles, planning
from boundby.experiment.cycles import DelayedPace
from boundby.experiment.planning import PARTS, Condition

SHARES = (0.125, 0.25)
PACE_ERROR = 0.01
FAR = 0.25


@dataclass(frozen=True)
class Score:
    """Errors of all parts of all pipelines."""

    fitted: Float
    slopes: Float
    covered: float
    width: float

    def told(self) -> str:
        """One line a way."""
        rows = [
            f"{name:<37} mean error {np.mean(errors):.3f}, off by more than {FAR}: {100 * np.mean(errors > FAR):.1f} %"
            for name, errors in (("fit", self.fitted), ("cost of a delay, taken for the worth", self.slopes))
        ]
        return "\n".join([*rows, f"intervals hold the truth: {100 * self.covered:.1f} %, mean width {self.width:.2f}"])


def measured(pipelines: Pipelines, seed: int) -> tuple[Float, list[tuple[Condition, Float]]]:
    """Paces without a delay, and with each condition."""
    random = np.random.default_rng(seed)
    base = virtual_clock.pace(pipelines, {}, seed)

    def noisy(paces: Float) -> Float:
        return paces * random.normal(1.0, PACE_ERROR, len(paces))

    found = []
    for number, condition in enumerate(planning.conditions(PARTS, SHARES)):
        delay = dict.fromkeys(condition.delayed, condition.share * base)
        found.append((condition, noisy(virtual_clock.pace(pipelines, delay, seed + 1 + number))))
    return noisy(base), found


def score(number: int, seed: int) -> Score:
    """Fit them all."""
    pipelines = virtual_clock.draw(number, seed)
    base, paces = measured(pipelines, seed + 1)
    random = np.random.default_rng(seed + 2)
    busy = {part: time * random.normal(1.0, PACE_ERROR, number) for part, time in pipelines.per_step.items()}
    reach = {part: np.minimum(SHARES[-1] * base, 0.95 * time) for part, time in pipelines.per_step.items()}
    truth = virtual_clock.truth(pipelines, reach)
    fitted, slopes, covered, widths = [], [], [], []
    for at in range(number):
        error = PACE_ERROR * base[at]
        list_of = [
            DelayedPace(dict.fromkeys(one.delayed, one.share * base[at]), pace[at] - base[at], error)
            for one, pace in paces
        ]
        result = cycles.fit(
            base[at],
            PACE_ERROR * base[at],
            list_of,
            {part: float(ns[at]) for part, ns in busy.items()},
            SHARES[-1] * base[at],
        )
        for part in PARTS:
            worth = result.worth[part]
            true = truth[part][at]
            slope = next(
                (pace[at] - base[at]) / (one.share * base[at])
                for one, pace in reversed(paces)
                if one.delayed == (part,)
            )
            fitted.append(abs(worth.value - true))
            slopes.append(abs(slope - true))
            covered.append(worth.low - 1e-9 <= np.clip(true, 0, 1) <= worth.high + 1e-9)
            widths.append(worth.high - worth.low)
    return Score(np.array(fitted), np.array(slopes), float(np.mean(covered)), float(np.mean(widths)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    print(score(options.pipelines, options.seed).told())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
