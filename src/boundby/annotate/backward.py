"""Ranges around the backward of modules, by hooks on the tensors that go into and come out of their forward.

torch's own backward hooks on modules put a function around the module's tensors, which forbids in-place operations on
them, warns where no input needs a gradient, and says nothing about a backward that raises. Hooks on tensors do none of
that. They tell when a module's outputs have their gradients (its backward begins) and when its inputs have theirs (it
has ended). Autograd works through one module after the other in reverse, so the ranges are made to nest as the calls
did: entering a module closes those that it is not part of, and opens those that it is part of.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from dataclasses import dataclass
from typing import Any

from boundby.annotate import open_ranges
from boundby.annotate.backends import Marker

#: Containers in containers are searched for tensors this deep.
NESTING_SEARCHED = 4


@dataclass(frozen=True)
class Names:
    """The markers of a module: the same name forward and backward, but for the outermost."""

    forward: Marker
    backward: Marker


class ForwardCall:
    """A module's forward, and later its backward. ``parent`` is None for the outermost: ``forward``, ``recompute``."""

    __slots__ = ("grad_inputs", "module", "names", "parent")

    def __init__(self, names: Names, parent: ForwardCall | None, module: Any) -> None:
        self.names = names
        self.parent = parent
        self.module: int | None = id(module) if module is not None else None
        self.grad_inputs = 0


class BackwardRanges:
    """Opens and closes the backward ranges of the calls that it was shown."""

    def __init__(self) -> None:
        self._torch: Any = sys.modules["torch"]
        self._thread = _Thread()
        self.active = True

    def watch_inputs(self, call: ForwardCall, arguments: Any) -> None:
        """Before the forward: an in-place module will make its inputs into something else."""
        watched: set[int] = set()
        for tensor in self._differentiable(arguments):
            if id(tensor) not in watched:
                watched.add(id(tensor))
                tensor.register_hook(functools.partial(self._left, call))
        call.grad_inputs = len(watched)

    def watch_outputs(self, call: ForwardCall, result: Any) -> None:
        """After the forward."""
        for tensor in self._differentiable(result):
            tensor.register_hook(functools.partial(self._entered, call))

    def _differentiable(self, value: Any) -> list[Any]:
        return differentiable_tensors(self._torch.Tensor, value) if self._torch.is_grad_enabled() else []

    def _entered(self, call: ForwardCall, _gradient: Any) -> None:
        if not self.active:
            return
        current = self._thread.current(self._task())
        if current is None:
            current = self._begin_pass()
        current.enter(call)

    def _left(self, call: ForwardCall, _gradient: Any) -> None:
        current = self._thread.current(self._task())
        if current is not None:
            current.leave(call)

    def _task(self) -> int:
        return current_task(self._torch)

    def _begin_pass(self) -> _Pass:
        begun = _Pass(self._task(), self._thread.passes)
        self._thread.passes.append(begun)
        # Autograd drops what is queued when it is through, after having called it, and also when it fails. Nothing
        # else may hold the end, or ranges would stay open after an error.
        self._torch.autograd.Variable._execution_engine.queue_callback(_End(begun))
        return begun


class _Pass:
    """One run of autograd on one thread. Checkpoints run another one inside it: ``passes`` has the innermost last."""

    def __init__(self, task: int, passes: list[_Pass]) -> None:
        self.task = task
        self.finished = False
        self._is_nested = bool(passes)
        self._open: list[ForwardCall] = []
        self._place: dict[ForwardCall, int] = {}  # in _open
        self._inputs_missing: dict[ForwardCall, int] = {}
        self._left: set[ForwardCall] = set()

    def enter(self, call: ForwardCall) -> None:
        """The outputs of a call have their gradients."""
        # Left already: its output is its input. Open already: a part of it gave the same output, and came first.
        if call in self._left or call in self._place:
            return
        path, above = [call], call.parent
        while above is not None and above not in self._place:
            path.append(above)
            above = above.parent
        self._close(0 if above is None else self._place[above] + 1)
        if above is None and self._is_nested and len(path) > 1:
            path.pop()  # inside the "backward" that is open already
        for part in reversed(path):
            open_ranges.push(part, part.names.backward)
            self._place[part] = len(self._open)
            self._open.append(part)

    def leave(self, call: ForwardCall) -> None:
        """One more input of a call has its gradient."""
        missing = self._inputs_missing.get(call, call.grad_inputs) - 1
        if missing > 0:
            self._inputs_missing[call] = missing
            return
        self._left.add(call)
        place = self._place.get(call)
        if place is not None:
            self._close(place)

    def close(self) -> None:
        """Close all that is open."""
        self._close(0)
        self._left.clear()
        self._inputs_missing.clear()

    def _close(self, down_to: int) -> None:
        while len(self._open) > down_to:
            call = self._open.pop()
            del self._place[call]
            open_ranges.pop(call)


class _Thread(threading.local):
    """The passes that run on this thread."""

    def __init__(self) -> None:
        self.passes: list[_Pass] = []

    def current(self, task: int) -> _Pass | None:
        """The pass of this task, if it has begun here. Passes that have ended on another thread are closed."""
        while self.passes and self.passes[-1].finished:
            self.passes.pop().close()
        if self.passes and self.passes[-1].task == task:
            return self.passes[-1]
        return None


class _End:
    """What autograd calls at the end of a pass, or drops when the pass fails. Either ends it."""

    def __init__(self, ended: _Pass) -> None:
        self._ended = ended
        self._thread = threading.get_ident()

    def __call__(self) -> None:
        self._ended.finished = True
        # With several devices the last thread to finish calls this. Other threads close theirs when they next work.
        if threading.get_ident() == self._thread:
            self._ended.close()

    def __del__(self) -> None:
        self()


def current_task(torch: Any) -> int:
    """A number for the run of autograd that this thread is part of; -1 outside of one."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return -1 if task is None else int(task())


def differentiable_tensors(tensor_type: Any, value: Any, depth: int = NESTING_SEARCHED) -> list[Any]:
    """Tensors in a module's arguments or results that gradients flow through; parameters and other leaves are not.

    (A leaf lives longer than one pass: hooks on it would pile up.)
    """
    if isinstance(value, tensor_type):
        return [value] if value.requires_grad and value.grad_fn is not None else []
    if isinstance(value, (tuple, list)):
        items: Any = value
    elif isinstance(value, dict):
        items = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, part.name, None) for part in dataclasses.fields(value)]
    else:
        return []
    if not items or depth == 0:
        return []
    return [found for item in items for found in differentiable_tensors(tensor_type, item, depth - 1)]
