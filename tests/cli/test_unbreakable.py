"""What brought boundby down once: out of memory, pipes for files, odd surroundings, other runs, signals."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from boundby.capture import export, nsys
from boundby.capture import folder as folders
from boundby.capture.recording import write_facts
from boundby.cli import outcome
from boundby.cli.main import TerminatedError, main
from boundby.cli.outcome import Exit
from boundby.model import door, stage
from boundby.model.errors import InputError, OutputError, ToolError
from boundby.readers.nsys import database
from boundby.render import store
from boundby.rules import builtin

SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"
ANALYZE_INPUT = [
    sys.executable,
    "-c",
    "import sys; from boundby.cli.main import main; sys.exit(main(['analyze', '-']))",
]
NOW = datetime(2026, 1, 1)


def test_out_of_memory_is_one_sentence_and_no_broken_limit(capfd: pytest.CaptureFixture[str]) -> None:
    assert outcome.tell(MemoryError()) == Exit.USER_ERROR
    assert capfd.readouterr().err.startswith("boundby: There is not enough memory for this report.\n  ")


@pytest.mark.parametrize("columns", ["1" * 30, "²", "0", "-3"])
def test_a_width_that_is_none(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:  # pytest -v reads it as well
        patch.setenv("COLUMNS", columns)
        assert main([str(SAMPLE), "--quiet"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 200


def test_a_rule_of_another_package_cannot_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "bad", "bad:rules"

        def load(self) -> None:
            sys.exit(141)

    monkeypatch.setattr(builtin, "_installed", lambda: [Point()])
    found, broken = builtin.third_party()
    assert not found
    assert [item.rule for item in broken] == ["bad"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"rank": 1e999, "world_size": 2, "exit_code": Infinity}',
        "[]",
        '{"command": 3, "not_recorded": 4}',
    ],
)
def test_a_run_whose_facts_are_broken_tells_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / folders.FACTS).write_text(text)
    assert folders.rank_of(tmp_path) is None
    assert folders.exit_code_of(tmp_path) is None
    assert folders.command_of(tmp_path) is None
    assert folders.not_recorded(tmp_path) == {}


def test_a_pipe_is_no_facts_and_no_database(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / folders.FACTS)
    assert folders.rank_of(tmp_path) is None
    assert not folders.is_run(tmp_path)
    with pytest.raises(OutputError, match="no regular file"):
        store.check(tmp_path / folders.FACTS)


@pytest.mark.parametrize("ended", [KeyboardInterrupt, TerminatedError])
def test_a_signal_while_sqlite_works_is_that_and_no_damage(
    ended: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite drops what its progress handler raises: Ctrl-C was a report that "could not be read to its end"."""

    def stopped() -> None:
        raise ended

    monkeypatch.setattr(stage, "over", stopped)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.set_progress_handler(database._is_over, 1)
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("SELECT 1 UNION SELECT 2")
        with pytest.raises(ended):
            database.explain(SAMPLE, caught.value)


def test_names_that_are_too_long_are_user_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["analyze", "x" * 300 + ".sqlite"], ["x" * 300 + ".sqlite"], ["job", "y" * 5000]):
        assert main(arguments) == Exit.USER_ERROR
    assert "bug" not in capsys.readouterr().err


_HOLDS = """
import sys, time
from datetime import datetime
from pathlib import Path
from boundby.capture.folder import make_folder
make_folder(Path(sys.argv[1]), ["x"], datetime(2026, 1, 1))
print("held", flush=True)
time.sleep(60)
"""


def test_a_folder_is_of_one_run_at_a_time(tmp_path: Path) -> None:
    place = tmp_path / "tw"
    with subprocess.Popen([sys.executable, "-c", _HOLDS, str(place)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(OutputError, match="Another boundby profile is writing"):
            folders.make_folder(place, ["x"], NOW, force=True)
        other.kill()
    assert folders.make_folder(place, ["x"], NOW, force=True).path == place  # the claim went with its process


def test_facts_are_written_whole(tmp_path: Path) -> None:
    made = folders.make_folder(tmp_path / "run", ["x"], NOW)
    write_facts(made, {"command": ["a", "b"]})
    assert folders.command_of(made.path) == "a b"
    assert [path.name for path in made.path.iterdir()] == [folders.FACTS]


def test_an_export_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_arguments: object, timeout_s: float | None = None, **_others: object) -> None:
        assert timeout_s is not None
        raise nsys.ChildTimeoutError

    monkeypatch.setattr(export, "run_child", hangs)
    with pytest.raises(ToolError, match="did not finish within 600 s"):
        export._run(["nsys", "export"], tmp_path)


def test_a_log_that_cannot_be_of_the_file_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = wal")
        made.execute("CREATE TABLE a (b)")
        made.commit()
    with (tmp_path / "x.sqlite-wal").open("wb") as log:
        log.truncate(200 << 30)  # sparse
    with pytest.raises(InputError, match="cannot be of this file"), database.open_readonly(path):
        pass


def test_sigterm_ends_as_ctrl_c_does(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from boundby.cli import main as entry

    def work(*_arguments: object, **_options: object) -> int:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        time.sleep(10)
        return 0

    monkeypatch.setattr(entry.cli, "main", work)  # of the command itself, where other tests have set it, too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever other tests have left
    assert entry.main(["x"]) == Exit.TERMINATED.value == 143
    assert capsys.readouterr().err == "boundby: ended by SIGTERM\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_inside_a_command_is_not_ctrl_c(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Click makes of both an abort: while it exported, boundby said "interrupted" and exited with 130."""

    def limits(**_chosen: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr("boundby.api.limits", limits)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever other tests have left
    assert main(["check", str(SAMPLE), "-l", "time < 1 s"]) == Exit.TERMINATED
    assert capsys.readouterr().err.strip() == "boundby: ended by SIGTERM"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space is limited on Linux")
@pytest.mark.parametrize("most_bytes", [60 << 20, 128 << 20])
def test_address_space_too_small_for_numpy_is_no_broken_limit(most_bytes: int) -> None:
    """NumPy's linear algebra ended the program with 1, and its import with a bug of boundby."""
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({most_bytes}, {most_bytes}))
from boundby.cli.main import TerminatedError, main
sys.exit(main(["check", {str(SAMPLE)!r}, "-l", "time < 1 s"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == Exit.USER_ERROR
    assert done.stderr.startswith("boundby: There is not enough memory")


@pytest.mark.parametrize("report", ["simulated_sync.sqlite", "simulated_sync.pt.trace.json.gz"])
def test_a_report_comes_from_standard_input(report: str) -> None:
    with SAMPLE.with_name(report).open("rb") as piped:
        done = subprocess.run(ANALYZE_INPUT, stdin=piped, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"(standard input)" in done.stdout


@pytest.mark.parametrize("report", ["simulated_sync.sqlite", "simulated_sync.pt.trace.json.gz"])
def test_no_room_for_what_comes_from_standard_input(report: str, tmp_path: Path) -> None:
    """A real limit on the length of files stands in for a full disk: writing fails in the same place."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))

    with SAMPLE.with_name(report).open("rb") as piped:
        done = subprocess.run(
            ANALYZE_INPUT,
            stdin=piped,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=bound,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    assert (done.returncode, done.stdout) == (Exit.USER_ERROR, "")
    assert done.stderr.startswith(f"boundby: Standard input cannot be copied to {tmp_path} (File too large).\n")
    assert "set TMPDIR to a folder with room, or name a file" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("surroundings", "sentence"),
    [
        ("{analyze} - <&-", "Standard input is empty."),
        ("mkdir gone; cd gone; rmdir ../gone; {analyze} {sample}", "The folder that boundby was started in is gone."),
    ],
)
def test_surroundings_that_lack_something(surroundings: str, sentence: str, tmp_path: Path) -> None:
    analyze = f"{sys.executable} -m boundby analyze"
    command = surroundings.format(analyze=analyze, sample=SAMPLE)
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.USER_ERROR, "")
    assert f"boundby: {sentence}\n" in done.stderr


def test_more_files_than_may_be_open(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome.tell(OSError(24, "Too many open files", "any")) == Exit.USER_ERROR
    assert capsys.readouterr().err.startswith("boundby: More files are needed than may be open.\n  Raise the limit")


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(OutputError) as caught:
        door.temporary()
    assert caught.value.next_step == "Set TMPDIR to a folder with room."


@pytest.mark.parametrize("source", ["/dev/null", "/dev/zero"])
def test_what_is_no_report_is_not_copied_from_standard_input(source: str) -> None:
    """However much of it there may be."""
    with Path(source).open("rb") as piped:
        done = subprocess.run(ANALYZE_INPUT, stdin=piped, capture_output=True, check=False, timeout=60)
    assert done.returncode == Exit.USER_ERROR
    assert b"tandard input" in done.stderr
