"""What a real nsys cannot be made to do on demand: hang, die, and lie. Fakes, each a few lines of shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boundby.capture.export import export_sqlite, is_whole
from boundby.capture.nsys import ChildTimeoutError, run_child
from boundby.model.errors import InputError, OutputError, ToolError
from tests.support.nsys import REPOSITORY, environment, fake_nsys, names

#: Nothing here takes a tenth of this, on however busy a machine.
HANGS_S = 300


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "report.nsys-rep"
    path.parent.mkdir()
    path.write_bytes(b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0." + bytes(1000))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "out.sqlite"


def gone(pid: int) -> bool:
    """Whether a process has ended (one that nobody has waited for yet counts as ended)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


WHOLE = "BEGIN; CREATE TABLE StringIds (id INTEGER, value TEXT); COMMIT"


def sqlite_body(statements: str) -> str:
    code = f"import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript({statements!r})"
    return f'"{sys.executable}" -c "{code}" "$out"'


@pytest.mark.parametrize(
    ("body", "wrote"),
    [
        ("echo Generated: $out", "wrote nothing. It said: Generated:"),
        ("exit 0", "wrote nothing. It said nothing."),
        (': > "$out"', "wrote nothing"),
        ('echo this is no database > "$out"', "wrote an incomplete file"),
        (sqlite_body("PRAGMA user_version = 1"), "wrote an incomplete file"),
        (sqlite_body(WHOLE) + '; truncate -s 5000 "$out"', "wrote an incomplete file"),
        (sqlite_body(WHOLE) + '; touch "$out-journal"', "wrote an incomplete file"),
    ],
)
def test_status_0_and_nothing_whole(tmp_path: Path, report: Path, out: Path, body: str, wrote: str) -> None:
    with pytest.raises(ToolError, match="ended without an error") as caught:
        export_sqlite(report, out, fake_nsys(tmp_path / "bin", body))
    assert wrote in caught.value.message
    assert not names(out.parent)


def test_status_0_and_a_whole_file(tmp_path: Path, report: Path, out: Path) -> None:
    assert is_whole(export_sqlite(report, out, fake_nsys(tmp_path / "bin", sqlite_body(WHOLE))))
    assert names(out.parent) == ["out.sqlite"]


def test_a_whole_file_is_not_believed_when_nsys_says_that_it_failed(tmp_path: Path, report: Path, out: Path) -> None:
    body = sqlite_body(WHOLE) + "; echo 'Failed to close database connection: whatever'"
    with pytest.raises(ToolError, match="Failed to close"):
        export_sqlite(report, out, fake_nsys(tmp_path / "bin", body))
    assert not names(out.parent)


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("kill -9 $$", ToolError, "killed by SIGKILL"),
        ("kill -SEGV $$", ToolError, "killed by SIGSEGV"),
        ("exit 139", ToolError, "killed by SIGSEGV"),
        (
            "echo one; echo two; echo three; echo four >&2; exit 7",
            ToolError,
            "(status 7). It said: two / three / four",
        ),
        ("echo 'Exportation error: database or disk is full'; exit 1", OutputError, "disk is full"),
        ("echo 'write: No space left on device' >&2; exit 1", OutputError, "disk is full"),
        ("echo 'Exportation error: Cannot read from stream.'; exit 1", InputError, "truncated"),
    ],
)
def test_how_it_ended_is_told(
    tmp_path: Path, report: Path, out: Path, body: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        export_sqlite(report, out, fake_nsys(tmp_path / "bin", body))
    assert said in str(caught.value)
    assert not names(out.parent)


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (
            "Exportation error: Report was created in Nsight Systems version (2026.1.1.2-3), newer than your "
            "current version (2023.4.4.54-1).",
            "2026.1.1",
        ),
        ("Exportation error: Version number is invalid: 2025@6@1@190-256137", "2025.6.1"),
    ],
)
def test_a_report_that_is_too_new(tmp_path: Path, report: Path, out: Path, words: str, needs: str) -> None:
    report.write_bytes(b"a header of another kind")
    with pytest.raises(ToolError, match=f"captured with nsys {needs} and needs that or a newer") as caught:
        export_sqlite(report, out, fake_nsys(tmp_path / "bin", f"echo '{words}' >&2; exit 1"))
    assert "2023.4.4" in caught.value.message
    assert "--nsys" in caught.value.next_step


def test_a_disk_with_less_room_than_the_report_takes_is_full_whatever_nsys_says(
    tmp_path: Path, report: Path, out: Path
) -> None:
    with report.open("r+b") as file:
        file.truncate(1 << 43)  # a sparse file: larger than any disk this runs on has free
    with pytest.raises(OutputError, match="disk is full"):
        export_sqlite(report, out, fake_nsys(tmp_path / "bin", "exit 3"))


def test_an_nsys_that_has_gone(tmp_path: Path, report: Path, out: Path) -> None:
    nsys = fake_nsys(tmp_path / "bin", "exit 0")
    nsys.path.unlink()
    with pytest.raises(ToolError, match="cannot be run"):
        export_sqlite(report, out, nsys)


@pytest.mark.parametrize("trap", ["", "trap '' TERM INT; "])
def test_ctrl_c_ends_nsys_and_removes_what_it_wrote(tmp_path: Path, report: Path, out: Path, trap: str) -> None:
    """Also when nsys, or a helper of it, does not want to end."""
    pids, heard = tmp_path / "pids", tmp_path / "heard"
    body = f"{trap}(sleep 300 & echo $! >> '{pids}'; wait) & echo $$ >> '{pids}'\n"
    body += f"while [ $(wc -l < '{pids}') -lt 2 ]; do sleep 0.05; done\n"
    body += 'echo part > "$out"; echo "[=10%]"; wait'
    nsys = fake_nsys(tmp_path / "bin", body)
    code = (
        "from pathlib import Path; from boundby.capture.export import export_sqlite\n"
        "from boundby.capture.nsys import Nsys\n"
        f"nsys = Nsys(Path({str(nsys.path)!r}), None, 'PATH')\n"
        f"hear = lambda part: part and Path({str(heard)!r}).touch()\n"
        f"export_sqlite(Path({str(report)!r}), Path({str(out)!r}), nsys, progress=hear)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        env=environment(PYTHONPATH=str(REPOSITORY / "src")),
    )
    deadline = time.monotonic() + HANGS_S
    while not heard.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=HANGS_S)
    assert b"KeyboardInterrupt" in errors
    assert not names(out.parent)
    children = [int(line) for line in pids.read_text().split()]
    assert len(children) == 2
    while not all(gone(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_is_given_no_more_than_its_time() -> None:
    with pytest.raises(ChildTimeoutError):
        run_child(["sh", "-c", "echo x; sleep 600"], env=environment(), timeout_s=0.3)
    with pytest.raises(ChildTimeoutError):
        run_child(["sh", "-c", "exec >&- 2>&-; sleep 600"], env=environment(), timeout_s=0.3)


def test_a_helper_that_stays_does_not_hold_us_up() -> None:
    finished = run_child(["sh", "-c", "sleep 600 & echo $!"], env=environment())
    (helper,) = finished.lines
    os.kill(int(helper), signal.SIGKILL)  # it is there still: nobody waited for its end


def test_the_bar_is_read_in_pieces_and_kept_out_of_the_lines() -> None:
    told: list[float | None] = []
    bar = r"printf '\rProcessing 9 events: [%s%d%%  ]' ="
    script = f"echo start; {bar} 1; {bar} 42; sleep 0.1; printf '\\rProcessing 9 eve'; sleep 0.1; "
    script += "printf 'nts: [====77%%  ]\\n[1/1] [===100%%] r.nsys-rep\\n'; echo 50% of all >&2; printf last"
    finished = run_child(["sh", "-c", script], env=environment(), progress=told.append)
    assert told == [0.01, 0.42, 0.77, 1.0]
    assert finished.lines == ("start", "50% of all", "last")
    assert finished.signal_name is None
