"""One kernel that takes most of the kernel time, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.diagnose.case import Case
from boundby.diagnose.devicework import (
    TopKernel,
    device_work,
    named_top,
    operation_examples,
    place_of,
    saving_by_speed,
    top_kernels,
)
from boundby.diagnose.kernelnames import MATMULS, KernelKind
from boundby.diagnose.kernelruns import attention, elementwise_chains
from boundby.diagnose.occupancy import Occupancy, theoretical_occupancy
from boundby.diagnose.rule import Match, Remedy, Rule, Threshold
from boundby.diagnose.rules.small_blocks import small_block_rows
from boundby.diagnose.rules.small_grid import small_grid_rows
from boundby.model.units import count, duration, percent

# Kernels of libraries and compilers are tuned already; layout conversions have a rule of their own.
MEDIUM_SHARE = 0.1  # of the window
_TUNED = (*MATMULS, KernelKind.ATTENTION, KernelKind.MULTI_TENSOR, KernelKind.LAYOUT, KernelKind.FUSED)


def _check(case: Case) -> Iterator[Match]:
    work = case.once(device_work)
    kernels = np.flatnonzero(work.is_kernel)
    if len(kernels) == 0:
        return
    top = top_kernels(case, kernels, 1)[0]
    exposed = int(work.exposed_ns[top.rows].sum())
    share = exposed / max(work.busy_kernels_ns(), 1)
    if share < case.threshold(RULE, "share_fraction"):
        return
    if exposed < case.threshold(RULE, "window_fraction") * case.window_ns or np.isin(work.kind[top.rows], _TUNED).all():
        return
    told = np.concatenate(
        (
            case.once(small_grid_rows),
            case.once(small_block_rows),
            case.once(elementwise_chains).rows,
            case.once(attention).between,
        )
    )
    if int(work.duration_ns[np.intersect1d(top.rows, told)].sum()) > top.total_ns // 2:
        return  # another rule says what is wrong with it
    yield _match(case, top, share)


def _match(case: Case, top: TopKernel, share: float) -> Match:
    work, trace = case.once(device_work), case.timeline.setting.trace
    longest = int(top.rows[np.argmax(work.duration_ns[top.rows])])
    device = int(trace.operations.device[longest])
    shape = int(work.threads[longest]), int(work.registers[longest]), int(work.shared_bytes[longest])
    occupancy = theoretical_occupancy(trace.gpu_facts[device], *shape) if trace.gpu_facts else None
    most = case.threshold(RULE, "tuned_most")
    saving = 0, saving_by_speed(case, top.rows, 1.0, most)[1]
    evidence: dict[str, object] = {
        "kernel": top.label,
        "count": len(top.rows),
        "total_ns": top.total_ns,
        "median_ns": round(float(np.median(work.duration_ns[top.rows]))),
        "share_of_kernel_time_fraction": round(share, 4),
        "assumed_speed_up": [1.0, most],
        "kernels": named_top(case, np.flatnonzero(work.is_kernel)),
    }
    if work.blocks[longest]:
        evidence["blocks"] = int(work.blocks[longest])
        evidence["threads_per_block"] = shape[0]
        evidence["registers_per_thread"] = shape[1] or None
    if occupancy is not None:
        evidence["theoretical_occupancy_fraction"] = round(occupancy.fraction, 4)
        evidence["occupancy_limited_by"] = occupancy.limit
    return Match(
        region=place_of(case, top.rows),
        title=f"{top.label} takes {percent(share)} of kernel time: {count(len(top.rows))} x "
        f"{duration(float(np.median(work.duration_ns[top.rows])))}",
        evidence=evidence,
        saving_ns=saving,
        advice=(*_occupancy_advice(case, top, occupancy), *_profile_advice(case, longest)),
        examples=operation_examples(case, top.rows),
        instances=len(top.rows),
        # How far it is from its limit cannot be seen in a timeline.
        severity="medium" if saving[1] >= MEDIUM_SHARE * case.longest_window_ns else "low",
    )


def _occupancy_advice(case: Case, top: TopKernel, occupancy: Occupancy | None) -> tuple[str, ...]:
    if occupancy is None or occupancy.fraction > case.threshold(RULE, "occupancy_fraction"):
        return ()
    if occupancy.limit not in ("registers", "shared memory"):
        return ()
    return (
        f"{top.label} can hold only {percent(occupancy.fraction)} of the warps that fit ({occupancy.limit}): see in "
        "Nsight Compute whether latency is its limit before changing that",
    )


def _profile_advice(case: Case, row: int) -> tuple[str, ...]:
    trace = case.timeline.setting.trace
    name = trace.names[trace.operations.name[row]]
    profile = (
        "ncu --set full --launch-count 3 --kernel-name regex:KERNEL PROGRAM tells whether memory, arithmetic or "
        "latency limits it: near the peak of one of them, only less work helps"
    )
    if "at::native" in name:
        return ("Compile the model (torch.compile), or replace the operation by one that does less", profile)
    if name.startswith("nvkernel_") or "_gpu" in name or "__omp" in name:
        return (
            "OpenMP and OpenACC: collapse loops, let neighbouring threads touch neighbouring memory (innermost loop "
            "over the fastest index), keep data in registers",
            profile,
        )
    return (profile, "Check first: coalesced access, data used twice kept on chip, no double where float will do")


RULE = Rule(
    id="hot-kernel",
    title="One kernel takes most of the kernel time",
    group="gpu_compute",
    picture="""\
GPU  | K K K K K K K K K K K K K K | a | K K K K K K K K K K K K K K | b |
""",
    meaning="""\
When one kernel holds two fifths of the kernel time and a fifth of the window, making it faster is worth a kernel
engineer's time, and nothing else on the device is. The evidence lists what the trace tells of it: how often, how long,
its grid, registers, the occupancy that these allow, and the next kernels.

A trace of a timeline cannot tell *why* a kernel takes its time; that needs Nsight Compute. Kernels that libraries and
compilers tune (matrix products, convolutions, fused attention) are left out, and so are those of which another rule
says what is wrong. The saving reaches from nothing (it is at its limit) to what a first tuning commonly brings.
""",
    remedies=(
        Remedy(
            "Find out what limits it.",
            "ncu --set full --launch-count 3 --kernel-name regex:KERNEL python train.py",
            language="bash",
            caution="Nsight Compute runs each kernel many times: use few launches.",
        ),
        Remedy(
            "CUDA C++: neighbouring threads read neighbouring addresses; what is read twice stays in shared memory.",
            "int i = blockIdx.x * blockDim.x + threadIdx.x;  // fastest index along x\nfloat v = in[row * width + i];",
            language="cpp",
        ),
        Remedy(
            "Where registers limit occupancy, tell the compiler how many threads a block has.",
            "__global__ void __launch_bounds__(256, 4) kernel(float* data)",
            language="cpp",
            caution="Fewer registers can spill to memory and make it slower: measure.",
        ),
    ),
    disproof="Nsight Compute shows the kernel near the peak of memory or arithmetic throughput: then only less work, "
    "or lower precision, helps.",
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share_fraction", 0.4, "fraction of kernel time", "Below, no single kernel decides."),
        Threshold("window_fraction", 0.2, "fraction of the window", "Below, kernels are not what takes the time."),
        Threshold("tuned_most", 2.0, "times", "What first tuning of a plain kernel commonly brings."),
        Threshold("occupancy_fraction", 0.25, "fraction of warps", "Above a quarter, occupancy is seldom the limit."),
    ),
    see_also=("small-grid", "small-blocks", "tensor-cores"),
    references={"Nsight Compute": "https://docs.nvidia.com/nsight-compute/NsightCompute/index.html"},
)
