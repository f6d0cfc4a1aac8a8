"""Trains a small torch model with every helper that needs torch, for a capture by the real nsys."""

from __future__ import annotations

import torch

from boundby.annotate import annotate_loader, annotate_module, annotate_optimizer, nvtx_range, steps
from tests.annotate.torch_models import Net, sample

STEPS = 3


def main() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader([sample()] * STEPS, batch_size=None)
    annotate_module(model)
    annotate_optimizer(optimizer)
    for batch in steps(annotate_loader(loader)):
        loss = model(batch).square().mean()
        with nvtx_range("zero"):
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
