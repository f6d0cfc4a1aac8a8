"""How fast is a vision model? Two questions with two answers: how long one image takes, and how many a second it does.

python examples/vision_model.py
boundby measure examples/vision_model.py:model --mode inference
boundby measure throughput examples/vision_model.py:model --mode inference --latency-limit 50
"""

from __future__ import annotations

import torch
from torch import nn

from boundby import measure

CHANNELS, SIDE, CLASSES = 32, 64, 100


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norms[0](self.first(image)))
        return torch.relu(image + self.norms[1](self.second(inner)))


def model(device: str = "") -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A small residual network and one image: what `boundby measure` asks a target for."""
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    stem = nn.Conv2d(3, CHANNELS, 7, stride=2, padding=3)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES)]
    network = nn.Sequential(stem, *(Block(CHANNELS) for _ in range(3)), *head).to(where)
    return network, (torch.randn(1, 3, SIDE, SIDE, device=where),)


def main(budget_s: float = 5.0, max_batch: int | None = None) -> tuple[measure.Latency, measure.Throughput]:
    network, (image,) = model()
    one = measure.latency(network, image, mode="inference", name="one image", budget_s=budget_s)
    many = measure.throughput(network, image, mode="inference", max_batch=max_batch, budget_s=budget_s)
    print(one, many, sep="\n")
    gain = many.best.samples_per_s * one.median_ns / 1e9
    print(f"A batch of {many.best.size} does {gain:.1f} times as many images a second as one after another.")
    return one, many


if __name__ == "__main__":
    main()
