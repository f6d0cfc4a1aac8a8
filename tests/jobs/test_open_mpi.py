"""Programs of Open MPI under a real nsys: the rank that is to blame, the call in which others wait for it, the end of
those that never end."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

import boundby
from boundby import api
from boundby.capture.nsys import Nsys
from boundby.document.job_document import document
from boundby.render import to_terminal
from boundby.results.job_report import JobReport
from tests.support.nsys import end_agent

pytestmark = [pytest.mark.nsys, pytest.mark.xdist_group("open-mpi")]
PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "mpi_ranks.c"
#: Before, its calls are ranges without arguments.
LEAST_NSYS = (2023, 1)
TIMEOUT_S = 90
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
#: Rounds of the program, and what the late rank does more in each, milliseconds.
ROUNDS, LATE_MS = 15, 8


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("no Open MPI to test with: install openmpi-bin and libopenmpi-dev")
    built = tmp_path_factory.mktemp("mpi") / "ranks"
    subprocess.run(["mpicc", "-O1", "-o", str(built), str(PROGRAM)], check=True, timeout=TIMEOUT_S)
    return built


@pytest.fixture
def captured(nsys: Nsys, program: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The export of two ranks of the program that the test asks for; those that fail are recorded all the same."""
    if nsys.version_tuple < LEAST_NSYS:
        pytest.skip(f"nsys {nsys.release} tells no more of calls of MPI than their names")
    session = f"boundby-test-{uuid.uuid4().hex}"
    profile = [str(nsys.path), "profile", "--trace=mpi,osrt", "--mpi-impl=openmpi", "--sample=none", "--cpuctxsw=none"]
    output = ["--export=sqlite", f"--session-new={session}", f"--output={tmp_path / 'ranks'}"]
    target = ["mpirun", "--oversubscribe", "-np", "2", str(program), str(request.param)]
    try:
        subprocess.run(
            [*profile, *output, *target],
            env={**os.environ, **AS_ROOT},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        end_agent(session)
        raise
    export = tmp_path / "ranks.sqlite"
    assert export.is_file()
    return export


def job(export: Path) -> JobReport:
    return api.job([export], workers=1)


@pytest.mark.parametrize(
    ("captured", "rank", "call", "cause"),
    [
        ("late_sender", 1, "MPI_Recv", "host_blocked"),
        ("late_receiver", 1, "MPI_Send", "host_blocked"),
        ("late_begun", 1, "MPI_Waitall", "host_blocked"),
        ("exchange", 1, "MPI_Sendrecv", "host_blocked"),
        ("imbalance", 1, "MPI_Allreduce", "cpu"),
        ("serial", 0, "MPI_Bcast", "host_blocked"),
    ],
    indirect=["captured"],
)
def test_the_late_rank_its_cause_and_the_call_are_named(captured: Path, rank: int, call: str, cause: str) -> None:
    report = job(captured)
    first = report.stragglers[0]

    assert [one.rank for one in report.ranks] == [0, 1]
    assert report.verdict.bound == "imbalance"
    assert (first.ranks, first.waited_in, first.cause) == ((rank,), call, cause)
    assert first.excess_ns >= 0.8 * ROUNDS * (LATE_MS - 1) * 1e6  # how much more it is the machine's load tells


@pytest.mark.parametrize("captured", ["late_sender"], indirect=True)
def test_who_waits_polls_and_is_blocked_all_the_same(captured: Path) -> None:
    report = boundby.analyze(captured)
    first, second = sorted(report.threads, key=lambda thread: thread.name)

    assert [thread.name for thread in (first, second)] == ["MPI Rank 0", "MPI Rank 1"]
    assert first.verdict.bound == "host_blocked"
    assert next(iter(first.blocked_on)) == "MPI"
    assert "MPI_Recv" in first.verdict.because


@pytest.mark.parametrize("captured", ["deadlock"], indirect=True)
def test_a_deadlock_names_what_each_rank_is_in(captured: Path) -> None:
    report = job(captured)

    assert {(one.call, one.is_inside) for one in report.ended} == {("MPI_Recv", True)}
    assert len(report.ended) == 2
    assert "no rank does what the others wait for" in " ".join(to_terminal.render(document(report)).split())


@pytest.mark.parametrize("captured", ["crash"], indirect=True)
def test_a_crash_names_the_rank_that_is_gone_and_who_waits_for_it(captured: Path) -> None:
    report = job(captured)

    stuck = [one for one in report.ended if one.is_inside]
    assert [(one.rank, one.call) for one in stuck] == [(0, "MPI_Barrier")]
    assert [one.rank for one in report.ended if not one.is_inside] == [1]
