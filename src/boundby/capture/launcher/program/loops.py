"""Ranges where a program waits for its DataLoader (``data``) and where its optimizers step (``optimizer``)."""

from __future__ import annotations

import functools
import sys
from typing import Any

from boundby.annotate import backends, nvtx_range, open_ranges
from boundby.annotate.backends import Label

from .operators import Operators


def mark_loaders(operators: Operators) -> None:
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
            open_ranges.pop(left)
        owner = owners[id(optimizer)] = object()
        open_ranges.push(owner, marker)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        owner = owners.pop(id(optimizer), None)
        if owner is not None:
            open_ranges.pop(owner)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)
