"""What a report's damaged tables may make of its ranks: no number that is not sure, and none that is lost unsaid."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from boundby import api
from boundby.results.job_report import JobReport
from tests.support import beside
from tests.support.counted import COUNTED_BOUND


def changed(path: Path, *changes: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for change in changes:
            connection.execute(change)
        connection.commit()
    return path


def of_late_rank(tmp_path: Path, *changes: str) -> JobReport:
    path = beside.late_rank().write(tmp_path / "ranks.sqlite", "2026")
    return api.job([changed(path, *changes)], workers=1)


def test_ranks_of_which_two_tables_differ_are_numbered_by_neither(tmp_path: Path) -> None:
    found = of_late_rank(tmp_path, "UPDATE MPI_RANKS SET rank = rank * 3")
    late = found.ranks[found.stragglers[0].ranks[0]]
    assert late.rank == 2  # as its thread is named
    assert late.name.endswith(f" {beside.LATE_PID}")


def test_a_rank_none_of_whose_time_is_known_is_said_to_be_lost(tmp_path: Path) -> None:
    begin = "SELECT MAX(start) FROM MPI_OTHER_EVENTS"
    found = of_late_rank(
        tmp_path,
        f"UPDATE MPI_OTHER_EVENTS SET start = -start WHERE start = ({begin})"
        " AND globalTid = (SELECT globalTid FROM MPI_RANKS WHERE rank = 1)",
    )
    assert len(found.ranks) == 3
    assert found.verdict.confidence != "high"
    assert any("passes messages, but none of its time" in text for one in found.ranks for text in one.warnings)


@pytest.mark.parametrize("year", ["2022", "2026"])
def test_constructs_that_cross_tell_no_time(tmp_path: Path, year: str) -> None:
    path = beside.program().write(tmp_path / "program.sqlite", year)
    report = api.analyze(changed(path, "UPDATE CUPTI_ACTIVITY_KIND_OPENACC_DATA SET end = end * 3"))
    assert {device.verdict.bound for device in report.devices} == {COUNTED_BOUND}


def test_ranks_of_mpi_that_pass_messages_are_peers(tmp_path: Path) -> None:
    found = of_late_rank(tmp_path)
    assert {one.stage for one in found.ranks} <= {None, 0}
    balance = next(one for one in found.what_if if one.scenario == "balance")
    assert balance.predicted_ns < 0.7 * found.length_ns  # of 9 ms a round one rank's 8 are dealt out to four


def test_a_rank_that_its_table_and_its_thread_name_differ_on_is_named_by_its_process(tmp_path: Path) -> None:
    path = beside.late_rank().write(tmp_path / "ranks.sqlite", "2023")
    damage = ("UPDATE MPI_RANKS SET rank = 2000000000 WHERE rank = 2", "DROP TABLE MPI_COMMUNICATORS")
    job = api.job([changed(path, *damage)], workers=1)
    late = job.ranks[job.stragglers[0].ranks[0]]
    assert late.rank is None
    assert late.name.endswith(f" {beside.LATE_PID}")


def test_a_job_that_the_replay_cannot_reproduce_is_not_sure(tmp_path: Path) -> None:
    """One call of the late rank seems to have begun before all others, and none tells where MPI began."""
    late = "(SELECT globalTid FROM MPI_RANKS WHERE rank = 2)"
    path = changed(
        beside.late_rank().write(tmp_path / "ranks.sqlite", "2023"),
        f"UPDATE MPI_COLLECTIVES_EVENTS SET start = 0 WHERE globalTid = {late} AND end = 263130000",
        "ALTER TABLE MPI_OTHER_EVENTS DROP COLUMN textId",
    )
    found = api.job([path], workers=1)
    assert found.verdict.confidence == "low"
    assert any("replayed unchanged" in reason for reason in found.verdict.reasons)


@pytest.mark.parametrize("name", ["MPI_Allreduce", "MPI_Wait"])
@pytest.mark.parametrize("end", ["end + 20000000000", "(SELECT MAX(end) FROM MPI_COLLECTIVES_EVENTS)"])
def test_a_call_of_mpi_that_holds_others_is_left_out_of_the_ranges(tmp_path: Path, name: str, end: str) -> None:
    path = beside.late_rank().write(tmp_path / "ranks.sqlite", "2023")
    first = "SELECT MIN(start) FROM MPI_COLLECTIVES_EVENTS"
    damage = (
        f"UPDATE StringIds SET value = '{name}' WHERE id IN (SELECT textId FROM MPI_COLLECTIVES_EVENTS)",
        f"UPDATE MPI_COLLECTIVES_EVENTS SET end = {end} WHERE start = ({first})",
    )
    report = api.analyze(changed(path, *damage))
    told = [one.message for one in report.trace.warnings if one.code == "broken-rows"]
    # A collective that lasts as long as the recording was left open: it ends where another rank left it.
    is_open = name == "MPI_Allreduce" and end.startswith("end + ")
    assert [text.partition(" had ")[0] for text in told] == ([] if is_open else ["1 of the NVTX ranges"])
