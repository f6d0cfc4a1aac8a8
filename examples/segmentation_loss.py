"""A segmentation loss that makes the host wait for the GPU, improved in four steps.

Every class has its own mean loss; pixels labelled IGNORED do not count. Each step gives the same loss (the quality
beside the time), and removes one kind of wait:

0. as written: ``nonzero`` chooses the pixels, ``unique`` the classes, a boolean index the pixels of each class
1. no ``nonzero``: all pixels stay, and IGNORED is left out later
2. no ``unique``: all classes are looped over, present or not
3. no boolean index: sums over all pixels, by class; the loss stays on the device

Without a GPU it says where each step would wait for one:

    python examples/segmentation_loss.py
    boundby measure examples/segmentation_loss.py:step0_as_written
    boundby profile -- python examples/segmentation_loss.py
    boundby measure compare examples/segmentation_loss.py:step0_as_written examples/segmentation_loss.py:step3_no_index
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from boundby import measure
from boundby.annotate import nvtx_range

IMAGES, CLASSES, SIDE, IGNORED = 4, 6, 48, 255
Loss = Callable[[Tensor, Tensor], Tensor]
Target = tuple[Loss, tuple[Tensor, Tensor]]


def batch(images: int = IMAGES, side: int = SIDE) -> tuple[Tensor, Tensor]:
    """Scores (images, classes, side, side) and labels (images, side, side)."""
    where = "cuda" if torch.cuda.is_available() else "cpu"
    seeded = torch.Generator().manual_seed(3)
    scores = torch.randn(images, CLASSES, side, side, generator=seeded)
    labels = torch.randint(0, CLASSES, (images, side, side), generator=seeded)
    labels[torch.rand(images, side, side, generator=seeded) < 0.1] = IGNORED
    return scores.to(where), labels.to(where)


def pixels(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each pixel's loss and label."""
    return cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none").flatten(), labels.flatten()


def as_written(scores: Tensor, labels: Tensor) -> Tensor:
    losses, flat = pixels(scores, labels)
    known = (flat != IGNORED).nonzero().squeeze(1)
    losses, flat = losses[known], flat[known]
    present = flat.unique().tolist()
    return torch.stack([losses[flat == label].mean() for label in present]).mean()


def no_nonzero(scores: Tensor, labels: Tensor) -> Tensor:
    losses, flat = pixels(scores, labels)
    present = [label for label in flat.unique().tolist() if label != IGNORED]
    return torch.stack([losses[flat == label].mean() for label in present]).mean()


def no_unique(scores: Tensor, labels: Tensor) -> Tensor:
    losses, flat = pixels(scores, labels)
    chosen = [losses[flat == label] for label in range(CLASSES)]
    return torch.stack([of_class.mean() for of_class in chosen if len(of_class)]).mean()


def no_index(scores: Tensor, labels: Tensor) -> Tensor:
    losses, flat = pixels(scores, labels)
    place = torch.where(flat == IGNORED, CLASSES, flat)
    summed = losses.new_zeros(CLASSES + 1).scatter_add(0, place, losses)[:CLASSES]
    counted = losses.new_zeros(CLASSES + 1).scatter_add(0, place, torch.ones_like(losses))[:CLASSES]
    return (summed / counted.clamp(min=1)).sum() / (counted > 0).sum()


STEPS: tuple[Loss, ...] = (as_written, no_nonzero, no_unique, no_index)


def step0_as_written() -> Target:
    return as_written, batch()


def step1_no_nonzero() -> Target:
    return no_nonzero, batch()


def step2_no_unique() -> Target:
    return no_unique, batch()


def step3_no_index() -> Target:
    return no_index, batch()


def main(budget_s: float = 2.0) -> list[tuple[str, float, int, measure.Latency]]:
    """Name, loss, waits and latency of each step."""
    scores, labels = batch()
    told = []
    for loss in STEPS:
        name = loss.__name__
        with nvtx_range(name):
            waits = len(measure.waits(loss, scores, labels))
            timed = measure.latency(loss, scores, labels, budget_s=budget_s)
            told.append((name, float(loss(scores, labels)), waits, timed))
    of = "waits" if scores.is_cuda else "waits on a GPU"
    for name, value, waits, latency in told:
        times = told[0][3].median_ns / latency.median_ns
        print(
            f"{name:10}  loss {value:.5f}  {waits} {of}  {latency.median_ns / 1e6:8.3f} ms  {times:5.1f} times as fast"
        )
    return told


if __name__ == "__main__":
    main()
