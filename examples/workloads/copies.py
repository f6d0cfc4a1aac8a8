"""GPU-copy bound (the workload ``copy``): large batches go to the device and large results come back.

``before`` copies from and to pageable memory: the driver moves the data through a small pinned buffer of its own, and
the host waits. ``after`` has its batches in pinned memory and copies on streams of their own, the next batch while this
one is computed and the result of the last one while it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from examples.workloads.registry import BATCHES, Setup, Step
from torch import Tensor, nn

from boundby.annotate import annotate_module, nvtx_range

CHANNELS = 8


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Filter batches of host memory into host memory. A step gives the result, which may still be on its way."""
    batch, side = setup.size(cuda=(64, 256), cpu=(8, 128))
    torch.manual_seed(setup.seed)
    batches = [torch.randn(batch, 3, side, side) for _ in range(BATCHES)]
    filters = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, 1, 1), nn.ReLU(inplace=True), nn.Conv2d(CHANNELS, 3, 3, 1, 1), nn.Tanh()
    )
    model = filters.to(setup.device).eval()

    def blocking(number: int) -> Tensor:
        with nvtx_range("copy in"):
            inputs = batches[number % BATCHES].to(setup.device)
        outputs = model(inputs)
        with nvtx_range("copy out"):
            result: Tensor = outputs.cpu()
        return result

    with annotate_module(model, depth=1), torch.no_grad():
        if setup.is_before:
            yield blocking
        elif setup.is_cuda:
            yield Overlapped(model, batches).step
        else:  # one memory, nothing to copy and nothing to overlap
            yield lambda number: model(batches[number % BATCHES])


class Overlapped:
    """Copies in, computes, and copies out on three streams."""

    def __init__(self, model: Any, batches: list[Tensor]) -> None:
        self._model = model
        self._device = next(model.parameters()).device
        self._batches = [batch.pin_memory() for batch in batches]
        self._in, self._out = torch.cuda.Stream(), torch.cuda.Stream()
        self._arrived: deque[tuple[int, Tensor]] = deque()
        self._leaving: deque[Any] = deque()

    def step(self, number: int) -> Tensor:
        """Start the next copy in, compute on what has arrived, start the copy out."""
        main = torch.cuda.current_stream()
        while len(self._leaving) >= 2:  # more on their way would take more memory and hide nothing more
            self._leaving.popleft().synchronize()
        if not self._arrived or self._arrived[0][0] != number:
            self._arrived.clear()
            self._fetch(number)
        main.wait_stream(self._in)
        inputs = self._arrived.popleft()[1]
        inputs.record_stream(main)  # made on another stream: its memory is in use here
        self._fetch(number + 1)
        outputs = self._model(inputs)
        with nvtx_range("copy out"):
            self._out.wait_stream(main)
            result = torch.empty(outputs.shape, dtype=outputs.dtype, pin_memory=True)
            with torch.cuda.stream(self._out):
                result.copy_(outputs, non_blocking=True)
            outputs.record_stream(self._out)
            self._leaving.append(self._out.record_event())
        return result

    def _fetch(self, number: int) -> None:
        with nvtx_range("copy in"), torch.cuda.stream(self._in):
            self._arrived.append((number, self._batches[number % BATCHES].to(self._device, non_blocking=True)))
