"""``annotate_module``: a range around the forward and the backward of every module of a torch model."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from boundby.annotate import backends, open_ranges
from boundby.annotate.backends import Label
from boundby.annotate.backward import BackwardRanges, ForwardCall, Names, current_task

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
        self._thread = _Thread()
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


class _Thread(threading.local):
    """The calls that run on this thread, outermost first."""

    def __init__(self) -> None:
        self.calls: list[ForwardCall] = []

    def open(self, call: ForwardCall) -> None:
        open_ranges.push(call, call.names.forward)
        self.calls.append(call)

    def close(self, module: int) -> ForwardCall | None:
        """Close the innermost call of this module, and with it a ``forward`` that was opened only for it."""
        calls = self.calls
        if not any(call.module == module for call in calls):
            return None
        while (call := calls.pop()).module != module:
            pass
        open_ranges.pop(call)
        if len(calls) == 1 and calls[0].module is None:
            open_ranges.pop(calls.pop())
        return call

    def close_all(self) -> None:
        if self.calls:
            open_ranges.pop(self.calls[0])
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
