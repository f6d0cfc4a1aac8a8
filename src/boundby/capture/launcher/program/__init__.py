"""What runs inside the profiled program: it waits for torch, whose own hooks then become NVTX ranges. See the
launcher's docstring."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Watcher:
    """Stands first in ``sys.meta_path``; finds nothing itself, but sees what the others find."""

    def __init__(self) -> None:
        self._actions: dict[str, list[Callable[[], None]]] = {}
        self._looking: set[str] = set()

    def add(self, name: str, action: Callable[[], None]) -> None:
        self._actions.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._actions or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = _find(name, path, target, self)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, type):
            self._follow(spec.loader, name)
        return spec

    def _follow(self, loader: Any, name: str) -> None:
        """Let a loader tell when it has run the module. It stays the same object, with the same methods after that."""
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            actions = self._actions.pop(name, [])
            if not self._actions and self in sys.meta_path:
                sys.meta_path.remove(self)
            for action in actions:
                action()

        with contextlib.suppress(AttributeError):
            # Python leaves the frames of its own import machinery out of tracebacks, by the name of their file.
            exec_module.__code__ = exec_module.__code__.replace(co_filename=run.__code__.co_filename)
            loader.exec_module = exec_module


_watcher = _Watcher()


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` once the module is there: now, if it is already."""
    if name in sys.modules:
        action()
    else:
        _watcher.add(name, action)


def _find(name: str, path: Sequence[str] | None, target: ModuleType | None, without: object) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        if finder is without:
            continue
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def wait_for_torch(notes: str) -> None:
    """Add ranges as soon as the program has imported torch."""

    def begin() -> None:
        from .begin import begin

        begin(notes)

    when_imported("torch", begin)
