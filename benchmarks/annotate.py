"""Measure what a range of boundby.annotate costs: switched off, with no profiler there, and under nsys.

    python -m benchmarks.annotate

Prints JSON: nanoseconds for each range, the shortest of several rounds, and how many times the cost of the nvtx
package's own ``annotate`` in the same process that is. Module ranges are measured where torch is installed: what is
added for each module, forward and backward. Under nsys only where one is found, by a child process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from boundby.annotate import annotate_module, backend, backends, nvtx_range, steps

#: The JSON follows this in the child's output, whatever nsys writes around it.
MARK = "benchmark: "
ROUNDS = 7
LAYERS = 32


def measure(ranges: int) -> dict[str, object]:
    """Each way to open a range, in this process."""
    result: dict[str, object] = {"backend": backend()}
    reused = nvtx_range("reused")
    cases: dict[str, Callable[[], None]] = {
        "block": lambda: _block(ranges, reused),
        "block, made anew": lambda: _fresh(ranges),
        "function": lambda: _calls(ranges, reused(_nothing)),
        "generator item": lambda: _consume(reused(_numbers)(ranges)),
        "step": lambda: _consume(steps(range(ranges))),
    }
    floor = _shortest(lambda: _consume(_numbers(ranges)))
    own = _nvtx_own(ranges)
    if own is not None:
        cases = {"nvtx.annotate, made before": own, **cases}
    costs = {name: (_shortest(case) - floor) / ranges for name, case in cases.items()}
    result["ns_per_range"] = {name: round(cost) for name, cost in costs.items()}
    if own is not None:
        unit = costs["nvtx.annotate, made before"]
        result["times_nvtx"] = {name: round(cost / unit, 2) for name, cost in costs.items()}
    if (modules := _module_cost(max(1, ranges // 500))) is not None:
        result["ns_per_module_forward_and_backward"] = modules
    return result


def _block(count: int, marked: nvtx_range) -> None:
    for _ in range(count):
        with marked:
            pass


def _fresh(count: int) -> None:
    for _ in range(count):
        with nvtx_range("fresh"):
            pass


def _calls(count: int, function: Callable[[], None]) -> None:
    for _ in range(count):
        function()


def _numbers(count: int) -> Generator[int, None, None]:
    yield from range(count)


def _consume(items: Generator[int, None, None]) -> None:
    for _ in items:
        pass


def _nothing() -> None:
    return None


def _nvtx_own(count: int) -> Callable[[], None] | None:
    try:
        import nvtx  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    marked: Any = nvtx.annotate("own")
    return lambda: _block(count, marked)


def _module_cost(passes: int) -> dict[str, int] | None:
    """What is added for each of a chain of small layers, and what torch's own backward hooks add that do nothing."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(LAYERS)))
    inputs = torch.ones(1, 4)
    plain, marked, hooked = [], [], []
    for _ in range(ROUNDS):
        plain.append(_once(lambda: _train(model, inputs, passes)))
        with annotate_module(model):
            marked.append(_once(lambda: _train(model, inputs, passes)))
        hooks = [module.register_full_backward_hook(_ignore) for module in model.modules()]
        hooks += [module.register_full_backward_pre_hook(_ignore) for module in model.modules()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first layer's input needs no gradient, which these hooks warn of
            hooked.append(_once(lambda: _train(model, inputs, passes)))
        for hook in hooks:
            hook.remove()
    calls = passes * (LAYERS + 1)
    bare, ours, torchs = (min(times) / calls for times in (plain, marked, hooked))
    return {"layer": round(bare), "ranges add": round(ours - bare), "torch's hooks add": round(torchs - bare)}


def _ignore(*_: object) -> None:
    return None


def _train(model: Any, inputs: Any, passes: int) -> None:
    for _ in range(passes):
        model(inputs).sum().backward()


def _shortest(work: Callable[[], None]) -> float:
    return min(_once(work) for _ in range(ROUNDS))


def _once(work: Callable[[], None]) -> int:
    begin = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begin


def measure_child(ranges: int, *, switched_off: bool, nsys: Path | None) -> dict[str, object]:
    """The same in a process of its own, which nsys may watch."""
    environment = {**os.environ, backends.SWITCH: "off" if switched_off else "on"}
    own = [sys.executable, "-m", "benchmarks.annotate", "--child", "--ranges", str(ranges)]
    with tempfile.TemporaryDirectory() as folder:
        watched = [] if nsys is None else [str(nsys), "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
        command = [*watched, *([] if nsys is None else [f"--output={folder}/report"]), *own]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    line = next(line for line in answer.stdout.splitlines() if line.startswith(MARK))
    found: dict[str, object] = json.loads(line.removeprefix(MARK))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, default=20_000, help="ranges in each round (default: %(default)s)")
    parser.add_argument("--child", action="store_true", help="measure in this process only")
    options = parser.parse_args()
    if options.child:
        print(MARK + json.dumps(measure(options.ranges)))
        return
    result: dict[str, object] = {"python": sys.version.split()[0], "ranges": options.ranges}
    result["off"] = measure_child(options.ranges, switched_off=True, nsys=None)
    result["no profiler"] = measure_child(options.ranges, switched_off=False, nsys=None)
    nsys = _nsys()
    if nsys is not None:
        result["under nsys"] = measure_child(options.ranges, switched_off=False, nsys=nsys)
    print(json.dumps(result, indent=2))


def _nsys() -> Path | None:
    from boundby.capture.nsys import find_nsys
    from boundby.model.errors import ToolError

    try:
        return find_nsys().path
    except ToolError:
        return None


if __name__ == "__main__":
    main()
