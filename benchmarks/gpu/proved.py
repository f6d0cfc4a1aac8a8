"""`boundby.prove` on five programs whose limit is known: the device spins for as long as it is told to.

    python benchmarks/gpu/proved.py host --device cuda

Prints what the experiment says beside what is so, as JSON. ``--device cpu`` does the same with a modelled device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boundby
from benchmarks.simulated.device import ModelledDevice

#: name -> what sets the pace; milliseconds of the host, of a batch and of the device; steps that the device may lag.
#: Batches come from a worker, unless parts take turns: a loader on the steps' own thread takes turns with the host.
PROGRAMS = {
    "host": ("host", (6.0, 0.0, 2.0), 8),
    "input": ("input", (1.0, 6.0, 2.0), 8),
    "device": ("device", (2.0, 1.0, 8.0), 8),
    "serial": ("serial", (3.0, 2.0, 4.0), 1),
    "balanced": ("balanced", (5.0, 0.0, 5.0), 8),
}


class Gpu:
    """Kernels that spin, and events to wait for."""

    def __init__(self) -> None:
        import torch

        torch.cuda.init()
        self._torch = torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(2):  # the first wakes the clocks
            begin.record()
            torch.cuda._sleep(10_000_000)
            end.record()
            end.synchronize()
        self._cycles_per_ms = 10_000_000 / begin.elapsed_time(end)

    def launch(self, ms: float) -> None:
        self._torch.cuda._sleep(int(ms * self._cycles_per_ms))

    def mark(self) -> Callable[[], None]:
        event = self._torch.cuda.Event()
        event.record()
        wait: Callable[[], None] = event.synchronize
        return wait


@dataclass(frozen=True)
class Batches:
    """As a data set of torch, and as an iterable."""

    ms: float

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> int:
        time.sleep(self.ms / 1e3)
        return number

    def by_worker(self) -> Any:
        from torch.utils.data import DataLoader

        return DataLoader(self, batch_size=None, num_workers=1)  # type: ignore[arg-type, unused-ignore]


def main() -> int:
    """Run one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*PROGRAMS])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    limit, (host_ms, input_ms, device_ms), ahead = PROGRAMS[options.name]
    device: Any = Gpu() if options.device == "cuda" else ModelledDevice()
    open_steps: list[Callable[[], None]] = []

    def step(_batch: int = 0) -> None:
        time.sleep(host_ms / 1e3)
        device.launch(device_ms)
        mark = device.mark()
        open_steps.append(mark if options.device == "cuda" else mark.wait)
        if len(open_steps) >= ahead:
            open_steps.pop(0)()

    proof = boundby.prove(
        step,
        loader=None if not input_ms else Batches(input_ms) if limit == "serial" else Batches(input_ms).by_worker(),
        steps=options.steps,
        device=None if options.device == "cuda" else device,
    )
    worth = {part.part: [part.saved_per_ns.low, part.saved_per_ns.high] for part in proof.parts}
    told = {
        "limit": limit,
        "bound": proof.bound,
        "confidence": proof.confidence,
        "worth": worth,
        "doubts": proof.doubts,
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
