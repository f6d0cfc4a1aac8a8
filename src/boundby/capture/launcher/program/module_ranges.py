"""Ranges around every call of every module, by torch's hooks for all modules: nothing is put on the modules.

The outermost module is ``forward``, what it calls has its own name: ``forward/layer1/attention``. What runs when
gradients flow is ``backward/layer1/attention``, and what a checkpoint computes again is in ``recompute``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from boundby.annotate import backends, ranges
from boundby.annotate import modules as annotated
from boundby.annotate.backends import Label
from boundby.annotate.modules import BackwardRanges, ForwardCall, Names, current_task, named_ranges

from .operator_ranges import RangesOfOperators

#: Where a shell keeps the model that it stands for.
_INSIDE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARALLEL = ("DistributedDataParallel", "DataParallel")
#: A model that grows as it runs is looked through again, but not for ever.
MOST_LOOKS = 4


class AllModuleRanges:
    """Opens and closes the ranges of one process."""

    def __init__(self, torch: Any, operators: RangesOfOperators) -> None:
        self.torch = torch
        self._operators = operators
        self._thread = _Calls()
        self._backward = BackwardRanges()
        self._models = Models()

    def hook_up(self) -> None:
        """From now on, every module of the process."""
        hooks = self.torch.nn.modules.module
        torch = self.torch

        def before(module: Any, arguments: Any) -> None:
            # Inside torch.compile there is nothing to mark, and marking would break what it compiles in two.
            if not torch.compiler.is_compiling():
                self.enter(module, arguments)

        def after(module: Any, _arguments: Any, result: Any) -> None:
            if not torch.compiler.is_compiling():
                self.leave(module, result)

        hooks.register_module_forward_pre_hook(before)
        hooks.register_module_forward_hook(after, always_call=True)
        # torch.compile warns of hooks for all modules. These do nothing in there, and a program may turn warnings
        # into errors.
        import warnings

        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")

    def enter(self, module: Any, arguments: Any) -> None:
        """A module is called."""
        self._operators.ensure()
        calls = self._thread.calls
        model = calls[0].model if calls else self._models.of(module)
        if model is None:  # the program marks this model itself
            call = _OpenCall(None, module, None)
        elif calls:
            chosen = model.names_of(module)
            call = _OpenCall(None if chosen is None else ForwardCall(chosen, calls[-1].call, module), module, model)
        else:
            outermost = model.recompute if current_task(self.torch) != -1 else model.outermost
            call = _OpenCall(ForwardCall(outermost, None, module), module, model)
        if call.is_marked:
            ranges.push(call.call, call.call.names.forward)
            self._backward.watch_inputs(call.call, arguments)
        elif calls:
            call.call = calls[-1].call  # what it calls is inside what called it
        calls.append(call)

    def leave(self, module: Any, result: Any) -> None:
        """It has returned, or raised (``result`` is None then)."""
        calls = self._thread.calls
        number = id(module)
        if not any(call.module == number for call in calls):
            return
        while (call := calls.pop()).module != number:
            pass
        if call.is_marked:
            ranges.pop(call.call)
            self._backward.watch_outputs(call.call, result)


class _OpenCall:
    """One call on the stack. Calls without a range of their own stand for the one around them."""

    __slots__ = ("call", "is_marked", "model", "module")

    def __init__(self, call: ForwardCall | None, module: Any, model: Model | None) -> None:
        self.is_marked = call is not None
        self.call: Any = call
        self.module = id(module)
        self.model = model


class _Calls(threading.local):
    """The calls that run on this thread, outermost first."""

    def __init__(self) -> None:
        self.calls: list[_OpenCall] = []


class Model:
    """The names of an outermost module and of all below it."""

    def __init__(self, module: Any, prefix: str | None) -> None:
        self._module = weakref.ref(module)
        self._looks = 0
        self._names: dict[int, Names | None] = {}
        own = type(module).__name__
        self.outermost = names(own, own) if prefix is None else names(f"{prefix}forward", f"{prefix}backward")
        self.recompute = names(own, own) if prefix is None else names(f"{prefix}recompute", f"{prefix}backward")

    def is_of(self, module: Any) -> bool:
        """Whether it was made for this very module: a number is used again when its module is gone."""
        return self._module() is module

    def names_of(self, module: Any) -> Names | None:
        """What a module is called inside this one; None: it gets no range, being a shell's inside."""
        try:
            return self._names[id(module)]
        except KeyError:
            pass
        if self._looks < MOST_LOOKS:
            self._looks += 1
            self._names.update(self._look())
        if id(module) not in self._names:  # made on the fly, or kept where torch does not look
            return names(type(module).__name__, type(module).__name__)
        return self._names[id(module)]

    def _look(self) -> Mapping[int, Names | None]:
        module = self._module()
        parts: dict[int, Names | None] = {}
        while module is not None and (inside := _inside(module)) is not None:
            parts[id(inside)] = None
            module = inside
        if module is not None:
            for part, name in named_ranges(module, None):
                parts[id(part)] = names(name, name)
        return parts


class Models:
    """The outermost modules that were seen. The first kind is ``forward``, others say which they are."""

    def __init__(self) -> None:
        self._models: dict[int, Model] = {}
        self._first: str | None = None

    def of(self, module: Any) -> Model | None:
        """The model whose outermost module this is; None for one that has ranges of ``annotate_module``."""
        if any(type(hook).__module__ == annotated.__name__ for hook in module._forward_pre_hooks.values()):
            return None
        model = self._models.get(id(module))
        if model is None or not model.is_of(module):
            model = self._models[id(module)] = Model(module, self._prefix(module))
            weakref.finalize(module, self._forget, id(module), model).atexit = False
        return model

    def _forget(self, number: int, model: Model) -> None:
        if self._models.get(number) is model:
            del self._models[number]

    def _prefix(self, module: Any) -> str | None:
        """None for what is no model: losses, transforms and the like go by their own name."""
        if next(module.parameters(), None) is None and next(module.children(), None) is None:
            return None
        kind = type(_innermost(module)).__name__
        if self._first is None:
            self._first = kind
        return "" if kind == self._first else f"{kind} "


def names(forward: str, backward: str) -> Names:
    """The markers for a module's ranges."""
    backend: Any = backends.current()
    return Names(backend.marker(Label(forward)), backend.marker(Label(backward)))


def _inside(module: Any) -> Any:
    parts: Mapping[str, Any] = module._modules
    for name in _INSIDE:
        if name in parts:
            return parts[name]
    return parts.get("module") if type(module).__name__ in _PARALLEL else None


def _innermost(module: Any) -> Any:
    while (inside := _inside(module)) is not None:
        module = inside
    return module
