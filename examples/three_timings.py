"""One call timed in three ways, then a pipeline by its stages.

On a GPU the first way measures how long it takes to enqueue the work, not to do it. On a CPU all three agree.

    python examples/three_timings.py
    boundby measure examples/three_timings.py:product --method all --figure timings.png
    boundby measure examples/three_timings.py:products --method all --size 16 --size 256 --size 4096
    boundby measure stages examples/three_timings.py:pipeline --ways --figure pipeline.png
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from boundby import measure

SIDE = 256


def _where() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def product() -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """A matrix product, as a target."""
    return torch.matmul, (torch.randn(SIDE, SIDE, device=_where()), torch.randn(SIDE, SIDE, device=_where()))


def products() -> tuple[Callable[..., torch.Tensor], Callable[[int], tuple[torch.Tensor, torch.Tensor]]]:
    """The same at any size: from which one on do a wrong clock, no warm-up, or a copy that is timed show?"""
    return torch.matmul, lambda size: (
        torch.randn(size, size, device=_where()),
        torch.randn(size, size, device=_where()),
    )


def by_hand(calls: int = 50) -> dict[str, float]:
    """Seconds a call: without waiting for the device (wrong on a GPU), waiting after all, waiting after each."""
    multiply, inputs = product()
    multiply(*inputs)  # the first call loads code
    _wait()
    told = {}
    for name, each in (("no wait", False), ("one wait", False), ("a wait each", True)):
        began = time.perf_counter()
        for _ in range(calls):
            multiply(*inputs)
            if each:
                _wait()
        if name == "one wait":
            _wait()
        told[name] = (time.perf_counter() - began) / calls
        _wait()
    return told


def pipeline() -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor]]:
    """Detect, choose on the host, classify: a callable whose first argument is the recorder of stages."""
    detector, classifier = (torch.randn(SIDE, SIDE, device=_where()) for _ in range(2))

    def one_frame(stage: measure.Stages, frame: torch.Tensor) -> torch.Tensor:
        with stage("detect"):
            scores = torch.relu(frame @ detector)
        with stage("choose on the host"):
            best = scores.mean(dim=1).cpu().topk(16).indices
        with stage("classify"):
            return torch.softmax(scores[best.to(frame.device)] @ classifier, dim=1)

    return one_frame, (torch.randn(SIDE, SIDE, device=_where()),)


def main(passes: int = 30) -> measure.StagesComparison:
    for name, seconds in by_hand().items():
        print(f"{name:12} {1e6 * seconds:8.1f} us a call")
    one_frame, (frame,) = pipeline()
    ways = measure.pipeline_ways(one_frame, frame, passes=passes)
    print(ways.a)  # as it runs: its stages, and a picture of one pass
    print(ways)
    return ways


if __name__ == "__main__":
    main()
