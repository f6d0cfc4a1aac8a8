"""Simulated jobs of many ranks with known answers: who is named, who is wrongly accused, how far savings are off.

python -m benchmarks.jobs --jobs 1000 --healthy 300 --log jobs.jsonl

With a log a run that was stopped goes on where it was; what it says is of all jobs in the log.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.simulated.jobs import CAUSE_OF, Job, Plant, draw, length_ns, simulate
from benchmarks.simulated.summaries import summaries
from boundby.jobs.diagnosis import Diagnosis, diagnose
from boundby.jobs.job_remedies import folded
from boundby.jobs.meetings import align


def named(diagnosis: Diagnosis) -> set[tuple[tuple[int, ...], str]]:
    """Who is accused of what; nobody in particular: ()."""
    found = {
        (ranks, one.cause.key)
        for one in diagnosis.culprits
        for ranks in ([(rank,) for rank in one.ranks] if one.kind in ("rank", "exceptions") else [one.ranks])
    }
    return found | {((), one.cause.key) for one in diagnosis.chance}


def planted(job: Job, plant: Plant) -> tuple[tuple[int, ...], str]:
    """Who should be accused of what."""
    cause = CAUSE_OF[plant.kind]
    if plant.where is None:
        return (), cause
    if plant.kind == "uneven_stage":
        return tuple(rank for rank in range(job.ranks) if job.place(rank)[0] == plant.where), cause
    if plant.kind == "slow_machine":
        return tuple(rank for rank in range(job.ranks) if job.host(rank) == plant.where), cause
    if plant.kind == "slow_link":
        return job.group(job.link, plant.where), cause
    return (plant.where,), cause


def saved_ns(diagnosis: Diagnosis) -> int:
    """What the job would gain without all that is named."""
    return sum(one.saving_ns for one in diagnosis.culprits) + sum(one.saving_ns for one in diagnosis.chance)


def outcome(seed: int, large: int, *, is_healthy: bool) -> dict[str, Any]:
    """What became of one job: of none, one or two plants, by its seed."""
    plants = 0 if is_healthy else 1 + (seed % 3 == 0)
    job = draw(seed, plants, large=seed % large == large - 1)
    made = summaries(job, simulate(job))
    aligned = align(made)
    diagnosis, seen = diagnose(made, aligned)
    diagnosis = replace(diagnosis, culprits=tuple(folded(diagnosis.culprits, seen)))
    balance = next(one.length_ns for one in diagnosis.what_if if one.scenario == "balance")
    expected, found = {planted(job, plant) for plant in job.plants}, named(diagnosis)
    told = {
        "seed": seed,
        "ranks": job.ranks,
        "shape": f"{job.data}x{job.tensor}x{job.pipeline}, {job.steps} steps",
        "with": [name for name, is_so in job.features.items() if is_so],
        "plants": [plant.kind for plant in job.plants],
        "right": found == expected,
        "accused": bool(found - expected),
        "lawless": balance > diagnosis.length_ns or any(one.saving_ns <= 0 for one in diagnosis.culprits),
        "found": repr(sorted(found)),
        "expected": repr(sorted(expected)),
    }
    if plants and found == expected:
        true, whole = length_ns(simulate(job.without(*job.plants))), length_ns(simulate(job))
        if job.late:  # a part of the job is recorded: of that the same share
            told["error"] = abs(1 - saved_ns(diagnosis) / diagnosis.length_ns - true / whole)
        else:
            told["error"] = abs(diagnosis.length_ns - saved_ns(diagnosis) - true) / true
    return told


def told(outcomes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The figures, of all and by what was planted."""
    sick = [one for one in outcomes if one["plants"]]
    kinds = sorted({kind for one in sick for kind in one["plants"]})
    for name in ("all", *kinds, "two plants"):
        inside = [
            one for one in sick if name in ("all", *one["plants"]) or (name == "two plants" and len(one["plants"]) == 2)
        ]
        if inside:
            errors = [one["error"] for one in inside if "error" in one] or [float("nan")]
            median, p95 = np.percentile(errors, (50, 95)).tolist()
            right = sum(one["right"] for one in inside)
            yield (
                f"{name:<14} {len(inside):>5} jobs  right {right:>5} ({right / len(inside):.1%})  wrongly accused"
                f" {sum(one['accused'] for one in inside)}  length off by {median:.2%} (median), {p95:.2%} (p95)"
            )
    for name in sorted({name for one in outcomes for name in one["with"]}):
        inside = [one for one in outcomes if name in one["with"]]
        yield f"with {name:<22} {len(inside):>4} jobs  right {sum(one['right'] for one in inside) / len(inside):.1%}"
    unlawful = [one["seed"] for one in outcomes if one["lawless"]]
    yield f"laws broken in {len(unlawful)} {unlawful[:5]}"
    healthy = [one for one in outcomes if not one["plants"]]
    ranks = [one["ranks"] for one in outcomes]
    yield f"healthy        {len(healthy):>5} jobs  accused {sum(one['accused'] for one in healthy)}"
    yield f"{min(ranks)} to {max(ranks)} ranks, {sum(count >= 128 for count in ranks)} jobs of 128 or more"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--large", type=int, default=20, help="one in so many jobs has 128 ranks or more")
    parser.add_argument("--log", type=Path, help="one line of JSON a job")
    chosen = parser.parse_args()
    gc.set_threshold(1_000_000, 50, 50)  # a simulated job is many small things that all live as long as it does
    log: Path | None = chosen.log
    lines = log.read_text(encoding="utf-8").splitlines() if log is not None and log.exists() else []
    outcomes = [json.loads(line) for line in lines]
    done = {(one["seed"], not one["plants"]) for one in outcomes}
    # Both kinds all along, so that a run that is stopped has seen of each its share.
    counts = (chosen.jobs, False), (chosen.healthy, True)
    places = sorted((place / count, place, is_healthy) for count, is_healthy in counts for place in range(count))
    for seed, is_healthy in ((chosen.first + place, is_healthy) for _, place, is_healthy in places):
        if (seed, is_healthy) in done:
            continue
        one = outcome(seed, chosen.large, is_healthy=is_healthy)
        outcomes.append(one)
        if not one["right"]:
            print(f"{seed}: {one['shape']}: {one['plants']}; found {one['found']}, expected {one['expected']}")
            sys.stdout.flush()
        if log is not None:
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
    print("\n".join(told(outcomes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
