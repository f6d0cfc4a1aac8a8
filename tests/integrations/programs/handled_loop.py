"""A training loop, bare and with ``boundby.trace_handler``, also where everything goes wrong that can.

Prints one JSON object a line: what each variant of the loop came to.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import boundby
from boundby.integrations import apart

FOLDER = Path(sys.argv[1])
STEPS = 8
SCHEDULE = {"wait": 1, "warmup": 1, "active": 2, "repeat": 2}


def state() -> str:
    """Of every random number generator that a training uses."""
    told = (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    return hashlib.sha256(repr(told).encode()).hexdigest()


def train(handler: Callable[[Any], None] | None, steps: int = STEPS, repeat: int = 2) -> dict[str, object]:
    """A few steps from the same seed; losses to the last bit."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.profiler.schedule(**{**SCHEDULE, "repeat": repeat})
    recorded = torch.profiler.profile(schedule=schedule, on_trace_ready=handler, with_stack=True)
    losses = []
    with contextlib.nullcontext() if handler is None else recorded as profiler:
        for _ in range(steps):
            loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
            if profiler is not None:
                profiler.step()
    return {"losses": losses, "state": state()}


def names(folder: Path) -> list[str]:
    """What a folder holds."""
    return sorted(path.name for path in folder.iterdir())


class Broken(io.StringIO):
    """A stream that takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device", text[:0])


def writes(text: str | None) -> Callable[[Any, str], None]:
    """An ``export_chrome_trace`` that writes this, or nothing."""

    def export(_: Any, path: str) -> None:
        if text is not None:
            Path(path).write_text(text)

    return export


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """No file can grow beyond a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def ways() -> dict[str, contextlib.AbstractContextManager[object]]:
    """What can go wrong."""
    export = "torch.profiler.profile.export_chrome_trace"
    half = '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "cat": "cpu_op"} }'
    return {
        "the disk is full": no_room(),
        "the export raises": mock.patch(export, side_effect=RuntimeError("no trace")),
        "there is no memory": mock.patch(export, side_effect=MemoryError),
        "nothing is written": mock.patch(export, writes(None)),
        "the trace is cut short": mock.patch(export, writes('{"traceEvents": [')),
        "the trace is broken": mock.patch(export, writes(half)),
        "the trace is none": mock.patch(export, writes("{}")),
        "Ctrl-C while it analyses": mock.patch.object(subprocess.Popen, "communicate", side_effect=KeyboardInterrupt),
        "Ctrl-C while it writes": mock.patch(export, side_effect=KeyboardInterrupt),
        "the analysis is killed": mock.patch.object(apart, "_CHILD", "import os; os.kill(os.getpid(), 9) # {path}"),
        "the analysis hangs": mock.patch.multiple(apart, MOST_S=0.1, _CHILD="import time; time.sleep(99) # {path}"),
        "boundby is half gone": mock.patch.object(apart, "_CHILD", "import boundby.no_such_room # {path}"),
        "there is no Python": mock.patch.object(sys, "executable", "/no/such/python"),
        "nobody takes what is printed": mock.patch.object(sys, "stdout", Broken()),
    }


def main() -> None:
    out = sys.stdout

    def tell(name: str, **told: object) -> None:
        out.write(json.dumps({"name": name, **told}) + "\n")
        out.flush()

    tell("bare", **train(None))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        handler = boundby.trace_handler(FOLDER / "traces")
        result = train(handler)
    assert handler.report is not None
    verdict = handler.report.threads[0].verdict.bound
    tell("handled", **result, printed=printed.getvalue(), path=str(handler.path), page=str(handler.page), bound=verdict)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        result = train(boundby.trace_handler(FOLDER / "silent", "worker", use_gzip=True, show=False))
    tell("silent", **result, printed=printed.getvalue(), files=names(FOLDER / "silent"))
    for number, (name, broken) in enumerate(ways().items()):
        folder = FOLDER / str(number)
        with contextlib.redirect_stderr(io.StringIO()) as said, broken:
            result = train(boundby.trace_handler(folder), repeat=1)
        left = names(folder) if folder.is_dir() else []
        tell(name, **result, said=said.getvalue(), left=left)
    with tempfile.NamedTemporaryFile() as file, contextlib.redirect_stderr(io.StringIO()) as said:
        tell("the folder is a file", **train(boundby.trace_handler(file.name), repeat=1), said=said.getvalue(), left=[])
    with mock.patch.object(sys, "stderr", None), no_room():
        result = train(boundby.trace_handler(FOLDER / "mute"), repeat=1)
    tell("nobody hears of it", **result, said="boundby: ", left=[])
    tell("imports", modules=sorted(name for name in sys.modules if name.startswith("boundby")))


main()
