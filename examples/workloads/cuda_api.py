"""CUDA-API bound: the host launches thousands of tiny kernels, and the device is done with each before the next.

``before`` runs a small network on each item by itself. ``after`` runs it once on all items. ``graphs`` records that as
a CUDA graph and replays it with one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from examples.workloads.registry import BATCHES, Setup, Step
from torch import Tensor, nn

from boundby.annotate import annotate_module, nvtx_range

WIDTH, POINTS = 256, 32


class Refine(nn.Module):
    """Refines the points found in one item, or in each of several."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(layers)
        )
        self.head = nn.Linear(WIDTH, 2 * POINTS)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
        for layer in self.layers:
            x = x + layer(x)
        offsets: Tensor = self.head(x).tanh()
        return offsets


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Infer on items that are on the device already. A step gives the points of all items."""
    items, layers = setup.size(cuda=(64, 8), cpu=(16, 4))
    torch.manual_seed(setup.seed)
    batches = [torch.randn(items, WIDTH).to(setup.device) for _ in range(BATCHES)]
    model = Refine(layers).to(setup.device).eval()

    def item_by_item(batch: Tensor) -> Tensor:
        return torch.cat([model(item[None]) for item in batch])

    # Only the outermost ranges: one for each of the tiny layers would cost about as much as the layer itself.
    with annotate_module(model, depth=0), torch.no_grad():
        runs: Callable[[Tensor], Tensor] = item_by_item if setup.is_before else model
        if setup.variant == "graphs":
            runs = as_graph(model, batches[0])

        def step(number: int) -> Tensor:
            with nvtx_range("refine"):
                return runs(batches[number % BATCHES])

        yield step


def as_graph(model: nn.Module, sample: Tensor) -> Callable[[Tensor], Tensor]:
    """The model as one launch. Inputs and outputs of a graph stay at their place in memory: copy in, copy out."""
    inputs = sample.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # what is set up at a first call cannot be recorded
        for _ in range(3):
            model(inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = model(inputs)

    def replay(batch: Tensor) -> Tensor:
        inputs.copy_(batch)
        graph.replay()
        return outputs.clone()

    return replay
