"""A program on the CPU whose parts are NVTX ranges and annotations of PyTorch's profiler, which records it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

import nvtx  # type: ignore[import-untyped]
import torch
from torch.profiler import ProfilerActivity, profile, record_function

STEPS, ASLEEP_S = 5, 0.03


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    with nvtx.annotate(name), record_function(name):
        yield


torch.set_num_threads(1)
matrix = torch.ones(200, 200)
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
    for _ in range(STEPS):
        with part("step"):
            with part("load"):
                time.sleep(ASLEEP_S)
            with part("compute"):
                for _ in range(40):
                    matrix = torch.mm(matrix, matrix).clamp(0, 1)
profiler.export_chrome_trace(sys.argv[1])
