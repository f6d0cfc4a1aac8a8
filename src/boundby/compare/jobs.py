"""Two jobs of many ranks set side by side: their steps, where the ranks' time goes, who holds them up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from boundby.compare.between import adjust, significance
from boundby.model import units
from boundby.model.causes import CAUSE_KEYS
from boundby.model.scale import HABIT
from boundby.results.comparison import Significance
from boundby.results.job_report import (
    JobComparison,
    JobReport,
    JobSide,
    RankChange,
    RankReport,
    Straggler,
    StragglerChange,
)


def compare(before: JobReport, after: JobReport) -> JobComparison:
    """What changed. By step where both have steps, else over the whole run."""
    by_step = min(before.steps, after.steps) >= 2
    one, other = (_side(job, by_step=by_step) for job in (before, after))
    series = [_step_lengths(job) if by_step else [] for job in (before, after)]
    found = adjust([significance(series[0], series[1], "projected")])[0]
    if by_step and one.step_ns and other.step_ns:
        change = other.step_ns / one.step_ns - 1
    else:
        found = Significance("not_tested", reason="no steps were told apart")
        change = after.length_ns / before.length_ns - 1 if before.length_ns else 0.0
    ranks = [_by_number(job) for job in (before, after)]
    per = [_per(job, by_step=by_step) for job in (before, after)]
    return JobComparison(
        before=one,
        after=other,
        change=change,
        significance=found,
        stragglers=tuple(_stragglers(before, after)),
        ranks=tuple(
            RankChange(
                number,
                *(sum(side[number].own.values()) / parts for side, parts in zip(ranks, per, strict=True)),
                *(side[number].wait_ns / parts for side, parts in zip(ranks, per, strict=True)),
            )
            for number in sorted(ranks[0].keys() & ranks[1].keys())
        ),
        notes=tuple(_notes(before, after)),
    )


def _per(job: JobReport, *, by_step: bool) -> int:
    return max(job.steps * job.steps_together, 1) if by_step else 1


def _side(job: JobReport, *, by_step: bool) -> JobSide:
    parts = _per(job, by_step=by_step) * max(len(job.ranks), 1)
    lengths = _step_lengths(job) if by_step else []
    return JobSide(
        path=job.path,
        ranks=len(job.ranks),
        length_ns=job.length_ns,
        step_ns=float(np.median(lengths)) if lengths else None,
        own={key: round(sum(rank.own[key] for rank in job.ranks) / parts) for key in CAUSE_KEYS},
        transfer_ns=sum(rank.transfer_ns for rank in job.ranks) / parts,
        wait_ns=sum(rank.wait_ns for rank in job.ranks) / parts,
        imbalance=job.imbalance,
        bound=job.verdict.bound,
        confidence=job.verdict.confidence,
    )


def _step_lengths(job: JobReport) -> list[int]:
    """How long each step took: the ranks' own work and waits in it, on average. Not the first, in which ranks begin
    at different times, nor the last, of which a part may lack."""
    table = np.array([np.add(rank.steps, rank.step_waits) for rank in job.ranks if len(rank.steps) == job.steps])
    if not len(table):
        return []
    lengths: list[int] = np.round(table.mean(axis=0) / job.steps_together).astype(np.int64).tolist()
    return lengths[1:-1] if len(lengths) > HABIT else lengths


def _by_number(job: JobReport) -> dict[int, RankReport]:
    return {place if rank.rank is None else rank.rank: rank for place, rank in enumerate(job.ranks)}


def _stragglers(before: JobReport, after: JobReport) -> list[StragglerChange]:
    """Matched by what they are, who, and the cause. Their ranks by number."""

    def keyed(job: JobReport) -> dict[tuple[str, tuple[int, ...], str], Straggler]:
        numbers = list(_by_number(job))
        told = [replace(one, ranks=tuple(numbers[place] for place in one.ranks)) for one in job.stragglers]
        return {(one.kind, one.ranks, one.cause): one for one in told}

    old, new = keyed(before), keyed(after)
    found = [StragglerChange("resolved", one, None) for key, one in old.items() if key not in new]
    found += [StragglerChange("new", None, one) for key, one in new.items() if key not in old]
    return found + [StragglerChange("stays", one, new[key]) for key, one in old.items() if key in new]


def _notes(before: JobReport, after: JobReport) -> Sequence[str]:
    notes = []
    if len(before.ranks) != len(after.ranks):
        notes.append(f"They have {len(before.ranks)} and {units.plural(len(after.ranks), 'rank')}.")
    devices = [sorted({rank.device for rank in job.ranks}) for job in (before, after)]
    if devices[0] != devices[1]:
        notes.append(f"They ran on {', '.join(devices[0]) or 'no GPU'} and on {', '.join(devices[1]) or 'no GPU'}.")
    for job, which in ((before, "first"), (after, "second")):
        if job.missing or job.left_out:
            lacking = units.plural(len(job.missing) + len(job.left_out), "rank")
            notes.append(f"Of the {which} job {lacking} could not be used.")
    return notes
