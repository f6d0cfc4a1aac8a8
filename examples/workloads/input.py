"""Host blocked: each sample is read from somewhere slow, and nothing else happens meanwhile.

``before`` has the DataLoader read in the training process. ``after`` has workers read ahead, and pins what they give so
that it can be copied in the background.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from examples.workloads.models import ResNet
from examples.workloads.registry import CLASSES, Setup, Step
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from boundby.annotate import annotate_loader, annotate_module, annotate_optimizer, nvtx_range

WORKERS_CUDA, WORKERS_CPU = 8, 2
#: Reading one sample from a disk or a network, and samples without end.
READ_S = 0.004


class SlowImages(Dataset):
    """Images that take a while to read and a little to decode. The same number gives the same image."""

    def __init__(self, side: int, seed: int) -> None:
        self.side = side
        self.seed = seed

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        time.sleep(READ_S)
        random = np.random.default_rng((self.seed, number))
        image = random.standard_normal((3, self.side, self.side), np.float32)
        return torch.from_numpy(image.cumsum(2) / np.sqrt(self.side, dtype=np.float32)), number % CLASSES


def load(setup: Setup, batch: int, side: int) -> Any:
    """The loader of the variant."""
    if setup.is_before:
        return DataLoader(SlowImages(side, setup.seed), batch)
    return DataLoader(
        SlowImages(side, setup.seed),
        batch,
        num_workers=setup.size(cuda=WORKERS_CUDA, cpu=WORKERS_CPU),
        pin_memory=setup.is_cuda,
    )


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Train on what is loaded. A step gives its loss."""
    batch, side = setup.size(cuda=(32, 128), cpu=(8, 32))
    widths = setup.size(cuda=(64, 128, 256), cpu=(8, 16))
    torch.manual_seed(setup.seed)
    model = ResNet(widths, 1, CLASSES).to(setup.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(annotate_loader(load(setup, batch, side)))

    def step(_number: int) -> Tensor:
        images, labels = next(batches)
        with nvtx_range("copy"):
            images = images.to(setup.device, non_blocking=True)
            labels = labels.to(setup.device, non_blocking=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    with annotate_module(model, depth=1), annotate_optimizer(optimizer):
        yield step
