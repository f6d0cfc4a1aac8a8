"""A remedy on trial: what is changed for a whole run of the program, and the first losses, to compare outputs by."""

from __future__ import annotations

import functools
import sys
from typing import Any

from .conductor import Conductor

#: Losses that are kept, from the first on.
LOSSES = 5
WORKERS = "host_blocked.workers"
PREFETCH = "host_blocked.prefetch"
PERSISTENT = "host_blocked.persistent-workers"
PINNED = "host_blocked.pinned-input"
PRECISION = "gpu_compute.lower-precision"
FUSE = "gpu_compute.fuse"
OPTIMIZER = "cuda_api.fused-optimizer"
REMEDIES = (WORKERS, PREFETCH, PERSISTENT, PINNED, PRECISION, FUSE, OPTIMIZER)
#: Those that are settings of the environment.
ENVIRONMENTS = {
    "init.allocator": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "init.lazy-loading": {"CUDA_MODULE_LOADING": "LAZY"},
}


def hook_up(conductor: Conductor, when_imported: Any, remedy: str) -> None:
    """Keep losses, and change what the remedy changes; without one nothing."""
    when_imported("torch._tensor", lambda: _hook_losses(conductor))
    if remedy in _LOADER:
        when_imported("torch.utils.data.dataloader", lambda: _hook_loader(_LOADER[remedy]))
    elif remedy in (PRECISION, FUSE):
        when_imported("torch.nn.modules.module", lambda: _hook_modules(remedy))
    elif remedy == OPTIMIZER:
        when_imported("torch.optim.optimizer", _hook_optimizer)


def _hook_losses(conductor: Conductor) -> None:
    kind: Any = sys.modules["torch._tensor"].Tensor
    backward = kind.backward

    @functools.wraps(backward)
    def kept(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(conductor.losses) < LOSSES and self.numel() == 1:
            conductor.losses.append(self.detach().clone())
        return backward(self, *args, **kwargs)

    kind.backward = kept


def _more_workers(told: dict[str, Any]) -> None:
    told["num_workers"] = 2 * told["num_workers"] if told.get("num_workers") else 2


def _more_prefetch(told: dict[str, Any]) -> None:
    if told.get("num_workers"):
        told["prefetch_factor"] = 2 * (told.get("prefetch_factor") or 2)


def _persistent(told: dict[str, Any]) -> None:
    if told.get("num_workers"):
        told["persistent_workers"] = True


def _pinned(told: dict[str, Any]) -> None:
    told["pin_memory"] = True


_LOADER = {WORKERS: _more_workers, PREFETCH: _more_prefetch, PERSISTENT: _persistent, PINNED: _pinned}
_PLACES = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory")


def _hook_loader(change: Any) -> None:
    loader: Any = sys.modules["torch.utils.data.dataloader"].DataLoader
    make = loader.__init__

    @functools.wraps(make)
    def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if len(args) <= len(_PLACES):
            kwargs |= dict(zip(_PLACES, args, strict=False))
            args = ()
            change(kwargs)
        make(self, dataset, *args, **kwargs)

    loader.__init__ = __init__


def _hook_modules(remedy: str) -> None:
    """The outermost module that is called."""
    torch: Any = sys.modules["torch"]
    module: Any = sys.modules["torch.nn.modules.module"].Module
    call = module.__call__
    open_calls: list[int] = []
    compiled: set[int] = set()

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if open_calls or not any(True for _ in self.parameters()):
            return call(self, *args, **kwargs)
        open_calls.append(1)
        try:
            if remedy == FUSE:
                if id(self) not in compiled:
                    compiled.add(id(self))
                    self.compile()
                return call(self, *args, **kwargs)
            kind = next(self.parameters()).device.type
            with torch.autocast(kind, torch.bfloat16):
                return _as_before(torch, call(self, *args, **kwargs))
        finally:
            open_calls.pop()

    module.__call__ = called


def _as_before(torch: Any, result: Any) -> Any:
    """What comes after the model expects the types that it had."""
    return result.float() if isinstance(result, torch.Tensor) and result.dtype == torch.bfloat16 else result


def _hook_optimizer() -> None:
    module: Any = sys.modules["torch.optim.optimizer"]

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            if "foreach" in group and not group.get("fused"):
                group["foreach"] = True

    module.register_optimizer_step_pre_hook(before)
