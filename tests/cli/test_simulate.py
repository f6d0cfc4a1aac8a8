"""``boundby simulate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from boundby.cli.simulate import SCHEMAS
from boundby.readers import read_trace
from boundby.simulate.nsys_export import GENERATIONS
from boundby.simulate.patterns import EVERY
from tests.cli.conftest import Ran

Boundby = Callable[..., Ran]
OWN = """
from boundby.simulate.machine import Machine
from boundby.simulate.instructions import Launch, Loop, Sync, program
def make():
    return program(Loop(3, [Launch("gemm", 1000)]), Sync())
def both():
    return make(), Machine(launch_call_ns=9000)
def nothing():
    return 42
def failing():
    raise RuntimeError("oh")
def leaving():
    raise SystemExit(3)
def stuck():
    from boundby.simulate.instructions import Await
    return program(Await("godot"))
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_the_schemas_are_those_that_there_are() -> None:
    assert SCHEMAS == GENERATIONS


def test_it_lists_the_patterns(boundby: Boundby) -> None:
    ran = boundby("simulate", "--list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == [*EVERY]


def test_it_writes_a_pattern(boundby: Boundby, tmp_path: Path) -> None:
    path = tmp_path / "out.sqlite"
    ran = boundby("simulate", "--pattern", "sync", "-o", path, "--steps", "3")
    assert (ran.code, ran.out, ran.err) == (0, f"wrote {path}\n", "")
    assert len(read_trace(path).operations) > 0


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_it_writes_what_the_profiler_of_pytorch_would(boundby: Boundby, tmp_path: Path, suffix: str) -> None:
    export, trace = tmp_path / "out.sqlite", tmp_path / f"out{suffix}"
    for path in (export, trace):
        assert boundby("simulate", "--pattern", "segmentation_before", "-o", path, "--steps", "2").code == 0
    one, other = read_trace(export), read_trace(trace)
    assert len(other.operations) == len(one.operations)
    assert "aten::nonzero" in other.names


def test_each_process_has_a_trace_of_pytorch(boundby: Boundby, tmp_path: Path) -> None:
    ran = boundby("simulate", "--pattern", "two_gpus", "-o", tmp_path / "job.json.gz", "--steps", "2")
    assert ran.out == "".join(f"wrote {tmp_path / f'job.rank{rank}.json.gz'}\n" for rank in range(2))
    assert boundby("simulate", "--pattern", "two_gpus", "-o", tmp_path / "job.json.gz").code == 2


def test_a_seed_is_an_export(boundby: Boundby, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.sqlite" for number in range(3)]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        assert boundby("simulate", "--pattern", "api", "-o", path, "--seed", str(seed), "--steps", "2").code == 0
    same, again, other = (path.read_bytes() for path in paths)
    assert same == again
    assert same != other


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema(boundby: Boundby, tmp_path: Path, schema: str) -> None:
    path = tmp_path / "out.sqlite"
    assert boundby("simulate", "--pattern", "healthy", "-o", path, "--schema", schema).code == 0
    assert len(read_trace(path).operations) > 0


@pytest.mark.parametrize("name", ["", ":make", ":both"])
def test_a_program_of_ones_own(boundby: Boundby, tmp_path: Path, own: Path, name: str) -> None:
    path = tmp_path / "out.sqlite"
    ran = boundby("simulate", "--program", f"{own}{name}", "-o", path)
    assert (ran.code, ran.err) == (0, "")
    assert len(read_trace(path).operations) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "returns no program"),
        ("absent", "defines no absent."),
        ("failing", "failed: RuntimeError: oh"),
        ("leaving", "failed: SystemExit: 3"),
        ("stuck", "waits for signals that never come: thread 0 in 'godot'"),
    ],
)
def test_a_program_that_is_none(boundby: Boundby, tmp_path: Path, own: Path, name: str, message: str) -> None:
    ran = boundby("simulate", "--program", f"{own}:{name}", "-o", tmp_path / "out.sqlite")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not (tmp_path / "out.sqlite").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--pattern", "sync"],
        ["--pattern", "nonsense", "-o", "x.sqlite"],
        ["--pattern", "sync", "--program", "x.py", "-o", "x.sqlite"],
        ["--program", "absent.py:make", "-o", "x.sqlite"],
        ["--program", "absent.py:make", "--steps", "3", "-o", "x.sqlite"],
        ["--pattern", "sync", "-o", "absent/x.sqlite"],
    ],
)
def test_wrong_usage(boundby: Boundby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ran = boundby("simulate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_never_replaced(boundby: Boundby, tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    assert boundby("simulate", "--pattern", "cpu", "-o", path).code == 0
    before = path.read_bytes()
    ran = boundby("simulate", "--pattern", "sync", "-o", path)
    assert ran.code == 2
    assert "Will not write over" in ran.err
    assert path.read_bytes() == before
