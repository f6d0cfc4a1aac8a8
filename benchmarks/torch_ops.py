"""Measure what ``boundby profile --torch-ops`` adds to a training step: under nsys, and by itself.

    python -m benchmarks.torch_ops

Prints JSON. The model is a small transformer whose operators take next to no time, so that a step is all overhead:
real models suffer less. A step's time is the shortest of many. ``us_per_range`` is what is added for each range that
the trace holds; the same program without nsys, and under nsys without --torch-ops, is measured beside it.
Needs torch, the nvtx package where torch is a build without CUDA, and an nsys.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from boundby.capture.export import count_rows
from boundby.capture.launcher import launcher_environment

#: The program's result follows this, whatever else is printed.
MARK = "benchmark: "
_PROGRAM = f"""\
import sys, time, torch
from torch import nn
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0)
model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(32, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = nn.CrossEntropyLoss()
x, y = torch.randn(2, 4, 32, device=device), torch.randint(0, 8, (2, 4), device=device)
best = float("inf")
for step in range(int(sys.argv[1])):
    begin = time.perf_counter()
    optimizer.zero_grad()
    loss(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    best = min(best, time.perf_counter() - begin)
print("{MARK}%f" % (best * 1e6))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="training steps of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind; the quickest counts")
    steps, rounds = (arguments := parser.parse_args()).steps, arguments.rounds
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program = [sys.executable, "-c", _PROGRAM, str(steps)]
        alone = launcher_environment(os.environ, folder / "notes")
        quickest = {
            "plain": min(_step_us(program) for _ in range(rounds)),
            "launcher, no nsys": min(_step_us(program, alone) for _ in range(rounds)),
            "nsys": min(_step_us(_profile(folder / f"a{n}") + program) for n in range(rounds)),
            "nsys, launcher": min(_step_us(_profile(folder / f"b{n}", "--torch-ops") + program) for n in range(rounds)),
        }
        ranges = count_rows(folder / "b0" / "report.sqlite", "NVTX_EVENTS", "eventType = 59") / steps
    result = {
        "us_per_step": {name: round(value) for name, value in quickest.items()},
        "ranges_per_step": round(ranges, 1),
        "us_per_range": {
            "no nsys": round((quickest["launcher, no nsys"] - quickest["plain"]) / ranges, 2),
            "nsys": round((quickest["nsys, launcher"] - quickest["nsys"]) / ranges, 2),
        },
        "times_as_long": round(quickest["nsys, launcher"] / quickest["nsys"], 2),
    }
    print(json.dumps(result, indent=2))


def _profile(folder: Path, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "boundby.cli.main",
        "profile",
        "-q",
        "--format=none",
        "-o",
        str(folder),
        *options,
        "--",
    ]


def _step_us(command: list[str], env: dict[str, str] | None = None) -> float:
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(answer.stdout.rpartition(MARK)[2].split()[0])


if __name__ == "__main__":
    main()
