"""Programs on a machine that has too little for them, without a GPU: which one is the first argument.

busy          a loop of pure Python while three processes a core take turns with it
threads       a matrix product with four threads a core
many_workers  a loader with four workers a core, each of which computes
few_workers   a loader with one worker that needs ten times as long as a step
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

CORES = os.cpu_count() or 2
STEPS = 12
STEP_S = 0.02


def burn(seconds: float) -> None:
    """Be on a CPU for so long."""
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        sum(range(500))


def burn_until(stop) -> None:  # type: ignore[no-untyped-def]
    while not stop.is_set():
        sum(range(2_000))


class Slow:
    """A data set whose items take long to make."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1_000  # workers run ahead as long as they may

    def __getitem__(self, index: int) -> int:
        burn(self.seconds)
        return index


def busy() -> None:
    import nvtx  # type: ignore[import-untyped]

    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    others = [context.Process(target=burn_until, args=(stop,)) for _ in range(3 * CORES)]
    for other in others:
        other.start()
    time.sleep(1)
    for number in range(STEPS):
        with nvtx.annotate(f"step {number}"), nvtx.annotate("busy"):
            burn(STEP_S)
    stop.set()
    for other in others:
        other.join()


def threads() -> None:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(4 * CORES)
    import numpy as np
    import nvtx

    left = np.ones((900, 900))
    for number in range(STEPS):
        with nvtx.annotate(f"step {number}"), nvtx.annotate("product"):
            left @ left


def loader(workers: int, seconds: float) -> None:
    import nvtx
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(Slow(seconds), batch_size=1, num_workers=workers))
    for number in range(STEPS):
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("next batch"):
                next(batches)
            with nvtx.annotate("compute"):
                burn(STEP_S)


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "busy":
        busy()
    elif what == "threads":
        threads()
    else:
        many = what == "many_workers"
        loader(4 * CORES if many else 1, 4 * STEP_S if many else 10 * STEP_S)
