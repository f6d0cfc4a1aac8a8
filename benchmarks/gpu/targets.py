"""What ``boundby measure`` is held against the judges with: functions that give a callable and its inputs."""

from __future__ import annotations

from typing import Any

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network() -> tuple[Any, torch.Tensor]:
    """A convolutional network on a batch of one, for which throughput chooses the batch."""
    from examples.workloads.models import ResNet

    torch.manual_seed(0)
    widths = (64, 128, 256) if DEVICE == "cuda" else (8, 16)
    model = ResNet(widths, 2, 1000).to(DEVICE).eval().requires_grad_(requires_grad=False)
    return model, torch.randn(1, 3, 128, 128, device=DEVICE)


def matrices() -> tuple[Any, torch.Tensor]:
    """Matrix products, for which the device pays from some size on."""
    return lambda x: x @ x.mT, torch.randn(1, 256, 256)
