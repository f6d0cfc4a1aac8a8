"""Ranges around the forward and the backward of every module of a torch model, and around steps of optimizers."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from boundby.annotate import backends, ranges
from boundby.annotate.backends import Label, Marker
from boundby.annotate.ranges import decorate, nvtx_range, pop, push

# Ranges around the backward of modules, by hooks on the tensors that go into and come out of their forward.
#
# torch's own backward hooks on modules put a function around the module's tensors, which forbids in-place operations
# on them, warns where no input needs a gradient, and says nothing about a backward that raises. Hooks on tensors do
# none of that. They tell when a module's outputs have their gradients (its backward begins) and when its inputs have
# theirs (it has ended). Autograd works through one module after the other in reverse, so the ranges are made to nest
# as the calls did: entering a module closes those that it is not part of, and opens those that it is part of.

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
        self._thread = _OpenPasses()
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
            ranges.push(part, part.names.backward)
            self._place[part] = len(self._open)
            self._open.append(part)

    def leave(self, call: ForwardCall) -> None:
        """One more input of a call has its gradient."""
        missing = self._inputs_missing.get(call, call.grad_inputs) - 1
        if missing > 0:
            self._inputs_missing[call] = missing
            return
        self._left.add(call)
        open_call = self._place.get(call)
        if open_call is not None:
            self._close(open_call)

    def close(self) -> None:
        """Close all that is open."""
        self._close(0)
        self._left.clear()
        self._inputs_missing.clear()

    def _close(self, down_to: int) -> None:
        while len(self._open) > down_to:
            call = self._open.pop()
            del self._place[call]
            ranges.pop(call)


class _OpenPasses(threading.local):
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
    return [tensor for item in items for tensor in differentiable_tensors(tensor_type, item, depth - 1)]


# Which modules of a model get a range, and what it is called.


def named_ranges(model: Any, depth: int | None) -> Iterator[tuple[Any, str]]:
    """Modules below ``model`` with the names of their ranges, down to ``depth`` levels (None: all).

    A range has the module's own name, since the ranges around it give the rest of the path. Two kinds of modules
    need more: children of what is never called itself (ModuleList, ModuleDict) bring its name along, and children
    that are only numbered bring their parent's (``layers.3``): a bare number would fold into ``*`` with all others.
    """
    seen = {id(model)}

    def below(parent: Any, parent_name: str, carried: str, level: int) -> Iterator[tuple[Any, str]]:
        if depth is not None and level > depth:
            return
        for key, child in parent.named_children():
            if id(child) in seen or is_scripted(child):
                continue
            seen.add(id(child))
            if carried:
                name = f"{carried}.{key}"
            elif key.isdigit():
                name = f"{parent_name}.{key}"
            else:
                name = key
            if is_called(child):
                yield child, name
                inner = _compiled(child)
                seen.add(id(inner))
                yield from below(inner, name, "", level + 1)
            else:
                yield from below(child, parent_name, name, level)

    inner = _compiled(model)
    seen.add(id(inner))
    return below(inner, type(inner).__name__, "", 1)


def _compiled(module: Any) -> Any:
    """The module in the shell that torch.compile makes, or the module itself."""
    return getattr(module, "_orig_mod", module)


def is_called(module: Any) -> bool:
    """Does it have a forward of its own? ModuleList and ModuleDict only hold others."""
    torch: Any = sys.modules["torch"]
    return "forward" in vars(module) or type(module).forward is not torch.nn.Module.forward


def is_scripted(module: Any) -> bool:
    """Is it compiled by TorchScript? Such modules take no hooks, and neither do those inside."""
    torch: Any = sys.modules["torch"]
    return isinstance(module, torch.jit.ScriptModule)


def is_module(model: Any) -> bool:
    """Is this a torch module? Without torch there is none."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


FORWARD, BACKWARD, RECOMPUTE = "forward", "backward", "recompute"


class ModuleRanges:
    """The ranges of one model. ``remove()``, or leaving it as a context manager, ends them."""

    def __init__(self, model: Any, depth: int | None, prefix: str) -> None:
        self._hooks: list[Any] = []
        self._thread = _OpenCalls()
        outermost = _names(f"{prefix}{FORWARD}", f"{prefix}{BACKWARD}")
        recompute = _names(f"{prefix}{RECOMPUTE}", f"{prefix}{BACKWARD}")
        self.active = outermost is not None and recompute is not None
        if outermost is None or recompute is None:
            return
        self._torch: Any = sys.modules["torch"]
        self._outermost, self._recompute, self._model = outermost, recompute, id(model)
        self._call_code: CodeType = self._torch.nn.Module._call_impl.__code__
        self.backward = BackwardRanges()
        if is_called(model):
            self._hook(model, outermost)
        for module, name in named_ranges(model, depth):
            if (names := _names(name, name)) is not None:
                self._hook(module, names)

    def remove(self) -> None:
        """Mark no more calls; also those of copies that were made of the model."""
        self.active = False
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._thread.close_all()
        if hasattr(self, "backward"):
            self.backward.active = False

    def __enter__(self) -> ModuleRanges:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def enter(self, names: Names, module: Any, arguments: Any) -> None:
        """A module is called."""
        calls = self._thread.calls
        if names is self._outermost and calls and self._is_leftover(module, calls):
            self._thread.close_all()
        if calls:
            call = ForwardCall(names, calls[-1], module)
        else:
            is_recomputed = current_task(self._torch) != -1
            outer = ForwardCall(self._recompute if is_recomputed else self._outermost, None, None)
            if names is self._outermost:
                call = outer
                call.module = id(module)
            else:
                self._thread.open(outer)
                call = ForwardCall(names, outer, module)
        self._thread.open(call)
        self.backward.watch_inputs(call, arguments)

    def leave(self, module: Any, result: Any) -> None:
        """It has returned, or raised (``result`` is None then)."""
        call = self._thread.close(id(module))
        if call is not None:
            self.backward.watch_outputs(call, result)

    def _hook(self, module: Any, names: Names) -> None:
        before, after = _Before(self, names, self._torch), _After(self, self._torch)
        self._hooks.append(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
        self._hooks.append(module.register_forward_hook(after, always_call=True))

    def _is_leftover(self, module: Any, calls: list[ForwardCall]) -> bool:
        """Were the open calls cut off (Ctrl-C passes torch's hooks)? Then fewer run than are open."""
        running = 0
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code is self._call_code and frame.f_locals.get("self") is module:
                running += 1
            frame = frame.f_back
        return running <= sum(call.module == id(module) for call in calls)


def annotate_module(model: Any, *, depth: int | None = None, prefix: str = "") -> ModuleRanges:
    """Mark every call of a model's modules: ``forward/layer1/attention``, and ``backward/...`` when gradients flow.

    Each range is named by the module's own name in its parent, so that their nesting gives the path. A module that is
    called without the model around it comes inside a ``forward`` too. What a checkpoint computes again is in
    ``recompute``, inside the backward that asks for it. Hooks stay out of what torch.compile compiles: what
    ``torch.compile(module)`` returned before this call is one range.

    The backward of a module ends where the next one's begins if none of its inputs needs a gradient. On a GPU the
    backward runs on a thread of its own.

    Args:
        model: a torch module.
        depth: how many levels below the model get ranges (0: only the model itself, None: all).
        prefix: put before ``forward`` and ``backward``, to tell two models apart.

    Returns:
        A handle whose ``remove()`` takes the ranges away.
    """
    if not is_module(model):
        raise TypeError(f"annotate_module needs a torch module, and not {model!r}.")
    if is_scripted(model):
        raise TypeError("annotate_module cannot see into a TorchScript module: put nvtx_range around its calls.")
    if depth is not None and depth < 0:
        raise ValueError("annotate_module: depth is a number of levels, 0 or more.")
    return ModuleRanges(model, depth, prefix)


class _OpenCalls(threading.local):
    """The calls that run on this thread, outermost first."""

    def __init__(self) -> None:
        self.calls: list[ForwardCall] = []

    def open(self, call: ForwardCall) -> None:
        push(call, call.names.forward)
        self.calls.append(call)

    def close(self, module: int) -> ForwardCall | None:
        """Close the innermost call of this module, and with it a ``forward`` that was opened only for it."""
        calls = self.calls
        if not any(call.module == module for call in calls):
            return None
        while (call := calls.pop()).module != module:
            pass
        pop(call)
        if len(calls) == 1 and calls[0].module is None:
            pop(calls.pop())
        return call

    def close_all(self) -> None:
        if self.calls:
            pop(self.calls[0])
            self.calls.clear()


class _Hook:
    """Shared by copies of the model, and replaced by nothing when the model is pickled."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return self

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _no_hook, ()


class _Before(_Hook):
    def __init__(self, ranges: ModuleRanges, names: Names, torch: Any) -> None:
        self.ranges = ranges
        self.names = names
        self.torch = torch

    def __call__(self, module: Any, args: Any, kwargs: Any) -> None:
        if not self.torch.compiler.is_compiling() and self.ranges.active:
            self.ranges.enter(self.names, module, (args, kwargs))


class _After(_Hook):
    def __init__(self, ranges: ModuleRanges, torch: Any) -> None:
        self.ranges = ranges
        self.torch = torch

    def __call__(self, module: Any, _args: Any, result: Any) -> None:
        if not self.torch.compiler.is_compiling() and self.ranges.active:
            self.ranges.leave(module, result)


def _no_hook() -> Any:
    return _ignore


def _ignore(*_args: Any, **_kwargs: Any) -> None:
    return None


def _names(forward: str, backward: str) -> Names | None:
    backend = backends.reconsider()
    markers = (backend.marker(Label(forward)), backend.marker(Label(backward)))
    return None if markers[0] is None or markers[1] is None else Names(markers[0], markers[1])


# ``annotate_optimizer``: a range around every step of a torch optimizer.


class OptimizerRanges:
    """The ranges of one optimizer. ``remove()``, or leaving it as a context manager, ends them."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self._optimizer = optimizer
        self._marked: nvtx_range | None = nvtx_range(name)
        self._before = optimizer.__dict__.get("step")
        # torch's own step hooks are not called when a step raises. And it has to stay a bound method: learning rate
        # schedulers wrap ``step.__func__``.
        original = optimizer.step
        marked_step = decorate(original, self._marked)

        def step(_optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            return (original if self._marked is None else marked_step)(*args, **kwargs)

        step.__dict__.update(getattr(original, "__dict__", {}))
        self._step = types.MethodType(step, optimizer)
        optimizer.step = self._step

    def remove(self) -> None:
        """Mark no more steps."""
        self._marked = None
        # Something else may have wrapped the step since: then ours stays in between and does nothing.
        if self._optimizer.__dict__.get("step") is self._step:
            if self._before is None:
                del self._optimizer.step
            else:
                self._optimizer.step = self._before

    def __enter__(self) -> OptimizerRanges:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def annotate_optimizer(optimizer: Any, name: str = "optimizer") -> OptimizerRanges:
    """Mark every ``optimizer.step()`` with a range, closure included, also when it raises."""
    if not callable(getattr(optimizer, "step", None)):
        raise TypeError(f"annotate_optimizer needs a torch optimizer, with a step(), and not {optimizer!r}.")
    return OptimizerRanges(optimizer, name)
