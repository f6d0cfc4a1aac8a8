"""The networks of the workloads: a residual one, a transformer, and a U-Net, of plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.act = nn.ReLU(inplace=True)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm1(self.conv1(x)))
        return self.act(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A classifier of images: a stem, a stage of residual blocks for each width, a head."""

    def __init__(self, widths: Sequence[int], blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, 2, 1)
        self.stages = nn.Sequential()
        for number, (inputs, outputs) in enumerate(zip([widths[0], *widths], widths, strict=False)):
            first = ResidualBlock(inputs, outputs, 1 if inputs == outputs else 2)
            rest = [ResidualBlock(outputs, outputs, 1) for _ in range(blocks - 1)]
            self.stages.add_module(f"stage{number + 1}", nn.Sequential(first, *rest))
        self.head = nn.Linear(widths[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        """Maps of the last stage."""
        maps: Tensor = self.stages(self.stem(x))
        return maps

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x).mean((2, 3)))
        return scores


class SelfAttention(nn.Module):
    """Self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return result


class TransformerBlock(nn.Module):
    """Attention and a two-layer network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Blocks on a sequence of vectors, and scores for each of them."""

    def __init__(self, inputs: int, width: int, heads: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads) for _ in range(blocks))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 1, 1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, 1, 1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Scores for each pixel: down through the widths, and up again with what was there on the way."""

    def __init__(self, widths: Sequence[int], classes: int) -> None:
        super().__init__()
        self.first = _double(3, widths[0])
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(_double(narrow, wide) for narrow, wide in pairs)
        self.up = nn.ModuleList(_double(narrow + wide, narrow) for narrow, wide in reversed(pairs))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        seen = []
        for down in self.down:
            seen.append(x)
            x = down(functional.max_pool2d(x, 2))
        for up in self.up:
            x = up(torch.cat([functional.interpolate(x, scale_factor=2.0), seen.pop()], dim=1))
        scores: Tensor = self.head(x)
        return scores
