"""scripts/get-nsys: how it answers from the cache, reads apt's configuration, and says why it cannot.

That it fetches is shown by every test that uses the ``nsys`` fixtures on a machine without nsys, and by the
last test here where ``BOUNDBY_TEST_FETCH`` is set.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from boundby.capture.nsys import Nsys, cache_folder, candidates
from tests.support.nsys import GET_NSYS, capture, environment, fake_nsys, names

#: Nothing here takes a tenth of this, on however busy a machine.
HANGS_S = 600
needs_apt = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("apt-get", "apt-config", "dpkg", "ldd")) or os.uname()[4] != "x86_64",
    reason="needs apt and dpkg on x86_64",
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module, for its pure parts."""
    loader = importlib.machinery.SourceFileLoader("get_nsys", str(GET_NSYS))
    spec = importlib.util.spec_from_loader("get_nsys", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["get_nsys"] = module  # dataclasses look their module up
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def get_nsys(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(GET_NSYS), *arguments],
        capture_output=True,
        text=True,
        env=environment(**env),
        timeout=HANGS_S,
        check=False,
    )


def apt_configuration(folder: Path, sources: str) -> str:
    """An apt configuration with these sources and no others."""
    (folder / "parts").mkdir()
    (folder / "sources.list").write_text(sources)
    config = folder / "apt.conf"
    config.write_text(
        f'Dir::Etc::SourceList "{folder}/sources.list";\nDir::Etc::SourceParts "{folder}/parts";\n'
        'Acquire::http::Proxy "DIRECT";\n'
    )
    return str(config)


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A cache with something at the place of the default version."""
    fake_nsys(tmp_path / "cache/nsys/2023.4.4/target-linux-x64", "")
    return tmp_path / "cache"


def test_where_finds_nothing(tmp_path: Path) -> None:
    answer = get_nsys("--where", "--cache", str(tmp_path))
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", "")
    assert not names(tmp_path)


def test_what_is_cached_is_answered_at_once_and_without_apt(cached: Path) -> None:
    binary = cached / "nsys/2023.4.4/target-linux-x64/nsys"
    for arguments in ([], ["--where"], ["--version", "2023.4.4", "--quiet"]):
        answer = get_nsys(*arguments, BOUNDBY_CACHE=str(cached), PATH="/nonexistent")
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{binary}\n", "")
    assert get_nsys("--where", "--version", "2022.4.2", "--cache", str(cached)).returncode == 1
    found = candidates(env={"BOUNDBY_CACHE": str(cached), "HOME": "/nonexistent"}, root=cached)
    assert [each.path for each in found] == [binary]


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": "/h"},
        {"HOME": "/h", "XDG_CACHE_HOME": "/x"},
        {"HOME": "/h", "XDG_CACHE_HOME": ""},
        {"HOME": "/h", "XDG_CACHE_HOME": "/x", "BOUNDBY_CACHE": "/b"},
        {"HOME": "/h", "BOUNDBY_CACHE": "~/b"},
        {"HOME": "/h", "BOUNDBY_CACHE": "relative"},
    ],
)
def test_the_cache_is_where_boundby_looks(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    for name in ("XDG_CACHE_HOME", "BOUNDBY_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert script.cache_folder(None) == cache_folder(env)


def test_one_line_sources(script: ModuleType) -> None:
    text = (
        "# deb http://one.example/debian trixie main\n"
        "deb http://two.example/debian bookworm main contrib # a comment\n"
        "deb-src http://three.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k/debian-archive-keyring.gpg] http://four.example/d trixie-updates main\n"
        "deb cdrom:[Debian]/ bookworm main\n"
        "deb http://five.example/ubuntu jammy main\n"
        "deb [trusted=yes] http://six.example/pool bookworm stable\n"
    )
    found = list(script.one_line_sources(text))
    assert [(each.uri, each.suites, each.signed_by) for each in found][:2] == [
        ("http://two.example/debian", ("bookworm",), ""),
        ("http://four.example/d", ("trixie-updates",), "/k/debian-archive-keyring.gpg"),
    ]
    assert [each.uri for each in found if each.is_debian()] == ["http://two.example/debian"]


def test_stanza_sources(script: ModuleType) -> None:
    text = (
        "Types: deb deb-src\n# a comment\nURIs: http://one.example/debian http://two.example/x\n"
        "Suites: bookworm\n bookworm-updates\nComponents: main contrib\n"
        "Signed-By: /k/debian-archive-keyring.gpg\n\n"
        "Types: deb\nURIs: http://off.example/debian\nSuites: trixie\nComponents: main\nEnabled: no\n\n\n"
        "Types: deb\nURIs: http://other.example/debian\nSuites: trixie\nComponents: stable\n"
    )
    found = list(script.stanza_sources(text))
    assert [(each.uri, each.suites, each.rank()) for each in found if each.is_debian()] == [
        ("http://one.example/debian", ("bookworm", "bookworm-updates"), 0),
        ("http://two.example/x", ("bookworm", "bookworm-updates"), 0),
    ]


@needs_apt
def test_without_a_debian_archive_it_says_so(tmp_path: Path) -> None:
    config = apt_configuration(tmp_path, "deb http://mirror.invalid/ubuntu jammy main universe\n")
    answer = get_nsys("--cache", str(tmp_path / "cache"), APT_CONFIG=config)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "no Debian archive among its sources" in answer.stderr
    assert "BOUNDBY_NSYS" in answer.stderr
    assert not (tmp_path / "cache").exists()


def test_without_apt_it_says_so(tmp_path: Path) -> None:
    answer = get_nsys("--cache", str(tmp_path / "cache"), PATH="/nonexistent")
    assert answer.returncode == 2
    assert "lacks" in answer.stderr or "x86_64" in answer.stderr
    assert "BOUNDBY_NSYS" in answer.stderr


@needs_apt
def test_without_a_network_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    config = apt_configuration(tmp_path, "deb http://127.0.0.1:9/debian bookworm main\n")
    of_a_killed_run = tmp_path / "cache/nsys/.2023.4.4.partial-killed/apt"
    of_a_killed_run.mkdir(parents=True)
    answer = get_nsys("--cache", str(tmp_path / "cache"), APT_CONFIG=config)
    assert answer.returncode == 2
    assert "could not read Debian's suite trixie" in answer.stderr
    assert names(tmp_path / "cache/nsys") == [".2023.4.4.lock"]


@needs_apt
def test_an_archive_that_no_key_here_vouches_for_is_not_used(tmp_path: Path) -> None:
    suite = tmp_path / "debian/dists/trixie"
    (suite / "non-free/binary-amd64").mkdir(parents=True)
    (suite / "non-free/binary-amd64/Packages").write_text("")
    (suite / "Release").write_text("Origin: Debian\nSuite: stable\nCodename: trixie\nComponents: non-free\n")
    config = apt_configuration(tmp_path, f"deb file:{tmp_path}/debian bookworm main\n")
    answer = get_nsys("--cache", str(tmp_path / "cache"), APT_CONFIG=config)
    assert answer.returncode == 2
    assert "no key for Debian's suite trixie" in answer.stderr
    assert "debian-archive-keyring" in answer.stderr


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """It takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(HANGS_S)
        yield server


@needs_apt
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, silent_server: socket.socket, number: signal.Signals
) -> None:
    config = apt_configuration(
        tmp_path, f"deb http://127.0.0.1:{silent_server.getsockname()[1]}/debian bookworm main\n"
    )
    run = subprocess.Popen(
        [sys.executable, str(GET_NSYS), "--cache", str(tmp_path / "cache")],
        env=environment(APT_CONFIG=config),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    assert "reading the package list" in run.stderr.readline()
    asking, _ = silent_server.accept()
    assert len(names(tmp_path / "cache/nsys")) == 2
    run.send_signal(number)
    assert run.wait(HANGS_S) in (130, 143)
    asking.close()
    run.stderr.close()
    assert names(tmp_path / "cache/nsys") == [".2023.4.4.lock"]


@needs_apt
def test_no_permission_is_told(tmp_path: Path) -> None:
    config = apt_configuration(tmp_path, "deb http://127.0.0.1:9/debian bookworm main\n")
    answer = get_nsys("--cache", "/proc/boundby", APT_CONFIG=config)
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert "/proc/boundby" in answer.stderr


@pytest.mark.nsys
@needs_apt
@pytest.mark.skipif("BOUNDBY_TEST_FETCH" not in os.environ, reason="fetches 200 MB; set BOUNDBY_TEST_FETCH to run")
def test_it_fetches_an_nsys_that_captures(tmp_path: Path, script: ModuleType) -> None:
    """Two at the same time: one fetches, the other waits for it, and both have it."""
    command = [sys.executable, str(GET_NSYS), "--cache", str(tmp_path), "--quiet"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (run.communicate(timeout=1200)[0] for run in runs)
    assert first == second
    binary = Path(first.strip())
    assert [run.returncode for run in runs] == [0, 0]
    assert names(tmp_path / "nsys") == [".2023.4.4.lock", script.DEFAULT_VERSION]
    size = sum(path.lstat().st_size for path in binary.parents[1].rglob("*"))
    assert size < 400_000_000
    assert capture(Nsys(binary, "2023.4.4", "cache"), tmp_path, "cpu_steps.py", "2").suffix == ".nsys-rep"
