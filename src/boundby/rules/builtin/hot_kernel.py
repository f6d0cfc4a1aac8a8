"""One kernel that takes most of the kernel time, and what is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import TopKernel, device_work, named_top, operation_examples, place_of, top_kernels
from boundby.evidence.kernels import Occupancy, attention, elementwise_chains, theoretical_occupancy
from boundby.model.causes import Cause
from boundby.model.units import count, duration, percent
from boundby.rules.builtin.small_blocks import small_block_rows
from boundby.rules.builtin.small_grid import small_grid_rows
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.vocabulary.kernels import MATMULS, KernelKind

# Kernels of libraries and compilers are tuned already; layout conversions have a rule of their own.
_TUNED = (*MATMULS, KernelKind.ATTENTION, KernelKind.MULTI_TENSOR, KernelKind.LAYOUT, KernelKind.FUSED)


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    kernels = np.flatnonzero(work.is_kernel)
    if len(kernels) == 0:
        return
    top = top_kernels(context, kernels, 1)[0]
    exposed = int(work.exposed_ns[top.rows].sum())
    share = top.total_ns / max(int(work.duration_ns[kernels].sum()), 1)
    if share < RULE.threshold(context, "share_fraction"):
        return
    if (
        exposed < RULE.threshold(context, "window_fraction") * context.window_ns
        or np.isin(work.kind[top.rows], _TUNED).all()
    ):
        return
    told = np.concatenate(
        (
            small_grid_rows(context),
            small_block_rows(context),
            elementwise_chains(context).rows,
            attention(context).between,
        )
    )
    if int(work.duration_ns[np.intersect1d(top.rows, told)].sum()) > top.total_ns // 2:
        return  # another rule says what is wrong with it
    # The surer end: what the trace leaves open may hide another kernel that ends as late.
    halved = context.saving_by_speed(top.rows, 2.0, 2.0)
    if halved is not None and halved[0] < context.least_ns:
        return  # whatever it takes, something else decides how long the program runs
    saved = None if halved is None else min(halved[0], top.total_ns // 2)
    yield _match(context, top, share, exposed / max(context.window_ns, 1), saved)


def _match(context: RuleContext, top: TopKernel, share: float, of_window: float, saved_ns: int | None) -> Match:
    work, trace = device_work(context), context.trace
    longest = int(top.rows[np.argmax(work.duration_ns[top.rows])])
    device = int(trace.operations.device[longest])
    shape = int(work.threads[longest]), int(work.registers[longest]), int(work.shared_bytes[longest])
    occupancy = theoretical_occupancy(trace.gpu_facts[device], *shape) if trace.gpu_facts else None
    median = round(float(np.median(work.duration_ns[top.rows])))
    evidence: dict[str, object] = {
        "kernel": top.label,
        "count": len(top.rows),
        "total_ns": top.total_ns,
        "median_ns": median,
        "share_of_summed_kernel_durations_fraction": round(share, 4),
        "share_of_window_in_the_account_fraction": round(of_window, 4),
        "saving_if_twice_as_fast_ns": saved_ns,
        "kernels": named_top(context, np.flatnonzero(work.is_kernel)),
    }
    grid = ""
    if work.blocks[longest]:
        evidence["blocks"] = int(work.blocks[longest])
        evidence["threads_per_block"] = shape[0]
        evidence["registers_per_thread"] = shape[1] or None
        evidence["shared_bytes_per_block"] = shape[2]
        grid = f", {work.blocks[longest]:,} block{'s' if work.blocks[longest] > 1 else ''} of {shape[0]:,} threads"
    if occupancy is not None:
        evidence["theoretical_occupancy_fraction"] = round(occupancy.fraction, 4)
        evidence["occupancy_limited_by"] = occupancy.limit
    return Match(
        region=place_of(context, top.rows),
        title=f"{top.label} takes {percent(share)} of the sum of all kernels' durations: {count(len(top.rows))} x "
        f"{duration(median)}{grid}",
        evidence=evidence,
        saving_ns=None,  # how far it is from its limit cannot be seen in a timeline
        advice=(
            *_profile_advice(context, longest, top.label),
            *_scale_advice(saved_ns),
            *_occupancy_advice(context, top, occupancy),
        ),
        examples=operation_examples(context, top.rows),
        instances=len(top.rows),
        severity="medium" if of_window >= RULE.threshold(context, "medium_fraction") else "low",
    )


def _scale_advice(saved_ns: int | None) -> tuple[str, ...]:
    if saved_ns is None:
        return ()
    return (f"For scale: twice as fast, it would save {duration(saved_ns)}; whether it can be, only ncu tells",)


def _occupancy_advice(context: RuleContext, top: TopKernel, occupancy: Occupancy | None) -> tuple[str, ...]:
    if occupancy is None or occupancy.fraction > RULE.threshold(context, "occupancy_fraction"):
        return ()
    if occupancy.limit not in ("registers", "shared memory"):
        return ()
    return (
        f"{top.label} can hold only {percent(occupancy.fraction)} of the warps that fit ({occupancy.limit}): see in "
        "Nsight Compute whether latency is its limit before changing that",
    )


def _profile_advice(context: RuleContext, row: int, label: str) -> tuple[str, ...]:
    work, trace = device_work(context), context.trace
    name = trace.names[trace.operations.name[row]]
    plain = re.match(r"\w+", label)
    profile = (
        f"ncu --set full --launch-count 3 --kernel-name regex:{plain[0] if plain else 'KERNEL'} PROGRAM tells whether "
        "memory, arithmetic or latency limits it: near the peak of one of them, only less work helps"
    )
    if "at::native" in name:
        return (profile, "Compile the model (torch.compile), or replace the operation by one that does less")
    threads = int(work.blocks[row]) * int(work.threads[row])
    few = 0 < threads < RULE.threshold(context, "filling_threads") * int(work.multiprocessors[row])
    if few and (name.startswith("nvkernel_") or "_gpu" in name or "__omp" in name):
        return (profile, f"OpenMP and OpenACC: {threads:,} threads do not fill this GPU: collapse nested loops")
    return (profile,)


RULE = Rule(
    id="hot-kernel",
    title="One kernel takes most of the kernel time",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
    thresholds=(
        Threshold("share_fraction", 0.4, "fraction of kernel time", "Below, no single kernel decides."),
        Threshold("window_fraction", 0.2, "fraction of the window", "Below, kernels are not what takes the time."),
        Threshold("medium_fraction", 0.4, "fraction of the window", "A program that is mostly one kernel hangs on it."),
        Threshold("filling_threads", 2_048, "threads per multiprocessor", "As many as one holds at a time, at most."),
        Threshold("occupancy_fraction", 0.25, "fraction of warps", "Above a quarter, occupancy is seldom the limit."),
    ),
)
