"""What one host does while several devices wait for it, or several ranks beside it, is told once, and of the right."""

from __future__ import annotations

import numpy as np

from boundby.document.sentences import each_ns
from boundby.evidence.host_idleness import host_pieces
from tests.support.traces import analysis_of


def test_a_thread_for_which_four_gpus_wait_does_it_once() -> None:
    analysis = analysis_of("mpi_4_gpus_no_os_calls.sqlite")
    pieces = host_pieces(analysis.rule_context)
    assert len(analysis.devices) == 4
    for thread in np.unique(pieces.thread).tolist():
        mine = np.flatnonzero(pieces.thread == thread)
        assert (pieces.start_ns[mine[1:]] >= pieces.end_ns[mine[:-1]]).all()


def test_an_instance_takes_as_long_as_on_one_of_the_gpus() -> None:
    report = analysis_of("mpi_4_gpus_no_os_calls.sqlite").report
    barriers = [region for region in report.regions if region.path[-1:] == ("MPI_Barrier",) and region.total_ns]
    assert barriers
    for barrier in barriers:
        assert barrier.devices_each == 4
        assert each_ns(barrier) <= barrier.host.max_ns


def test_a_rank_is_told_of_its_own_waits() -> None:
    report = analysis_of("mpi_rank_1_late.sqlite").report
    told = {thread.name: [one.id for one in thread.first_responses] for thread in report.threads}
    assert told["MPI Rank 1"][0] == "host_blocked.shorter-sleep"  # it sleeps, and does not wait for itself
    assert "host_blocked.shorter-sleep" not in told["MPI Rank 0"]  # it waits for rank 1
