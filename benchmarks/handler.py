"""What ``boundby.trace_handler`` costs the steps outside of the recorded cycle, against torch's own handler.

Both run in one process, in turns; each turn has one recorded cycle, whose steps, and the writing and
analysis after them, are left out. ``python -m benchmarks.handler [--turns N]``; needs torch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import boundby

STEPS, FIRST = 160, 10  # of a turn; from FIRST on three steps are recorded
SCHEDULE = {"wait": FIRST - 1, "warmup": 1, "active": 3, "repeat": 1}


def turn(handler: Callable[[Any], None], train: Callable[[], None]) -> list[int]:
    """Nanoseconds of each step that was not recorded."""
    taken = []
    schedule = torch.profiler.schedule(**SCHEDULE)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        for number in range(STEPS):
            began = time.perf_counter_ns()
            train()
            profiler.step()
            if not FIRST - 2 <= number < FIRST + 4:
                taken.append(time.perf_counter_ns() - began)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 256)

    def train() -> None:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    found: dict[str, list[float]] = {"torch": [], "boundby": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.turns + 1):
            handlers = {
                "torch": torch.profiler.tensorboard_trace_handler(str(Path(folder) / "torch")),
                "boundby": boundby.trace_handler(Path(folder) / "boundby", show=True),
            }
            for name in sorted(handlers, reverse=bool(number % 2)):
                median = statistics.median(turn(handlers[name], train))
                if number:  # the first turn warms up
                    found[name].append(median)
    pairs = [one / other - 1 for one, other in zip(found["boundby"], found["torch"], strict=True)]
    print(f"torch's handler: {statistics.median(found['torch']) / 1e3:.1f} us a step outside of the cycle")
    print(f"boundby's:       {statistics.median(found['boundby']) / 1e3:.1f} us")
    print(f"difference: median {statistics.median(pairs):+.2%} of {len(pairs)} turns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
