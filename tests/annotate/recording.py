"""A backend that writes down every range instead of tracing it, and fails on a pop that has no push."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from boundby.annotate.backends import Label, Marker


@dataclass
class Recorder:
    """``paths`` has each push/pop range as it was opened, with the ranges around it on its thread and domain."""

    name: str = "recorder"
    paths: list[str] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    started: dict[int, str] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    stacks: defaultdict[tuple[int, str | None], list[str]] = field(default_factory=lambda: defaultdict(list))
    _handles: count[int] = field(default_factory=lambda: count(1))

    def marker(self, label: Label) -> Marker:
        self.labels.append(label)
        return Marker(
            partial(self._push, label), partial(self._pop, label), partial(self._start, label), partial(self._end)
        )

    @property
    def counts(self) -> Counter[str]:
        """How often each path was opened."""
        return Counter(self.paths)

    @property
    def open(self) -> list[str]:
        """Everything that is still open anywhere."""
        return [name for stack in self.stacks.values() for name in stack] + list(self.started.values())

    @property
    def here(self) -> str:
        """What is open on this thread in the default domain."""
        return "/".join(self.stacks[threading.get_ident(), None])

    def _push(self, label: Label) -> None:
        stack = self.stacks[threading.get_ident(), label.domain]
        stack.append(label.name)
        self.paths.append("/".join(stack))

    def _pop(self, label: Label) -> None:
        stack = self.stacks[threading.get_ident(), label.domain]
        assert stack, f"popped {label.name}, and nothing is open on this thread"
        assert stack.pop() == label.name

    def _start(self, label: Label) -> int:
        handle = next(self._handles)
        self.started[handle] = label.name
        return handle

    def _end(self, handle: int) -> None:
        self.ended.append(self.started.pop(handle))
