"""Real jobs: one of four MPI processes split into reports with clocks of their own, and two ranks of 128."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from boundby import api
from boundby.document.job_document import JobLook, document, headline, told
from boundby.render import to_terminal
from tests.support.split import split
from tests.support.traces import trace_path

OFFSETS_NS = {140065: 0, 140066: 3_123_456_789, 140067: 77, 140068: 912_345_678}


def test_processes_split_into_reports_give_back_their_account_and_their_clocks(tmp_path: Path) -> None:
    export = trace_path("openacc_mpi_4_processes_4_gpus.sqlite")
    whole = api.job([export], workers=1)
    parts = api.job(split(export, tmp_path, OFFSETS_NS), workers=1)
    assert [rank.own for rank in parts.ranks] == [rank.own for rank in whole.ranks]
    assert [rank.window_ns for rank in parts.ranks] == [rank.window_ns for rank in whole.ranks]
    assert parts.collectives == whole.collectives == 32
    for rank, offset_ns in zip(parts.ranks, OFFSETS_NS.values(), strict=True):
        assert abs(rank.clock.offset_ns + offset_ns) <= 1_000
        assert rank.clock.residual_ns < 1_000
    assert [rank.wait_ns for rank in parts.ranks] == pytest.approx([rank.wait_ns for rank in whole.ranks], abs=20_000)


def test_two_ranks_of_many_say_what_cannot_be_told() -> None:
    found = api.job([trace_path("kineto/job_sampled")], workers=1)
    assert (found.world_size, len(found.missing), found.collectives) == (128, 126, 3)
    # Seven of ten collectives are with ranks that are not here: no word on what bounds the job.
    assert (found.verdict.bound, found.verdict.confidence) == ("unknown", "low")
    assert found.stragglers == ()  # what they wait for on their devices is no work that could be made even
    assert any("only one rank's report is here" in note for note in found.notes)
    assert headline(found).startswith("It is not known what bounds the job of 128 ranks, of which 2 are here: ")
    assert any("126 ranks" in reason for reason in found.verdict.reasons)
    # By the rows: rank 1 begins the three collectives that both hold 4.9, 3.3 and 22.3 ms after rank 0.
    assert [rank.last for rank in found.ranks] == [0, 3]
    # Rank 0 has other work beside nearly all of that, but for the first, in which nobody is waited for.
    assert found.ranks[1].caused_wait_ns == pytest.approx(1_280_000, rel=0.01) == found.ranks[0].wait_ns
    assert max(rank.clock.residual_ns for rank in found.ranks) < 50_000


def test_one_name_has_one_number_on_a_jobs_screen() -> None:
    found = api.job([trace_path("mpi_rank_1_late.sqlite")], workers=1)
    screen = " ".join(to_terminal.render(document(found)).split())
    first = found.stragglers[0].saving_ns / found.length_ns
    assert found.imbalance == pytest.approx(0.47, abs=0.005)  # each rank would sleep half as long
    assert first == pytest.approx(0.97, abs=0.005)
    assert found.verdict.because.startswith("rank 1 comes late because of its blocked time; without that ")
    assert "the ranks shared all work evenly (perfect balance) 89.9 ms 47 %" in screen
    assert (
        "Rank 1 takes 165 ms longer than rank 0, in all 20 steps together: all of it is blocked time in sleep(). Rank 0"
        in screen
    )
    assert "Do less of that" not in screen  # First says what to do


def test_predictions_that_nobody_can_make_true_or_that_save_little_in_a_region_are_not_shown() -> None:
    found = api.job([trace_path("kineto/job_sampled")], workers=1)
    short, full = (" ".join(to_terminal.render(document(found, JobLook(full=full))).split()) for full in (False, True))
    hidden = ("no rank had time between launch and start", "no rank had compute 932 ms", 'Parallel.forward" 1.08 s')
    assert [one in full for one in hidden] == [True] * len(hidden)
    assert [one in short for one in hidden] == [False] * len(hidden)
    assert 'no rank had compute in "ProfilerStep#*/## backward ##"' in short


def test_ranks_that_wait_for_nobody_are_not_bound_by_imbalance(tmp_path: Path) -> None:
    text = gzip.decompress(trace_path("kineto/cpu_only_rank34.json.gz").read_bytes())
    for rank in (34, 35):  # one trace twice: both do the same at the same time
        changed = re.sub(rb'"rank": ?34', b'"rank": %d' % rank, text)
        (tmp_path / f"rank_{rank}.json.gz").write_bytes(gzip.compress(changed, 1))
    found = api.job([tmp_path], workers=1)
    assert found.verdict.bound == "gpu_comm"
    assert sum(rank.wait_ns for rank in found.ranks) == 0
    assert found.stragglers == ()


def test_a_pipelines_waits_count_and_its_embedding_group_makes_no_stage() -> None:
    found = api.job([trace_path("kineto/job_pipeline_8_ranks")], workers=1)
    assert [rank.stage for rank in found.ranks] == [0, 0, 1, 1, 2, 2, 3, 3]
    for rank in found.ranks:
        computes = 16.8e9 if rank.stage == 3 else 10.4e9
        assert rank.own["gpu_compute"] == pytest.approx(computes, rel=0.02)
        assert rank.own["gpu_comm"] < 0.01 * rank.window_ns


def test_a_pipelines_last_stage_that_computes_more_is_named_and_what_balance_gains_is_as_published() -> None:
    found = api.job([trace_path("kineto/job_pipeline_8_ranks")], workers=1)
    assert found.imbalance == pytest.approx(0.152, abs=0.005)  # published: 1.179 times as long as a balanced one
    (stage,) = found.stragglers
    assert (stage.kind, stage.ranks, stage.stage, stage.cause) == ("stage", (6, 7), 3, "gpu_compute")
    assert 0.1 < stage.saving_ns / found.length_ns < found.imbalance
    assert stage.region == ("ProfilerStep#*", "backward-compute")
    assert "Move layers from it to the others" in told(found, stage)
    assert headline(found).startswith("The job of 8 ranks is bound by its pipeline: the pipeline fills and drains for ")
    assert found.replayed_ns == pytest.approx(found.length_ns, rel=0.01)
