"""The folder of a run: its name, and that nothing of anybody's is lost in it."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path

import pytest

import boundby
from boundby.capture.folder import FACTS, FILES, find_in_folder, make_folder, program_name
from boundby.model.errors import InputError, OutputError
from tests.support.nsys import names
from tests.support.traces import REPOSITORY

NOW = datetime(2026, 11, 20, 13, 5, 9)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --x", "train"),
        ("python3.11 -u -W ignore /a/b/train.py", "train"),
        ("/usr/bin/python -m pkg.train x.py", "pkg.train"),
        ("torchrun --nproc-per-node 2 train_ddp.py", "train_ddp"),
        ("./a.out", "a.out"),
        ("python -c print(1)", "python"),
        ("sh ../run.sh", "run"),
        ("./ü$%", "run"),
        ("mpirun -n 2 ./solver -m x", "mpirun"),
    ],
)
def test_a_run_is_called_what_people_call_the_program(command: str, name: str) -> None:
    assert program_name(command.split()) == name


def test_the_default_folder_is_new_each_time(here: Path) -> None:
    made = [make_folder(None, ["python", "train.py"], NOW) for _ in range(3)]
    assert [str(each.path) for each in made] == [
        "boundby-out/train-20261120-130509",
        "boundby-out/train-20261120-130509-2",
        "boundby-out/train-20261120-130509-3",
    ]
    for each in made:
        each.remove_if_empty()
    assert not names(here)


def test_a_folder_that_holds_something_is_left_alone(here: Path) -> None:
    run = here / "run"
    run.mkdir()
    assert make_folder(run, ["x"], NOW).path == run  # empty: fine
    (run / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds files already \(notes\.txt\)") as caught:
        make_folder(run, ["x"], NOW)
    assert "--force" in caught.value.next_step
    (run / "run.json").write_text("{}")
    with pytest.raises(OutputError, match="holds an earlier run"):
        make_folder(run, ["x"], NOW)
    assert names(run) == ["notes.txt", "run.json"]


def test_force_replaces_a_run_and_nothing_else(here: Path) -> None:
    run = here / "run"
    run.mkdir()
    for name in (*FILES, "notes.txt", "report.png"):
        (run / name).write_text("old")
    made = make_folder(run, ["x"], NOW, force=True)
    assert names(run) == ["notes.txt", "report.png"]
    assert not made.is_new
    made.remove_if_empty()
    assert run.is_dir()


def test_folders_on_the_way_are_made(here: Path) -> None:
    made = make_folder(here / "a/b/c", ["x"], NOW)
    assert made.path.is_dir()
    made.remove_if_empty()
    assert not made.path.exists()


def test_places_that_cannot_be_written(here: Path) -> None:
    (here / "file").write_text("")
    with pytest.raises(OutputError, match="is a file, not a folder"):
        make_folder(here / "file", ["x"], NOW)
    with pytest.raises(OutputError, match="cannot be written"):
        make_folder(here / "file" / "run", ["x"], NOW)
    (here / "boundby-out").write_text("")
    with pytest.raises(OutputError, match="boundby-out is a file"):
        make_folder(None, ["x"], NOW)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(here: Path) -> None:
    locked = here / "locked"
    locked.mkdir(mode=0o555)
    for place in (locked, locked / "run"):
        with pytest.raises(OutputError, match="cannot be written"):
            make_folder(place, ["x"], NOW)


def test_a_read_only_file_system() -> None:
    with pytest.raises(OutputError, match="cannot be written") as caught:
        make_folder(Path("/proc/boundby"), ["x"], NOW)
    assert "-o" in caught.value.next_step


def test_what_to_analyse_of_a_folder(here: Path) -> None:
    with pytest.raises(InputError, match="is a folder without a report of nsys"):
        find_in_folder(here)
    (here / "report.nsys-rep").write_text("")
    assert find_in_folder(here).name == "report.nsys-rep"
    (here / "report.sqlite").write_text("")
    assert find_in_folder(here).name == "report.sqlite"
    (here / "other.qdrep").write_text("")
    message = r"holds 2 reports \(other\.qdrep, report\.sqlite\), and boundby profile did not make it"
    with pytest.raises(InputError, match=message):
        find_in_folder(here)
    (here / FACTS).write_text("{}")
    assert find_in_folder(here).name == "report.sqlite"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_listed(here: Path) -> None:
    (here / "closed").mkdir(mode=0o300)
    with pytest.raises(InputError, match="cannot be read"):
        find_in_folder(here / "closed")


def test_the_report_taken_of_a_folder_that_is_no_run_is_named(here: Path) -> None:
    shutil.copy(REPOSITORY / "sample_reports" / "simulated_sync.sqlite", here / "found.sqlite")
    report = boundby.analyze(here)
    assert report.trace.path == str(here / "found.sqlite")
    (warning,) = (item for item in report.trace.warnings if item.code == "folder")
    assert "found.sqlite, the only report in it, was taken" in warning.message
    (here / "found.sqlite").rename(here / "report.sqlite")
    (here / FACTS).write_text('{"command": ["python", "train.py"]}')
    report = boundby.analyze(here)
    assert report.trace.path == str(here)
    assert report.trace.command
    assert not any(item.code == "folder" for item in report.trace.warnings)
