"""GPU-compute bound: a transformer is trained, and the device never waits.

``before`` computes in fp32. ``after`` lets autocast use bf16, which the tensor cores multiply many times faster.
``compile`` also has torch.compile fuse what is left in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from examples.workloads.models import Transformer
from examples.workloads.registry import BATCHES, CLASSES, FEATURES, Setup, Step
from torch import Tensor
from torch.nn import functional

from boundby.annotate import annotate_module, annotate_optimizer, nvtx_range


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Train on batches that are on the device already. A step gives its loss."""
    width, heads, blocks = setup.size(cuda=(1024, 16, 12), cpu=(128, 4, 2))
    batch, length = setup.size(cuda=(16, 512), cpu=(4, 64))
    torch.manual_seed(setup.seed)
    batches = [
        (
            torch.randn(batch, length, FEATURES).to(setup.device),
            torch.randint(CLASSES, (batch * length,)).to(setup.device),
        )
        for _ in range(BATCHES)
    ]
    model = Transformer(FEATURES, width, heads, blocks, CLASSES).to(setup.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    runs = torch.compile(model) if setup.variant == "compile" else model

    def step(number: int) -> Tensor:
        inputs, targets = batches[number % BATCHES]
        with torch.autocast(setup.device, dtype=torch.bfloat16, enabled=not setup.is_before):
            scores = runs(inputs)
        with nvtx_range("loss"):
            loss = functional.cross_entropy(scores.float().flatten(0, 1), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    with annotate_module(runs, depth=1), annotate_optimizer(optimizer):
        yield step
