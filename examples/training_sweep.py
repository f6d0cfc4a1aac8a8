"""How long does training take, on the CPU and on the GPU, and how good is what comes out? Over widths of a model, and
over lengths of its training.

python examples/training_sweep.py
boundby measure devices examples/training_sweep.py:lengths --size 25 --quality examples/training_sweep.py:accuracy
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from boundby import measure

POINTS, TURNS, NOISE = 512, 1.5, 0.025
STEPS, WIDTH = 200, 64  # of the sweep that varies the other one

Trained = tuple[nn.Module, torch.Tensor, torch.Tensor]
Sweep = tuple[Callable[[torch.Tensor, torch.Tensor], Trained], tuple[torch.Tensor, torch.Tensor]]


def spirals(points: int = POINTS) -> tuple[torch.Tensor, torch.Tensor]:
    """Two spirals in each other: what a narrow model cannot tell apart, and a wide one can."""
    generator = torch.Generator().manual_seed(0)
    along = torch.linspace(0.25, 1, points // 2)
    arms = []
    for start in (0.0, torch.pi):
        angle = start + 2 * torch.pi * TURNS * along
        arms.append(torch.stack((along * angle.cos(), along * angle.sin()), 1))
    features = torch.cat(arms) + NOISE * torch.randn(2 * (points // 2), 2, generator=generator)
    return features, torch.arange(2).repeat_interleave(points // 2)


def trained(width: int, steps: int, device: str) -> Sweep:
    """A training from scratch, and its data; each call does all of it anew, from the same start."""

    def train(features: torch.Tensor, labels: torch.Tensor) -> Trained:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        model = model.to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=True)
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
        return model, features, labels

    features, labels = (part.to(device) for part in spirals())
    return train, (features, labels)


def accuracy(result: Trained) -> float:
    """The part of the points that the trained model tells right."""
    model, features, labels = result
    with torch.no_grad():
        return float((model(features).argmax(1) == labels).float().mean())


def widths(size: int, device: str) -> Sweep:
    """``size``: the model's width."""
    return trained(size, STEPS, device)


def lengths(size: int, device: str) -> Sweep:
    """``size``: the steps of training."""
    return trained(WIDTH, size, device)


def main(
    sizes: tuple[int, ...] = (4, 32, 256), steps: tuple[int, ...] = (25, 100, 400), budget_s: float = 60.0
) -> tuple[measure.Devices, measure.Devices]:
    by_width = measure.devices(make=widths, sizes=sizes, quality=accuracy, budget_s=budget_s)
    print(by_width)
    by_length = measure.devices(make=lengths, sizes=steps, quality=accuracy, budget_s=budget_s)
    print(by_length)
    return by_width, by_length


if __name__ == "__main__":
    main()
