"""``boundby profile --with torch``: PyTorch's own profiler around some steps of a program that says nothing itself.

A step ends where an optimizer's does, or where ``boundby.annotate.steps`` begins the next; the profiler waits, warms up
and records as many as were asked for. Until a first step is seen, everything from the first module's call on is
recorded: a program without steps is recorded to its end.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS_VARIABLE = "BOUNDBY_TORCH_PROFILER"

_running: TorchProfiler | None = None


def step() -> None:
    """A step of the program is over (called by ``boundby.annotate.steps``, too)."""
    if _running is not None:
        _running.step()


class TorchProfiler:
    """One process's profiler. ``settings``: folder, wait, warmup, active, stacks, shapes, memory."""

    def __init__(self, torch: Any, settings: dict[str, Any], note: Callable[[str], None]) -> None:
        self._torch, self._settings, self._note = torch, settings, note
        self._pid = os.getpid()
        self._profile: Any = None
        self._steps = 0
        self._is_over = False
        self._lock = threading.RLock()
        self._hooks: list[Any] = []

    def hook_up(self) -> None:
        """Begin with the first module that is called; count the optimizer's steps."""
        global _running
        _running = self
        register = self._torch.nn.modules.module.register_module_forward_pre_hook
        self._hooks.append(register(lambda *_: self._begin_whole()))
        atexit.register(self.finish)

    def count_optimizers(self) -> None:
        """Once torch.optim is there: around all that a step of an optimizer is, its own range included."""
        optimizer: Any = sys.modules["torch.optim.optimizer"].Optimizer
        original = optimizer.profile_hook_step

        def with_end(function: Any) -> Any:
            inner = original(function)

            @functools.wraps(inner)
            def wrapper(*arguments: Any, **named: Any) -> Any:
                try:
                    return inner(*arguments, **named)
                finally:
                    self.step()

            return wrapper

        optimizer.profile_hook_step = staticmethod(with_end)

    def step(self) -> None:
        """Take the first one as the sign that there are steps; then follow the schedule."""
        with self._lock:
            if self._is_over or os.getpid() != self._pid:
                return
            self._steps += 1
            if self._steps == 1:
                self._drop()
                self._start(whole=False)
            elif self._profile is not None:
                self._profile.step()
                wanted = sum(self._settings[key] for key in ("wait", "warmup", "active"))
                if self._steps > wanted:
                    self._end()

    def _begin_whole(self) -> None:
        with self._lock:
            if self._profile is None and not self._is_over and os.getpid() == self._pid and not self._steps:
                self._start(whole=True)

    def _start(self, *, whole: bool) -> None:
        profiler, settings = self._torch.profiler, self._settings
        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        rhythm = {key: settings[key] for key in ("wait", "warmup", "active")}
        self._profile = profiler.profile(
            activities=activities,
            schedule=None if whole else profiler.schedule(**rhythm, repeat=1),
            on_trace_ready=None if whole else self._write,
            with_stack=settings["stacks"],
            record_shapes=settings["shapes"],
            profile_memory=settings["memory"],
        )
        self._profile.start()

    def _drop(self) -> None:
        """What was recorded before the first step ended is no whole step."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def _write(self, profile: Any) -> None:
        rank = os.environ.get("RANK")
        name = "report" if rank is None else f"report-rank{rank}"
        path = Path(self._settings["folder"]) / f"{name}.pt.trace.json.gz"
        if path.exists():  # another process of the program
            path = path.with_name(f"{name}-{os.getpid()}.pt.trace.json.gz")
        unfinished = path.with_name(f".{os.getpid()}.json.gz")
        profile.export_chrome_trace(str(unfinished))
        unfinished.replace(path)
        self._note("")

    def _end(self) -> None:
        profile, self._profile, self._is_over = self._profile, None, True
        for hook in self._hooks:
            with contextlib.suppress(Exception):
                hook.remove()
        if profile is not None:
            profile.stop()
            if not self._steps:
                self._write(profile)

    def finish(self) -> None:
        """The program ends: keep what there is."""
        with self._lock:
            if self._is_over or os.getpid() != self._pid:
                return
            try:
                self._end()
            except Exception as error:
                self._note(f"{type(error).__name__}: {error}")


def settings() -> dict[str, Any] | None:
    """What was asked for; None: nothing."""
    written = os.environ.get(SETTINGS_VARIABLE)
    try:
        return dict(json.loads(written)) if written else None
    except ValueError:
        return None
