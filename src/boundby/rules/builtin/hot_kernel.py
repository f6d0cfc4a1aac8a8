"""One kernel that takes most of the kernel time, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from boundby.evidence.context import RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.kernels import (
    Occupancy,
    attention,
    elementwise_chains,
    kernel_search,
    launches_profiled,
    limits,
    profile_command,
    profiler,
    ready_made,
    theoretical_occupancy,
)
from boundby.model.arrays import median
from boundby.model.causes import Cause
from boundby.model.scale import HALF, QUARTER
from boundby.model.units import counted, duration, percent
from boundby.rules.builtin._operations import KernelSet, small_block_rows, small_grid_rows
from boundby.rules.rule import Match, Rule
from boundby.trace.vocabulary.kernel_names import MATMULS, KernelKind, StandardWork, is_library_kernel

# Kernels of libraries and compilers are tuned already; layout conversions have a rule of their own.
_TUNED = (
    *MATMULS,
    KernelKind.ATTENTION,
    KernelKind.ATTENTION_FP32,
    KernelKind.MULTI_TENSOR,
    KernelKind.LAYOUT,
    KernelKind.FUSED,
)


def _is_others(context: RuleContext, hot: KernelSet) -> bool:
    """Whether other rules speak of most of it."""
    others = (
        small_grid_rows(context),
        small_block_rows(context),
        elementwise_chains(context).rows,
        attention(context).between,
    )
    of_others = hot.rows[np.isin(hot.rows, np.concatenate(others))]
    return int(device_work(context).duration_ns[of_others].sum()) > hot.total_ns // 2


def _check(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    kernels = KernelSet(context, np.flatnonzero(work.is_kernel))
    if len(kernels) == 0:
        return
    label, hot, versions = _hottest(kernels)
    share = hot.total_ns / max(kernels.total_ns, 1)
    name = context.trace.names[context.operations.name[hot.longest]]
    is_own, has_source = not is_library_kernel(name), name in context.trace.kernel_sources
    if share < (QUARTER if is_own else HALF):
        return
    too_short = hot.exposed_ns < QUARTER * context.window_ns
    if too_short or (not has_source and np.isin(work.kind[hot.rows], _TUNED).all()):
        return
    if _is_others(context, hot):
        return  # another rule says what is wrong with it
    # The surer end: what the trace leaves open may hide another kernel that ends as late.
    halved = context.saving_by_speed(hot.rows, 2.0, 2.0)
    if halved is not None and halved[0] < context.least_ns:
        return  # whatever it takes, something else decides how long the program runs
    saved_ns = None if halved is None else min(halved[0], hot.total_ns // 2)
    yield _match(hot, label, share, saved_ns, kernels.named(), versions)


def _hottest(kernels: KernelSet) -> tuple[str, KernelSet, int]:
    """The kernel with most time, its label, and how many kernels go by that: instantiations of a template, and wrappers
    that take what they do as an argument, are kernels of their own. The longest is the one meant, unless only all of
    them together are enough."""
    label, hot = kernels.by_label(1)[0]
    versions = hot.by_name()
    if versions[0].total_ns >= HALF * kernels.total_ns:
        return label, versions[0], 1
    return label, hot, len(versions)


def _match(hot: KernelSet, label: str, share: float, saved_ns: int | None, named: list[str], versions: int) -> Match:
    context, longest, work = hot.context, hot.longest, device_work(hot.context)
    of_window = hot.exposed_ns / max(context.window_ns, 1)
    middle_ns = round(median(hot.duration_ns))
    blocks, threads = int(work.blocks[longest]), int(work.threads[longest])
    registers, shared_bytes = int(work.registers[longest]), int(work.shared_bytes[longest])
    facts = context.trace.gpu_facts
    device = int(context.operations.device[longest])
    occupancy = theoretical_occupancy(facts[device], threads, registers, shared_bytes) if facts else None
    evidence: dict[str, object] = {
        "kernel": label,
        "name": context.trace.names[context.operations.name[longest]],
        "versions": versions,
        "count": len(hot),
        "total_ns": hot.total_ns,
        "median_ns": middle_ns,
        "share_of_summed_kernel_durations_fraction": round(share, 4),
        "share_of_window_in_the_account_fraction": round(of_window, 4),
        "saving_if_twice_as_fast_ns": saved_ns,
        "kernels": named,
    }
    grid = ""
    if blocks:
        evidence["blocks"] = blocks
        evidence["threads_per_block"] = threads
        evidence["registers_per_thread"] = registers or None
        evidence["shared_bytes_per_block"] = shared_bytes
        grid = f", {blocks:,} block{'s' if blocks > 1 else ''} of {threads:,} threads"
    reached = limits(context, hot.rows)
    seen = f"; {reached[0]}" if reached else ""
    if occupancy is not None:
        evidence["theoretical_occupancy_fraction"] = round(occupancy.fraction, 4)
        evidence["occupancy_limited_by"] = occupancy.limit
    shape = int(context.operations.shape[longest])
    if shape >= 0 and (percents := int(context.trace.shapes.occupancy_percent[shape])) >= 0:
        evidence["estimated_occupancy_fraction"] = percents / 100
    ready = ready_made(context, context.trace.names[context.operations.name[longest]])
    return hot.match(
        f"{label}{f', {versions} versions together, takes' if versions > 1 else ' takes'} {percent(share)} of kernel "
        f"time, in {counted(len(hot), 'launch', 'launches')} of {duration(middle_ns)}{grid}{seen}",
        evidence,
        None,  # how far it is from its limit cannot be seen in a timeline
        (
            *_library_advice(ready),
            *_profile_advice(hot, label),
            *_scale(context, saved_ns),
            *_occupancy_advice(context, label, occupancy),
        ),
        severity="medium" if reached or of_window >= HALF else "low",
    ).advising(
        "gpu_compute.library-kernel" if ready is not None else "",
        kernel=label,
        search=kernel_search(context, label),
        launches=launches_profiled(context, label, hot.rows),
        **(ready._asdict() if ready is not None else {}),
    )


def _library_advice(ready: StandardWork | None) -> tuple[str, ...]:
    """What a library has ready, by the name of a kernel of the program's own."""
    if ready is None:
        return ()
    return (
        f"Measure it against {ready.library} first: by its name it is {ready.what}, and the library has that ready, "
        "tuned for each GPU",
    )


def _scale(context: RuleContext, saved_ns: int | None) -> tuple[str, ...]:
    if saved_ns is None:
        return ()
    possible = f"only {profiler(context)} can tell if that is possible"
    return (f"For scale: twice as fast, it would save {duration(saved_ns)}; {possible}",)


def _occupancy_advice(context: RuleContext, label: str, occupancy: Occupancy | None) -> tuple[str, ...]:
    if occupancy is None or occupancy.fraction > QUARTER:
        return ()
    if occupancy.limit not in ("registers", "shared memory"):
        return ()
    return (
        f"{label} can hold only {percent(occupancy.fraction)} of the warps that fit ({occupancy.limit}): see with "
        f"{profiler(context)} whether latency is its limit before changing that",
    )


def _profile_advice(hot: KernelSet, label: str) -> tuple[str, ...]:
    context = hot.context
    name = context.trace.names[context.operations.name[hot.longest]]
    profile = (
        f"{profile_command(context, label, hot.rows)} shows whether memory, arithmetic or latency limits it: near the "
        "peak of one of them, only less work helps"
    )
    if (source := context.trace.kernel_sources.get(name)) is not None:
        return (f"Triton compiled it from {source}: change its blocks, warps and stages there, and measure", profile)
    if is_library_kernel(name):
        less = "It is a library's kernel: you can change the call (its shapes, layout, precision), not the kernel"
        return (less, *context.program.pick((), torch=("torch.compile may fuse it with its neighbours",)))
    return (profile,)


RULE = Rule(
    id="hot-kernel",
    title="One kernel takes most of the kernel time",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_check,
    needs=("kernels",),
)
