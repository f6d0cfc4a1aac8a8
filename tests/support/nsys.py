"""A real nsys for tests, small captures made with it, and fakes for what a real one cannot be made to do."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from boundby.capture.nsys import Nsys, Unusable, find_nsys, probe, version_numbers
from boundby.model.errors import ToolError

REPOSITORY = Path(__file__).parents[2]
GET_NSYS = REPOSITORY / "scripts" / "get-nsys"
PROGRAMS = REPOSITORY / "examples" / "workloads"
OLDER = "2022.4.2"
#: Fetching moves 200 MB; the mirror may be far away.
FETCH_TIMEOUT_S = 1200
CAPTURE_TIMEOUT_S = 90
#: Before 2023, nsys hangs when it samples or watches the scheduler on a kernel of today (6.18), most times.
NSYS_THAT_SAMPLES = (2023,)
#: From this version on, the nvtx package records no range under an nsys before 2024.3.
NVTX_TOO_NEW = (0, 2, 12)
NSYS_THAT_TAKES_IT = (2024, 3)


def installed_nsys() -> Nsys:
    """The nsys that boundby would use; fetched where there is none, else the test is skipped."""
    try:
        return find_nsys()
    except ToolError:
        return fetched_nsys(None)


@functools.cache
def fetched_nsys(version: str | None) -> Nsys:
    """The nsys that scripts/get-nsys puts into the cache, or a skip that says why there is none."""
    choice = ["--version", version] if version else []
    answer = subprocess.run(
        [sys.executable, str(GET_NSYS), "--quiet", *choice],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if answer.returncode != 0:
        pytest.skip(f"no nsys {version or ''} to test with: {answer.stderr.strip()}")
    found = probe(Path(answer.stdout.strip()), "cache")
    if isinstance(found, Unusable):
        pytest.skip(f"no nsys {version or ''} to test with: {found.path}: {found.reason}")
    return found


def capture(nsys: Nsys, folder: Path, program: str, *arguments: str, name: str = "report") -> Path:
    """Capture one of ``programs`` with what needs no GPU. Gives a .nsys-rep, or else a .qdstrm."""
    nvtx = version_numbers(importlib.metadata.version("nvtx"))
    if nvtx >= NVTX_TOO_NEW and nsys.version_tuple < NSYS_THAT_TAKES_IT:
        pytest.skip(f"nvtx {nvtx} records nothing under nsys {nsys.release}: install nvtx==0.2.11")
    perf = "process-tree" if nsys.version_tuple >= NSYS_THAT_SAMPLES else "none"
    traced = ["--trace=nvtx,osrt", f"--sample={perf}", f"--cpuctxsw={perf}"]
    session = f"boundby-test-{uuid.uuid4().hex}"
    target = [sys.executable, str(PROGRAMS / program), *arguments]
    try:
        subprocess.run(
            [str(nsys.path), "profile", *traced, f"--session-new={session}", f"--output={folder / name}", *target],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=CAPTURE_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        end_agent(session)
        raise
    made = [folder / f"{name}{suffix}" for suffix in (".nsys-rep", ".qdrep", ".qdstrm")]
    return next(path for path in made if path.exists())


def end_agent(session: str) -> None:
    """End what outlives an ``nsys profile`` that was killed: an agent of its own session, which can spin."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if f"--session-name={session}".encode() in words:
                os.kill(int(folder.name), signal.SIGKILL)


def fake_nsys(folder: Path, body: str, version: str = "2023.4.4.54-fake") -> Nsys:
    """A shell script that tells ``version`` and otherwise runs ``body``, with ``$out`` the file asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nsys"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit 0; fi\n'
        'for word; do case "$word" in --output=*) out="${word#--output=}";; esac; done\n'
        f"{body}\n"
    )
    path.chmod(0o755)
    return Nsys(path, version, "PATH")


def names(folder: Path) -> list[str]:
    """What is in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with changes."""
    return {**os.environ, **changes}
