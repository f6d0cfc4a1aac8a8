"""What to try first on a job: about who holds it up, by what that rank's own report says; else what finds more out."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.jobs import Plant, simulate
from benchmarks.simulated.summaries import summaries
from msgspec.structs import replace

from boundby import api
from boundby.document.job_document import document, holding_up
from boundby.jobs import job_first
from boundby.jobs.merge import merge
from boundby.jobs.rank_summary import RankGroup, RankSummary
from boundby.render import to_html, to_markdown, to_terminal
from boundby.results.job_report import JobReport
from boundby.results.report import FirstResponse
from tests.jobs.made import Job
from tests.support.traces import trace_path


def made(job: Job) -> tuple[JobReport, list[RankSummary], dict[str, Path]]:
    """A simulated job, its ranks' summaries, and where their reports would lie."""
    ranks = summaries(job, simulate(job))
    found = merge(ranks, "simulated")
    return found, ranks, {rank.name: Path("runs") / rank.name for rank in found.ranks}


def first_of(job: Job, answer: FirstResponse | None = None) -> FirstResponse:
    found = job_first.of(*made(job), answer)
    assert found is not None
    return found


def test_what_the_late_rank_itself_says_of_its_cause_comes_first() -> None:
    found = api.job([trace_path("mpi_rank_1_late.sqlite")], workers=1)
    first = found.first
    assert first is not None
    assert first.code.startswith("grep ")
    assert first.because.startswith("on rank 1 the host is in sleep() mostly between MPI_Barrier and MPI_Allreduce")
    assert first.saving_ns == (0, found.stragglers[0].saving_ns)
    assert [one.kind for one in found.stragglers] == ["rank"]  # turns that are worth 0.6 % are no cause
    text, page = to_terminal.render(document(found)), to_html.page(document(found))
    assert "First: grep -rnwE" in text
    assert "Find the sleep, and remove or shorten it (saves up to 165 ms, 97 %): on rank 1" in " ".join(text.split())
    assert "**First:**\n\n```text\ngrep " in to_markdown.render(document(found))
    assert '<b>First:</b></p><div class="do">' in page


def test_a_bubble_asks_for_more_micro_batches_and_the_list_does_not_say_it_again() -> None:
    found = api.job([trace_path("kineto/job_pipeline_8_ranks")], workers=1)
    first, pipeline = found.first, found.pipeline
    assert first is not None
    assert pipeline is not None
    assert "n_microbatches=8" in first.code
    assert "4 now" in first.code
    assert first.saving_ns == (0, pipeline.saving_ns)
    bubble, stage = holding_up(found)
    assert "More micro-batches" not in bubble
    assert "Move layers from it" in stage
    assert "More micro-batches" in holding_up(replace(found, first=None))[0]


def test_ranks_that_are_missing_are_asked_for_by_the_names_of_the_files_that_are_there() -> None:
    folder = trace_path("kineto/job_sampled")
    first = api.job([folder], workers=1).first
    assert first is not None
    again, record = first.code.splitlines()
    assert again == f"boundby job {folder}  # once rank-2.json.gz to rank-127.json.gz lie there"
    assert record.startswith("srun boundby profile --with torch -o run -- ")
    assert first.because == "only 2 of the 128 ranks have their reports here"
    assert first.saving_ns is None


def test_of_missing_ranks_those_of_shared_process_groups_matter_most() -> None:
    found, ranks, paths = made(Job(data=4))
    few = replace(found, ranks=found.ranks[:2], missing=(2, 3), verdict=replace(found.verdict, bound="unknown"))
    grouped = [replace(one, groups=(RankGroup("", (0, 1, 2)), RankGroup("", (0, 1, 2, 3)))) for one in ranks[:2]]
    first = job_first.of(few, grouped, paths, None)
    assert first is not None
    assert first.because.endswith("; rank 2 shares process groups with these, and comes first")


def test_a_program_that_failed_is_mended_first() -> None:
    first = api.job([trace_path("mpi_crash_bad_address.sqlite")], workers=1).first
    assert first is not None
    assert first.code.startswith("ompi_info")
    assert first.where is not None
    assert first.where.line == 81


def test_where_nobody_holds_it_up_the_rank_with_most_of_the_bound_is_asked() -> None:
    found = api.job([trace_path("openacc_mpi_4_processes_4_gpus.sqlite")], workers=1)
    first = found.first
    assert first is not None
    assert found.verdict.saving_ns is not None
    assert first.saving_ns is not None
    assert first.id.startswith("init.")
    assert "on rank 3, much as on the others, the first cuMemHostRegister takes" in first.because
    assert first.saving_ns[1] <= found.verdict.saving_ns


@pytest.mark.parametrize(
    ("job", "starts", "title"),
    [
        (
            Job(data=4, steps=6, layers=2, plants=(Plant("slow_device", 2, 0.4),)),
            "nvidia-smi -q",
            "Check rank 2's GPU (clocks, temperature, other programs on it), or whether rank 2's batches are larger",
        ),
        (
            Job(data=4, steps=6, layers=2, plants=(Plant("slow_input", 2, 0.4),)),
            "boundby analyze runs/",
            "Load rank 2's input faster: faster storage, or more loader workers",
        ),
        (
            Job(data=2, pipeline=2, micro=16, steps=6, plants=(Plant("uneven_stage", 1, 0.6),)),
            "--decoder-last-pipeline-num-layers N",
            "Move layers from stage 1 to the others",
        ),
    ],
)
def test_each_culprit_has_a_command_or_code(job: Job, starts: str, title: str) -> None:
    first = first_of(job)
    assert first.code.startswith(starts)
    assert first.title == title


def test_an_answer_about_another_cause_is_none() -> None:
    found, _, _ = made(Job(data=4, steps=6, layers=2, plants=(Plant("slow_input", 2, 0.4),)))
    question = job_first.asked(found)
    assert question is not None
    assert question.cause == "host_blocked"
    assert question.rank == found.ranks[2].name
    assert question.is_answered_by(FirstResponse("host_blocked.workers", "Load with more workers"))
    assert not question.is_answered_by(FirstResponse("gpu_compute.lower-precision", "Lower precision"))


def test_a_healthy_job_is_asked_what_bounds_its_ranks() -> None:
    found, ranks, paths = made(Job(data=2))
    question = job_first.asked(found)
    assert question is not None
    assert question.cause == found.verdict.bound == "gpu_compute"
    first = job_first.of(found, ranks, paths, None)
    assert first is not None
    assert first.code.startswith("boundby analyze runs/")
