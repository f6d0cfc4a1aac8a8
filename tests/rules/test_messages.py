"""What is told of waits for other ranks: who is late, and what of messages takes the time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export
from benchmarks.simulated.ranks import FIRST_PID, MS, Collective, Own, Recv, Send, Step, ranks

import boundby
from boundby.readers import read_trace
from boundby.results.report import Finding
from tests.evidence.test_no_gpu_work import written

ROUNDS = 12
EARLY: list[Step] = [Own(MS)]
LATE: list[Step] = [Own(9 * MS)]


def waits(export: Export, tmp_path: Path) -> dict[tuple[str, ...], Finding]:
    """The findings of `host-wait` by region."""
    report = boundby.analyze(export.write(tmp_path / "ranks.sqlite"))
    return {tuple(finding.region or ()): finding for finding in report.findings if finding.rule == "host-wait"}


def test_a_late_sender_is_named_by_its_rank(tmp_path: Path) -> None:
    finding = waits(ranks([[*EARLY, Recv(1)] * ROUNDS, [*LATE, Send(0)] * ROUNDS]), tmp_path)[("MPI_Recv",)]
    assert "mostly for rank 1" in finding.title
    assert "before it sends: 96.0 ms of 96.1 ms in these 12 calls" in finding.advice[0]


def test_a_late_receiver_is_named_by_its_rank(tmp_path: Path) -> None:
    programs = [[*EARLY, Send(1, eager=False)] * ROUNDS, [*LATE, Recv(0)] * ROUNDS]
    finding = waits(ranks(programs), tmp_path)[("MPI_Send",)]
    assert "See what rank 1 does before it receives" in finding.advice[0]


def test_late_to_a_collective(tmp_path: Path) -> None:
    programs = [[*EARLY, Collective("MPI_Barrier")] * ROUNDS, [*LATE, Collective("MPI_Barrier")] * ROUNDS]
    finding = waits(ranks(programs), tmp_path)[("MPI_Barrier",)]
    assert "Shorten what rank 1 does before MPI_Barrier" in finding.advice[0]
    assert f"({ROUNDS} times 8.0" in finding.title  # who comes last waits for nobody


def test_of_a_late_rank_that_sleeps_the_sleep_is_to_be_found(tmp_path: Path) -> None:
    barrier, reduction = Collective("MPI_Barrier"), Collective()
    programs: list[list[Step]] = [
        [barrier, reduction] * ROUNDS,
        [barrier, Own(9 * MS, sleeps=True), reduction] * ROUNDS,
    ]
    finding = waits(ranks(programs), tmp_path)[("MPI_Allreduce",)]
    assert finding.remedy == "host_blocked.late-rank-sleeps"
    assert finding.change == (
        "Find the sleep in rank 1, and remove or shorten it: rank 1 is in sleep() between MPI_Barrier and MPI_Allreduce"
    )
    assert finding.code.startswith("grep ")  # no event of one process wakes another
    assert "Find out why" not in finding.change
    assert "meanwhile rank 1 is in sleep() between MPI_Barrier and MPI_Allreduce" in finding.advice[0]


def test_a_late_rank_that_computes_is_told_with_where(tmp_path: Path) -> None:
    programs: list[list[Step]] = [[*EARLY, Collective()] * ROUNDS, [*LATE, Collective()] * ROUNDS]
    finding = waits(ranks(programs), tmp_path)[("MPI_Allreduce",)]
    assert finding.remedy == "host_blocked.late-rank-computes"
    assert finding.change.startswith("See how to make rank 1 come earlier: rank 1 computes")


def test_why_a_rank_is_late_that_waits_for_another_one_is_not_told(tmp_path: Path) -> None:
    begun: list[Step] = [*EARLY, Recv(1, begun_before=MS // 2)]
    programs: list[list[Step]] = [begun * ROUNDS, [Recv(2), Send(0)] * ROUNDS, [*LATE, Send(1)] * ROUNDS]
    found = waits(ranks(programs), tmp_path)
    assert found[("MPI_Waitall",)].change == "Find out why rank 1 comes late"
    assert found[("MPI_Recv",)].change.startswith("See how to make rank 2 come earlier: rank 2 computes")


def test_many_small_messages_are_joined(tmp_path: Path) -> None:
    programs: list[list[Step]] = [[Send(1, bytes=64, eager=False)] * 200, [Recv(0, bytes=64)] * 200]
    found = waits(ranks(programs), tmp_path)
    assert "200 of 64 B (median)" in found[("MPI_Recv",)].advice[0]


def test_ranks_feed_nobody(tmp_path: Path) -> None:
    programs = [[*EARLY, Collective()] * ROUNDS, [*LATE, Collective()] * ROUNDS]
    report = boundby.analyze(ranks(programs).write(tmp_path / "ranks.sqlite"))
    assert not any("worker process" in text or "batch" in text for one in report.findings for text in one.advice)


def test_a_root_that_is_late_to_its_broadcast(tmp_path: Path) -> None:
    bcast = Collective("MPI_Bcast", root=0)
    finding = waits(ranks([[*LATE, bcast] * ROUNDS, [*EARLY, bcast] * ROUNDS, [*EARLY, bcast] * ROUNDS]), tmp_path)
    assert "Shorten what rank 0 does before MPI_Bcast" in finding[("MPI_Bcast",)].advice[0]


def test_a_late_sender_of_what_was_begun_before(tmp_path: Path) -> None:
    programs: list[list[Step]] = [[Own(MS), Recv(1, begun_before=MS // 2)] * ROUNDS, [*LATE, Send(0)] * ROUNDS]
    finding = waits(ranks(programs), tmp_path)[("MPI_Waitall",)]
    assert "See what rank 1 does before it sends" in finding.advice[0]


def test_ranks_that_never_end_are_told(tmp_path: Path) -> None:
    path = ranks([[*EARLY, Collective(), Recv(1)], [*EARLY, Collective(), Recv(0)]]).write(tmp_path / "ranks.sqlite")
    (warning,) = [one for one in boundby.analyze(path).trace.warnings if one.code == "mpi-not-ended"]
    assert "rank 0 is in MPI_Recv from rank 1 (tag 7, 16 B) for the last 1.00 s" in warning.message
    assert "no rank does what the others wait for" in warning.message


def after_a_barrier(tmp_path: Path, said: str = "") -> Path:
    """Two ranks that leave a barrier, and rank 0 waits for rank 1, which wrote ``said``: the barrier is the last row of
    that one, without an end."""
    path = tmp_path / "ranks.sqlite"
    barrier = Collective("MPI_Barrier")
    export = ranks([[*EARLY, barrier, Recv(1)], [*EARLY, barrier, Recv(0)]])
    if said:
        written(export, said, pid=FIRST_PID + 1)
    export.write(path)
    with sqlite3.connect(path) as database:
        (last,) = database.execute("SELECT max(globalTid) FROM MPI_RANKS").fetchone()
        (until_ns,) = database.execute("SELECT max(end) FROM MPI_P2P_EVENTS").fetchone()
        database.execute("DELETE FROM MPI_P2P_EVENTS WHERE globalTid = ?", (last,))
        database.execute("UPDATE MPI_COLLECTIVES_EVENTS SET end = ? WHERE globalTid = ?", (until_ns, last))
    return path


def test_a_barrier_that_another_rank_left_holds_nobody(tmp_path: Path) -> None:
    path = after_a_barrier(tmp_path)
    assert [one.message for one in boundby.analyze(path).trace.warnings if one.code == "mpi-not-ended"] == [
        "MPI did not finish: rank 1 ended after MPI_Barrier; rank 0 is in MPI_Recv from rank 1 (tag 7, 16 B) for the "
        "last 1.00 s."
    ]
    trace = read_trace(path)
    calls = trace.messages
    barriers = [trace.names[name] == "MPI_Barrier" for name in calls.name.tolist()]
    assert len(set(calls.end_ns[barriers].tolist())) == 1


@pytest.mark.parametrize(
    "said",
    [
        f"==== backtrace (tid: {FIRST_PID + 1}) ====\n"
        " 0 0x0000000000004c70 mca_pml_ucx_recv()  /build/pml_ucx.c:651\n"
        " 1 0x0000000000070b2c PMPI_Recv()  /build/precv.c:82\n"
        " 2 0x00000000000025f3 main()  ???:0\n"
        "=================================\n",
        f"[node:{FIRST_PID + 1}] *** Process received signal ***\n"
        f"[node:{FIRST_PID + 1}] [ 0] /lib/libc.so.6(gsignal+0x18)[0x7fec7f251ea8]\n"
        f"[node:{FIRST_PID + 1}] [ 1] /opt/libmpi.so.40(MPI_Recv+0x2c)[0x7fec7e870b2c]\n",
    ],
    ids=["ucx", "open-mpi"],
)
def test_the_backtrace_of_a_rank_says_in_which_call_it_failed(said: str, tmp_path: Path) -> None:
    trace = boundby.analyze(after_a_barrier(tmp_path, said)).trace
    assert [one.message for one in trace.warnings if one.code == "mpi-not-ended"] == [
        "MPI did not finish: rank 1 failed in MPI_Recv; rank 0 is in MPI_Recv from rank 1 (tag 7, 16 B) for the last "
        "1.00 s."
    ]


def unmatched(programs: list[list[Step]], tmp_path: Path) -> list[str]:
    warnings = boundby.analyze(ranks(programs).write(tmp_path / "ranks.sqlite")).trace.warnings
    return [one.message for one in warnings if one.code == "mpi-unmatched"]


def test_messages_that_nobody_receives_are_told(tmp_path: Path) -> None:
    sender: list[Step] = [Send(1, tag=3)] * 5
    assert unmatched([[*sender, Collective()], [Recv(0, tag=3), Recv(0, tag=3), Collective()]], tmp_path) == [
        "No call on record receives 3 messages that rank 0 sends to rank 1 (tag 3)."
    ]
    assert unmatched([[*sender, Collective()], [*[Recv(0, tag=3)] * 5, Collective()]], tmp_path) == []
    assert unmatched([[Collective(), Send(1)], [Collective()]], tmp_path) == [
        "No call on record receives 1 message that rank 0 sends to rank 1 (tag 7)."
    ]


def test_nothing_is_told_of_messages_where_a_receive_takes_any(tmp_path: Path) -> None:
    from_any: list[Step] = [Recv(0, tag=3), Recv(0, tag=3)]
    path = ranks([[Send(1, tag=3)] * 5, from_any]).write(tmp_path / "ranks.sqlite")
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE MPI_P2P_EVENTS SET remoteRank = -1 WHERE globalTid = (SELECT max(globalTid) FROM MPI_P2P_EVENTS)"
        )
    assert not [one for one in boundby.analyze(path).trace.warnings if one.code == "mpi-unmatched"]
