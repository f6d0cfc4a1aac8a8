"""Programs of torch and of NumPy with known limits, to try `boundby prove` on; and what is true of them.

    boundby prove -- python -m benchmarks.prove_programs torch-balanced

What a part is worth follows from how a program is made. Of the balanced one it is measured, in the same run and between
the same blocks: a removal of ``shorter(part)`` takes `SHORTER` of the part's own time away. (The lengths of the parts
stand in memory that its workers share.)

Work is a number of products that takes so long where nothing else runs; where a busy machine would turn that part into
the bound, the host waits for its time to pass.
"""

from __future__ import annotations

import argparse
import mmap
import queue
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import nvtx

from benchmarks.simulated.device import Mark, ModelledDevice, register

PARTS = ("host", "input", "device")
_THREE = struct.Struct("ddd")
#: How much of a part's own time a removal takes away.
SHORTER = 0.25


def shorter(part: str) -> str:
    """The removal that shortens it."""
    return f"shorter {part}"


class Lengths:
    """Milliseconds of a batch, of the host's work and of the device's a step, shared with forked workers."""

    def __init__(self, host: float, input: float, device: float) -> None:
        self._memory = mmap.mmap(-1, _THREE.size)
        self.whole = (host, input, device)
        self.set(*self.whole)

    def set(self, *lengths: float) -> None:
        _THREE.pack_into(self._memory, 0, *lengths)

    def get(self) -> tuple[float, float, float]:
        host, fetch, device = _THREE.unpack_from(self._memory)
        return host, fetch, device

    def step(self) -> None:
        """A step begins: as long as the experiment that runs this program, if one does, has it now."""
        inside: Any = sys.modules.get("_boundby_experiment.delayed_device")
        remedy = inside.conductors[0].remedy if inside is not None and inside.conductors else ""
        self.set(
            *(whole * (1 - SHORTER * (remedy == shorter(part))) for part, whole in zip(PARTS, self.whole, strict=True))
        )


def numpy_work(ms: float) -> None:
    """Products that leave the GIL to others for moments, for so long on a core."""
    begin = time.thread_time()
    matrix = np.ones((48, 48))
    while time.thread_time() - begin < ms / 1e3:
        matrix = matrix @ matrix * 0.01


def python_work(ms: float) -> None:
    """Holds the GIL, for so long on a core."""
    begin = time.thread_time()
    while time.thread_time() - begin < ms / 1e3:
        sum(range(200))


def wait(ms: float) -> None:
    """As for a file or a socket."""
    time.sleep(ms / 1e3)


def torch_loop(lengths: Lengths, workers: int, works: bool, steps: int) -> None:
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
        lengths.step()
        host = lengths.get()[0] / 1e3
        end, on_core = time.perf_counter() + host, time.thread_time() + host
        optimizer.zero_grad()
        loss = model(batch).sum()
        while works and time.thread_time() < on_core:
            loss = model(batch).sum()
        loss.backward()
        if not works:
            wait(max(0.0, end - time.perf_counter()) * 1e3)
        optimizer.step()


def fetched(lengths: Lengths, work: Callable[[float], None], steps: int) -> Iterator[int]:
    """Batches, one after the other."""
    for at in range(steps):
        work(lengths.get()[1])
        yield at


def plain_loop(lengths: Lengths, steps: int) -> None:
    """No loader."""
    for _ in range(steps):
        with nvtx.annotate("step"):
            numpy_work(lengths.get()[0])


def serial_loop(lengths: Lengths, steps: int) -> None:
    """A loader on the main thread."""
    from boundby import annotate

    for _ in annotate.steps(annotate.annotate_loader(fetched(lengths, wait, steps))):
        numpy_work(lengths.get()[0])


def thread_loop(
    lengths: Lengths,
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


def locked_loop(lengths: Lengths, steps: int) -> None:
    """The loader's thread and the host hold one lock while they work."""
    lock = threading.Lock()

    def fetch(ms: float) -> None:
        with lock:
            wait(ms)

    def work(ms: float) -> None:
        with lock:
            numpy_work(ms)

    thread_loop(lengths, steps, fetch, work)


def gil_loop(lengths: Lengths, steps: int) -> None:
    """The loader's thread holds the GIL."""
    thread_loop(lengths, steps, python_work, python_work)


def device_loop(lengths: Lengths, ahead: int, works: bool, steps: int) -> None:
    """A modelled device that runs ``ahead`` steps behind the host (1: the host waits in every step)."""
    from boundby import annotate

    device = ModelledDevice()
    register(device)
    open_steps: list[Mark] = []
    for _ in annotate.steps(annotate.annotate_loader(fetched(lengths, wait, steps))):
        (numpy_work if works else wait)(lengths.get()[0])
        device.launch(lengths.get()[2])
        open_steps.append(device.mark())
        if len(open_steps) >= ahead:
            open_steps.pop(0).wait()


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
    options = parser.parse_args(arguments)
    program = PROGRAMS[options.name]
    program.run(Lengths(*program.lengths), *program.settings, options.steps)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
