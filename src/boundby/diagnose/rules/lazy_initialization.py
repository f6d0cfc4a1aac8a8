"""Loading, compiling and first allocations that happen after the first GPU work."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from boundby.diagnose.case import Case
from boundby.diagnose.devicework import Rows, framework
from boundby.diagnose.rule import Match, Remedy, Rule
from boundby.diagnose.rules._setup import (
    call_evidence,
    call_examples,
    call_place,
    init_saving,
    named_calls,
    setup_calls,
)
from boundby.model.units import count, duration
from boundby.timeline.calls import CallClass

_COMPILES = re.compile(r"cuLink|nvrtc|nvJitLink")


def _check(case: Case) -> Iterator[Match]:
    rows = case.once(setup_calls).once
    calls = case.timeline.setting.calls
    length = (calls.end_ns - calls.start_ns)[rows]
    total = int(length.sum())
    if total < case.least_ns:
        return
    low, high = init_saving(case, rows, 0.0)
    first = calls.is_first_load[rows]
    loads = first | (calls.kind[rows] == CallClass.INIT)
    at = (calls.start_ns[rows] - min(device.low_ns for device in case.timeline.devices)) / case.longest_window_ns
    order = np.argsort(at, kind="stable")
    half = float(at[order][np.searchsorted(np.cumsum(length[order]), total / 2)])
    evidence = {
        **call_evidence(case, rows),
        "first_launches_ns": int(length[first].sum()),
        "loading_ns": int(length[loads & ~first].sum()),
        "allocation_ns": int(length[~loads].sum()),
        "half_is_over_at_fraction": round(max(half, 0.0), 4),
    }
    yield Match(
        region=call_place(case, rows),
        title=f"{count(len(rows))} calls that load code, allocate or pin take {duration(total)}: "
        f"{', '.join(named_calls(case, rows, 2))}",
        evidence=evidence,
        saving_ns=(low, high),
        advice=(
            *_advice(case, rows, is_loading=int(length[loads].sum()) >= total // 2),
            "A run of many steps pays this once: measure without it (boundby analyze --skip-first 3, or "
            "--window START:END)",
        ),
        examples=call_examples(case, rows),
        instances=len(rows),
        cost_ns=total,
    )


def _advice(case: Case, rows: Rows, *, is_loading: bool) -> tuple[str, ...]:
    if not is_loading and case.once(framework) == "cudf":
        return ("rmm.reinitialize(pool_allocator=True) before the first frame: allocations then come from a pool",)
    if not is_loading:
        return ("Allocate and pin once, before what counts, at the largest size that will come",)
    names = case.timeline.setting.trace.names
    called = {names[name] for name in np.unique(case.timeline.setting.calls.name[rows]).tolist()}
    compiles = any(_COMPILES.search(name) for name in called)
    return (
        "Run one step of each shape before what counts: the first launch of a kernel loads its code; "
        "CUDA_MODULE_LOADING=EAGER loads all of it at the start instead",
        *(
            (
                "Code is compiled or linked at run time: build it for this GPU (nvcc -gencode arch=compute_80,"
                "code=sm_80; TORCH_CUDA_ARCH_LIST=8.0), or keep what was compiled (CUDA_CACHE_PATH)",
            )
            if compiles
            else ()
        ),
    )


RULE = Rule(
    id="lazy-initialization",
    title="Loading and first allocations in between",
    group="init",
    picture="""\
host |launch (loads code: 12 ms)|launch|launch (loads: 8 ms)|launch| ...
GPU                              |k|    |k|                  |k|    |k|
""",
    meaning="""\
CUDA does much at first use: it creates contexts, loads the code of each kernel when it is first launched, compiles PTX
that no binary fits; frameworks allocate memory and try out algorithms. In a short run this is a large part of the
window; in a long one it is nothing.

Counted are context, module and JIT calls, first launches of a kernel that take ten times as long as later ones (and
200 us), and allocations that come early only. The saving is the window of *this* run without them; moved in front of
the first step, the same calls still take their time.
""",
    remedies=(
        Remedy(
            "Warm up before what counts.",
            "for _ in range(3):\n    step(example)  # every shape that will come\ntorch.cuda.synchronize()",
        ),
        Remedy(
            "Load all code at the start.",
            "CUDA_MODULE_LOADING=EAGER python serve.py",
            language="bash",
            caution="Start-up takes longer, and device memory holds code that may never run.",
        ),
        Remedy(
            "Build for the GPU that runs it.",
            "nvcc -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90 kernel.cu",
            language="bash",
        ),
    ),
    disproof="The same calls come again in later steps of a longer run.",
    check=_check,
    needs=("kernels", "cuda_api"),
    see_also=("allocation", "warm-up"),
    references={"CUDA: lazy loading": "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading"},
)
