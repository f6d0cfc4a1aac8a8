"""Named programs that tell a story: before and after a change. They are apart from `patterns`, which seeded random
programs draw from."""

from __future__ import annotations

import random
from collections.abc import Mapping

from boundby.simulate.patterns import Pattern
from boundby.simulate.program import US, Copy, Instruction, Launch, Loop, Program, Range, Sync, Work, program


def _op(name: str, *body: Instruction) -> Range:
    """An operator range as PyTorch's emit_nvtx opens it."""
    return Range(f"{name}, seq = {{i}}", body)


def _read_size() -> list[Instruction]:
    """How an operator learns a size: 8 bytes to pageable memory, then a wait for the stream."""
    return [Copy(8, "DtoH", "pageable"), Sync("stream")]


def _layers(kind: str, count: int, ns: int) -> list[Instruction]:
    return [_op(f"aten::{kind}", Work(12 * US), Launch(f"{kind}_{layer}", ns)) for layer in range(count)]


def _network(loss: list[Instruction], size: int, steps: int, name: str) -> Program:
    step = Range(
        "step {i}",
        [
            Range("forward", _layers("cudnn_convolution", 16, size)),
            Range("loss", loss),
            Range("backward", _layers("convolution_backward", 16, 2 * size)),
            Range("optimizer", [_op("aten::_fused_adam_", Work(40 * US), Launch("fused_adam", size))]),
        ],
    )
    return program(Loop(steps, [step]), Sync(), name=name)


def _small(chance: random.Random) -> int:
    return round(chance.uniform(60, 90)) * US


def _before(chance: random.Random, steps: int) -> Program:
    """The loss asks three times for a size: after the whole forward pass, after a sort, and after a mask. The host
    prepares much after each answer."""
    size = _small(chance)
    prepare = [part for _ in range(4) for part in (Work(45 * US), Launch("elementwise", 4 * US))]
    loss: list[Instruction] = [
        _op("aten::nonzero", Work(20 * US), Launch("reduce_count", 15 * US), *_read_size()),
        *(prepare * 8),
        _op("aten::_unique2", Launch("sort", 300 * US), Launch("adjacent_difference", 30 * US), *_read_size()),
        *(prepare * 5),
        _op(
            "aten::index",
            _op("aten::nonzero", Launch("reduce_mask", 100 * US), *_read_size()),
            Launch("gather", 9 * US),
        ),
        *(prepare * 2),
    ]
    return _network(loss, size, steps, "segmentation_before")


def _after(chance: random.Random, steps: int) -> Program:
    """The same loss from arrays of fixed size: a sort, a search, and torch.where."""
    size = _small(chance)
    loss: list[Instruction] = [
        _op("aten::cross_entropy_loss", Work(20 * US), Launch("nll_loss2d", 40 * US)),
        _op("aten::sort", Work(15 * US), Launch("sort", 300 * US)),
        _op("aten::searchsorted", Work(15 * US), Launch("searchsorted", 10 * US)),
        _op("aten::where", Work(15 * US), Launch("where", 20 * US)),
        _op("aten::sum", Work(15 * US), Launch("reduce", 15 * US)),
    ]
    return _network(loss, size, steps, "segmentation_after")


STORIES: Mapping[str, Pattern] = {
    "segmentation_before": Pattern("A loss that waits for nonzero, unique and a mask.", "sync", _before),
    "segmentation_after": Pattern("The same loss from arrays of fixed size.", "gpu_compute", _after, healthy=True),
}
