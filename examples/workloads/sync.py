"""Synchronization bound: a loss asks the device for sizes and values, and each answer makes the host wait.

``before`` selects pixels by ``nonzero`` and boolean masks, whose result size only the device knows, loops over
``unique`` labels, and branches on a tensor. ``after`` computes the same loss from arrays of fixed size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from examples.workloads.models import UNet
from examples.workloads.registry import BATCHES, CLASSES, Setup, Step
from torch import Tensor
from torch.nn import functional

from boundby.annotate import annotate_module, annotate_optimizer, nvtx_range

IGNORED = 255


def edges(labels: Tensor) -> Tensor:
    """Pixels whose label differs from their left neighbour's, both being known."""
    known = labels != IGNORED
    found = torch.zeros_like(known)
    found[..., 1:] = (labels[..., 1:] != labels[..., :-1]) & known[..., 1:] & known[..., :-1]
    return found


def loss_with_syncs(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean over the labels present of each one's mean cross entropy, plus the mean over edge pixels."""
    flat = labels.flatten()
    known = (flat != IGNORED).nonzero().squeeze(1)  # waits: how many?
    targets = flat[known]
    losses = functional.cross_entropy(scores.permute(0, 2, 3, 1).flatten(0, 2)[known], targets, reduction="none")
    total = scores.new_zeros(())
    present = torch.unique(targets).tolist()  # waits twice: how many, and which?
    for label in present:
        total = total + losses[targets == label].mean()  # waits: how many?
    total = total / max(1, len(present))
    at_edge = edges(labels).flatten()[known]
    if at_edge.any():  # waits: which way?
        total = total + losses[at_edge].mean()  # waits: how many?
    return total


def loss_on_device(scores: Tensor, labels: Tensor) -> Tensor:
    """The same, and the host waits for nothing."""
    flat = labels.flatten()
    losses = functional.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none").flatten()
    counts = count_labels(flat)
    known = flat != IGNORED
    share = torch.where(counts > 0, 1.0 / counts.clamp(min=1), 0.0)
    weights = torch.where(known, share[torch.where(known, flat, 0)], 0.0)
    total = (losses * weights).sum() / (counts > 0).sum().clamp(min=1)
    at_edge = edges(labels).flatten()
    return total + torch.where(at_edge, losses, 0.0).sum() / at_edge.sum().clamp(min=1)


def count_labels(flat: Tensor) -> Tensor:
    """How often each label occurs, by sorting: ``bincount`` would wait for the largest one."""
    bounds = torch.searchsorted(flat.sort().values, torch.arange(CLASSES + 1, device=flat.device))
    return bounds.diff()


def sample_labels(batch: int, side: int) -> Tensor:
    """Maps of square patches, a tenth of the pixels unknown."""
    patches = torch.randint(CLASSES, (batch, side // 8, side // 8))
    labels = patches.repeat_interleave(8, 1).repeat_interleave(8, 2)
    return labels.masked_fill(torch.rand(labels.shape) < 0.1, IGNORED)


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Train on batches that are on the device already. A step gives its loss."""
    widths = setup.size(cuda=(32, 64, 128), cpu=(8, 16, 32))
    batch, side = setup.size(cuda=(8, 192), cpu=(2, 64))
    torch.manual_seed(setup.seed)
    batches = [
        (torch.randn(batch, 3, side, side).to(setup.device), sample_labels(batch, side).to(setup.device))
        for _ in range(BATCHES)
    ]
    model = UNet(widths, CLASSES).to(setup.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = loss_with_syncs if setup.is_before else loss_on_device

    def step(number: int) -> Tensor:
        images, labels = batches[number % BATCHES]
        scores = model(images)
        with nvtx_range("loss"):
            loss = criterion(scores, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    with annotate_module(model, depth=1), annotate_optimizer(optimizer):
        yield step
