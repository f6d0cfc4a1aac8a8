"""Simulated jobs of many ranks with known answers: who is named, who is wrongly accused, how far savings are off.

python -m benchmarks.jobs --jobs 1000 --healthy 300
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import numpy as np

from boundby.jobs.diagnosis import Diagnosis, diagnose
from boundby.jobs.meetings import align
from boundby.jobs.simulated import summaries
from boundby.simulate.jobs import CAUSE_OF, Job, Plant, draw, length_ns, simulate


def named(diagnosis: Diagnosis) -> set[tuple[tuple[int, ...], str]]:
    """Who is accused of what; nobody in particular: ()."""
    found = {(one.ranks, one.cause.key) for one in diagnosis.culprits}
    return found | {((), one.cause.key) for one in diagnosis.chance}


def planted(job: Job, plant: Plant) -> tuple[tuple[int, ...], str]:
    """Who should be accused of what."""
    cause = CAUSE_OF[plant.kind]
    if plant.where is None:
        return (), cause
    if plant.kind == "uneven_stage":
        return tuple(rank for rank in range(job.ranks) if job.place(rank)[0] == plant.where), cause
    if plant.kind == "slow_link":
        return job.group(job.link, plant.where), cause
    return (plant.where,), cause


def saved_ns(diagnosis: Diagnosis) -> int:
    """What the job would gain without all that is named."""
    return sum(one.saving_ns for one in (*diagnosis.culprits, *diagnosis.chance))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--large", type=int, default=20, help="one in so many jobs has 128 ranks or more")
    chosen = parser.parse_args()
    begun, right, errors, accused, kinds, wrong = time.time(), 0, [], 0, Counter[str](), Counter[str]()
    ranks = []
    for number in range(chosen.first, chosen.first + chosen.jobs):
        if ranks and len(ranks) % 50 == 0:
            print(f"after {len(ranks)}: {right} right, {accused} accused, {np.percentile(errors, (50, 95)).round(4)}")
            sys.stdout.flush()
        job = draw(number, 1 + (number % 3 == 0), large=number % chosen.large == chosen.large - 1)
        runs = simulate(job)
        made = summaries(job, runs)
        diagnosis, _ = diagnose(made, align(made))
        expected, found = {planted(job, plant) for plant in job.plants}, named(diagnosis)
        ranks.append(job.ranks)
        kinds.update(plant.kind for plant in job.plants)
        accused += bool(found - expected)
        if found == expected:
            right += 1
            true = length_ns(simulate(job.without(*job.plants)))
            errors.append(abs(diagnosis.length_ns - saved_ns(diagnosis) - true) / true)
        else:
            wrong.update(plant.kind for plant in job.plants)
            shape = f"{job.data}x{job.tensor}x{job.pipeline}, {job.steps} steps"
            print(f"{number}: {shape}: {job.plants}; found {sorted(found)}, expected {sorted(expected)}")
            sys.stdout.flush()
    for number in range(chosen.first, chosen.first + chosen.healthy):
        job = draw(10_000_000 + number, 0, large=number % chosen.large == chosen.large - 1)
        made = summaries(job, simulate(job))
        diagnosis, _ = diagnose(made, align(made))
        if named(diagnosis):
            accused += 1
            print(f"healthy {number}: {job.data}x{job.tensor}x{job.pipeline} {sorted(named(diagnosis))}")
    median, p95 = (float(value) for value in np.percentile(errors, (50, 95))) if errors else (0.0, 0.0)
    print(f"{chosen.jobs} jobs of {min(ranks)} to {max(ranks)} ranks: all named rightly {right / chosen.jobs:.1%}")
    print(f"somebody wrongly accused in {accused} of {chosen.jobs + chosen.healthy}")
    print(f"length without what is named off by {median:.2%} (median), {p95:.2%} (p95); {time.time() - begun:.0f} s")
    print("planted", dict(kinds), "wrong", dict(wrong))
    return 0


if __name__ == "__main__":
    sys.exit(main())
