"""CPU-compute bound: images are prepared on the host, and the device waits for them.

Each image is cropped, brightened (gamma), resized, maybe mirrored, and normalised. ``before`` does that in NumPy for
one image after the other. ``after`` copies the raw bytes, a quarter of the size, and does it on the device for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from examples.workloads.models import ResNet
from examples.workloads.registry import BATCHES, CLASSES, Setup, Step
from torch import Tensor

from boundby.annotate import annotate_module, nvtx_range

MEAN, SPREAD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Raw images, and how each one is to be prepared."""

    pixels: npt.NDArray[np.uint8]  # image, row, column, channel
    top: Ints
    left: Ints
    side: Ints
    mirrored: npt.NDArray[np.bool_]
    gamma: Floats

    def __len__(self) -> int:
        return len(self.pixels)


def sample_images(random: np.random.Generator, count: int, side: int) -> Images:
    """Random images with random crops."""
    crop = random.integers(side // 2, side, count)
    return Images(
        random.integers(0, 256, (count, side, side, 3), np.uint8),
        random.integers(0, side - crop + 1),
        random.integers(0, side - crop + 1),
        crop,
        random.random(count) < 0.5,
        random.uniform(0.7, 1.4, count).astype(np.float32),
    )


def prepare_on_host(images: Images, side: int) -> Floats:
    """Images of ``side`` by ``side``, channels first, one by one."""
    prepared = np.empty((len(images), 3, side, side), np.float32)
    for number in range(len(images)):
        top, left, crop = (int(values[number]) for values in (images.top, images.left, images.side))
        part = images.pixels[number, top : top + crop, left : left + crop].astype(np.float32) / 255
        part = part ** images.gamma[number]
        if images.mirrored[number]:
            part = part[:, ::-1]
        near, far, share = _between(np.arange(side, dtype=np.float32), crop, side)
        rows = part[near] * (1 - share)[:, None, None] + part[far] * share[:, None, None]
        whole = rows[:, near] * (1 - share)[:, None] + rows[:, far] * share[:, None]
        prepared[number] = ((whole - np.array(MEAN, np.float32)) / np.array(SPREAD, np.float32)).transpose(2, 0, 1)
    return prepared


def _between(target: Floats, crop: int, side: int) -> tuple[Ints, Ints, Floats]:
    """For each target pixel the two source pixels it lies between, and the second one's share."""
    source = np.clip((target + 0.5) * np.float32(crop / side) - 0.5, 0, crop - 1)
    near = np.floor(source).astype(np.int64)
    return near, np.minimum(near + 1, crop - 1), (source - near).astype(np.float32)


def prepare_on_device(images: Images, side: int, device: str) -> Tensor:
    """The same, for all images at once, where the network runs."""

    def move(array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    pixels = (move(images.pixels).float() / 255) ** move(images.gamma)[:, None, None, None]
    crop = move(images.side)[:, None]
    target = torch.arange(side, device=device, dtype=torch.float32)[None]
    source = ((target + 0.5) * (crop.double() / side).float() - 0.5).clamp(min=0).minimum(crop - 1)
    near = source.floor().long()
    far = torch.minimum(near + 1, crop - 1)
    share = source - near
    top, left = move(images.top)[:, None], move(images.left)[:, None]
    mirrored = move(images.mirrored)[:, None]
    columns = [left + torch.where(mirrored, crop - 1 - place, place) for place in (near, far)]
    image = torch.arange(len(images), device=device)[:, None, None]
    down, across = share[:, :, None, None], share[:, None, :, None]

    def row_pair(place: Tensor) -> Tensor:
        """Pixels of the two columns in these rows, weighed."""
        rows = (top + place)[:, :, None]
        return (
            pixels[image, rows, columns[0][:, None]] * (1 - across) + pixels[image, rows, columns[1][:, None]] * across
        )

    whole = row_pair(near) * (1 - down) + row_pair(far) * down
    return ((whole - torch.tensor(MEAN, device=device)) / torch.tensor(SPREAD, device=device)).permute(0, 3, 1, 2)


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Classify raw images in host memory. A step gives the scores."""
    count, raw, side = setup.size(cuda=(32, 320, 224), cpu=(16, 128, 96))
    widths, blocks = setup.size(cuda=((64, 128, 256, 512), 2), cpu=((8, 16), 1))
    random = np.random.default_rng(setup.seed)
    batches = [sample_images(random, count, raw) for _ in range(BATCHES)]
    torch.manual_seed(setup.seed)
    model = ResNet(widths, blocks, CLASSES).to(setup.device).eval()

    def step(number: int) -> Tensor:
        images = batches[number % BATCHES]
        with nvtx_range("prepare"):
            if setup.is_before:
                prepared = torch.from_numpy(prepare_on_host(images, side)).to(setup.device)
            else:
                prepared = prepare_on_device(images, side, setup.device)
        scores: Tensor = model(prepared)
        return scores

    with annotate_module(model, depth=1), torch.no_grad():
        yield step
