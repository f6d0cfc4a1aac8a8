"""Every file that cannot be read gives one clear sentence and a next step, from the library and on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import boundby
from boundby.cli.main import main
from boundby.model.errors import InputError, UserError
from boundby.readers import read_trace
from boundby.readers.nsys import database
from tests.support import golden
from tests.support.alter import alter
from tests.support.bad_files import MAKERS, good

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"

LONGEST_SENTENCE = 160


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)


@pytest.fixture(params=MAKERS)
def bad_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    warm_up()
    with ExitStack() as stack:
        yield MAKERS[request.param](tmp_path, stack)


def warm_up() -> None:
    """Import everything that an analysis needs, before a test becomes a user who may not read the checkout."""
    assert main(["analyze", os.devnull]) == 2


def failure(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        boundby.analyze(path)
    return caught.value


def test_library_says_it_in_one_sentence(bad_file: Path) -> None:
    error = failure(bad_file)
    assert error.message.startswith(str(bad_file))
    assert error.message.endswith(".")
    assert len(error.message) - len(str(bad_file)) < LONGEST_SENTENCE
    assert error.next_step
    assert "\n" not in error.message + error.next_step


def test_command_line_says_it_and_leaves_with_2(bad_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["analyze", str(bad_file)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith(f"boundby: {bad_file}")
    assert second.startswith("  ")


def test_json_leaves_stdout_empty_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--format", "json", str(tmp_path / "none.sqlite")]) == 2
    assert capfd.readouterr().out == ""


def test_as_a_program(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_text("no report")
    run = subprocess.run(
        [sys.executable, "-m", "boundby.cli.main", "analyze", str(path)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"boundby: {path} is neither")
    assert "Traceback" not in run.stderr


def test_other_reports_are_still_analysed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = good(tmp_path)
    assert main(["analyze", str(tmp_path / "none.sqlite"), str(whole)]) == 2
    out, err = capfd.readouterr()
    assert "BOUND" in out
    assert "does not exist" in err


@pytest.mark.parametrize("command", ["analyze", "what-if"])
def test_every_command_says_it(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.sqlite"
    assert main([command, str(path)]) == 2
    assert capfd.readouterr() == ("", f"boundby: {path} does not exist.\n  Check the path.\n")


def test_a_nul_in_the_name() -> None:
    assert "not a file name" in failure(Path("a\0b.sqlite")).message


def test_the_sentence_names_the_file_the_user_gave(tmp_path: Path) -> None:
    """And not the temporary export made from it."""
    path = alter(good(tmp_path), "DROP TABLE StringIds")
    with pytest.raises(InputError, match=r"^run\.nsys-rep is incomplete"):
        read_trace(path, name="run.nsys-rep")


def test_all_sentences(tmp_path: Path) -> None:
    """One page to read them all: tests/golden/errors.txt."""
    warm_up()
    lines = ["What boundby says of input that it cannot use, and what it tells to do.", ""]
    for number, (name, maker) in enumerate(MAKERS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        with ExitStack() as stack:
            path = maker(folder, stack)
            lines += entry(name, failure(path), path)
    lines += ["", "Selections", ""]
    path = good(tmp_path)
    for options in SELECTIONS:
        with pytest.raises(UserError) as caught:
            boundby.analyze(path, **options)  # type: ignore[arg-type]
        lines += entry(", ".join(f"{name}={value!r}" for name, value in options.items()), caught.value, path)
    golden.check("errors.txt", "\n".join(lines) + "\n")


SELECTIONS: tuple[dict[str, object], ...] = (
    {"window": "soon"},
    {"window": "2s:1s"},
    {"window": "1s:2h"},
    {"window": "5s:6s"},
    {"window": "nvtx:validate"},
    {"skip_first": -1},
    {"skip_first": 100},
    {"region": "validate"},
    {"devices": (3,)},
    {"processes": (1,)},
)


def entry(name: str, error: UserError, path: Path) -> list[str]:
    shown = {str(path): "FILE", str(path.parent): "FOLDER"}
    text = [name, f"    {error.message}", f"    -> {error.next_step}"]
    for long, short in shown.items():
        text = [line.replace(long, short) for line in text]
    return text


def test_an_empty_trace_of_the_profiler_is_no_matter_of_nsys(tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    with pytest.raises(InputError) as caught:
        read_trace(tmp_path / "empty.json")
    assert "nsys" not in f"{caught.value} {caught.value.next_step}"


@pytest.mark.parametrize("text", ["[1, 2]", '["a"]', "[[1], 2]"])
def test_json_that_is_no_trace_is_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(text)
    with pytest.raises(InputError, match="is a JSON file without the events of a trace"):
        read_trace(tmp_path / "list.json")


def test_an_export_that_is_called_a_report_is_read(tmp_path: Path) -> None:
    """It needs no nsys."""
    named = tmp_path / "renamed.nsys-rep"
    named.write_bytes(SAMPLE.read_bytes())
    found = boundby.analyze(named, nsys=tmp_path / "no nsys")
    assert [device.time for device in found.devices] == [device.time for device in boundby.analyze(SAMPLE).devices]
