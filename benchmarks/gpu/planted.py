"""A program whose steps hold a wait, a sleep and a copy of known length; it prints what each took by its own clocks.

    python benchmarks/gpu/planted.py [--device cuda] [--steps 30]

Each step: ``sleep`` (the host sleeps, the device has nothing to do), ``copy`` (one copy from pinned memory, which
CUDA events time and the host waits for) and ``wait`` (matrix products, then ``.item()``, whose wait the host times).
On the CPU only the sleep is of use; it rehearses the rest.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from boundby.annotate import nvtx_range, steps

SLEEP_S, COPY_BYTES, PRODUCTS, SIDE, WARMUP = 0.020, 256 << 20, 40, 4096, 3


def main() -> None:
    """Run, and print nanoseconds summed over the steps after the warm-up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    cuda = options.device == "cuda"
    side, products, count = (SIDE, PRODUCTS, COPY_BYTES) if cuda else (256, 4, 1 << 20)
    host = torch.empty(count, dtype=torch.uint8, pin_memory=cuda)
    target = torch.empty(count, dtype=torch.uint8, device=options.device)
    matrix = torch.randn(side, side, device=options.device)
    truth = {"sleep_ns": 0, "copy_ns": 0, "wait_ns": 0, "steps": options.steps}
    for number in steps(range(WARMUP + options.steps), warmup=WARMUP):
        spent = step(host, target, matrix, products, cuda=cuda)
        if number >= WARMUP:
            for name, spent_ns in spent.items():
                truth[name] += spent_ns
    print(json.dumps(truth))


def step(
    host: torch.Tensor, target: torch.Tensor, matrix: torch.Tensor, products: int, *, cuda: bool
) -> dict[str, int]:
    """One step; gives what its parts took."""
    begin = time.perf_counter_ns()
    with nvtx_range("sleep"):
        time.sleep(SLEEP_S)
    slept_ns = time.perf_counter_ns() - begin
    copied_ns = 0
    with nvtx_range("copy"):
        if cuda:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            target.copy_(host, non_blocking=True)
            events[1].record()
            events[1].synchronize()
            copied_ns = round(1e6 * events[0].elapsed_time(events[1]))
        else:
            target.copy_(host)
    with nvtx_range("compute"):
        x = matrix
        for _ in range(products):
            x = torch.tanh(x @ matrix)
        total = x.sum()
    begin = time.perf_counter_ns()
    with nvtx_range("wait"):
        total.item()
    return {"sleep_ns": slept_ns, "copy_ns": copied_ns, "wait_ns": time.perf_counter_ns() - begin}


if __name__ == "__main__":
    main()
