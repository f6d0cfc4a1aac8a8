"""Calls of MPI from the tables of each generation of nsys: waits for other ranks, whoever polls, named and matched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from benchmarks.simulated.full_export import Export
from benchmarks.simulated.ranks import INIT_NS, MS, US, Collective, Own, Recv, Send, ranks

import boundby
from boundby.api import Analysis
from boundby.readers import read_trace
from boundby.trace.vocabulary.os import MessageKind, is_symmetric, message_kind

ROUNDS, LATE_NS = 10, 8 * MS
SCHEMAS = ("2022", "2023", "2026")


def late(polls: bool = True) -> Export:
    """Rank 1 sleeps before each MPI_Allreduce."""
    return ranks(
        [[Own(MS), Collective()] * ROUNDS, [Own(MS + LATE_NS, sleeps=True), Collective()] * ROUNDS], polls=polls
    )


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("polls", [True, False])
def test_a_wait_inside_mpi_is_a_wait_for_another_rank(schema: str, polls: bool, tmp_path: Path) -> None:
    report = boundby.analyze(late(polls).write(tmp_path / "late.sqlite", schema))
    first, second = sorted(report.threads, key=lambda thread: thread.pid)

    assert first.time["host_blocked"] == pytest.approx(ROUNDS * (LATE_NS + 10 * US), rel=0.01)
    assert first.blocked_on == {"MPI": first.time["host_blocked"]}
    assert first.time["init"] == second.time["init"] == 0  # MPI_Init lies before the window
    assert [thread.verdict.bound for thread in (first, second)] == ["host_blocked", "host_blocked"]
    assert not report.trace.captured.nvtx or schema == "2022"


def test_ranks_communicators_and_sizes_are_read(tmp_path: Path) -> None:
    bcast = Collective("MPI_Bcast", root=0)
    export = ranks([[Send(1, bytes=64, tag=3), bcast], [Recv(0, bytes=64, tag=3), bcast]])
    trace = read_trace(export.write(tmp_path / "two.sqlite"))
    calls, names = trace.messages, [trace.names[number] for number in trace.messages.name]

    assert trace.ranks == {0: 0, 1: 1}
    assert [(one.process, one.rank, one.size) for one in trace.communicators] == [(0, 0, 2), (1, 1, 2)]
    assert names[:4] == ["MPI_Init", "MPI_Send", "MPI_Bcast", "MPI_Finalize"]
    assert names[4:] == ["MPI_Init", "MPI_Recv", "MPI_Bcast", "MPI_Finalize"]
    send, receive = names.index("MPI_Send"), names.index("MPI_Recv")
    assert (calls.peer[send], calls.tag[send], calls.sent_bytes[send], calls.received_bytes[send]) == (1, 3, 64, -1)
    assert (calls.peer[receive], calls.tag[receive], calls.received_bytes[receive]) == (0, 3, 64)
    assert calls.peer[names.index("MPI_Bcast")] == 0


def test_a_column_that_a_version_lacks_is_not_told(tmp_path: Path) -> None:
    drop = ("MPI_P2P_EVENTS.tag", "MPI_P2P_EVENTS.remoteRank", "MPI_RANKS", "MPI_COMMUNICATORS")
    export = ranks([[Send(1)], [Recv(0)]])
    trace = read_trace(export.write(tmp_path / "less.sqlite", drop=drop))

    assert set(trace.messages.peer.tolist()) == {-1}
    assert trace.ranks == {0: 0, 1: 1}  # by the names of their threads


def test_a_gpu_that_idles_while_its_rank_polls_in_mpi_waits_for_another_rank(tmp_path: Path) -> None:
    export = Export()
    main = export.thread(name="MPI Rank 0")
    export.mpi_rank(main, 0, 2, 77)
    for step in range(20):
        start = step * 10 * MS
        launch = export.api(main, start, start + 5 * US, "cudaLaunchKernel")
        export.kernel(launch, start + 8 * US, start + 2 * MS)
        export.api(main, start + 6 * US, start + 2 * MS + 5 * US, "cudaDeviceSynchronize")
        export.mpi(main, start + 2 * MS + 10 * US, start + 9 * MS, "MPI_Waitall")
    report = Analysis(export.write(tmp_path / "gpu.sqlite")).report
    (device,) = report.devices

    assert device.time["host_blocked"] >= 0.95 * 19 * 5 * MS  # 2 ms of each gap are the sync's
    assert device.verdict.bound == "host_blocked"
    assert "MPI_Waitall" in device.verdict.because


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MPI_Init_thread", MessageKind.START),
        ("MPI_Finalize", MessageKind.END),
        ("MPI_Barrier", MessageKind.COLLECTIVE),
        ("PMPI_Allreduce", MessageKind.COLLECTIVE),
        ("MPI_Iallreduce", MessageKind.BEGIN),
        ("MPI_Alloc_mem", MessageKind.OTHER),
        ("MPI_Reduce_local", MessageKind.OTHER),
        ("MPI_Ssend", MessageKind.SEND),
        ("MPI_Irsend", MessageKind.BEGIN),
        ("MPI_Recv", MessageKind.RECEIVE),
        ("MPI_Sendrecv_replace", MessageKind.EXCHANGE),
        ("MPI_Waitsome", MessageKind.WAIT),
        ("MPI_Testall", MessageKind.WAIT),
        ("MPI_Comm_rank", MessageKind.OTHER),
        ("mpi_recv_", MessageKind.RECEIVE),
        ("ucp_worker_wait", MessageKind.WAIT),
        ("cudaMemcpy", MessageKind.OTHER),
    ],
)
def test_what_a_call_does_its_name_says(name: str, kind: MessageKind) -> None:
    assert message_kind(name) == kind


def test_a_root_may_leave_before_the_others_come() -> None:
    assert is_symmetric("MPI_Barrier")
    assert not is_symmetric("MPI_Bcast")


def test_time_before_the_first_message_is_start_up(tmp_path: Path) -> None:
    analysis = Analysis(late().write(tmp_path / "late.sqlite"))

    assert min(thread.low_ns for thread in analysis.timeline.threads) <= INIT_NS
    assert min(int(thread.covered.start[0]) for thread in analysis.timeline.threads) == INIT_NS


def test_a_call_that_waits_for_several_requests_is_one_range(tmp_path: Path) -> None:
    """nsys writes a row for each request of MPI_Waitall."""
    export = ranks([[Send(1), Collective()], [Recv(0, begun_before=MS), Collective()]])
    path = export.write(tmp_path / "waits.sqlite")
    with sqlite3.connect(path) as database:
        database.executescript("INSERT INTO MPI_START_WAIT_EVENTS SELECT * FROM MPI_START_WAIT_EVENTS")
    trace = read_trace(path)
    assert [trace.names[name] for name in trace.messages.name].count("MPI_Waitall") == 2
    assert [trace.names[name] for name in trace.ranges.name].count("MPI_Waitall") == 1
