"""The rules on single kernels: one that takes most of the time, and what is known of it, and kernels whose launch
shape leaves the GPU empty (each rule speaks of one kind, and other rules leave them out)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from boundby.evidence.context import CannotCheckError, Rows, RuleContext
from boundby.evidence.device_work import SHORT_KERNEL_NS, device_work, kernel_name
from boundby.evidence.kernels import (
    BLOCK_THREADS,
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
from boundby.model.arrays import is_any, is_in, median, pick
from boundby.model.causes import Cause
from boundby.model.intervals import CoveredTime, union
from boundby.model.scale import HALF, QUARTER, SLIGHT, SMALL
from boundby.model.units import count, counted, duration, percent
from boundby.replay.device_concurrency import WARP
from boundby.rules.builtin._operations import (
    FEW_BLOCKS,
    KernelSet,
    alone_rows,
    distinct_shapes,
    few_block_rows,
    small_block_rows,
    small_grid_rows,
)
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.kernel_names import MATMULS, KernelKind, StandardWork, is_library_kernel, sums_over_batch

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


def _hot_kernel(context: RuleContext) -> Iterator[Match]:
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
        f"{profile_command(context, label, hot.rows)} shows whether memory, arithmetic or latency limits it. Near the "
        "peak of memory or arithmetic, only less work makes it faster"
    )
    if (source := context.trace.kernel_sources.get(name)) is not None:
        return (f"Triton compiled it from {source}: change its blocks, warps and stages there, and measure", profile)
    if is_library_kernel(name):
        less = "It is a library's kernel: you can change the call (its shapes, layout, precision), not the kernel"
        return (less, *context.program.pick((), torch=("torch.compile may fuse it with its neighbours",)))
    return (profile,)


HOT_KERNEL = Rule(
    id="hot-kernel",
    title="One kernel takes most of the kernel time",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_hot_kernel,
    needs=("kernels",),
)


def _small_blocks(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    if work.busy_kernels_ns < context.least_ns:
        return
    if not (work.is_kernel & pick(work.threads.table > 0, work.threads.number, False)).any():
        raise CannotCheckError("the trace holds no launch shapes")
    kernels = KernelSet(
        context,
        small_block_rows(context),
        lambda row: f"{kernel_name(context, row)}, {work.blocks[row]} blocks of {work.threads[row]}",
    )
    if kernels.exposed_ns < context.least_ns:
        return
    lanes = kernels.mean(work.threads[kernels.rows] / WARP)
    least, most = 1 + HALF, SMALL_BLOCKS.threshold(context, "full_most")
    blocks, threads = int(work.blocks[kernels.longest]), int(work.threads[kernels.longest])
    name = kernel_name(context, kernels.longest)
    # Wide enough for full warps, and as many blocks as there are multiprocessors where the threads suffice.
    multiprocessors = max(int(work.multiprocessors[kernels.longest]), 1)
    wide = min(max(blocks * threads // multiprocessors // WARP, 1) * WARP, BLOCK_THREADS)
    fewer = -(-blocks * threads // wide)
    yield kernels.match(
        f"{counted(len(kernels), 'kernel', 'kernels')} ({duration(kernels.total_ns)}) "
        f"{'has' if len(kernels) == 1 else 'have'} blocks smaller than a warp: {percent(1 - lanes)} of their "
        "lanes idle",
        kernels.evidence(
            threads_per_block=distinct_shapes(work.threads[kernels.rows]), lanes_used_fraction=round(lanes, 4)
        ),
        kernels.saving_by_speed(least, min(1 / lanes, most)),
        (
            f"Launch as many threads in blocks of {WARP} or more, {count(fewer)} blocks of {wide} here: {name} "
            f"launches {count(blocks)} blocks of {threads} threads",
            *context.program.pick((), python=("CuPy, Numba and Triton: block sizes that are multiples of 32",)),
        ),
    ).advising(
        code=context.program.pick(
            "",
            cpp=f"int i = blockIdx.x * blockDim.x + threadIdx.x;  // in {name}\n"
            f"{name}<<<{fewer}, {wide}>>>(...);  // now <<<{blocks}, {threads}>>>",
            numba=f"i = cuda.grid(1)  # in {name}\n{name}[{fewer}, {wide}](...)  # now [{blocks}, {threads}]",
            julia=f"i = (blockIdx().x - 1) * blockDim().x + threadIdx().x  # in {name}\n"
            f"@cuda threads={wide} blocks={fewer} {name}(...)",
        )
        if not is_library_kernel(context.trace.names[context.operations.name[kernels.longest]])
        else ""
    )


SMALL_BLOCKS = Rule(
    id="small-blocks",
    title="Blocks smaller than a warp",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_small_blocks,
    needs=("kernels",),
    thresholds=(
        Threshold("full_most", 8.0, "times", "Memory limits a kernel long before all 32 lanes of a warp count."),
    ),
)


def _small_grid(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    long_enough = np.flatnonzero(work.is_kernel & (work.duration_ns >= SHORT_KERNEL_NS))
    if int(work.exposed_ns[long_enough].sum()) < context.least_ns:
        return
    if not ((work.blocks[long_enough] > 0) & (work.multiprocessors[long_enough] > 0)).any():
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    alone = _kernels(context, small_grid_rows(context))
    few = few_block_rows(context)
    yield from _beside(context, few[~is_in(few, alone.rows)])
    if alone.exposed_ns < context.least_ns:
        return
    used = _used(alone)
    kernels = counted(len(alone), "kernel", "kernels")
    runs, it, fills = ("runs", "it", "fills") if len(alone) == 1 else ("run", "them", "fill")
    does = f"{runs} with no other kernel beside {it} and {fills}"
    copying_ns = _copying_ns(context, alone.rows)
    also = f"; copies run during {duration(copying_ns)} of it"
    beside = also if copying_ns >= HALF * alone.total_ns else ""
    yield alone.match(
        f"{kernels} ({duration(alone.total_ns)}) {does} {percent(used)} of the GPU's multiprocessors{beside}",
        alone.evidence(**_shapes(alone)),
        (0, alone.saving_by_speed(1.0, _filled(context, used) / _lanes_used(alone))[1]),
        (
            *_grid_advice(alone),
            "Where the work cannot be split, run independent kernels beside it on another stream",
        ),
        cost_ns=alone.total_ns,
    ).advising(code=_code(alone))


def _copying_ns(context: RuleContext, rows: Rows) -> int:
    """For how much of their time these kernels' devices copy as well."""
    work, table = device_work(context), context.operations
    inside_ns = 0
    for device, kernels in KernelSet(context, rows).per_device():
        copies = np.flatnonzero(work.in_window & (table.kind >= OpKind.MEMCPY) & (table.device == device))
        busy = CoveredTime(union(table.start_ns[copies], table.end_ns[copies]))
        inside_ns += int(busy.within(table.start_ns[kernels], table.end_ns[kernels]).sum())
    return inside_ns


def _beside(context: RuleContext, rows: Rows) -> Iterator[Match]:
    """Single kernels of few blocks that take long although others run beside them: what else runs hides them, and as
    soon as that is shorter, they are what the program waits for."""
    work = device_work(context)
    least_ns = SMALL * context.longest_window_ns
    beside = _kernels(context, rows[work.duration_ns[rows] >= least_ns])
    if len(beside) == 0:
        return
    most = _filled(context, _used(beside))
    saved = context.saving_by_speed(beside.rows, most, most)
    few = "1 block" if work.blocks[beside.rows].max() == 1 else "few blocks"
    yield beside.match(
        f"{counted(len(beside), f'kernel of {few} takes', f'kernels of {few} take')} {duration(beside.total_ns)} "
        f"beside other kernels: {', '.join(beside.named(3))}",
        {
            "count": len(beside),
            "total_ns": beside.total_ns,
            **_shapes(beside),
            "kernels": beside.named(),
            f"saving_if_{round(most)}_times_as_fast_ns": None if saved is None else min(saved[0], beside.total_ns),
        },
        None,  # what runs beside them hides it, or some of it
        (
            *_grid_advice(beside),
            "What runs beside them hides them now: it must get shorter too before the program does",
        ),
        severity="low",
    ).advising(code=_code(beside))


_COMPILED = "model = torch.compile(model)"


def _grid_advice(kernels: KernelSet) -> tuple[str, ...]:
    """What to do about those with most time: a kernel of a library is not the user's to rewrite, its call is."""
    context, launches, row = kernels.context, _launched(kernels), _costliest(kernels)
    name = context.trace.names[context.operations.name[row]]
    if not is_library_kernel(name):
        work = device_work(context)
        if int(work.blocks[row]) * int(work.threads[row]) < WARP:
            return (f"Let each thread take one element, and launch a thread for each: {launches}",)
        return (f"Launch more blocks, each with less of the work, at least two for each multiprocessor: {launches}",)
    if sums_over_batch(name):
        other = context.program.pick(
            "Use another kernel for it",
            torch="Try torch.compile, whose kernel for it can split the sum over more blocks",
        )
        return (
            f"{other}: {launches}. It is a library's, and sums over the batch for each feature, so that a larger batch "
            "brings no more blocks",
        )
    more = context.program.pick(
        "a larger batch, or batched calls",
        torch="a larger batch, or batched calls (torch.bmm, torch.stack, vmap) instead of a loop over samples",
    )
    return (f"Give it more work in one call, by {more}: {launches}. It is a library's kernel",)


def _code(kernels: KernelSet) -> str:
    """A launch that fills the GPU, and the loop that is right with any, where the kernel is the program's own."""
    work, row = device_work(kernels.context), _costliest(kernels)
    name = kernels.context.trace.names[kernels.context.operations.name[row]]
    if is_library_kernel(name):
        return kernels.context.program.pick("", torch=_COMPILED) if sums_over_batch(name) else ""
    threads = min(int(work.threads[row]), BLOCK_THREADS) if work.threads[row] >= WARP else BLOCK_THREADS
    called = kernel_name(kernels.context, row).partition(" ")[0]
    grid, now = f"(n + {threads - 1}) / {threads}", f"{int(work.blocks[row])}, {int(work.threads[row])}"
    return kernels.context.program.pick(
        "",
        cpp=f"// in {called}, over all n elements:\n"
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "for (; i < n; i += blockDim.x * gridDim.x) { ... }\n"
        f"{called}<<<{grid}, {threads}>>>(...);  // now <<<{now}>>>",
        numba=f"for i in range(cuda.grid(1), n, cuda.gridsize(1)): ...  # in {called}\n"
        f"{called}[{grid.replace('/', '//')}, {threads}](...)  # n elements; now [{now}]",
        julia=f"# in {called}, over all n elements:\n"
        "for i = (blockIdx().x - 1) * blockDim().x + threadIdx().x:blockDim().x * gridDim().x:n; ...; end\n"
        f"@cuda threads={threads} blocks=cld(n, {threads}) {called}(...)  # now {now}",
        openmp="#pragma omp target teams loop collapse(2)  // more iterations for the GPU to share",
        directives="#pragma acc parallel loop gang vector collapse(2)  // more iterations for the GPU to share",
    )


def _costliest(kernels: KernelSet) -> int:
    """The longest of those that take most time together."""
    return kernels.by_label(1)[0][1].longest


def _kernels(context: RuleContext, rows: Rows) -> KernelSet:
    """These kernels; as examples with their shape."""
    work = device_work(context)
    return KernelSet(
        context, rows, lambda row: f"{kernel_name(context, row)}, {_blocks(work.blocks[row])} of {work.threads[row]}"
    )


def _used(kernels: KernelSet) -> float:
    """The part of the multiprocessors that has a block."""
    work = device_work(kernels.context)
    return kernels.mean(work.blocks[kernels.rows] / work.multiprocessors[kernels.rows])


def _filled(context: RuleContext, used: float) -> float:
    """How many times as fast they would run on all multiprocessors, at most."""
    return min(1 / used, SMALL_GRID.threshold(context, "filled_most"))


def _lanes_used(kernels: KernelSet) -> float:
    """The part of a warp that works, where blocks are smaller than one."""
    threads = device_work(kernels.context).threads[kernels.rows]
    return kernels.mean(np.where(threads > 0, np.minimum(threads, WARP), WARP) / WARP)  # 0: not told


def _shapes(kernels: KernelSet) -> dict[str, object]:
    """Their grids, for evidence."""
    work = device_work(kernels.context)
    return {
        "blocks": distinct_shapes(work.blocks[kernels.rows]),
        "multiprocessors": int(work.multiprocessors[_costliest(kernels)]),
        "multiprocessors_used_fraction": round(_used(kernels), 4),
    }


def _launched(kernels: KernelSet) -> str:
    """``the kernel gemm has 4 blocks of 1,024 threads for 108 multiprocessors``: the costliest."""
    work, row = device_work(kernels.context), _costliest(kernels)
    return (
        f"the kernel {kernel_name(kernels.context, row)} has {_blocks(work.blocks[row])} of "
        f"{_threads(work.threads[row])} for "
        f"{work.multiprocessors[row]} multiprocessors"
    )


def _blocks(number: int) -> str:
    return "1 block" if number == 1 else f"{number:,} blocks"


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number:,} threads"


SMALL_GRID = Rule(
    id="small-grid",
    title="Long kernels use few of the multiprocessors",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_small_grid,
    needs=("kernels",),
    thresholds=(Threshold("filled_most", 8.0, "times", "Work that fits in few blocks seldom splits into a hundred."),),
)


# A library's kernels that arithmetic limits; its others wait for memory, which a last turn leaves busy.
_ARITHMETIC = (*MATMULS, KernelKind.ATTENTION, KernelKind.ATTENTION_FP32)


def _tail_wave(context: RuleContext) -> Iterator[Match]:
    work = device_work(context)
    rows = np.flatnonzero(work.is_kernel & (work.duration_ns >= SHORT_KERNEL_NS))
    if int(work.exposed_ns[rows].sum()) < context.least_ns:
        return
    rows = rows[(work.blocks[rows] > 0) & (work.multiprocessors[rows] > 0)]
    if not len(rows):
        raise CannotCheckError("the trace holds no launch shapes, or not how many multiprocessors the GPU has")
    rows = rows[work.blocks[rows] > FEW_BLOCKS * work.multiprocessors[rows]]
    rows = rows[_idle(context, rows) >= QUARTER]
    rows = alone_rows(context, rows[_is_arithmetic(context, rows)])
    idle = _idle(context, rows)
    lost_ns = float((work.exposed_ns[rows] * idle).sum())
    if lost_ns < max(context.least_ns, SLIGHT * context.longest_window_ns):
        return
    kernels = KernelSet(context, rows, lambda row: f"{kernel_name(context, row)}, {work.blocks[row]:,} blocks")
    part = kernels.mean(idle)
    yield kernels.match(
        f"{counted(len(kernels), 'kernel', 'kernels')} ({duration(kernels.total_ns)}): the last turn of "
        f"blocks fills part of the GPU, and {percent(part)} of the multiprocessors' time is left idle",
        kernels.evidence(
            blocks=distinct_shapes(work.blocks[rows]),
            multiprocessors=int(work.multiprocessors[kernels.longest]),
            idle_fraction=round(part, 4),
            **_occupancy(context, kernels.longest),
        ),
        (0, kernels.saving_by_speed(1.0, 1 / (1 - part))[1]),
        _tail_advice(kernels),
        cost_ns=round(float((work.duration_ns[rows] * idle).sum())),
    )


def _idle(context: RuleContext, rows: Rows) -> npt.NDArray[np.float64]:
    """The part of the multiprocessors' time in which they have no block, if all blocks take equally long."""
    work = device_work(context)
    blocks, multiprocessors = work.blocks[rows].astype(np.float64), work.multiprocessors[rows].astype(np.float64)
    return 1 - blocks / (multiprocessors * np.ceil(blocks / multiprocessors))


def _is_arithmetic(context: RuleContext, rows: Rows) -> npt.NDArray[np.bool_]:
    """Kernels of the program's own, and of a library's those that arithmetic limits."""
    names = context.operations.name[rows]
    own = ~context.named(names, is_library_kernel)
    kind = device_work(context).kind[rows]
    chosen: npt.NDArray[np.bool_] = is_any(kind, _ARITHMETIC) | (own & (kind == KernelKind.OTHER))
    return chosen


def _occupancy(context: RuleContext, row: int) -> dict[str, object]:
    """How many blocks of a kernel a multiprocessor holds at a time, and how many waves its grid is, where told."""
    work, facts = device_work(context), context.trace.gpu_facts
    if not facts:
        return {}
    hardware, threads = facts[int(context.operations.device[row])], int(work.threads[row])
    occupancy = theoretical_occupancy(hardware, threads, int(work.registers[row]), int(work.shared_bytes[row]))
    if occupancy is None:
        return {}
    resident = max(round(occupancy.fraction * hardware.warps_per_multiprocessor / max(-(-threads // WARP), 1)), 1)
    return {
        "theoretical_occupancy_fraction": round(occupancy.fraction, 4),
        "blocks_resident_per_multiprocessor": resident,
        "waves": round(int(work.blocks[row]) / (resident * int(work.multiprocessors[row])), 2),
    }


def _tail_advice(kernels: KernelSet) -> tuple[str, ...]:
    context, row, work = kernels.context, kernels.longest, device_work(kernels.context)
    blocks, count = int(work.blocks[row]), int(work.multiprocessors[row])
    turns, rest = -(-blocks // count), blocks % count
    what = f"{kernel_name(context, row)} launches {blocks:,} blocks on {count} multiprocessors, of which " + (
        f"{count - blocks} have none" if turns == 1 else f"{rest} have a block in turn {turns}"
    )
    if is_library_kernel(context.trace.names[context.operations.name[row]]):
        sizes = f"sizes (batch, sequence, width) that make {(turns - 1) * count or count:,} or {turns * count:,} blocks"
        return (
            f"Choose {sizes}, which waste nothing: {what}. The kernel is a library's, whose tiles follow from "
            "the shapes",
            *context.program.pick((), torch=('torch.compile(mode="max-autotune") tries other tiles for each shape',)),
        )
    return (
        f"Launch as many blocks as fit at once (cudaOccupancyMaxActiveBlocksPerMultiprocessor times {count}) and let "
        f"each take several pieces in a loop, or cut the work into several times as many, smaller blocks: {what}",
    )


TAIL_WAVE = Rule(
    id="tail-wave",
    title="The last wave of blocks fills part of the GPU",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_tail_wave,
    needs=("kernels",),
)
