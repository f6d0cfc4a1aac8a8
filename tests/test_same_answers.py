"""What compares two versions says which command killed its process, and does all others."""

from __future__ import annotations

import os

from benchmarks.same_answers import Job, in_processes

JOBS: list[Job] = [(f"{number}.json", [], "") for number in range(6)]


def work(job: Job) -> None:
    if job[0] == "3.json":
        os._exit(1)


def test_the_job_whose_process_dies_is_known_and_all_others_are_done() -> None:
    answers = sorted((name, lived) for (name, _, _), lived in in_processes(JOBS, 2, work))
    assert answers == [(name, name != "3.json") for name, _, _ in JOBS]
