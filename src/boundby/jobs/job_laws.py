"""What holds for every report of a job, checked when it is made."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.model import units
from boundby.results.job_report import JobReport

#: Times of a rank are rounded one by one.
_ROUNDED_NS = 1_000


def broken(report: JobReport) -> Iterator[str]:
    """A sentence for each law that the report breaks."""
    balance = next((one.predicted_ns for one in report.what_if if one.scenario == "balance"), 0)
    if balance > report.length_ns:
        yield f"balanced, the job would take {units.duration(balance - report.length_ns)} longer"
    if any(one.saving_ns <= 0 for one in (*report.stragglers, *report.extras)):
        yield "something is named that the job would gain nothing by"
    most = sum(rank.wait_ns + rank.start_wait_ns + rank.transfer_ns for rank in report.ranks)
    for one in report.stragglers:
        if one.saving_ns > most + _ROUNDED_NS:  # who is late makes the job longer by no more than others wait
            saved, with_others = units.duration(one.saving_ns), units.duration(most)
            yield f"what is named would save {saved}, and all ranks together are with others for {with_others}"
    for rank in report.ranks:
        told = sum(rank.own.values()) + rank.transfer_ns + rank.wait_ns + rank.start_wait_ns
        if abs(told - rank.window_ns) > _ROUNDED_NS:
            yield f"{rank.name} takes {units.duration(told)} in a window of {units.duration(rank.window_ns)}"
    caused, waited = sum(rank.caused_wait_ns for rank in report.ranks), sum(rank.wait_ns for rank in report.ranks)
    if caused > waited + _ROUNDED_NS:
        yield f"ranks wait {units.duration(waited)}, of which {units.duration(caused)} for those who came last"
