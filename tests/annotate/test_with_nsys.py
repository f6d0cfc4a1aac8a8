"""Under the real nsys: the ranges in the exported trace are those that the program opened, by count and nesting."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from boundby.capture.export import export_sqlite
from boundby.capture.nsys import Nsys, version_numbers
from tests.support.nsys import CAPTURE_TIMEOUT_S, NSYS_THAT_TAKES_IT, NVTX_TOO_NEW, REPOSITORY, capture

pytestmark = pytest.mark.nsys

PROGRAMS = Path(__file__).parent / "programs"
PUSH_POP, START_END = 59, 60
_RANGES = """
SELECT eventType, globalTid, domainId, start, end, coalesce(value, text) FROM NVTX_EVENTS
LEFT JOIN StringIds ON id = textId WHERE eventType IN (59, 60) ORDER BY start, end DESC
"""


def ranges(database: Path) -> tuple[Counter[str], Counter[str]]:
    """Paths of the push/pop ranges, nested on each thread and domain, and names of the start/end ranges."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(_RANGES).fetchall()
    paths: Counter[str] = Counter()
    started: Counter[str] = Counter()
    stacks: defaultdict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    for kind, thread, domain, start, end, name in rows:
        assert end is not None, f"{name} was never closed"
        if kind == START_END:
            started[name] += 1
            continue
        stack = stacks[thread, domain]
        while stack and stack[-1][0] <= start:
            stack.pop()
        assert not stack or end <= stack[-1][0], f"{name} and {stack[-1][1]} overlap"
        stack.append((end, name))
        paths["/".join(opened for _, opened in stack)] += 1
    return paths, started


def captured(
    nsys: Nsys, folder: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[str], Counter[str]]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    report = capture(nsys, folder, str(PROGRAMS / program))
    return ranges(export_sqlite(report, folder / "out.sqlite", nsys))


def test_every_helper(nsys: Nsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, started = captured(nsys, tmp_path, "helpers.py", monkeypatch)
    assert paths == {
        "main": 1,
        "main/method": 1,
        "main/method/function": 1,
        "main/method/function/block": 1,
        "main/class method": 1,
        "main/class method/function": 1,
        "main/class method/function/block": 1,
        "main/generator": 3,
        "main/consumer": 2,
        "main/outer": 1,
        "main/outer/inner": 1,
        "main/broken 0": 1,
        "mine": 1,  # in a domain of its own
        "coroutine": 9,
        "coroutine/stretch": 6,
        "async generator": 3,
        "data start": 1,
        "data": 1,
        "warmup 0": 1,
        "warmup 0/data": 1,
        "step 1": 1,
        "step 1/data": 1,
        "step 2": 1,
        "function": 1,
        "function/block": 1,
        "last": 1,
    }
    assert started == {"request": 3, "boundby.capture": 2}


def test_torch_helpers(nsys: Nsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="captures a torch program, and torch is not installed")
    from tests.annotate.programs.training import STEPS
    from tests.annotate.torch_models import NET_BACKWARD, NET_FORWARD

    paths, started = captured(nsys, tmp_path, "training.py", monkeypatch)
    each = Counter([*NET_FORWARD, *NET_BACKWARD, "zero", "optimizer", "data"])
    wanted = Counter({"data start": 1, "data": 1})
    for number in range(STEPS):
        wanted[f"step {number}"] += 1
        wanted.update({f"step {number}/{path}": count for path, count in each.items()})
    assert paths == wanted
    assert started == {"boundby.capture": 1}


def test_nsys_captures_the_active_steps_only(nsys: Nsys, tmp_path: Path) -> None:
    if version_numbers(importlib.metadata.version("nvtx")) >= NVTX_TOO_NEW and nsys.version_tuple < NSYS_THAT_TAKES_IT:
        pytest.skip(f"this nvtx records nothing under nsys {nsys.release}: install nvtx==0.2.11")
    code = "from boundby.annotate import steps\nfor _ in steps(range(9), warmup=3, active=2): pass"
    only = ["--capture-range=nvtx", "--nvtx-capture=boundby.capture@boundby", "--capture-range-end=stop"]
    command = [str(nsys.path), "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", *only]
    subprocess.run(
        [*command, f"--output={tmp_path / 'report'}", sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        timeout=CAPTURE_TIMEOUT_S,
        check=True,
    )
    paths, started = ranges(export_sqlite(tmp_path / "report.nsys-rep", tmp_path / "out.sqlite", nsys))
    assert paths == {"step 3": 1, "step 4": 1}
    assert started == {"boundby.capture": 1}
