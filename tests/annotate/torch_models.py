"""Small torch models for tests of annotate_module. Needs torch: import it after ``pytest.importorskip``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

WIDTH = 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.output(torch.relu(self.query(x)))


class Block(nn.Module):
    """A residual connection and an in-place activation, which torch's own module hooks cannot stand."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.norm = nn.LayerNorm(WIDTH)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        return self.act(self.norm(x + self.attention(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.heads = nn.ModuleDict({"mask": nn.Sequential(nn.Linear(WIDTH, 2), nn.Identity())})

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.heads["mask"](x)


class Fails(nn.Module):
    """Raises what it is told to, after its child has run."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(WIDTH, WIDTH)
        self.error: BaseException | None = None

    def forward(self, x: Any) -> Any:
        x = self.child(x)
        if self.error is not None:
            raise self.error
        return x


class FailsBackward(nn.Module):
    """Raises when gradients arrive."""

    def forward(self, x: Any) -> Any:
        y = x * 2
        y.register_hook(_refuse)
        return y + 0


def _refuse(_gradient: Any) -> None:
    raise ValueError("no gradient")


def sample() -> Any:
    """A batch that asks for no gradient."""
    return torch.ones(4, WIDTH)


#: What one pass of Net opens, in order.
BLOCK = ("", "/attention", "/attention/query", "/attention/output", "/norm", "/act")
NET_FORWARD = [
    "forward",
    "forward/embed",
    *(f"forward/layers.{number}{part}" for number in (0, 1) for part in BLOCK),
    "forward/heads.mask",
    "forward/heads.mask/heads.mask.0",
    "forward/heads.mask/heads.mask.1",
]
BLOCK_BACKWARD = ("", "/act", "/norm", "/attention", "/attention/output", "/attention/query")
NET_BACKWARD = [
    "backward",
    "backward/heads.mask",
    "backward/heads.mask/heads.mask.0",  # .1 is an Identity: nothing to compute
    *(f"backward/layers.{number}{part}" for number in (1, 0) for part in BLOCK_BACKWARD),
    "backward/embed",
]
