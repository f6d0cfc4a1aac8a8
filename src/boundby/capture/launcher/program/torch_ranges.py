"""Ranges from torch's own hooks: around every operator and every module, and where the program loads data, steps its
optimizers, waits for ranks.

Operators come by ``emit_nvtx`` in a CUDA build, else by a dispatch mode. ``emit_nvtx`` starts only when the program
itself has started CUDA (it waits for the device, and a process that forks after that could not use CUDA any more), and
makes way for a profiler that the program opens itself. Modules come by torch's hooks for all of them: nothing is put on
any. The outermost module is ``forward``, what it calls has its own name: ``forward/layer1/attention``. What runs when
gradients flow is ``backward/layer1/attention``, and what a checkpoint computes again is in ``recompute``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from boundby.annotate import backends, nvtx_range, ranges
from boundby.annotate import modules as annotated
from boundby.annotate.backends import Label, Marker
from boundby.annotate.modules import BackwardRanges, ForwardCall, Names, current_task, named_ranges

#: Questions about tensors, and the program's own record_function, which does not end with the call.
_NO_OPERATORS = ("prim::", "profiler::")


class RangesOfOperators(Protocol):
    """``ensure`` is called often, by every thread that runs modules, and turns the ranges on where it can."""

    name: str

    def ensure(self) -> None: ...


class NoOperators:
    """Operators get no ranges."""

    name = "none"

    def ensure(self) -> None:
        return None


class EmitNvtx:
    """torch's own operator ranges, forward and backward, with sequence numbers. One switch a thread."""

    name = "emit_nvtx"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._thread = _OpenOperators()
        self._make_way()

    def ensure(self) -> None:
        thread = self._thread
        if thread.is_settled or not self._torch.cuda.is_initialized():
            return
        thread.is_settled = True  # whatever comes of it: a second try would fail too
        emitting = self._torch.autograd.profiler.emit_nvtx(record_shapes=False)
        thread.is_ours = True
        try:
            emitting.__enter__()
        except Exception:  # the program runs a profiler of its own on this thread
            return
        finally:
            thread.is_ours = False
        thread.is_emitting = True
        atexit.register(self._stop)

    def _stop(self) -> None:
        # Not emit_nvtx's own end, which waits for the device: a program may end while that hangs.
        if self._thread.is_emitting:
            self._thread.is_emitting = False
            with contextlib.suppress(Exception):
                self._torch.autograd._disable_profiler()

    def _make_way(self) -> None:
        """torch runs one profiler a thread. When the program starts one, ours stops for that long."""
        profiler = self._torch.autograd.profiler
        started = getattr(profiler, "_run_on_profiler_start", None)
        stopped = getattr(profiler, "_run_on_profiler_stop", None)
        if started is None or stopped is None:
            return
        thread = self._thread

        def start() -> None:
            if not thread.is_ours:
                self._stop()
                thread.is_settled = True
            started()

        def stop() -> None:
            stopped()
            thread.is_settled = False

        profiler._run_on_profiler_start = start
        profiler._run_on_profiler_stop = stop


class DispatchRanges:
    """For builds without CUDA: a mode that sees each operator as it is dispatched. No sequence numbers."""

    name = "dispatch"

    def __init__(self, torch: Any, mode: Any) -> None:
        self._torch = torch
        self._mode = mode
        self._thread = _OpenOperators()

    def ensure(self) -> None:
        thread = self._thread
        # Modes are a stack: below one that the program has open, ours would be in the place of that.
        if thread.is_settled or self._torch._C._len_torch_dispatch_stack() > 0:
            return
        thread.is_settled = True
        self._mode().__enter__()


class _OpenOperators(threading.local):
    def __init__(self) -> None:
        self.is_settled = False
        self.is_emitting = False
        self.is_ours = False


def choose(torch: Any) -> RangesOfOperators:
    """The way that this build of torch has."""
    if getattr(torch._C, "_nvtx", None) is not None:
        return EmitNvtx(torch)
    mode = _dispatch_mode(torch)
    return NoOperators() if mode is None else DispatchRanges(torch, mode)


def _dispatch_mode(torch: Any) -> Any:
    modes = getattr(getattr(torch, "utils", None), "_python_dispatch", None)
    if modes is None or not hasattr(torch._C, "_len_torch_dispatch_stack"):
        return None
    markers: dict[Any, Marker | None] = {}

    def marker_of(function: Any) -> Marker | None:
        name = function._schema.name
        made = None if name.startswith(_NO_OPERATORS) else backends.current().marker(Label(name))
        markers[function] = made
        return made

    class OperatorRanges(modes.TorchDispatchMode):  # type: ignore[misc, name-defined, unused-ignore]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # or torch would load its whole compiler at the first operator

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # or torch.compile would not compile while this is open

        def __torch_dispatch__(
            self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            marker = markers[function] if function in markers else marker_of(function)
            if marker is None:
                return function(*args, **(kwargs or {}))
            owner = object()
            ranges.push(owner, marker)
            try:
                return function(*args, **(kwargs or {}))
            finally:
                ranges.pop(owner)

    return OperatorRanges


# Ranges where a program waits for its DataLoader (``data``), where its optimizers step (``optimizer``), around
# collectives that no device shows (``c10d::all_reduce``), and around the program's own ``record_function`` blocks.

#: Calls of torch.distributed that return when the collective is over, unless they are asked not to wait for it.
_COLLECTIVES = (
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "broadcast", "broadcast_object_list", "gather", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "scatter", "send", "recv", "monitored_barrier"),
)
#: What torch itself puts around loaders and optimizers, for which there are ranges here.
_TOLD_ALREADY = ("enumerate(DataLoader)", "Optimizer.")


def mark_loaders(operators: RangesOfOperators) -> None:
    """``data`` around each batch that is waited for, ``data start`` where workers are started."""
    module: Any = sys.modules["torch.utils.data.dataloader"]
    iterator, loader = module._BaseDataLoaderIter, module.DataLoader
    waiting, starting = nvtx_range("data"), nvtx_range("data start")
    get, begin = iterator.__next__, loader.__iter__

    @functools.wraps(get)
    def __next__(self: Any) -> Any:  # noqa: N807
        operators.ensure()
        with waiting:
            return get(self)

    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:  # noqa: N807
        with starting:
            return begin(self)

    iterator.__next__ = __next__
    loader.__iter__ = __iter__


def mark_optimizers() -> None:
    """``optimizer`` around each step. torch's hook for the end of a step is not called when it raises."""
    module: Any = sys.modules["torch.optim.optimizer"]
    torch: Any = sys.modules["torch"]
    marker: Any = backends.current().marker(Label("optimizer"))
    owners: dict[int, object] = {}

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        left = owners.get(id(optimizer))
        if left is not None:  # its last step raised
            ranges.pop(left)
        owner = owners[id(optimizer)] = object()
        ranges.push(owner, marker)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        owner = owners.pop(id(optimizer), None)
        if owner is not None:
            ranges.pop(owner)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def mark_record_functions() -> None:
    """The program's own ``record_function`` names, which ``emit_nvtx`` writes in builds that have it."""
    torch: Any = sys.modules["torch"]
    kind: Any = torch.autograd.profiler.record_function
    enter, leave = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def __enter__(self: Any) -> Any:  # noqa: N807
        result = enter(self)
        if not torch.compiler.is_compiling() and not self.name.startswith(_TOLD_ALREADY):
            self._boundby_owner = object()
            ranges.push(self._boundby_owner, backends.current().marker(Label(self.name)))  # type: ignore[arg-type]
        return result

    @functools.wraps(leave)
    def __exit__(self: Any, *raised: Any) -> Any:  # noqa: N807
        if (owner := self.__dict__.pop("_boundby_owner", None)) is not None:
            ranges.pop(owner)
        return leave(self, *raised)

    kind.__enter__, kind.__exit__ = __enter__, __exit__


def mark_collectives() -> None:
    """``c10d::NAME`` around each collective, or around the wait for it where the call does not wait."""
    public: Any = sys.modules["torch.distributed"]
    if not public.is_available():
        return
    inner: Any = sys.modules["torch.distributed.distributed_c10d"]
    for name in _COLLECTIVES:
        original = getattr(inner, name, None)
        if original is not None:
            marked = _marked(name, original)
            for module in (inner, public):
                setattr(module, name, marked)
    inner.Work.wait = _marked("wait", inner.Work.wait)


def _marked(name: str, function: Any) -> Any:
    around = nvtx_range(f"c10d::{name}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("async_op"):
            return function(*args, **kwargs)
        with around:
            return function(*args, **kwargs)

    return call


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
