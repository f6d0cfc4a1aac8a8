"""What steps change in a torch program: kept while batches are given again, and put back afterwards."""

from __future__ import annotations

import copy
import gc
import random
import sys
from typing import Any


class TrainingState:
    """Parameters and buffers of all modules, what optimizers remember, and random numbers, as they were."""

    def __init__(self) -> None:
        torch: Any = sys.modules.get("torch")
        self._torch = torch
        self._tensors: list[tuple[Any, Any]] = []
        self._optimizers: list[tuple[Any, Any]] = []
        self._random = random.getstate()
        numpy: Any = sys.modules.get("numpy.random")
        self._numpy = None if numpy is None else (numpy, numpy.get_state())
        self._torch_random: Any = None
        if torch is None or not hasattr(torch, "optim"):
            return
        self._torch_random = torch.get_rng_state(), torch.cuda.get_rng_state_all() if _has_cuda(torch) else []
        for thing in _alive(torch):
            if isinstance(thing, torch.nn.Module):
                own = (*thing.parameters(recurse=False), *thing.buffers(recurse=False))
                self._tensors += [(tensor, tensor.detach().clone()) for tensor in own]
            else:
                self._optimizers.append((thing, copy.deepcopy(thing.state_dict())))

    def put_back(self) -> None:
        """All of it."""
        random.setstate(self._random)
        if self._numpy is not None:
            self._numpy[0].set_state(self._numpy[1])
        if self._torch_random is None:
            return
        with self._torch.no_grad():
            for tensor, was in self._tensors:
                tensor.copy_(was)
                tensor.grad = None
        for optimizer, state in self._optimizers:
            optimizer.load_state_dict(state)
        own, devices = self._torch_random
        self._torch.set_rng_state(own)
        if devices:
            self._torch.cuda.set_rng_state_all(devices)


def _alive(torch: Any) -> list[Any]:
    kinds = torch.nn.Module, torch.optim.Optimizer
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]


def _has_cuda(torch: Any) -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())
