"""Any machine: every place that a run can be in, once, by table; and the same bytes wherever a report is made."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from boundby import api
from boundby.cli.main import main
from tests.support.places import OUTPUTS, everything, shuffle_rows
from tests.support.traces import trace_path
from tests.support.training import training_loop

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_reports" / "simulated_sync.sqlite"
MOST_S = 60
#: As the C library knows them, where the machine does not have them: their decimal marks, and how i and I pair.
LOCALES = {
    "tr_TR.UTF-8": 'LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3\nEND LC_NUMERIC\n'
    'LC_CTYPE\ncopy "tr_TR"\nEND LC_CTYPE\n',
    "ar_EG.UTF-8": 'LC_NUMERIC\ndecimal_point "<U066B>"\nthousands_sep "<U066C>"\ngrouping 3\nEND LC_NUMERIC\n',
}
#: Everything of the report into a folder, then a look at it, as a program that has set its locale.
PROGRAM = """
import contextlib, locale, sys
from pathlib import Path
with contextlib.suppress(locale.Error):
    locale.setlocale(locale.LC_ALL, "")
report, folder = map(Path, sys.argv[1:])
from tests.support.places import everything
for name, data in everything(report).items():
    (folder / name).write_bytes(data)
from boundby.cli.main import main
sys.exit(main(["analyze", str(report)]))
"""


@dataclass(frozen=True)
class Start:
    """A Python of its own: what it is told, and what its environment says (None: nothing)."""

    env: Mapping[str, str | None]
    flags: Sequence[str] = ()


STARTS = {
    "C locale, no home, warnings are errors, a dumb terminal of 20 columns": Start(
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONHASHSEED": "1", "TERM": "dumb"}
        | {"COLUMNS": "20", "HOME": None},
        ["-W", "error"],
    ),
    "Turkish letters, Arabic numbers, optimised, a home and a temporary folder that are not there": Start(
        {"LC_ALL": None, "LC_CTYPE": "tr_TR.UTF-8", "LC_NUMERIC": "ar_EG.UTF-8", "LANG": "ar", "PYTHONHASHSEED": "3"}
        | {"HOME": "/nowhere", "TMPDIR": "/nowhere", "XDG_CACHE_HOME": "/nowhere", "NO_COLOR": "1", "TERM": None}
        | {"OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": "3", "PYTHONOPTIMIZE": "2"},
        ["-X", "utf8=0"],
    ),
}


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locales")
    for name, source in LOCALES.items():
        (folder / "source").write_text(source)
        if shutil.which("localedef"):  # it warns of what a locale has beside
            command = ["localedef", "-c", "-i", str(folder / "source"), "-f", "UTF-8", str(folder / name)]
            subprocess.run(command, capture_output=True, check=False)
    return folder


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return everything(SAMPLE)


@pytest.mark.parametrize("name", STARTS)
def test_a_python_of_its_own(name: str, locales: Path, expected: Mapping[str, bytes], tmp_path: Path) -> None:
    start = STARTS[name]
    env: dict[str, str | None] = {**os.environ, "LOCPATH": str(locales), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, *start.flags, "-c", PROGRAM, str(SAMPLE), str(tmp_path)]
    env |= start.env
    told = {key: value for key, value in env.items() if value is not None}
    done = subprocess.run(command, capture_output=True, env=told, timeout=MOST_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert all((tmp_path / one).read_bytes() == expected[one] for one in OUTPUTS)
    assert b"\x1b" not in done.stdout
    assert done.stdout.isascii() == (start.env["LC_ALL"] == "C")


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_closed_streams(closed: Sequence[int]) -> None:
    """Nothing is lost without a word where a word can be said, and no file gets a closed stream's number."""
    closing = " ".join(f"{number}>&-" for number in closed)
    command = f'"{sys.executable}" -m boundby.cli.main --help {closing}; exit $?'
    done = subprocess.run(
        command, shell=True, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, check=False
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert (b"Cannot write to standard output: Bad file descriptor." in done.stderr) == (2 not in closed)
    assert len(done.stderr.splitlines()) == (0 if 2 in closed else 2)


def no_writes() -> None:
    """Nothing can be written: not to a home, not to site-packages, not to the temporary folder."""

    def refuse(event: str, details: tuple[object, ...]) -> None:
        if event == "open" and isinstance(details[1], str) and set("wax+") & set(details[1]):
            if str(details[0]) != os.devnull and not isinstance(details[0], int):
                raise PermissionError(13, "Permission denied", str(details[0]))
        elif event in ("os.mkdir", "os.rename", "os.remove", "shutil.copyfile", "tempfile.mkstemp"):
            raise PermissionError(13, "Permission denied")

    sys.addaudithook(refuse)


def few_descriptors() -> None:
    os.closerange(3, 1024)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


def little_memory() -> None:
    """64 MB more than there is, and a saved result of 600 MB."""
    Path("big.json").write_text('{"format_version": 1, ')
    os.truncate("big.json", 600 << 20)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGESIZE") + (64 << 20),) * 2)


def full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def full_files() -> None:
    sys.dont_write_bytecode = True  # Python would leave half of a compiled file
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def narrow_terminal() -> None:
    """20 columns on a terminal that can do nothing."""
    _, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 20, 0, 0))
    for number in (0, 2):
        os.dup2(terminal, number)
    os.environ.pop("COLUMNS", None)
    os.environ["TERM"] = "dumb"


@dataclass(frozen=True)
class Place:
    """Where a run is, and how it ends."""

    enter: Callable[[], object]
    arguments: Sequence[str] = ("analyze", "report.sqlite")
    code: int = 0
    says: str = ""  # on stderr
    leaves: Sequence[str] = field(default=("report.sqlite",))


PLACES = {
    "nothing can be written": Place(no_writes),
    "nothing can be written, but should": Place(
        no_writes, ("analyze", "report.sqlite", "-o", "out.json"), 2, "Cannot write out.json: no permission."
    ),
    "32 descriptors": Place(few_descriptors, ("analyze", "report.sqlite", "--format", "html")),
    "ulimit -v": Place(
        little_memory, ("check", "big.json", "-l", "time < 1 s"), 2, "not enough memory", ("big.json", "report.sqlite")
    ),
    "full output": Place(full_output, code=2, says="Cannot write to standard output: No space left on device."),
    "full output of help": Place(full_output, ("--help",), 2, "Cannot write to standard output: No space left"),
    "a full disk": Place(
        full_files, ("analyze", "report.sqlite", "-o", "out.html"), 2, "Cannot write out.html: File too large."
    ),
    "a full disk under --save": Place(
        full_files, ("analyze", "report.sqlite", "-q", "--save", "runs.db"), 2, "runs.db", ("report.sqlite",)
    ),
    "20 columns": Place(narrow_terminal, ("analyze", "report.sqlite", "--format", "terminal")),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_loop(2).write(tmp_path_factory.mktemp("places") / "report.sqlite", "2026")


@pytest.mark.parametrize("name", PLACES)
def test_a_place(name: str, small: Path, tmp_path: Path) -> None:
    place, out, err = PLACES[name], tmp_path / "out", tmp_path / "err"
    folder = tmp_path / "here"
    folder.mkdir()
    shutil.copy(small, folder)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(folder)
            for number, path in ((1, out), (2, err)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(MOST_S)
            place.enter()
            code = main(place.arguments)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    said = err.read_text()
    assert os.waitstatus_to_exitcode(status) == place.code, said
    assert place.says in said
    assert len(said.splitlines()) == (2 if place.code else 0)
    assert sorted(path.name for path in folder.iterdir()) == list(place.leaves)
    if not place.code:
        assert "\x1b" not in out.read_text()
        assert re.search(r"(?i)bound", out.read_text())


@pytest.mark.parametrize("name", ["C:\\runs\\a b", "/Users/Jo\u0308rg/Cafe\u0301 \u00e9", "..\\..\\x:y", "CON."])
def test_paths_of_other_systems(name: str, tmp_path: Path) -> None:
    """As a command that was recorded there, and as a folder's name here."""
    folder = tmp_path / name.replace("/", "\u2215")
    folder.mkdir()
    made = training_loop(2)
    made.command = (f"{name}\\python.exe", f"{name}\\train.py")
    path, page, result = (folder / one for one in ("report.sqlite", "page.html", "result.json"))
    made.write(path, "2026")
    assert main(["analyze", str(path), "-q", "-o", str(page)]) == 0
    assert main(["analyze", str(path), "-q", "-o", str(result)]) == 0
    assert main(["check", str(result), "-q", "-l", "gpu_utilization > 1 %"]) == 0
    report = api.load(result)
    assert report.trace.path == str(path)
    assert f"{name}\\train.py" in str(report.trace.command)


@pytest.mark.parametrize("name", [SAMPLE.name, "oddities/tiny_old.sqlite", "transformer_forward_2026_2.sqlite"])
def test_the_order_of_rows_changes_no_byte(name: str, tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    shutil.copyfile(SAMPLE if name == SAMPLE.name else trace_path(name), path)
    before = everything(path)
    assert everything(shuffle_rows(path, seed=len(name))) == before
