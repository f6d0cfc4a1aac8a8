"""Ranges where a program waits for its DataLoader (``data``), where its optimizers step (``optimizer``), around
collectives that no device shows (``c10d::all_reduce``), and around the program's own ``record_function`` blocks."""

from __future__ import annotations

import functools
import sys
from typing import Any

from boundby.annotate import backends, nvtx_range, ranges
from boundby.annotate.backends import Label

from .operator_ranges import RangesOfOperators

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
