"""CPU-compute bound without GPU and torch: points are clustered (k-means).

``before`` loops over the points in Python. ``after`` computes on all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from examples.workloads.registry import Setup, Step

from boundby.annotate import nvtx_range

POINTS, WIDTH, CLUSTERS = 4000, 8, 16

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@nvtx_range("assign")
def assign_one_by_one(points: Floats, centres: Floats) -> Ints:
    """The nearest centre of each point."""
    nearest = np.empty(len(points), np.int64)
    for number, point in enumerate(points):
        nearest[number] = ((centres - point) ** 2).sum(1).argmin()
    return nearest


@nvtx_range("assign")
def assign_at_once(points: Floats, centres: Floats) -> Ints:
    """The same, with the squares multiplied out: one matrix product."""
    nearest: Ints = ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
    return nearest


@nvtx_range("move")
def move_one_by_one(points: Floats, nearest: Ints, centres: Floats) -> Floats:
    """Each centre goes to the mean of its points."""
    sums, counts = np.zeros_like(centres), np.zeros(len(centres))
    for point, cluster in zip(points, nearest, strict=True):
        sums[cluster] += point
        counts[cluster] += 1
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)


@nvtx_range("move")
def move_at_once(points: Floats, nearest: Ints, centres: Floats) -> Floats:
    """The same by counting."""
    counts = np.bincount(nearest, minlength=len(centres))
    sums = np.stack([np.bincount(nearest, column, len(centres)) for column in points.T], 1)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Move the centres once in each step. A step gives the centres."""
    random = np.random.default_rng(setup.seed)
    points = random.standard_normal((POINTS, WIDTH))
    centres = points[:CLUSTERS].copy()

    def step(_number: int) -> Floats:
        nonlocal centres
        if setup.is_before:
            centres = move_one_by_one(points, assign_one_by_one(points, centres), centres)
        else:
            centres = move_at_once(points, assign_at_once(points, centres), centres)
        return centres

    yield step
