"""Lines of Python that ``boundby profile`` marks: what is looked at in the program, and what waits are told by it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from boundby.api import examine
from boundby.capture.launcher.program import lines
from boundby.cli.main import main
from boundby.trace.facts import LAUNCHING_SCRIPT
from boundby.trace.stacks import LINE_MARK


def test_a_look_tells_where_each_thread_is() -> None:
    go, there = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        there.set()
        go.wait()

    other = threading.Thread(target=wait_for_it)
    other.start()
    there.wait()
    try:
        marks = lines.LineSampler(print).look()
    finally:
        go.set()
        other.join()
    assert all(mark.startswith(LINE_MARK) for mark in marks)
    told = [json.loads(mark.removeprefix(LINE_MARK)) for mark in marks]
    assert told[0]["tid"] == threading.main_thread().native_id
    of_other = next(one for one in told if one["tid"] == other.native_id)
    names = [(frame["function"], Path(frame["file"]).name) for frame in of_other["stack"]]
    assert names[0] == ("wait", "threading.py")  # the nearest frame, then the program's own
    assert ("wait_for_it", "test_lines.py") in names


def test_marks_are_written_until_it_stops() -> None:
    written: list[str] = []
    sampler = lines.LineSampler(written.append)
    sampler.start()
    while len(written) < 3:
        threading.Event().wait(0.01)
    sampler.stop()
    assert all(mark.startswith(LINE_MARK) for mark in written)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_wait_has_the_line_it_was_seen_at(tmp_path: Path, is_ours: bool) -> None:
    export = tmp_path / "report.sqlite"
    assert main(["simulate", "--pattern", "sync", "-o", str(export), "-q"]) == 0
    with contextlib.closing(sqlite3.connect(export)) as database, database:
        waits = database.execute(
            "SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON nameId = id "
            "WHERE end - start > 200000 AND value LIKE 'cuda%' AND value NOT LIKE '%Launch%'"
        ).fetchall()
        assert waits
        for start, end, tid in waits:
            stack = [{"function": "train", "file": "/home/me/train.py", "line": 42}]
            text = LINE_MARK + json.dumps({"tid": tid & 0xFFFFFF, "stack": stack})
            database.execute(
                "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (?, 34, ?, ?, 0)",
                ((start + end) // 2, text, (tid & ~0xFFFFFF) | 77),  # written by a thread of its own
            )
        if is_ours:
            database.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
            database.execute(
                "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_0', ?)", (f"/t/{LAUNCHING_SCRIPT}",)
            )
    report = examine(export).report
    titles = [item.title for item in report.findings if item.rule.startswith("sync")]
    assert titles
    assert all(title.endswith(", at train (train.py:42)") == is_ours for title in titles)
    assert report.trace.captured.python_stacks == is_ours


def seen_from(*calls: tuple[str, str]) -> list[tuple[str, str]]:
    """What a look tells of functions of these names and files, each called by the one before it."""
    seen: list[lines.Place] = []
    inner = "seen.append(places(here()))"
    for name, file in reversed(calls):
        inner = f"exec(compile('def {name}():\\n ' + {inner!r} + '\\n{name}()', {file!r}, 'exec'), {{**globals()}})"
    exec(inner, {"seen": seen, "places": lines.places, "here": lambda: sys._getframe(1)})
    named = {name for name, _ in calls}
    return [(code.co_name, Path(code.co_filename).name) for code, _ in seen[0] if code.co_name in named]


def test_what_boundby_does_in_the_program_is_no_line_of_it() -> None:
    torch, ours = "/x/site-packages/torch/_ops.py", "/home/me/boundby/capture/launcher/program/torch_ranges.py"
    assert seen_from(("train", "/p/train.py"), ("call", torch), ("dispatch", ours)) == [
        ("call", "_ops.py"),
        ("train", "train.py"),
    ]


def test_a_look_tells_that_torch_goes_backward() -> None:
    """The line that asked for it is no loop of the program's."""
    place = seen_from(
        ("train", "/p/train.py"),
        ("backward", "/x/site-packages/torch/_tensor.py"),
        ("run_backward", "/x/site-packages/torch/autograd/graph.py"),
        ("call", "/x/site-packages/torch/_ops.py"),
    )
    assert place == [("call", "_ops.py"), ("run_backward", "graph.py"), ("train", "train.py")]
