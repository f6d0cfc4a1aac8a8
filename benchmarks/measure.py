"""Hold ``boundby.measure.latency`` against ``torch.utils.benchmark.Timer.blocked_autorange`` on CPU functions.

    python -m benchmarks.measure [--rounds 5] [--seconds 0.2] [--device cuda]

A dozen functions from 1 us to 100 ms, in one process. Each is measured in turns by both, ``rounds`` times; the figures
are the medians of the round that was disturbed least (the smallest). ``noise`` is by how much the median round of a
method lies above that, of the less steady method; so a ratio within it is agreement. Timer chooses blocks of calls that
are up to ten times longer than ours: on a machine that is shared with other programs a long block is more often
interrupted, and so the last column is the ratio with Timer's number of calls in our samples. Prints a table, or JSON.
Needs torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from boundby.measure import latency
from boundby.model.units import duration

Function = Callable[..., object]


@dataclass(frozen=True)
class Ratio:
    """Medians of both in their least disturbed round, in nanoseconds a call."""

    ours_ns: float
    theirs_ns: float
    ours_by_theirs: float
    noise: float
    same_blocks: float  # ours by theirs with as many calls in a sample as Timer took
    by_hand_ns: float | None = None  # on a GPU: events around each call


def gpu_functions() -> dict[str, tuple[Function, tuple[Any, ...]]]:
    """Name -> (function, inputs) on a GPU, from about 5 us to about 10 ms."""
    import torch

    torch.manual_seed(0)
    matrices = {size: torch.randn(size, size, device="cuda") for size in (64, 1024, 4096)}
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True).cuda().eval()
    return {
        "add 64": (torch.add, (matrices[64], matrices[64])),
        "matmul 1024": (torch.mm, (matrices[1024], matrices[1024])),
        "softmax 4096 x 4096": (torch.softmax, (matrices[4096], 1)),
        "matmul 4096": (torch.mm, (matrices[4096], matrices[4096])),
        "transformer layer 16 x 512": (
            layer.requires_grad_(requires_grad=False),
            (torch.randn(16, 512, 1024, device="cuda"),),
        ),
    }


def by_hand_ns(function: Function, inputs: tuple[Any, ...], samples: int = 100) -> float:
    """The median time of a call between two CUDA events, as one would write it out."""
    import torch

    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    for _ in range(10):
        function(*inputs)
    torch.cuda.synchronize()
    for begin, end in events:
        begin.record()
        function(*inputs)
        end.record()
    torch.cuda.synchronize()
    median_ns: float = statistics.median(1e6 * begin.elapsed_time(end) for begin, end in events)
    return median_ns


def functions() -> dict[str, tuple[Function, tuple[Any, ...]]]:
    """Name -> (function, inputs), from about 2 us to about 100 ms on two cores."""
    import torch

    torch.manual_seed(0)
    matrices = {size: torch.randn(size, size) for size in (16, 64, 256, 512, 1024, 2048)}
    linear = torch.nn.Linear(256, 256).eval().requires_grad_(requires_grad=False)
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).eval().requires_grad_(requires_grad=False)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).eval().requires_grad_(requires_grad=False)
    words = [f"word{number % 997}" for number in range(200_000)]
    return {
        "add 16": (torch.add, (matrices[16], matrices[16])),
        "matmul 16": (torch.mm, (matrices[16], matrices[16])),
        "python sum 1000": (lambda: sum(range(1000)), ()),
        "linear 64 x 256": (linear, (torch.randn(64, 256),)),
        "softmax 256 x 256": (torch.softmax, (matrices[256], 1)),
        "matmul 256": (torch.mm, (matrices[256], matrices[256])),
        "sort 65,536": (torch.sort, (torch.randn(65_536),)),
        "conv 16 to 32, 64 x 64": (conv, (torch.randn(1, 16, 64, 64),)),
        "python sort 200,000": (sorted, (words,)),
        "transformer layer 4 x 128": (layer, (torch.randn(4, 128, 256),)),
        "matmul 1024": (torch.mm, (matrices[1024], matrices[1024])),
        "exp 2048 x 2048, 6 times": (_exps, (matrices[2048],)),
        "sleep 100 ms": (time.sleep, (0.1,)),
    }


def _exps(x: Any) -> Any:
    for _ in range(6):
        x = x.exp().clamp_(max=2.0)
    return x


def ratio(function: Function, inputs: tuple[Any, ...], *, rounds: int, seconds: float) -> Ratio:
    """Measure by both in turns."""
    import torch
    from torch.utils.benchmark import Timer

    ours, alike, theirs = [], [], []
    for _ in range(rounds):
        timer = Timer("f(*x)", globals={"f": function, "x": inputs}, num_threads=torch.get_num_threads())
        measurement = timer.blocked_autorange(min_run_time=seconds)
        theirs.append(1e9 * measurement.median)
        budget, block = max(4 * seconds, 2), measurement.number_per_run
        ours.append(latency(function, *inputs, budget_s=budget).median_ns)
        alike.append(latency(function, *inputs, budget_s=budget, calls_per_sample=block).median_ns)
    noise = max(statistics.median(values) / min(values) for values in (ours, alike, theirs)) - 1
    return Ratio(min(ours), min(theirs), min(ours) / min(theirs), noise, min(alike) / min(theirs))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="times each is measured by both, in turns")
    parser.add_argument("--seconds", type=float, default=0.2, help="least run time that Timer is given")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads; one is steadier on a shared machine")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    found = {}
    if not arguments.json:
        print(f"{'':<28} {'ours':>9} {'Timer':>9} {'ratio':>8} {'noise':>8} {'same blocks':>12}")
    cuda = arguments.device == "cuda"
    for name, (function, inputs) in (gpu_functions() if cuda else functions()).items():
        one = ratio(function, inputs, rounds=arguments.rounds, seconds=arguments.seconds)
        found[name] = one = replace(one, by_hand_ns=by_hand_ns(function, inputs)) if cuda else one
        if not arguments.json:
            figures = f"{duration(one.ours_ns):>9} {duration(one.theirs_ns):>9}"
            print(
                f"{name:<28} {figures} {one.ours_by_theirs:8.3f} {one.noise:8.1%} {one.same_blocks:12.3f}", flush=True
            )
    if arguments.json:
        print(json.dumps({name: asdict(one) for name, one in found.items()}, indent=2))


if __name__ == "__main__":
    main()
