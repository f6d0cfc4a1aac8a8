"""Two ranks on the CPU, of which the second one comes late: ``trace_handler`` in each. Argument: the folder."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import boundby

dist.init_process_group("gloo")
schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
with torch.profiler.profile(schedule=schedule, on_trace_ready=boundby.trace_handler(sys.argv[1])) as profiler:
    for _ in range(5):
        if dist.get_rank() == 1:
            sum(range(2_000_000))
        dist.all_reduce(torch.ones(64))
        profiler.step()
dist.destroy_process_group()
