"""The hottest functions of given threads and times, at three levels."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from boundby.attribution.timeline import Timeline, build_timeline
from boundby.attribution.windows import parse_window
from boundby.evidence.code_lines import PYTHON_CODE, Hotspot, hottest
from boundby.model.causes import Cause
from boundby.model.intervals import IntervalSet
from boundby.readers import read_trace
from boundby.trace.stacks import (
    Backtraces,
    Frames,
    LazyBacktraces,
    StackEvents,
    StackSource,
    is_interpreter,
    is_plumbing,
    is_user_python,
)
from tests.support.program import Program
from tests.support.traces import trace_path

PYTHON = "/usr/bin/python3.11"
FRAMES = [  # symbol, module, line, is_resolved
    ("memcpy", "/lib/libc.so.6", 0, True),
    ("solve", "/home/me/libsolver.so", 0, True),
    ("_PyEval_EvalFrameDefault", PYTHON, 0, True),
    ("0x7f00", "/lib/libcublas.so.12", 0, False),
    ("0x7f01", "/lib/libcublas.so.12", 0, False),
    ("norm", "/venv/lib/python3.11/site-packages/numpy/linalg.py", 9, True),
    ("step", "/home/me/train.py", 42, True),
]
STACKS = [[0, 1, 2], [2], [3, 2], [4, 2], [5, 6]]


def timeline() -> Timeline:
    """Thread 0: samples every 10 ns from 0, stacks 0, 0, 1, 2, 3; Python stacks at 5 and 15."""
    program = Program()
    program.kernel(20, 30, program.api(0, 10, "cudaLaunchKernel"))
    trace = program.trace()
    names: list[str] = []

    def number(text: str) -> int:
        if text not in names:
            names.append(text)
        return names.index(text)

    frames = Frames(
        np.array([number(symbol) for symbol, *_ in FRAMES], np.int32),
        np.array([number(module) for _, module, *_ in FRAMES], np.int32),
        np.array([line for *_, line, _ in FRAMES], np.int32),
        np.array([resolved for *_, resolved in FRAMES]),
        np.zeros(len(FRAMES), bool),
    )
    rows = [(StackSource.SAMPLE, 0, 10 * place, stack) for place, stack in enumerate([0, 0, 1, 2, 3])]
    rows += [(StackSource.PYTHON, 0, 5, 4), (StackSource.PYTHON, 0, 15, 4)]
    source, thread, start, stack = np.array(rows, np.int64).T
    events = StackEvents(start, thread.astype(np.int32), source.astype(np.int8), stack.astype(np.int32))
    first = np.append(0, np.cumsum([len(stack) for stack in STACKS]))
    built = Backtraces(events, first, np.concatenate(STACKS).astype(np.int32), frames, tuple(names))
    captured = replace(trace.captured, backtraces=True, python_stacks=True)
    trace = replace(trace, backtraces=LazyBacktraces(lambda: built), captured=captured)
    return build_timeline(trace, parse_window("gpu"))


def test_levels() -> None:
    leaf = hottest(timeline().trace, 0, level="leaf")
    assert leaf[0] == Hotspot("(unknown)", "libcublas.so.12", 2, 0.4)  # addresses of one binary count together
    assert leaf[1:] == (
        Hotspot("memcpy", "libc.so.6", 2, 0.4),
        Hotspot("_PyEval_EvalFrameDefault", "python3.11", 1, 0.2),
    )
    user = hottest(timeline().trace, 0)
    assert {(item.symbol, item.samples) for item in user} == {("solve", 2), (PYTHON_CODE, 1), ("(unknown)", 2)}
    assert hottest(timeline().trace, 0, level="python") == (Hotspot("step", "/home/me/train.py:42", 2, 1.0),)


def test_intervals_threads_and_limit() -> None:
    early = IntervalSet(np.array([0]), np.array([20]))
    assert hottest(timeline().trace, 0, early) == (Hotspot("solve", "libsolver.so", 2, 1.0),)
    assert hottest(timeline().trace, None, early) == hottest(timeline().trace, [0], early)
    assert hottest(timeline().trace, 1) == ()
    assert len(hottest(timeline().trace, 0, limit=1)) == 1
    with pytest.raises(ValueError, match="level"):
        hottest(timeline().trace, 0, level="deep")


def test_nothing_captured() -> None:
    program = Program()
    program.kernel(20, 30, program.api(0, 10, "cudaLaunchKernel"))
    assert hottest(build_timeline(program.trace(), parse_window("gpu")).trace, None) == ()


@pytest.mark.parametrize("name", ["python3.8", "python3", "libpython3.11.so.1.0", "/opt/conda/bin/python3.12"])
def test_interpreters(name: str) -> None:
    assert is_interpreter(name)
    assert is_plumbing("f", name)


@pytest.mark.parametrize(
    ("symbol", "module", "expected"),
    [
        ("read", "/usr/lib/x86_64-linux-gnu/libpthread-2.31.so", True),
        ("f", "libcuda.so.535.86.05", True),
        ("f", "libcupti.so.11.6", True),
        ("f", "ld-linux-x86-64.so.2", True),
        ("0xffffffffaaa39db7", "[kernel.kallsyms]", True),
        ("_start", "/home/me/program", True),
        ("main", "/home/me/program", False),
        ("f", "libcublasLt.so.12", False),
        ("f", "libcudf.so", False),
        ("f", "libcurand.so.10", False),
        ("load", "_pickle.cpython-38-x86_64-linux-gnu.so", False),
        ("f", "libtorch_python.so", False),
    ],
)
def test_plumbing(symbol: str, module: str, expected: bool) -> None:
    assert is_plumbing(symbol, module) is expected


def test_user_python_files() -> None:
    assert is_user_python("/home/me/train.py")
    for file in (
        "/v/lib/python3.11/site-packages/torch/x.py",
        "/usr/lib/python3.10/json/__init__.py",
        "",
        "<frozen os>",
    ):
        assert not is_user_python(file)


def test_what_a_real_host_does_while_the_device_idles() -> None:
    timeline = build_timeline(read_trace(trace_path("pytorch_a100_all_cpu_tables.sqlite")), parse_window("gpu"))
    (device,) = timeline.devices
    parts = device.segments
    mine = (parts.cause == Cause.CPU) & (parts.thread == parts.thread[parts.cause == Cause.CPU].min())
    main = hottest(timeline.trace, int(parts.thread[mine][0]), IntervalSet(parts.start_ns[mine], parts.end_ns[mine]))
    assert main[0].symbol == PYTHON_CODE
    assert abs(sum(item.share for item in hottest(timeline.trace, None, limit=100_000)) - 1) < 1e-9
