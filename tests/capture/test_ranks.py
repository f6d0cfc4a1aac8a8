"""Launchers of many ranks: each rank records itself, and the job gets one answer."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.simulated.jobs import Job, simulate, write_export

from boundby.api import load_job
from boundby.capture import launched_ranks
from boundby.capture.nsys import Nsys
from boundby.cli.main import main
from boundby.model.errors import UserError
from boundby.opening import open_trace
from boundby.trace.facts import JobPlace

#: The processes of a step side by side, as srun starts them.
SRUN = """\
#!/bin/sh
shift 2
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=2 "$@" &
done
wait
"""
#: Two processes that meet at a socket, of which the second comes late: so long after the first is there. One whose
#: other never comes (its nsys failed) ends itself.
MEETS = """\
import os, signal, sys, time, nvtx
signal.alarm(120)
from multiprocessing.connection import Client, Listener
rank, place = int(os.environ["SLURM_PROCID"]), sys.argv[1]
if rank == 0:
    listener = Listener(place)
    other = listener.accept()
else:
    other = None
    while other is None:  # the socket is there a moment before it is listened to
        try:
            other = Client(place)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
for number in range(6):
    with nvtx.annotate(f"step {number}"):
        with nvtx.annotate("read"):
            if rank:
                other.poll(None)
                time.sleep(0.08)
        with nvtx.annotate("MPI_Barrier"):
            other.send(0)
            other.recv()
"""
REDUCES = """\
import pathlib, signal, sys, time, nvtx, torch, torch.distributed as dist
signal.alarm(120)
dist.init_process_group("gloo")
for number in range(6):
    with nvtx.annotate(f"step {number}"):
        with nvtx.annotate("read"):
            there = pathlib.Path(sys.argv[1], str(number))
            if dist.get_rank():
                there.touch()
            else:
                while not there.exists():
                    time.sleep(0.01)
                time.sleep(0.08)
        work = dist.all_reduce(torch.ones(8), async_op=number % 2 == 1)
        if work is not None:
            work.wait()
dist.destroy_process_group()
"""


def _launched(command: list[str], job: Path) -> str:
    """A launcher's command as it is started, with what boundby adds as BOUNDBY."""
    started = launched_ranks.launch(command, ["--delay=1"], job)
    inside = [*launched_ranks._BOUNDBY, "profile", "--in-job", "-o", str(job.resolve()), "--delay=1", "--"]
    return " ".join(started.command).replace(" ".join(inside), "BOUNDBY")


@pytest.mark.parametrize(
    ("command", "started"),
    [
        ("srun -n 4 sh -c true", "srun -n 4 BOUNDBY sh -c true"),
        ("srun -l -J sh --mpi pmix sh -n : 4", "srun -l -J sh --mpi pmix BOUNDBY sh -n : 4"),
        ("mpirun -np 2 -x PATH sh a : -np 1 env b", "mpirun -np 2 -x PATH BOUNDBY sh a : -np 1 BOUNDBY env b"),
        ("mpiexec -env A sh -n 2 -ppn 1 sh a", "mpiexec -env A sh -n 2 -ppn 1 BOUNDBY sh a"),
        ("torchrun --nproc-per-node 2 --no-python sh a", "torchrun --nproc-per-node 2 --no-python BOUNDBY sh a"),
    ],
)
def test_boundby_stands_between_a_launcher_and_its_programs(command: str, started: str, tmp_path: Path) -> None:
    assert launched_ranks.is_launcher(command.split())
    assert _launched(command.split(), tmp_path) == started


def test_torchrun_is_left_as_it_is_and_starts_its_ranks_through_a_script(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    assert launched_ranks.is_launcher(command)
    started = launched_ranks.launch(command, [], tmp_path)
    assert list(started.command) == command
    script = Path(started.environment["PYTHON_EXEC"])
    assert re.search(r"--in-job .* -- '?\S*python[\d.]*'? \"\$@\"\n$", script.read_text())
    assert os.access(script, os.X_OK)


def test_where_the_program_begins_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Cannot tell where"):
        launched_ranks.launch(["srun", "--multi-prog", "programs.conf"], [], tmp_path)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, JobPlace(3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, JobPlace(0, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, JobPlace(1, 2)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, JobPlace()),  # the batch script itself
        ({"RANK": "0", "WORLD_SIZE": "1"}, JobPlace()),
        ({"RANK": '"***"', "WORLD_SIZE": "***"}, JobPlace()),
    ],
)
def test_the_environment_tells_the_rank(variables: dict[str, str], expected: JobPlace) -> None:
    assert JobPlace.in_environment(variables) == expected


def test_a_report_tells_its_rank_by_the_environment_that_nsys_noted(tmp_path: Path) -> None:
    export = write_export(simulate(Job(steps=2))[0], tmp_path / "some.sqlite")
    with closing(sqlite3.connect(export)) as database, database:
        rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", text) for text in ('RANK="5"', 'WORLD_SIZE="8"', 'HOME="/root"')]
        database.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
        database.executemany("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", rows)
    assert open_trace(export, None, lambda *_: None).place == JobPlace(5, 8)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("run", "run/rank_3"), ("run_3", "run_3"), (None, "boundby-out/train-17/rank_3")],
)
def test_a_rank_that_starts_boundby_itself_has_its_own_folder(chosen: str | None, expected: str) -> None:
    made = launched_ranks.folder_of(3, Path(chosen) if chosen else None, ["python", "train.py"], {"SLURM_JOB_ID": "17"})
    assert made == Path(expected)


@pytest.mark.nsys
def test_srun_leaves_a_report_a_rank_and_one_answer(
    nsys: Nsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "meets.py").write_text(MEETS)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job, socket = tmp_path / "job", str(tmp_path / "socket")
    command = ["srun", "-n", "2", sys.executable, str(tmp_path / "meets.py"), socket]
    assert main(["profile", "--nsys", str(nsys.path), "-o", str(job), "--", *command]) == 0
    out, err = capfd.readouterr()
    assert "WHO HOLDS IT UP" in out
    assert err.splitlines()[-1] == f"boundby: all of it is in {job}: open {job}/job.html, or: boundby job {job}"
    assert sorted(path.name for path in job.iterdir()) == ["job.html", "job.json", "job.md", "rank_0", "rank_1"]
    found = load_job(job / "job.json")
    assert [(rank.rank, rank.collectives) for rank in found.ranks] == [(0, 6), (1, 6)]
    assert (found.world_size, found.steps) == (2, 6)
    assert found.ranks[0].wait_ns > max(4 * 50_000_000, found.ranks[1].wait_ns)
    assert 'href="rank_1/report.html"' in (job / "job.html").read_text()


@pytest.mark.nsys
def test_torchrun_leaves_a_report_a_rank_and_one_answer(nsys: Nsys, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "reduces.py").write_text(REDUCES)
    job = tmp_path / "job 2"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = ["profile", "-q", "--format", "none", "--nsys", str(nsys.path), "-o", str(job), "--"]
    assert main([*arguments, *launcher, str(tmp_path / "reduces.py"), str(tmp_path)]) == 0
    found = load_job(job / "job.json")
    assert [(rank.rank, rank.collectives) for rank in found.ranks] == [(0, 6), (1, 6)]
    assert found.ranks[1].wait_ns > max(4 * 50_000_000, found.ranks[0].wait_ns)
