"""Culprits of simulated jobs: who is named, who is not, and what is to be gained."""

from __future__ import annotations

import pytest
from benchmarks.jobs import outcome
from benchmarks.simulated.jobs import length_ns, simulate
from benchmarks.simulated.summaries import summaries
from msgspec.structs import replace

from boundby.document.job_document import JobLook, document, nobody, shown, told
from boundby.jobs.merge import broken, merge
from boundby.model import units
from boundby.model.errors import InputError
from boundby.render import to_terminal
from tests.jobs.made import Job, Plant, accused, report

CASES = [
    (Job(data=8, plants=(Plant("slow_device", 3, 0.2),)), [("rank", (3,), "gpu_compute")]),
    (Job(data=2, plants=(Plant("slow_device", 1, 0.2),)), [("rank", (1,), "gpu_compute")]),
    (Job(data=8, plants=(Plant("slow_input", 5, 0.2),)), [("rank", (5,), "host_blocked")]),
    (Job(data=8, plants=(Plant("host_pauses", 5, 0.5),)), [("exceptions", (5,), "cpu")]),
    (Job(data=8, plants=(Plant("host_pauses", None, 0.4),)), [("random", (), "cpu")]),
    (Job(data=8, plants=(Plant("uneven_batch", None, 0.2),)), [("random", (), "gpu_compute")]),
    (Job(data=4, tensor=2, plants=(Plant("slow_device", 3, 0.2),)), [("rank", (3,), "gpu_compute")]),
    (Job(data=4, tensor=2, plants=(Plant("slow_link", 3, 1.5),)), [("link", (1, 3, 5, 7), "gpu_comm")]),
    (
        Job(data=2, pipeline=3, micro=3, plants=(Plant("uneven_stage", 1, 0.4),)),
        [("stage", (2, 3), "gpu_compute")],
    ),
    (Job(pipeline=3, data=1, micro=3, plants=(Plant("slow_device", 2, 0.3),)), [("rank", (2,), "gpu_compute")]),
    (Job(pipeline=3, data=1, micro=3, plants=(Plant("uneven_stage", 2, 0.4),)), [("stage", (2,), "gpu_compute")]),
    (
        Job(data=8, plants=(Plant("slow_device", 3, 0.2), Plant("slow_input", 5, 0.3))),
        [("rank", (3,), "gpu_compute"), ("rank", (5,), "host_blocked")],
    ),
    (
        Job(data=8, plants=(Plant("slow_device", 3, 0.2), Plant("slow_device", 6, 0.2))),
        [("rank", (3, 6), "gpu_compute")],  # slow alike: told as one
    ),
    # Inputs differ in length, micro batch by micro batch.
    (
        Job(data=4, pipeline=4, micro=4, plants=(Plant("sequence_lengths", None, 0.3),)),
        [("random", (), "gpu_compute")],
    ),
    (Job(data=16, micro=4, plants=(Plant("sequence_lengths", None, 0.3),)), [("random", (), "gpu_compute")]),
    # These hide a stage that does more.
    (
        Job(
            data=8,
            pipeline=4,
            micro=6,
            plants=(Plant("sequence_lengths", None, 0.5), Plant("uneven_stage", 3, 0.4)),
        ),
        [("random", (), "gpu_compute"), ("stage", tuple(range(24, 32)), "gpu_compute")],
    ),
    # A group of the first and the last stage makes no stage, and kernels begin before what they waited for is over.
    (
        Job(data=2, pipeline=3, micro=3, embedding=True, early_ns=8_000, plants=(Plant("uneven_stage", 2, 0.4),)),
        [("stage", (4, 5), "gpu_compute")],
    ),
    # Stages are interleaved: after the last comes the first.
    (
        Job(data=2, pipeline=4, micro=4, chunks=2, embedding=True, steps=4, plants=(Plant("slow_device", 3, 0.3),)),
        [("rank", (3,), "gpu_compute")],
    ),
    # Tokens go to experts and back, and one expert gets more of them.
    (Job(data=8, experts=4, plants=(Plant("hot_expert", 5, 0.6),)), [("rank", (5,), "gpu_compute")]),
    # Two communicators of the same ranks, and a kernel beside what they wait for.
    (
        Job(data=4, tensor=2, gradients=2, beside=True, plants=(Plant("slow_input", 4, 0.3),)),
        [("rank", (4,), "host_blocked")],
    ),
    # What the others wait for their input is hidden; they read it all the same.
    (Job(data=8, data_ns=0, plants=(Plant("slow_input", 5, 0.2),)), [("rank", (5,), "host_blocked")]),
    # All of one machine, whose clock drifts from the others'.
    (
        Job(data=8, host_size=2, drift=2e-5, plants=(Plant("slow_machine", 1, 0.2),)),
        [("machine", (2, 3), "gpu_compute")],
    ),
    # Collectives inside CUDA graphs, of which nothing is told.
    (
        Job(data=4, tensor=2, pipeline=2, micro=2, graphs=True, plants=(Plant("slow_device", 9, 0.3),)),
        [("rank", (9,), "gpu_compute")],
    ),
    # Of two ranks each is slow in its way, and neither is the usual one.
    (
        Job(data=2, plants=(Plant("uneven_batch", 1, 0.24), Plant("slow_input", 0, 0.14))),
        [("rank", (0,), "host_blocked"), ("rank", (1,), "gpu_compute")],
    ),
    # Pauses hide a rank that is slow in every step, and it hides them.
    (
        Job(data=8, tensor=2, steps=12, plants=(Plant("host_pauses", None, 0.28), Plant("slow_input", 10, 0.26))),
        [("random", (), "cpu"), ("rank", (10,), "host_blocked")],
    ),
]


@pytest.mark.parametrize(("job", "expected"), CASES)
def test_the_culprit_is_named_and_the_gain_is_true(job: Job, expected: list[tuple[str, tuple[int, ...], str]]) -> None:
    found = report(job)
    assert sorted(accused(found)) == expected
    assert list(broken(found)) == []
    mended = length_ns(simulate(job.without(*job.plants)))
    assert found.length_ns - sum(one.saving_ns for one in found.stragglers) == pytest.approx(mended, rel=0.03)
    assert found.replayed_ns == pytest.approx(found.length_ns, rel=0.01)


@pytest.mark.parametrize(
    "job",
    [
        Job(data=2, tensor=2, steps=6, graphs=True, late=1.2, beside=True, plants=(Plant("slow_input", 0, 0.35),)),
        Job(data=4, tensor=2, steps=6, late=1.2, plants=(Plant("slow_input", 0, 0.3),)),
        Job(data=1, pipeline=2, micro=3, steps=6, late=1.2, plants=(Plant("slow_input", 0, 0.3),)),
    ],
)
def test_a_step_of_which_the_begin_is_missing_hides_no_culprit(job: Job) -> None:
    assert accused(report(job)) == [("rank", (0,), "host_blocked")]


@pytest.mark.parametrize(
    "seed",
    [
        5_100_005,  # two ranks hold a step more than the others, and their steps are nearly as long as each other
        5_100_015,  # a slow rank beside a stage that does more
        6_100_020,  # uneven batches and a rank's pauses, of which each hides the other
        6_100_028,  # nodes of graphs that pass work on, and happen to be as many on two ranks
        6_300_018,  # stages whose clocks nothing but what they pass on can set
        6_300_095,  # a machine of eight ranks, each of which is worth little alone
        6_400_110,  # pauses of two ranks, each of which makes the other's usual
        6_400_134,  # a rank of a slow machine that pauses, too
        6_100_045,  # clocks that drift while few collectives tell who meets whom
        7_000_068,  # both ranks pause in the same steps, beside lengths that differ
        7_000_167,  # a slow device and a hot expert in one machine
        7_000_237,  # lengths of a micro batch that all parts of the model share: few of them tell what is usual
    ],
)
def test_drawn_jobs_that_were_told_wrong(seed: int) -> None:
    assert outcome(seed, large=1_000_000_000, is_healthy=False)["right"]


def test_collectives_that_change_places_from_step_to_step_are_no_unevenness() -> None:
    assert outcome(7_000_015, large=1_000_000_000, is_healthy=True)["right"]


@pytest.mark.parametrize(
    "job",
    [
        Job(data=2),
        Job(data=8),
        Job(data=4, tensor=2),
        Job(data=2, pipeline=2, micro=3),
        Job(data=4, pipeline=4, micro=4, embedding=True, jitter=0.04, early_ns=8_000),
    ],
)
def test_a_healthy_job_accuses_nobody(job: Job) -> None:
    found = report(job)
    assert accused(found) == []
    assert list(broken(found)) == []
    assert found.verdict.bound == "gpu_compute"
    assert found.imbalance < 0.03


def test_a_log_of_one_rank_is_no_straggling() -> None:
    found = report(Job(data=4, log_ns=2_000_000))
    assert accused(found) == []
    assert [(one.kind, one.ranks, one.region[-1]) for one in found.extras] == [("extra", (0,), "log")]


def test_a_log_of_one_stage_is_no_straggling() -> None:
    found = report(Job(data=1, pipeline=2, micro=2, log_ns=2_000_000))
    assert accused(found) == []
    assert [(one.kind, one.region[-1]) for one in found.extras] == [("extra", "log")]


def test_a_log_and_pauses_of_one_rank_are_told_apart() -> None:
    found = report(Job(data=3, log_ns=2_000_000, plants=(Plant("host_pauses", 0, 0.45),)))
    assert accused(found) == [("exceptions", (0,), "cpu")]
    assert [(one.kind, one.ranks, one.region[-1]) for one in found.extras] == [("extra", (0,), "log")]


def test_clocks_are_set_by_collectives() -> None:
    job = Job(data=6, drift=2e-5, clock_ns=500_000_000)
    runs, found = simulate(job), report(job)
    for run, rank in zip(runs, found.ranks, strict=True):
        apart = rank.clock.offset_ns + (run.offset_ns - runs[0].offset_ns)
        assert abs(apart) < 5_000  # drift until the window begins is in it, too
        assert rank.clock.residual_ns < 2_000


def test_start_skew_is_no_straggling() -> None:
    found = report(Job(data=4, skew_ns=900_000_000))
    assert accused(found) == []
    assert max(rank.start_wait_ns for rank in found.ranks) > 50_000_000
    assert max(rank.wait_ns for rank in found.ranks) < 20_000_000


def test_a_straggler_makes_the_others_wait_and_does_not_wait_itself() -> None:
    found = report(Job(data=4, plants=(Plant("slow_device", 2, 0.3),)))
    assert found.verdict.bound == "imbalance"
    assert min(rank.wait_ns for rank in found.ranks) == found.ranks[2].wait_ns
    assert max(rank.caused_wait_ns for rank in found.ranks) == found.ranks[2].caused_wait_ns
    assert {pair.last for pair in found.pairs[:3]} == {2}


def test_without_named_groups_one_group_is_all_ranks() -> None:
    assert accused(report(Job(data=4, plants=(Plant("slow_device", 2, 0.3),)), tells_groups=False)) == [
        ("rank", (2,), "gpu_compute")
    ]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(data=4, tensor=2, plants=(Plant("slow_device", 3, 0.2),)), [("rank", (3,), "gpu_compute")]),
        (Job(data=4, pipeline=4, micro=3, plants=(Plant("slow_device", 6, 0.3),)), [("rank", (6,), "gpu_compute")]),
        (
            Job(data=2, tensor=2, pipeline=2, micro=3, plants=(Plant("uneven_stage", 1, 0.5),)),
            [("stage", (4, 5, 6, 7), "gpu_compute")],
        ),
    ],
)
def test_groups_and_stages_are_inferred_where_the_trace_names_none(
    job: Job, expected: list[tuple[str, tuple[int, ...], str]]
) -> None:
    found = report(job, tells_groups=False)
    assert accused(found) == expected
    assert max(rank.stage for rank in found.ranks) == job.pipeline - 1


def test_what_if_over_the_job_is_what_the_changed_job_takes() -> None:
    job = Job(data=4, data_ns=2_000_000, plants=(Plant("slow_device", 2, 0.1),))
    found = report(job)
    predicted = {one.scenario: one.predicted_ns for one in found.what_if}
    changed = {
        "kernels=2": replace(job, kernel_ns=job.kernel_ns // 2),
        "transfer=2": replace(job, transfer_ns=job.transfer_ns // 2),
        "without host_blocked in step */data": replace(job, data_ns=0),
    }
    for scenario, other in changed.items():
        assert predicted[scenario] == pytest.approx(length_ns(simulate(other)), rel=0.03)
    (part,) = (one for one in found.what_if if one.scenario == "without host_blocked in step */data")
    assert (part.cause, part.region) == ("host_blocked", ("step *", "data"))


def test_ranks_that_are_slow_alike_are_told_as_one() -> None:
    plants = tuple(Plant("slow_device", rank, 0.3) for rank in (1, 4, 6))
    found = report(Job(data=12, jitter=0.001, spread=0, plants=plants))
    assert accused(found) == [("rank", (1, 4, 6), "gpu_compute")]
    assert found.stragglers[0].saving_ns > 0.15 * found.length_ns
    assert found.verdict.because.startswith("3 ranks come late")
    assert "Ranks 1, 4 and 6 each take" in to_terminal.render(document(found))


def test_a_rank_and_a_link_that_hide_each_other_are_both_told() -> None:
    plants = Plant("slow_link", 3, 4.4), Plant("slow_device", 0, 0.32)
    job = Job(data=2, pipeline=2, micro=2, kernels=4, kernel_ns=249_000, transfer_ns=1_207_000, plants=plants)
    found = report(job)
    assert set(accused(found)) == {("rank", (0,), "gpu_compute"), ("link", (2, 3), "gpu_comm")}
    gone = found.length_ns - sum(one.saving_ns for one in found.stragglers)
    assert gone == pytest.approx(length_ns(simulate(job.without(*plants))), rel=0.03)


def test_ranks_are_shown_by_what_is_asked_for() -> None:
    found = report(Job(data=20, steps=6, layers=1, plants=(Plant("slow_device", 7, 0.4),)))
    assert shown(found, JobLook("others-wait", top=1))[0] == [7]
    assert len(shown(found, JobLook(full=True))[0]) == 20
    assert shown(found, JobLook("own"))[0][0] == 7
    assert "3 OF 20 RANKS" in to_terminal.render(document(found, JobLook("waits", top=3)))


@pytest.mark.parametrize("stage", [0, 2])
def test_balance_moves_the_layers_of_a_stage_that_does_more(stage: int) -> None:
    job = Job(data=2, pipeline=3, micro=4, jitter=0, spread=0, plants=(Plant("uneven_stage", stage, 0.7),))
    found = report(job)
    even = length_ns(simulate(job.without(*job.plants)))
    assert found.imbalance == pytest.approx(1 - even / found.length_ns, abs=0.01)
    assert found.stragglers[0].stage == stage


@pytest.mark.parametrize("reports", [1, 2])
def test_devices_that_never_meet_are_no_job(reports: int) -> None:
    job = Job(data=1, steps=2)
    (alone,) = summaries(job, simulate(job))
    untold = replace(alone, rank=-1, world_size=-1)
    ranks = [replace(untold, name=f"GPU {one}", clock=f"{one % reports}.sqlite") for one in range(2)]
    with pytest.raises(InputError, match="no ranks of one job" if reports == 1 else "holds a collective") as told:
        merge(ranks, "train.sqlite")
    assert "boundby analyze" in str(told.value)


def test_a_report_of_another_program_is_left_out_and_named() -> None:
    job, other = Job(data=3), Job(data=1, steps=2)
    (alone,) = summaries(other, simulate(other))
    stranger = replace(alone, name="other.sqlite", rank=-1, world_size=-1)
    found = merge([*summaries(job, simulate(job)), stranger], "folder")
    assert [rank.name for rank in found.ranks] == ["rank0", "rank1", "rank2"]
    assert found.left_out == ("other.sqlite holds no collective, in which the others meet: it is of another program.",)


def test_reports_of_different_times_are_no_job() -> None:
    alone = [summaries(Job(data=2, seed=seed), simulate(Job(data=2, seed=seed)))[0] for seed in (1, 2)]
    ranks = [
        replace(one, name=f"run{place}", rank=-1, groups=tuple(replace(group, name=f"{place}") for group in one.groups))
        for place, one in enumerate(alone)
    ]
    apart = [replace(one, base_ns=(place + 1) * 10**18) for place, one in enumerate(ranks)]
    with pytest.raises(InputError, match="recorded at different times"):
        merge(apart, "folder")


def test_of_two_runs_in_one_folder_one_is_taken_whole() -> None:
    """Never rank 0 of the one and rank 1 of the other, though their collectives match."""
    job = Job(data=3)
    whole = [replace(one, base_ns=10**18, name=f"b{one.rank}.sqlite") for one in summaries(job, simulate(job))]
    part = [replace(one, base_ns=10**12, name=f"a{one.rank}.sqlite") for one in whole[:2]]
    found = merge([*part, *whole], "folder")
    assert [rank.name for rank in found.ranks] == ["b0.sqlite", "b1.sqlite", "b2.sqlite"]
    assert [text.partition(" was")[0] for text in found.left_out] == ["a0.sqlite (rank 0)", "a1.sqlite (rank 1)"]
    undated = merge([replace(one, base_ns=0) for one in (*part, *whole)], "folder")
    assert undated.left_out == (
        "b0.sqlite is rank 0 as well; a0.sqlite was taken.",
        "b1.sqlite is rank 1 as well; a1.sqlite was taken.",
    )


def test_one_step_names_whom_the_others_wait_for_with_that_doubt() -> None:
    found = report(Job(data=4, steps=1, plants=(Plant("slow_device", 2, 0.3),)))
    unnamed = replace(found, stragglers=())
    assert nobody(unnamed).startswith("Perhaps rank 2: ")
    assert "One step is too few" in nobody(unnamed)
    assert any("1 step is too few" in one for one in found.verdict.reasons)


def test_profilers_that_begin_in_the_middle_of_a_step_make_no_straggler() -> None:
    late = Job(data=8, steps=9, late=1.2)
    assert accused(report(late)) == []
    found = report(replace(late, plants=(Plant("slow_device", 3, 0.2),)))
    assert accused(found) == [("rank", (3,), "gpu_compute")]
    assert found.steps < 9  # what all of them recorded


def test_what_lies_before_the_first_collective_is_no_measure_of_a_steps_begin() -> None:
    late = Job(data=3, steps=6, layers=4, kernels=2, late=1.2, jitter=0.036, clock_ns=0, seed=4650000000)
    found = report(late)
    assert accused(found) == []
    assert found.imbalance < 0.03


def test_collectives_without_partners_tell_no_places_in_a_step() -> None:
    shape = Job(data=1, pipeline=4, steps=7, micro=4, kernel_ns=421_000, data_ns=454_000, host_ns=78_000)
    noise = replace(shape, jitter=0.0356, clock_ns=0, drift=0, skew_ns=1, transfer_ns=1_066_000, seed=365001700)
    job = replace(noise, embedding=True, graphs=True)
    found = report(job)
    assert accused(found) == []
    assert found.imbalance < 0.03


def test_one_step_is_shown_as_all_ranks_live_it() -> None:
    found = report(Job(data=4, steps=6, plants=(Plant("slow_device", 2, 0.4),)))
    assert 1 <= found.step_shown <= found.steps
    waits = [rank.step_line.count(".") for rank in found.ranks]
    assert {len(rank.step_line) for rank in found.ranks} == {100}
    assert waits[2] < min(waits[:2]) / 2
    assert all(rank.step_line.count("C") > 40 for rank in found.ranks)


@pytest.mark.parametrize(
    ("job", "remedy"),
    [
        (Job(data=8, plants=(Plant("slow_device", 3, 0.2),)), "check_device"),
        (Job(data=8, host_size=2, plants=(Plant("slow_machine", 1, 0.2),)), "replace_machine"),
        (Job(data=8, experts=2, plants=(Plant("hot_expert", 1, 0.7),)), "share_work"),
        (Job(data=4, pipeline=2, micro=4, plants=(Plant("sequence_lengths", None, 0.4),)), "balance_lengths"),
        (Job(data=2, pipeline=2, micro=4, plants=(Plant("uneven_stage", 1, 0.4),)), "move_layers"),
        (Job(data=4, plants=(Plant("slow_input", 1, 0.3),)), "feed"),
        (Job(data=4, tensor=2, plants=(Plant("slow_link", 1, 4),)), "check_link"),
    ],
)
def test_what_helps_is_told_with_what_that_gains(job: Job, remedy: str) -> None:
    found = report(job)
    (one,) = found.stragglers
    assert one.remedy == remedy
    share = units.percent(one.saving_ns / found.length_ns, 1)
    assert told(found, one).endswith(
        f" Without this cause, the job is {units.duration(one.saving_ns)} ({share}) shorter."
    )


def test_the_nodes_of_graphs_are_matched_as_collectives_outside_them_are() -> None:
    plain = Job(data=2, tensor=2, pipeline=3, micro=3, chunks=2, layers=1, steps=4)
    found, outside = (report(replace(plain, graphs=graphs)) for graphs in (True, False))
    parts = sum(rank.collectives for rank in outside.ranks)
    assert sum(rank.unmatched for rank in found.ranks) < 0.06 * parts  # ends of two pairs may be too close to tell
    assert [rank.stage for rank in found.ranks] == [rank.stage for rank in outside.ranks]
