"""Jobs of MPI ranks: who is late to whom, in which call, by how much; in one report and in one a rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export
from benchmarks.simulated.ranks import FIRST_PID, MS, Collective, Own, Recv, Send, Step, ranks

from boundby import api
from boundby.compare.gate import check_job, parse
from boundby.document.job_document import document
from boundby.render import to_markdown, to_terminal
from boundby.results.job_report import JobReport
from boundby.trace.vocabulary.last_words import FAILED
from tests.evidence.test_no_gpu_work import host_only, written
from tests.support.split import split
from tests.support.traces import trace_path
from tests.trace.test_last_words import IMPORT, SHAPES

ROUNDS, LATE_NS = 12, 8 * MS
EARLY: list[Step] = [Own(MS)]
LATE: list[Step] = [Own(MS + LATE_NS)]


def job(tmp_path: Path, *programs: list[Step]) -> JobReport:
    return api.job([ranks(programs).write(tmp_path / "ranks.sqlite")], workers=1)


def check(report: JobReport, rank: int, call: str, others: int = 1) -> None:
    """The rank is to blame, for the time that others wait for it in the call."""
    first, late_ns = report.stragglers[0], ROUNDS * LATE_NS
    assert report.verdict.bound == "imbalance"
    assert (first.ranks, first.waited_in) == ((rank,), call)
    assert first.excess_ns == pytest.approx(late_ns, rel=0.05)
    assert first.waited_ns == pytest.approx(others * late_ns, rel=0.1)
    assert first.saving_ns == pytest.approx(late_ns, rel=0.1)
    assert first.saving_ns <= report.length_ns


@pytest.mark.parametrize("name", ["MPI_Allreduce", "MPI_Barrier", "MPI_Alltoall"])
def test_late_to_a_collective(name: str, tmp_path: Path) -> None:
    report = job(tmp_path, [*EARLY, Collective(name)] * ROUNDS, [*LATE, Collective(name)] * ROUNDS)
    check(report, 1, name)


def test_late_sender(tmp_path: Path) -> None:
    report = job(tmp_path, [*EARLY, Recv(1)] * ROUNDS, [*LATE, Send(0)] * ROUNDS)
    check(report, 1, "MPI_Recv")


def test_late_receiver(tmp_path: Path) -> None:
    report = job(tmp_path, [*EARLY, Send(1, eager=False)] * ROUNDS, [*LATE, Recv(0)] * ROUNDS)
    check(report, 1, "MPI_Send")


def test_who_sends_small_messages_waits_for_nobody(tmp_path: Path) -> None:
    report = job(tmp_path, [*EARLY, Send(1)] * ROUNDS, [*LATE, Recv(0)] * ROUNDS)
    assert report.ranks[0].wait_ns < MS
    assert not any(one.ranks == (0,) for one in report.stragglers)


def test_late_sender_of_what_was_begun_before(tmp_path: Path) -> None:
    waits: list[Step] = [Own(MS), Recv(1, begun_before=MS // 2)]
    check(job(tmp_path, waits * ROUNDS, [*LATE, Send(0)] * ROUNDS), 1, "MPI_Waitall")


def test_serial_part_of_the_root(tmp_path: Path) -> None:
    bcast: list[Step] = [Collective("MPI_Bcast", root=0), Collective("MPI_Barrier")]
    others = [[*EARLY, *bcast] * ROUNDS for _ in range(3)]
    check(job(tmp_path, [*LATE, *bcast] * ROUNDS, *others), 0, "MPI_Bcast", len(others))


def test_what_repeats_tells_the_steps_of_a_program_that_names_none(tmp_path: Path) -> None:
    """A long part of all ranks before the loop leaves who is late in each round known by these."""
    meets: list[Step] = [Collective(), Collective("MPI_Bcast", root=0)]
    before: list[Step] = [Own(25 * LATE_NS)]
    report = job(tmp_path, *([*before, *[*own, *meets] * ROUNDS] for own in (EARLY, EARLY, LATE, EARLY)))
    check(report, 2, "MPI_Allreduce", 3)
    assert (report.steps, report.stragglers[0].steps, report.verdict.confidence) == (ROUNDS, ROUNDS, "high")
    assert "names no steps" in report.notes[-1]


def test_what_comes_once_is_no_turn(tmp_path: Path) -> None:
    """A serial part at the begin, and another rank that is late each time: two culprits, not chance."""
    meets: list[Step] = [Collective(), Collective("MPI_Bcast", root=0)]
    programs = [[*own, *meets] * ROUNDS for own in (EARLY, EARLY, LATE, EARLY)]
    report = job(tmp_path, [Own(25 * LATE_NS), *programs[0]], *programs[1:])
    found = [(one.kind, one.ranks, one.steps) for one in report.stragglers]
    assert found == [("exceptions", (0,), 1), ("rank", (2,), ROUNDS)]


@pytest.mark.parametrize("repeats", [False, True])
def test_turns_take_steps(repeats: bool, tmp_path: Path) -> None:
    """Where nothing repeats, nobody can take turns; where it does, they are told."""
    names = ["MPI_Allreduce"] * 40 if repeats else [f"MPI_{name}" for name in ("Barrier", "Allreduce", "Alltoall")]
    programs: list[list[Step]] = [[] for _ in range(4)]
    for number, name in enumerate(names):
        for rank, program in enumerate(programs):
            program += [*(LATE if (7 * number // 2) % 4 == rank else EARLY), Collective(name)]
    report = job(tmp_path, *programs)
    kinds = [one.kind for one in report.stragglers]
    assert kinds == (["random"] if repeats else ["rank", "rank"]), report.stragglers
    assert report.verdict.confidence == ("high" if repeats else "medium")


@pytest.mark.parametrize("sleeps", [True, False])
def test_what_a_late_rank_sleeps_on_is_told(sleeps: bool, tmp_path: Path) -> None:
    usual: list[Step] = [Own(MS, sleeps=True), Collective()]  # they all sleep for as long
    found = job(tmp_path, usual * ROUNDS, [Own(9 * MS, sleeps=sleeps), *usual] * ROUNDS)
    first = found.stragglers[0]
    assert (first.cause, first.blocked_on) == (("host_blocked", "sleep") if sleeps else ("cpu", None))


def test_even_ranks_have_no_culprit(tmp_path: Path) -> None:
    report = job(tmp_path, *([[*EARLY, Collective()] * ROUNDS] * 4))
    assert not report.stragglers


def test_a_deadlock_names_who_is_in_what(tmp_path: Path) -> None:
    report = job(tmp_path, [*EARLY, Collective(), Recv(1)], [*EARLY, Collective(), Recv(0)])
    assert [(one.rank, one.call, one.is_inside, one.peer) for one in report.ended] == [
        (0, "MPI_Recv", True, 1),
        (1, "MPI_Recv", True, 0),
    ]
    text = " ".join(to_terminal.render(document(report)).split())
    assert "did not end" in text
    assert "rank 0 is in MPI_Recv from rank 1 (tag 7, 16 B)" in text
    assert "no rank does what the others wait for" in text
    assert "WHO HOLDS IT UP" not in text


def test_a_job_that_did_not_end_has_no_ranking() -> None:
    """The message that nobody received is waiting, not transfer; the other run in the folder is told in one line."""
    paths = [trace_path(name) for name in ("mpi_rank_1_late.sqlite", "mpi_crash_bad_address.sqlite")]
    report = api.job(paths, workers=1)
    assert (report.verdict.bound, report.stragglers, report.what_if) == ("unknown", (), ())
    assert [rank.wait_ns > 2 * 10**9 for rank in report.ranks] == [True, False]
    assert all(rank.transfer_ns < MS for rank in report.ranks)
    assert [(one.call, one.is_inside, one.has_failed) for one in report.ended] == [
        ("MPI_Send", True, False),
        ("MPI_Recv", True, True),
    ]
    [other] = report.left_out
    assert other.startswith("mpi_rank_1_late.sqlite (ranks 0, 1) was recorded at another time")
    text = " ".join(to_terminal.render(document(report)).split())
    assert text.startswith("The program of ranks 0 and 1 FAILED")
    assert "WHAT IF" not in text


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    export = ranks([[Collective(), Collective("MPI_Barrier")], [Collective(), *LATE]], dies={1: ""})
    report = api.job([export.write(tmp_path / "ranks.sqlite")], workers=1)
    assert [(one.rank, one.call, one.is_inside) for one in report.ended] == [
        (0, "MPI_Barrier", True),
        (1, "MPI_Allreduce", False),
    ]
    assert "rank 1 ended after MPI_Allreduce" in " ".join(to_terminal.render(document(report)).split())


def test_a_program_that_failed_is_told_first(tmp_path: Path) -> None:
    """In one report for all of its ranks, in one a rank for that rank; what is no rank's report as well."""
    programs = [[*EARLY, Collective(), Collective("MPI_Bcast", root=0)] * ROUNDS for _ in range(3)]
    export = ranks(programs)
    written(export, SHAPES, pid=FIRST_PID)
    whole = export.write(tmp_path / "ranks.sqlite")
    split(whole, tmp_path, {FIRST_PID + number: number * MS for number in range(3)})
    broken = host_only()
    written(broken, IMPORT)
    broken.write(tmp_path / "process_6000.sqlite")
    whole.rename(tmp_path.parent / f"{tmp_path.name}.sqlite")
    for path, first in (
        (tmp_path.parent / f"{tmp_path.name}.sqlite", ["The program FAILED: RuntimeError: mat1 and mat2"]),
        (tmp_path, ["The program of process_6000.sqlite FAILED: ModuleNotFoundError", "The program of rank 0 FAILED"]),
    ):
        report = api.job([path], workers=1)
        assert report.verdict.confidence == "medium"
        assert sorted(one.program.ended for one in report.programs) == [FAILED] * len(first)
        for text in (to_terminal.render(document(report)), to_markdown.render(document(report))):
            told = " ".join(text.replace("\\", "").split()).removeprefix("### ")
            assert told.startswith(first[0])
            assert all(words in told[: told.index("The job of 3 ranks")] for words in first)
        assert check_job([parse("stragglers < 5")], report).limits[0].untold


def test_one_report_a_rank_gives_the_same_culprit(tmp_path: Path) -> None:
    programs = [[*EARLY, Collective()] * ROUNDS, [*LATE, Collective()] * ROUNDS, [*EARLY, Collective()] * ROUNDS]
    whole = ranks(programs).write(tmp_path / "ranks.sqlite")
    parts = split(whole, tmp_path, {5_000: 0, 5_001: 3 * MS, 5_002: -2 * MS})
    report = api.job(parts, workers=1)
    assert [rank.rank for rank in report.ranks] == [0, 1, 2]
    assert (report.stragglers[0].ranks, report.stragglers[0].waited_in) == ((1,), "MPI_Allreduce")
    assert report.stragglers[0].excess_ns == pytest.approx(ROUNDS * LATE_NS, rel=0.15)


@pytest.mark.parametrize("ring", [2, 3])
def test_late_to_what_sends_and_receives(ring: int, tmp_path: Path) -> None:
    """MPI_Sendrecv around a ring: of two ranks one row a call, of more one of no length for what is sent besides."""
    export = Export(("mpirun", "./ring"))
    threads = [export.thread(100 + number, name=f"MPI Rank {number}") for number in range(ring)]
    for number, thread in enumerate(threads):
        export.mpi_rank(thread, number, ring, 64 + number)
        export.mpi(thread, 0, MS, "MPI_Init")
        export.osrt(thread, 0, 2_000, "fopen")
    now = [MS] * ring
    for _ in range(ROUNDS):
        begin = [at + MS + (LATE_NS if number == 1 else 0) for number, at in enumerate(now)]
        for number, thread in enumerate(threads):
            before, place = (number - 1) % ring, {"communicator": 64 + number, "tag": 7, "bytes": 64}
            now[number] = max(begin[number], begin[before]) + 10_000
            if ring > 2:
                export.mpi(thread, begin[number], begin[number], "MPI_Sendrecv", peer=(number + 1) % ring, **place)
            export.mpi(thread, begin[number], now[number], "MPI_Sendrecv", peer=before, **place)
    for thread, end in zip(threads, now, strict=True):
        export.mpi(thread, end, max(now) + MS, "MPI_Finalize")
    first = api.job([export.write(tmp_path / "ring.sqlite")], workers=1).stragglers[0]

    assert (first.ranks, first.waited_in) == ((1,), "MPI_Sendrecv")
    assert first.excess_ns == pytest.approx(ROUNDS * LATE_NS, rel=0.05)
