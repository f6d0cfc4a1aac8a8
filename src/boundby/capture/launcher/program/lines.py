"""Which Python line each thread is at, 50 times a second, as NVTX marks: so that a wait has its source line.

A thread of its own looks (``sys._current_frames``) and writes; the program's code is not touched. While a thread waits
for the device, torch has given up the interpreter's lock, so that looking holds up nobody. A mark's text is `PREFIX`
and JSON: the thread's id in the operating system, and its frames, nearest first.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

Place = tuple[tuple[CodeType, int], ...]

PREFIX = "boundby.line "  # `boundby.trace.stacks.LINE_MARK`: the program may run where boundby is not installed
PERIOD_S = 0.02  # a look takes some 20 us of the interpreter's lock: a thousandth of the time
MOST_THREADS = 4  # the main thread first: others rarely launch
MOST_OWN, DEEPEST = 3, 60  # frames of the program's own code that are told, and frames that are looked at
MOST_TEXTS = 10_000  # marks that are kept ready
_LIBRARY = ("site-packages", "dist-packages", f"{os.sep}python3", "<frozen ")
_BOUNDBY = tuple(f"{os.sep}boundby{os.sep}{room}{os.sep}" for room in ("annotate", "capture"))
_ENGINE = tuple(f"{os.sep}torch{os.sep}{part}{os.sep}" for part in ("autograd", "optim"))


class LineSampler:
    """``write`` is called with each mark's text, by this thread only."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._texts: dict[tuple[int | None, Place], str] = {}
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="boundby-lines", daemon=True)

    def start(self) -> None:
        """Begin. A fork waits until nothing is being written; the child has no such thread."""
        os.register_at_fork(
            before=self._writing.acquire, after_in_parent=self._writing.release, after_in_child=self._writing.release
        )
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(1)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            texts = self.look()
            with self._writing:
                for text in texts:
                    self._write(text)

    def look(self) -> list[str]:
        """One mark a thread, the main one first. Threads that torch or C++ made have no Python frames of their own."""
        frames = sys._current_frames()
        main = threading.main_thread()
        frames.pop(self._thread.ident or 0, None)
        stacks = [] if main.ident not in frames else [self._text(main.native_id, frames.pop(main.ident))]
        if frames:
            ids = {thread.ident: thread.native_id for thread in threading.enumerate()}
            others = [(ids.get(ident), frame) for ident, frame in sorted(frames.items())][: MOST_THREADS - 1]
            stacks += [self._text(tid, frame) for tid, frame in others if tid]
        return stacks

    def _text(self, tid: int | None, frame: FrameType) -> str:
        frames_of = places(frame)
        text = self._texts.get((tid, frames_of))
        if text is None:
            if len(self._texts) >= MOST_TEXTS:
                self._texts.clear()
            names = ("function", "file", "line")
            stack = [dict(zip(names, (code.co_name, code.co_filename, line), strict=True)) for code, line in frames_of]
            text = self._texts[tid, frames_of] = PREFIX + json.dumps({"tid": tid, "stack": stack})
        return text


def places(frame: FrameType | None) -> Place:
    """The nearest frame, the nearest ones of the program's own code, and before them the one in which torch works off
    what it was told; each with its line. boundby's own are none."""
    frames: list[tuple[CodeType, int]] = []
    own, is_told = 0, False
    for _ in range(DEEPEST):
        if frame is None or own == MOST_OWN:
            break
        of = _whose(frame.f_code.co_filename)
        is_engine = of == "engine" and not own and not is_told
        if of == "own" or is_engine or (not frames and of != "boundby"):
            frames.append((frame.f_code, frame.f_lineno or 0))
            own += of == "own"
            is_told |= of == "engine"
        frame = frame.f_back
    return tuple(frames)


@cache
def _whose(file: str) -> str:
    """``boundby``, ``engine`` (torch's autograd and optimizers), ``library``, ``own``."""
    kinds = (("boundby", _BOUNDBY), ("engine", _ENGINE), ("library", _LIBRARY))
    return next((kind for kind, parts in kinds if any(part in file for part in parts)), "own")


def begin(torch: Any) -> None:
    """Start, if marks can be written: by torch's own NVTX (its CUDA builds), else by the nvtx package."""
    write: Callable[[str], object]
    nvtx: Any = getattr(getattr(torch, "_C", None), "_nvtx", None)
    if nvtx is not None:
        write = nvtx.markA
    else:
        package = importlib.import_module("nvtx")

        def write(text: str) -> object:
            return package.mark(text, domain="boundby")

    LineSampler(write).start()
