"""Simulated jobs, analysed from their summaries."""

from __future__ import annotations

from benchmarks.simulated.jobs import Job, Plant, simulate
from benchmarks.simulated.summaries import summaries

from boundby.jobs.meetings import Aligned, align
from boundby.jobs.merge import merge
from boundby.jobs.rank_summary import RankSummary
from boundby.results.job_report import JobReport


def report(job: Job, *, tells_groups: bool = True) -> JobReport:
    """The report of a simulated job."""
    return merge(summaries(job, simulate(job), tells_groups=tells_groups), "simulated")


def aligned_job(job: Job) -> tuple[list[RankSummary], Aligned]:
    """The summaries of a simulated job, and what they meet in."""
    made = summaries(job, simulate(job))
    return made, align(made)


def accused(found: JobReport) -> list[tuple[str, tuple[int, ...], str]]:
    """Who is accused of what."""
    return [(one.kind, one.ranks, one.cause) for one in found.stragglers]


__all__ = ["Job", "Plant", "accused", "aligned_job", "report"]
