"""What a device reaches in large matrix products and copies, beside the peaks of boundby's table.

    python benchmarks/gpu/peaks.py [--device cuda]

Prints JSON: per precision the best rate in TFLOP/s of square products (median of samples timed by CUDA events), and
GB/s of copies: within the device (bytes read and written), from and to pinned memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch

from boundby.measure import latency
from boundby.model.gpus import find_gpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    sides = (4096, 8192, 16384) if cuda else (256,)
    name = torch.cuda.get_device_name() if cuda else "cpu"
    published = find_gpu(name)
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "tflops": {}, "gb_per_s": {}}
    kinds = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    for precision, kind in kinds.items():
        if precision == "tf32" and not cuda:
            continue
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        best = 0.0
        for side in sides:
            a, b = (torch.randn(side, side, device=options.device).to(kind) for _ in range(2))
            best = max(best, 2 * side**3 / median_ns(torch.mm, a, b) / 1e3)
        found["tflops"][precision] = {"measured": best, "published": published and published.tflops(precision)}
    count = (1 << 30) if cuda else 1 << 20
    source, target = (torch.empty(count, dtype=torch.uint8, device=options.device) for _ in range(2))
    found["gb_per_s"]["device"] = {
        "measured": 2 * count / median_ns(target.copy_, source),
        "published": published and published.memory_gb_per_s,
    }
    if cuda:
        pinned = torch.empty(count, dtype=torch.uint8, pin_memory=True)
        for direction, to, what in (("to the device", target, pinned), ("to the host", pinned, source)):
            rate = count / median_ns(to.copy_, what, device="cuda")
            found["gb_per_s"][direction] = {"measured": rate, "published": None}
    print(json.dumps(found))


def median_ns(function: Callable[..., object], *inputs: object, device: str | None = None) -> float:
    """Median time of a call by boundby's own clock for the device."""
    return latency(function, *inputs, budget_s=5, device=device).median_ns


if __name__ == "__main__":
    main()
