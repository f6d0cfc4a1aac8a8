"""Mixed: a network, then work on the host, then another network, and each waits for the one before.

Boxes are detected in a frame, the host chooses among them, and what they show is classified. ``before`` does one after
the other. ``after`` starts the next frame's detection before the host chooses for this frame: the host works while the
device does. (On a CPU there is only one of them, and nothing to gain.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from examples.workloads.models import ResNet
from examples.workloads.registry import BATCHES, CLASSES, Setup, Step
from torch import Tensor, nn

from boundby.annotate import annotate_module, nvtx_range

CHOSEN = 8


class Detector(nn.Module):
    """Scores and boxes (left, top, width, height, as shares of the frame) for each cell of a grid."""

    def __init__(self, widths: tuple[int, ...], blocks: int) -> None:
        super().__init__()
        self.body = ResNet(widths, blocks, 1)
        self.head = nn.Conv2d(widths[-1], 5, 1)

    def forward(self, frames: Tensor) -> Tensor:
        found: Tensor = self.head(self.body.features(frames)).flatten(2).transpose(1, 2)
        corners, sizes = found[..., 1:3].sigmoid() * 0.7, found[..., 3:].sigmoid() * 0.25 + 0.05
        return torch.cat([found[..., :1], corners, sizes], -1)


def choose(found: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """For each frame the best boxes that show different things (greedy suppression), always as many."""
    chosen = np.zeros((len(found), CHOSEN), np.int64)
    for frame, boxes in enumerate(found):
        order = np.argsort(-boxes[:, 0], kind="stable")
        left, top = boxes[:, 1], boxes[:, 2]
        right, bottom = left + boxes[:, 3], top + boxes[:, 4]
        area = boxes[:, 3] * boxes[:, 4]
        kept: list[int] = []
        for box in order.tolist():
            if len(kept) == CHOSEN:
                break
            across = np.minimum(right[box], right[kept]) - np.maximum(left[box], left[kept])
            down = np.minimum(bottom[box], bottom[kept]) - np.maximum(top[box], top[kept])
            shared = np.maximum(across, 0) * np.maximum(down, 0)
            if not (2 * shared > (area[box] + area[kept] - shared)).any():
                kept.append(box)
        chosen[frame, : len(kept)] = kept
        chosen[frame, len(kept) :] = order[0]
    return chosen


def cut_out(frames: Tensor, boxes: Tensor, side: int) -> Tensor:
    """What the boxes show, each ``side`` by ``side`` pixels (the nearest ones)."""
    height, width = frames.shape[2:]
    place = (torch.arange(side, device=frames.device) + 0.5) / side
    columns = ((boxes[..., 1:2] + place * boxes[..., 3:4]) * width).long().clamp(0, width - 1)
    rows = ((boxes[..., 2:3] + place * boxes[..., 4:5]) * height).long().clamp(0, height - 1)
    frame = torch.arange(len(frames), device=frames.device)[:, None, None, None]
    shown = frames.permute(0, 2, 3, 1)[frame, rows[..., :, None], columns[..., None, :]]
    return shown.flatten(0, 1).permute(0, 3, 1, 2)


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Detect, choose, classify. A step gives the scores of what was chosen."""
    count, side, crop = setup.size(cuda=(16, 384, 96), cpu=(4, 160, 48))
    widths, blocks = setup.size(cuda=((64, 128, 256), 3), cpu=((8, 16, 32), 1))
    torch.manual_seed(setup.seed)
    batches = [torch.randn(count, 3, side, side).to(setup.device) for _ in range(BATCHES)]
    detector = Detector(widths, blocks).to(setup.device).eval()
    classifier = ResNet(widths, blocks, CLASSES).to(setup.device).eval()

    def detect(number: int) -> Detection:
        return Detection(detector(batches[number % BATCHES]), number)

    def finish(detection: Detection) -> Tensor:
        with nvtx_range("choose"):
            chosen = torch.from_numpy(choose(detection.on_host())).to(setup.device, non_blocking=True)
        with nvtx_range("cut out"):
            boxes = detection.found.gather(1, chosen[..., None].expand(-1, -1, 5))
            shown = cut_out(batches[detection.number % BATCHES], boxes, crop)
        scores: Tensor = classifier(shown)
        return scores

    ahead: list[Detection] = []

    def overlapped(number: int) -> Tensor:
        detection = ahead.pop() if ahead else detect(number)
        ahead.append(detect(number + 1))
        return finish(detection)

    with (
        annotate_module(detector, depth=1, prefix="detector "),
        annotate_module(classifier, depth=1, prefix="classifier "),
        torch.no_grad(),
    ):
        yield (lambda number: finish(detect(number))) if setup.is_before else overlapped


class Detection:
    """What was found in the frames of a step, on the device and on its way to the host."""

    def __init__(self, found: Tensor, number: int) -> None:
        self.found = found
        self.number = number
        self._arrived: Any = None
        self._host = found
        if found.is_cuda:
            self._host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            self._host.copy_(found, non_blocking=True)
            self._arrived = torch.cuda.current_stream().record_event()

    def on_host(self) -> npt.NDArray[np.float32]:
        """The boxes. Waits for them, and not for what was started after them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        boxes: npt.NDArray[np.float32] = self._host.numpy()
        return boxes
