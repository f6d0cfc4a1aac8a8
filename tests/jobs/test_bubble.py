"""A pipeline's fill and drain: what is told to be gained by more micro-batches is what the same pipeline with more of
them takes less, and where micro-batches cannot be counted nothing is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.simulated.jobs import simulate
from benchmarks.simulated.pipelines import Pipeline, length_ns, run, write
from benchmarks.simulated.summaries import summaries
from msgspec.structs import replace

from boundby import api
from boundby.document.job_document import document, holding_up
from boundby.jobs.merge import broken, merge
from boundby.render import to_terminal
from boundby.results.job_report import JobReport
from tests.jobs.made import Job, Plant, report
from tests.support.traces import trace_path


def bubble(found: JobReport) -> tuple[int, int] | None:
    """Stages and micro-batches, where a bubble is told."""
    return None if found.pipeline is None else (found.pipeline.stages, found.pipeline.micro_batches)


@pytest.mark.parametrize(
    "job",
    [
        Pipeline(steps=4),
        Pipeline(steps=4, more={3: 1.6}),
        Pipeline(steps=4, more={0: 1.6}),  # its own forward passes fill the time until the first comes back
        Pipeline(stages=2, steps=4),
        Pipeline(stages=8, replicas=1, steps=3),
        Pipeline(micro=2, steps=4),
        Pipeline(micro=12, steps=3),
        Pipeline(4, 4, 8, 3, slow={5: 2.3}),  # who is slow hardly waits
    ],
)
def test_what_more_micro_batches_gain_is_told(job: Pipeline, tmp_path: Path) -> None:
    write(job, tmp_path)
    found = api.job([tmp_path], workers=1)
    twice = replace(job, micro=2 * job.micro, forward_ns=job.forward_ns // 2, backward_ns=job.backward_ns // 2)
    assert found.pipeline is not None
    assert bubble(found) == (job.stages, job.micro)
    true_share = 1 - length_ns(run(twice)) / length_ns(run(job))
    assert found.pipeline.saving_ns / found.length_ns == pytest.approx(true_share, abs=0.01)
    if not job.more and not job.slow:  # even stages: by the textbook, but for transfers and the optimizer
        textbook = (job.stages - 1) / (job.micro + job.stages - 1)
        assert 0.8 * textbook < found.pipeline.bubble_ns / found.length_ns < textbook
    assert list(broken(found)) == []


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(data=2, pipeline=4, micro=8, steps=4), (4, 8)),
        (Job(data=1, pipeline=3, micro=4, steps=4, plants=(Plant("uneven_stage", 1, 0.7),)), (3, 4)),
        (
            Job(data=2, tensor=2, pipeline=2, micro=4, steps=4),
            (2, 4),
        ),  # what is met in within a stage passes nothing on
        (Job(data=2, pipeline=3, micro=4, steps=4, chunks=2), None),  # interleaved: each comes by twice
        (Job(data=4, micro=4, steps=4), None),  # no stages
    ],
)
def test_micro_batches_are_counted_where_all_forward_comes_first(job: Job, expected: tuple[int, int] | None) -> None:
    assert bubble(report(job)) == expected


def test_without_ranges_that_repeat_for_each_micro_batch_nothing_is_said() -> None:
    job = Job(data=2, pipeline=4, micro=8, steps=4)
    made = summaries(job, simulate(job))
    untold = [replace(one, regions=tuple(path[:1] for path in one.regions)) for one in made]
    assert merge(made, "simulated").pipeline is not None
    assert merge(untold, "simulated").pipeline is None


def test_where_ranks_are_missing_nothing_is_said() -> None:
    job = Job(data=2, pipeline=4, micro=8, steps=4)
    assert merge(summaries(job, simulate(job))[:6], "simulated").pipeline is None


def test_a_real_pipelines_bubble_stands_among_what_holds_the_job_up() -> None:
    found = api.job([trace_path("kineto/job_pipeline_8_ranks")], workers=1)
    assert bubble(found) == (4, 4)
    assert found.pipeline is not None
    # 10.4 of 11.0 s of the first three stages are kernels, nearly all of them of four micro-batches.
    assert found.pipeline.bubble_ns == pytest.approx(3 * 10.0e9 / 4, rel=0.03)
    first, second = holding_up(found)
    assert "since only 4 micro-batches a step pass its 4 stages" in first
    assert second.startswith("Each rank of stage 3 (ranks 6 and 7) has ")
    # In the order of the list below it: the bubble costs more than the stage.
    assert found.verdict.because.startswith("the pipeline fills and drains for 28 % of the time; stage 3 (")


def test_even_stages_are_held_up_by_their_bubble_alone() -> None:
    found = report(Job(data=2, pipeline=4, micro=8, steps=4))
    screen = " ".join(to_terminal.render(document(found)).split())
    assert found.stragglers == ()
    assert "1. The pipeline's stages fill and drain in each step (its bubble): that takes 25 % of the time" in screen
    assert "No single one" not in screen
    assert re.search(r"the pipeline fills and drains for \d+ % of the time, and perfect balance would save", screen)
