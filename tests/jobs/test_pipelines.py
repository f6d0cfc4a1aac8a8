"""Pipelines as published traces of real jobs hold them: what even operations gain, and who is named, with few steps,
too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.simulated.pipelines import MS, Pipeline, gain, write
from msgspec.structs import replace

from boundby import api
from boundby.document.job_document import document
from boundby.jobs.even import stages_of
from boundby.jobs.merge import broken
from boundby.render import to_html
from tests.jobs.made import Job, accused, aligned_job
from tests.support.traces import trace_path

STAGE, SLOW, LENGTHS = ("stage", (6, 7), "gpu_compute"), ("rank", (5,), "gpu_compute"), ("random", (), "gpu_compute")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Pipeline(more={3: 1.6}, steps=3), [STAGE]),
        (Pipeline(4, 4, 8, 3, slow={5: 2.3}, late_ns=3 * MS), [SLOW]),  # the others idle until the next step, too
        (Pipeline(1, 16, 4, 3, slow={5: 2.3}), [SLOW]),
        (Pipeline(4, 8, 6, 2, lengths=0.4), [LENGTHS]),
        (Pipeline(4, 4, 6, 4, slow={5: 2.3}, lengths=0.25), [LENGTHS, SLOW]),
        (Pipeline(4, 4, 4, 3), []),
    ],
)
def test_the_gain_of_even_operations_is_told(
    job: Pipeline, expected: list[tuple[str, tuple[int, ...], str]], tmp_path: Path
) -> None:
    write(job, tmp_path)
    found = api.job([tmp_path], workers=1)
    assert sorted(accused(found)) == expected
    assert found.imbalance == pytest.approx(gain(job), abs=0.01)
    assert list(broken(found)) == []


def test_pipelines_that_meet_in_no_group_of_a_stage_have_the_same_stages_by_their_kernels() -> None:
    made, aligned = aligned_job(Job(data=2, pipeline=3, micro=2, steps=3))
    assert stages_of(made, aligned) == ((0, 1), (2, 3), (4, 5))
    one_replica = [place for place, members in enumerate(aligned.matched.groups) if members in ((0, 1), (2, 3), (4, 5))]
    kept = np.flatnonzero(~np.isin(aligned.matched.group, one_replica))
    fewer = replace(
        aligned.matched, group=aligned.matched.group[kept], kind=tuple(aligned.matched.kind[one] for one in kept)
    )
    assert stages_of(made, replace(aligned, matched=fewer)) == ((0, 1), (2, 3), (4, 5))


def test_ranks_that_meet_and_launch_other_kernels_are_no_peers() -> None:
    made, aligned = aligned_job(Job(data=4, steps=3))
    other = [replace(one, kinds_of_kernels=one.kinds_of_kernels + np.array([[1, 0]])) for one in made[2:]]
    assert stages_of(made, aligned) == ((0, 1, 2, 3),)
    assert stages_of([*made[:2], *other], aligned) == ((0, 1), (2, 3))
    assert stages_of([*made[:3], other[1]], aligned) == ((0, 1, 2, 3),)  # one alone has no peers at all


def test_the_page_says_that_ranks_of_a_pipeline_pass_on_what_they_waited_for() -> None:
    folder = trace_path("kineto/job_pipeline_8_ranks")
    report = api.job([folder], workers=1)
    page = to_html.page(document(report))
    assert report.verdict.because.count("perfect balance would make the job 15 % shorter") == 1
    assert "passes that on" in page
    assert "Delays others" not in page
