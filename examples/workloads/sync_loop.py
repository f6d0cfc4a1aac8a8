"""Synchronization bound: results are looked at one by one, and each ``.item()`` waits for the device.

Speech is recognised and decoded (CTC: the best token of each frame, repeats and blanks dropped). ``before`` asks for
each frame's token. ``after`` decodes all frames on the device and copies the result once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from examples.workloads.models import Transformer
from examples.workloads.registry import BATCHES, CLASSES, FEATURES, Setup, Step
from torch import Tensor
from torch.nn import functional

from boundby.annotate import annotate_module, nvtx_range

BLANK = 0


def decode_by_frame(scores: Tensor) -> list[list[int]]:
    """The tokens of each utterance, by a round trip to the device for each frame."""
    texts = []
    for utterance in scores:
        text: list[int] = []
        last = BLANK
        for frame in utterance:
            token = int(frame.argmax().item())  # waits
            if token not in (last, BLANK):
                text.append(token)
            last = token
        texts.append(text)
    return texts


def decode_at_once(scores: Tensor) -> list[list[int]]:
    """The same by a few operations on all frames, and one copy to the host."""
    best = scores.argmax(-1)
    before = functional.pad(best[:, :-1], (1, 0), value=BLANK)
    kept = (best != before) & (best != BLANK)
    frames = best.shape[1]
    # What is kept moves up to its place; the rest goes to a column past the end.
    place = torch.where(kept, kept.cumsum(1) - 1, frames)
    packed = torch.full((len(best), frames + 1), BLANK, dtype=best.dtype, device=best.device).scatter_(1, place, best)
    packed[:, frames] = kept.sum(1)
    return [row[: row[frames]] for row in packed.tolist()]  # waits, once


@contextmanager
def program(setup: Setup) -> Iterator[Step]:
    """Recognise features that are on the device already. A step gives the tokens of each utterance."""
    batch, frames = setup.size(cuda=(16, 200), cpu=(4, 100))
    width, heads, blocks = setup.size(cuda=(384, 6, 6), cpu=(64, 2, 2))
    torch.manual_seed(setup.seed)
    # Sounds last some frames.
    batches = [
        torch.randn(batch, frames // 4, FEATURES).repeat_interleave(4, 1).to(setup.device) for _ in range(BATCHES)
    ]
    model = Transformer(FEATURES, width, heads, blocks, CLASSES).to(setup.device).eval()
    decode = decode_by_frame if setup.is_before else decode_at_once

    def step(number: int) -> list[list[int]]:
        scores = model(batches[number % BATCHES])
        with nvtx_range("decode"):
            return decode(scores)

    with annotate_module(model, depth=1), torch.no_grad():
        yield step
