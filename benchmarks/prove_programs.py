"""Programs of torch and of NumPy with known limits, to try `boundby prove` on; and what is true of them.

    boundby prove -- python -m benchmarks.prove_programs torch-balanced
    python -m benchmarks.prove_programs torch-balanced --truth

What a part is worth follows from how a program is made; of the balanced one ``--truth`` measures it: without any
experiment the program shortens one part by a quarter of a step in some blocks of steps and not in others, and prints
what a millisecond saved so has saved. (The lengths of the parts stand in memory that its workers share.)

Work is real (products of small matrices) where a busy machine can only stretch what sets the pace anyway; where it
would turn another part into the bound, the host waits for its time to pass.
"""

from __future__ import annotations

import argparse
import json
import mmap
import queue
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import nvtx

from benchmarks.simulated.device import Mark, ModelledDevice, register

PARTS = ("host", "input", "device")
_THREE = struct.Struct("ddd")
#: Steps of a block: those that are left out while queues settle, and those that count.
SETTLE, COUNT = 28, 24
#: Pairs of blocks for each part.
PAIRS = 16
REACH = 0.25


class Lengths:
    """Milliseconds of a batch, of the host's work and of the device's a step, shared with forked workers."""

    def __init__(self, host: float, input: float, device: float) -> None:
        self._memory = mmap.mmap(-1, _THREE.size)
        self.set(host, input, device)

    def set(self, *lengths: float) -> None:
        _THREE.pack_into(self._memory, 0, *lengths)

    def get(self) -> tuple[float, float, float]:
        host, fetch, device = _THREE.unpack_from(self._memory)
        return host, fetch, device


class Forever:
    """No truth is asked for: the program runs as it is."""

    def step(self, now_ns: int) -> None:
        """A step is done."""


class Truth(Forever):
    """Shortens parts in turn, and notes how long steps take."""

    def __init__(self, lengths: Lengths, parts: Sequence[str], workers: int) -> None:
        self._lengths, self._parts, self._each = lengths, parts, max(workers, 1)
        self._whole = lengths.get()
        self._blocks: list[tuple[str, float]] = []  # the part that was shortened, and the pace
        self._reach = dict.fromkeys(parts, 0.0)
        self._plan = ["", *(kind for _ in range(PAIRS // 2) for part in parts for kind in (part, part, ""))]
        self._at = 0
        self._ends: list[int] = []
        self.is_done = False

    def step(self, now_ns: int) -> None:
        self._ends.append(now_ns)
        if len(self._ends) <= SETTLE + COUNT or self.is_done:
            return
        turns = self._ends[SETTLE :: self._each]  # batches of several workers arrive together
        spans = sorted(after - before for before, after in pairwise(turns))
        middle = spans[len(spans) // 4 : len(spans) - len(spans) // 4]  # a step that was held up counts for nothing
        self._blocks.append((self._plan[self._at], statistics.fmean(middle) / self._each / 1e6))
        self._at += 1
        self._ends = []
        if self._at == len(self._plan):
            self.is_done = True
            return
        self._shorten(self._plan[self._at])

    def _shorten(self, part: str) -> None:
        lengths = list(self._whole)
        if part:
            each = self._each if part == "input" else 1
            at = PARTS.index(part)
            self._reach[part] = self._reach[part] or min(REACH * self._blocks[0][1], lengths[at] / each)
            lengths[at] -= self._reach[part] * each
        self._lengths.set(*lengths)

    def told(self) -> dict[str, dict[str, float]]:
        """Of each part what a millisecond saved has saved, and the standard error of that."""
        found = {}
        for part in self._parts:
            gains = []
            for at, (kind, pace) in enumerate(self._blocks):
                if kind == part:
                    beside = [
                        self._blocks[other][1]
                        for other in (at - 1, at + 1, at - 2, at + 2)
                        if 0 <= other < len(self._blocks) and self._blocks[other][0] == ""
                    ]
                    gains.append((beside[0] - pace) / self._reach[part])
            quarter = len(gains) // 4
            kept = sorted(gains)[quarter : len(gains) - quarter]  # without blocks that were held up
            error = 2 * statistics.stdev(kept) / len(gains) ** 0.5
            found[part] = {"worth": statistics.fmean(kept), "error": error}
        return found


def numpy_work(ms: float) -> None:
    """Products that leave the GIL to others for moments."""
    end = time.perf_counter() + ms / 1e3
    matrix = np.ones((48, 48))
    while time.perf_counter() < end:
        matrix = matrix @ matrix * 0.01


def python_work(ms: float) -> None:
    """Holds the GIL, by as much work as takes that long alone."""
    begin = time.thread_time()
    while time.thread_time() - begin < ms / 1e3:
        sum(range(200))


def wait(ms: float) -> None:
    """As for a file or a socket."""
    time.sleep(ms / 1e3)


def torch_loop(lengths: Lengths, workers: int, works: bool, truth: Forever, steps: int) -> None:
    """A model behind a DataLoader, with more work beside if the host ``works``, else with a wait."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)

    class Items(Dataset):  # type: ignore[misc, type-arg, unused-ignore]
        def __len__(self) -> int:
            return steps

        def __getitem__(self, at: int) -> Any:
            wait(lengths.get()[1])
            return torch.full((16,), float(at))

    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in DataLoader(Items(), batch_size=1, num_workers=workers):
        end = time.perf_counter() + lengths.get()[0] / 1e3
        optimizer.zero_grad()
        loss = model(batch).sum()
        while works and time.perf_counter() < end:
            loss = model(batch).sum()
        loss.backward()
        wait(max(0.0, end - time.perf_counter()) * 1e3)
        optimizer.step()
        truth.step(time.perf_counter_ns())
        if getattr(truth, "is_done", False):
            return


def fetched(lengths: Lengths, work: Callable[[float], None], steps: int) -> Iterator[int]:
    """Batches, one after the other."""
    for at in range(steps):
        work(lengths.get()[1])
        yield at


def plain_loop(lengths: Lengths, truth: Forever, steps: int) -> None:
    """No loader."""
    for _ in range(steps):
        with nvtx.annotate("step"):
            numpy_work(lengths.get()[0])
        truth.step(time.perf_counter_ns())
        if getattr(truth, "is_done", False):
            return


def serial_loop(lengths: Lengths, truth: Forever, steps: int) -> None:
    """A loader on the main thread."""
    from boundby import annotate

    for _ in annotate.steps(annotate.annotate_loader(fetched(lengths, wait, steps))):
        numpy_work(lengths.get()[0])
        truth.step(time.perf_counter_ns())
        if getattr(truth, "is_done", False):
            return


def thread_loop(
    lengths: Lengths,
    truth: Forever,
    steps: int,
    fetch: Callable[[float], None] = wait,
    work: Callable[[float], None] = wait,
) -> None:
    """A loader on a thread of its own, two batches ahead."""
    from boundby import annotate

    batches: queue.Queue[int | None] = queue.Queue(2)

    def load() -> None:
        for batch in annotate.annotate_loader(fetched(lengths, fetch, steps)):
            batches.put(batch)
        batches.put(None)

    threading.Thread(target=load, daemon=True).start()
    for _ in annotate.steps(iter(batches.get, None)):
        work(lengths.get()[0])
        truth.step(time.perf_counter_ns())
        if getattr(truth, "is_done", False):
            return


def locked_loop(lengths: Lengths, truth: Forever, steps: int) -> None:
    """The loader's thread and the host hold one lock while they work."""
    lock = threading.Lock()

    def fetch(ms: float) -> None:
        with lock:
            wait(ms)

    def work(ms: float) -> None:
        with lock:
            numpy_work(ms)

    thread_loop(lengths, truth, steps, fetch, work)


def gil_loop(lengths: Lengths, truth: Forever, steps: int) -> None:
    """The loader's thread holds the GIL."""
    thread_loop(lengths, truth, steps, python_work, python_work)


def device_loop(lengths: Lengths, ahead: int, works: bool, truth: Forever, steps: int) -> None:
    """A modelled device that runs ``ahead`` steps behind the host (1: the host waits in every step)."""
    from boundby import annotate

    device = ModelledDevice()
    register(device)
    open_steps: list[Mark] = []
    for _ in annotate.steps(annotate.annotate_loader(fetched(lengths, wait, steps))):
        (numpy_work if works else wait)(lengths.get()[0])
        device.launch(lengths.get()[2])
        open_steps.append(device.mark(truth.step))
        if len(open_steps) >= ahead:
            open_steps.pop(0).wait()
        if getattr(truth, "is_done", False):
            return


@dataclass(frozen=True)
class Program:
    """One of them: what sets its pace, the milliseconds of its parts, and what each is worth by design, if that is so.

    A batch takes as many times its milliseconds a step as there are workers.
    """

    limit: str
    run: Callable[..., None]
    lengths: tuple[float, float, float]
    worth: tuple[float, ...] | None
    settings: tuple[Any, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Those that it has."""
        return tuple(part for part, length in zip(PARTS, self.lengths, strict=True) if length)


WORKS, WAITS = True, False
PROGRAMS = {
    "torch-host": Program("host", torch_loop, (6.0, 3.0, 0.0), (1, 0), (2, WORKS)),
    "torch-1-worker": Program("input", torch_loop, (3.0, 7.0, 0.0), (0, 1), (1, WAITS)),
    "torch-2-workers": Program("input", torch_loop, (3.0, 14.0, 0.0), (0, 1), (2, WAITS)),
    "torch-4-workers": Program("input", torch_loop, (3.0, 28.0, 0.0), (0, 1), (4, WAITS)),
    "torch-main-thread": Program("serial", torch_loop, (2.5, 5.0, 0.0), (1, 1), (0, WORKS)),
    "torch-balanced": Program("balanced", torch_loop, (6.0, 12.0, 0.0), None, (2, WAITS)),
    "numpy-host": Program("host", plain_loop, (4.0, 0.0, 0.0), (1,)),
    "numpy-serial": Program("serial", serial_loop, (4.0, 3.0, 0.0), (1, 1)),
    "numpy-thread": Program("input", thread_loop, (3.0, 7.0, 0.0), (0, 1)),
    "numpy-lock": Program("serial", locked_loop, (4.0, 3.0, 0.0), (1, 1)),
    "numpy-gil": Program("serial", gil_loop, (4.0, 3.0, 0.0), (1, 1)),
    "device-ahead": Program("device", device_loop, (2.0, 1.0, 7.0), (0, 0, 1), (16, WAITS)),
    "device-sync": Program("serial", device_loop, (3.0, 1.5, 3.5), (1, 1, 1), (1, WORKS)),
    "device-host": Program("serial", device_loop, (4.0, 2.0, 3.0), (1, 1, 0), (16, WORKS)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*PROGRAMS])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--truth", action="store_true")
    options = parser.parse_args(arguments)
    program = PROGRAMS[options.name]
    lengths = Lengths(*program.lengths)
    workers = program.settings[0] if program.run is torch_loop else 0
    truth = Truth(lengths, program.parts, workers) if options.truth else Forever()
    program.run(lengths, *program.settings, truth, options.steps)
    if isinstance(truth, Truth):
        print(json.dumps(truth.told()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
