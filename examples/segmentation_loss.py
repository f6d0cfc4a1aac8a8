"""A segmentation loss that makes host and device take turns, improved step by step.

Every class of an image has its own mean loss; pixels labelled IGNORED do not count. Each step gives the same loss (the
quality beside the time), and removes one kind of wait for the device:

0. loops over images and classes, with ``unique``, ``nonzero`` and ``item``: a wait each
1. boolean masks instead of ``nonzero``: fewer waits, as the size of a mask's result is still read back
2. ``torch.where`` instead of masks: sizes are known beforehand, only the loss is read back
3. one pass over all classes by ``one_hot`` and sums, and the loss stays on the device

    python examples/segmentation_loss.py
    boundby profile -- python examples/segmentation_loss.py
    boundby measure compare examples/segmentation_loss.py:step0_loops examples/segmentation_loss.py:step3_one_pass
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from boundby import measure
from boundby.annotate import nvtx_range

IMAGES, CLASSES, SIDE, IGNORED = 4, 6, 48, 255
Loss = Callable[[torch.Tensor, torch.Tensor], "torch.Tensor | float"]
Target = tuple[Loss, tuple[torch.Tensor, torch.Tensor]]


def batch(images: int = IMAGES, side: int = SIDE) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (images, classes, side, side) and labels (images, side, side)."""
    where = "cuda" if torch.cuda.is_available() else "cpu"
    seeded = torch.Generator().manual_seed(3)
    scores = torch.randn(images, CLASSES, side, side, generator=seeded)
    labels = torch.randint(0, CLASSES, (images, side, side), generator=seeded)
    labels[torch.rand(images, side, side, generator=seeded) < 0.1] = IGNORED
    return scores.to(where), labels.to(where)


def with_loops(scores: torch.Tensor, labels: torch.Tensor) -> float:
    found = []
    for image, label in zip(-scores.log_softmax(1), labels, strict=True):
        for number in label.unique().tolist():
            if number != IGNORED:
                rows, columns = (label == number).nonzero(as_tuple=True)
                found.append(image[number, rows, columns].mean().item())
    return sum(found) / len(found)


def with_masks(scores: torch.Tensor, labels: torch.Tensor) -> float:
    found = []
    for image, label in zip(-scores.log_softmax(1), labels, strict=True):
        for number in range(CLASSES):
            chosen = image[number][label == number]
            if len(chosen):
                found.append(chosen.mean())
    return torch.stack(found).mean().item()


def with_where(scores: torch.Tensor, labels: torch.Tensor) -> float:
    every = -scores.log_softmax(1)
    total = counted = torch.zeros((), device=scores.device)
    for number in range(CLASSES):
        is_it = labels == number
        pixels = is_it.sum((1, 2))
        summed = torch.where(is_it, every[:, number], 0.0).sum((1, 2))
        total = total + (summed / pixels.clamp(min=1)).sum()
        counted = counted + (pixels > 0).sum()
    return (total / counted).item()


def in_one_pass(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    is_it = functional.one_hot(torch.where(labels == IGNORED, CLASSES, labels), CLASSES + 1)[..., :CLASSES]
    is_it = is_it.movedim(-1, 1)
    pixels = is_it.sum((2, 3))
    means = (-scores.log_softmax(1) * is_it).sum((2, 3)) / pixels.clamp(min=1)
    return means.sum() / (pixels > 0).sum()


STEPS: tuple[Loss, ...] = (with_loops, with_masks, with_where, in_one_pass)


def step0_loops() -> Target:
    return with_loops, batch()


def step1_masks() -> Target:
    return with_masks, batch()


def step2_where() -> Target:
    return with_where, batch()


def step3_one_pass() -> Target:
    return in_one_pass, batch()


def main(budget_s: float = 2.0) -> list[tuple[str, float, measure.Latency]]:
    """Name, loss and latency of each step."""
    scores, labels = batch()
    told = []
    for loss in STEPS:
        name = loss.__name__
        with nvtx_range(name):
            told.append((name, float(loss(scores, labels)), measure.latency(loss, scores, labels, budget_s=budget_s)))
    for name, value, latency in told:
        times = told[0][2].median_ns / latency.median_ns
        print(f"{name:12} loss {value:.5f}  {latency.median_ns / 1e6:8.3f} ms  {times:5.1f} times as fast")
    return told


if __name__ == "__main__":
    main()
