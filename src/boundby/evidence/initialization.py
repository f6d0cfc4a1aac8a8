"""What a program does once: calls that allocate, load and initialize, and regions that are warm-up by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.correlation.correlate import FIRST_LOAD_FACTOR, FIRST_LOAD_MINIMUM_NS
from boundby.correlation.starting import COMPILERS, LEAST_STEADY, STEADY_SHARE, is_compile_call, is_compiler_process
from boundby.evidence.context import Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import device_work, kernel_name
from boundby.evidence.kernels import is_training
from boundby.model.arrays import in_order, is_any, is_in, marked, median, merged, unique
from boundby.model.causes import Cause
from boundby.model.intervals import EMPTY, IntervalSet, any_of, contains, union
from boundby.model.late import expression
from boundby.model.scale import BUSY_NS, MANY, SMALL
from boundby.model.units import count, size
from boundby.trace.stacks import StackSource, file_name
from boundby.trace.tables import OpKind
from boundby.trace.vocabulary.cuda import CallClass, is_device_wide, plain_name

# What ends the program is no steady state: what comes after so much of the kernels counts neither way.
TAIL = SMALL

# "warmup", "Warm-up Step *", "init_model", "setup": ranges that a program opens around what it does once.
WARM_NAME = expression(
    r"warm[ _-]?(?:up|ing)|^(?:init|initiali[sz](?:e|ation|ing)|set[ _-]?up|start[ _-]?up)"
    r"(?:[ _-]?(?:the )?(?:model|net|network|weights|cuda|gpu|device|context|handles?|librar(?:y|ies)))?$",
    re.IGNORECASE,
)


# ``--warmup_steps 2``, ``benchmark.warmup_iters=5``: of a program that trains it may be the learning rate's.
_WARM_OPTION = expression(r"\S*warm[-_]?up[-_\w]*[ =]([1-9]\d*)(?=\s|$)", re.IGNORECASE)


class WarmOption(Struct, frozen=True):
    """``text`` as it was given, and the ``steps`` that it asks for."""

    text: str
    steps: int


def warm_option(context: RuleContext) -> WarmOption | None:
    """The option by which the program was told to warm up; None where there is none."""
    option = None if is_training(context) else _WARM_OPTION.search(context.trace.command or "")
    return WarmOption(option[0], int(option[1])) if option else None


def rest_after_steps(context: RuleContext, steps: int) -> str:
    """The option that shows what comes after so many steps; empty where nothing shows when they end. They do where the
    host waits for a device after each, with as many kernels launched in all of them."""
    calls = context.calls
    launched = marked(calls.of_operation[device_work(context).is_kernel], len(calls))
    waits = np.flatnonzero(context.named(calls.name, is_device_wide))
    if len(unique(calls.thread[np.flatnonzero(launched)])) != 1 or not len(waits):
        return ""
    waits = waits[np.argsort(calls.start_ns[waits], kind="stable")]
    launched_ns = merged(calls.start_ns[launched])
    before = np.searchsorted(launched_ns, calls.start_ns[waits])
    launches = np.diff(before, prepend=0)
    ends = waits[launches > 0]
    is_even = len(unique(launches[launches > 0])) == 1 and before[-1] == len(launched_ns)
    return rest_from(context, int(calls.end_ns[ends[steps - 1]])) if is_even and len(ends) > steps else ""


# A forward pass alone loads no code of the backward pass, and the first backward pass adds nothing to gradients.
_WARM_TRAINING = (
    "# before the clock starts, backward pass and all\n"
    "for _ in range(3): model(sample).sum().backward()\n"
    "model.zero_grad(); torch.cuda.synchronize()"
)


def warm_up_code(context: RuleContext) -> str:
    """How a program in PyTorch that trains warms up; empty of others, whose remedy has it."""
    return _WARM_TRAINING if context.program.is_torch and is_training(context) else ""


class SetupCalls(Struct, frozen=True):
    """Rows of ``context.calls`` in the windows."""

    steady: Rows  # allocations throughout
    once: Rows  # loading, contexts, and allocations that come early only; not what compiles


@once
def setup_calls(context: RuleContext) -> SetupCalls:
    """Divide the calls of the account's `init`."""
    calls = context.calls
    rows = np.flatnonzero(is_any(calls.kind, (CallClass.ALLOC, CallClass.INIT)) | calls.is_first_load)
    # By their middle: a call may begin while the first kernel is on its way, or be the long one that launches it.
    rows = rows[context.in_windows((calls.start_ns[rows] + calls.end_ns[rows]) // 2)]
    length = context.call_ns(rows)
    compiles = context.names_where(calls.name, lambda name: is_compile_call(plain_name(name)))
    loads = (calls.kind[rows] == CallClass.INIT) | calls.is_first_load[rows]
    loads &= ~compiles[calls.name[rows]]
    allocations = np.flatnonzero(calls.kind[rows] == CallClass.ALLOC)
    extraordinary = _extraordinary(length[allocations], calls.name[rows[allocations]])
    loads[allocations[extraordinary]] = True
    allocations = allocations[~extraordinary]
    progress = progress_at(context, calls.start_ns[rows[allocations]])
    counted = progress < 1 - TAIL
    late_ns = int(length[allocations[counted & (progress >= 0.5)]].sum())
    enough = int(counted.sum()) >= LEAST_STEADY
    if enough and late_ns >= STEADY_SHARE * int(length[allocations[counted]].sum()):
        return SetupCalls(rows[allocations], rows[loads])
    loads[allocations] = True
    return SetupCalls(np.empty(0, np.intp), rows[loads])


def _extraordinary(length: Int, name: npt.NDArray[np.int32]) -> Bool:
    """Calls that take far longer than their like: they set something up besides."""
    extraordinary = np.zeros(len(length), bool)
    for number in unique(name).tolist():
        alike = name == number
        usual = float(median(length[alike]))
        extraordinary |= alike & (length > np.maximum(FIRST_LOAD_FACTOR * usual, FIRST_LOAD_MINIMUM_NS))
    return extraordinary


def progress_at(context: RuleContext, start_ns: Int) -> npt.NDArray[np.float64]:
    """How far the program had come at these instants: the share of its kernels that it had launched. By time, a program
    that loads for long and then computes would allocate for its first step in the middle."""
    if not len(start_ns):
        return np.empty(0, np.float64)
    calls = context.calls
    launches = np.flatnonzero(marked(calls.of_operation[device_work(context).is_kernel], len(calls)))
    launched_ns = calls.start_ns[launches]
    launched_ns = launched_ns[in_order(launched_ns)]
    return np.asarray(np.searchsorted(launched_ns, start_ns) / max(len(launched_ns), 1), np.float64)


def init_saving(context: RuleContext, rows: Rows, least: float) -> SavingNs:
    """What these calls taking no time would save: by replay, else at most their part of the account."""
    own = int(context.call_ns(rows).sum())  # no more than they take, whatever replay's error
    low, high = context.saving((Cause.INIT.key,), calls=rows) or (
        0,
        min(context.time_ns(Cause.INIT), context.longest_window_ns),
    )
    return round(least * min(low, own)), min(high, own)


def call_evidence(context: RuleContext, rows: Rows) -> dict[str, object]:
    """How many calls, how long, which."""
    length = context.call_ns(rows)
    return {
        "count": len(rows),
        "total_ns": int(length.sum()),
        "longest_ns": int(length.max()),
        "threads": len(unique(context.calls.thread[rows])),
        "calls": context.named_calls(rows),
    }


def call_place(context: RuleContext, rows: Rows) -> int:
    """The region in which these calls are made, weighted by their time."""
    return context.place(context.timeline.call_region[rows], np.maximum(context.call_ns(rows), 1))


@once
def warm_regions(context: RuleContext) -> Bool:
    """Mask over regions: warm-up by name, or inside one that is."""
    return context.regions_where(WARM_NAME.search)


def place_beyond_warm_up(context: RuleContext, region_of_each: npt.NDArray[np.integer], weight: Int) -> int:
    """As `RuleContext.place`; around the warm-up where more than a little of it lies after that, as measured steps pay
    for it, too. Shapes (n,) both."""
    region, tree, warm = context.place(region_of_each, weight), context.tree, warm_regions(context)
    after = ~warm[region_of_each]
    if int(weight[after].sum()) > SMALL * int(weight.sum()):
        while warm[region]:
            region = int(tree.parent[region])
    return region


def warm_share(context: RuleContext) -> tuple[float, list[str]]:
    """The fraction of the account that lies in warm-up regions, and the outermost of their names, most time first."""
    tree, warm = context.tree, warm_regions(context)
    outer = np.flatnonzero(warm & ~warm[np.maximum(tree.parent, 0)])
    time = context.figures.inclusive[outer].sum(axis=1)
    named = [tree.name[region] for region in outer[np.lexsort((outer, -time))].tolist()]
    return int(time.sum()) / max(context.window_ns, 1), list(dict.fromkeys(named))


def rest_region(context: RuleContext) -> int | None:
    """The largest region beside warm-up; None where there is none."""
    tree, warm = context.tree, warm_regions(context)
    around = tree.accumulate(warm.astype(np.int64)) > 0  # and those that hold warm-up
    time = context.figures.inclusive.sum(axis=1)
    rows = np.flatnonzero(~around & (time > 0))
    if not len(rows):
        return None
    return int(rows[np.lexsort((rows, tree.depth[rows], -time[rows]))][0])


def rest_window(context: RuleContext) -> str:
    """The option that shows it: by its name if it holds all but a little of what is launched after the warm-up, else by
    the instant; empty where nothing comes after the warm-up."""
    tree, ranges, best = context.tree, context.trace.ranges, rest_region(context)
    if best is None:
        return ""
    warm = warm_regions(context)
    is_warm, is_rest = warm[tree.of_range], tree.of_range == best
    bounds = np.array([ranges.end_ns[is_warm].max(), ranges.start_ns[is_rest].min()])
    over, begun = progress_at(context, bounds).tolist()
    inside = context.regions_where(lambda name: name == tree.name[best])[context.timeline.launch_region]
    call = context.calls.of_operation
    later = (call >= 0) & (context.calls.start_ns[call] >= bounds[0])
    others = np.count_nonzero(later & ~inside)
    if begun - over > SMALL * (1 - over) or others > SMALL * np.count_nonzero(later):
        return rest_from(context, int(bounds[0]))
    around = tree.accumulate(warm.astype(np.int64)) > 0
    same = np.array([name == tree.name[best] for name in tree.name], bool)
    name = "/".join(tree.path(best)) if bool((same & around).any()) else tree.name[best]
    return f"--window 'nvtx:{name}'"


def rest_from(context: RuleContext, host_ns: int) -> str:
    """The option that shows what comes after an instant of the host; empty where the window hardly goes on after it."""
    devices = context.timeline.devices
    if not any(device.high_ns - host_ns > SMALL * (device.high_ns - device.low_ns) for device in devices):
        return ""
    return f"--window {context.instant(host_ns, context.longest_window_ns)}:"


_LIBRARIES = {
    "cuBLAS": expression(r"cublas", re.IGNORECASE),
    "cuDNN": expression(r"cudnn", re.IGNORECASE),
    "cuSOLVER": expression(r"cusolver", re.IGNORECASE),
    "cuSPARSE": expression(r"cusparse", re.IGNORECASE),
    "cuFFT": expression(r"cufft", re.IGNORECASE),
    "cuRAND": expression(r"curand", re.IGNORECASE),
    "NVRTC": expression(r"nvrtc|nvJitLink", re.IGNORECASE),
}
_KERNELS = {
    "cuBLAS": expression(r"gemm|cutlass|gemv|cublas", re.IGNORECASE),
    "cuDNN": expression(r"cudnn|convolve|winograd|nchw", re.IGNORECASE),
    "cuFFT": expression(r"fft", re.IGNORECASE),
}


def libraries_of(context: RuleContext, intervals: IntervalSet, threads: Iterable[int]) -> list[str]:
    """Names of the libraries that start in these intervals: by samples, ranges, else the kernel launched next."""
    trace, calls, operations = context.trace, context.calls, context.operations
    threads = sorted(set(threads))
    texts: set[str] = set()
    for thread in threads:
        if trace.captured.backtraces:
            stacks = trace.backtraces.load()
            samples = stacks.rows(StackSource.SAMPLE, thread)
            within = contains(intervals, stacks.events.start_ns[samples]) >= 0
            for stack in unique(stacks.events.stack[samples][within]).tolist():
                texts |= {file_name(stacks.module(frame)) for frame in stacks.frames_of(stack).tolist()}
        within = (trace.ranges.thread == thread) & (contains(intervals, trace.ranges.start_ns) >= 0)
        texts |= {trace.names[name] for name in unique(trace.ranges.name[within]).tolist()}
    libraries = {name for name, pattern in _LIBRARIES.items() if any(pattern.search(text) for text in texts)}
    if libraries or not len(intervals.end):
        return sorted(libraries)
    kernels = np.flatnonzero((calls.of_operation >= 0) & (operations.kind == OpKind.KERNEL))
    kernels = kernels[np.argsort(calls.start_ns[calls.of_operation[kernels]], kind="stable")]
    launched_by = calls.thread[calls.of_operation[kernels]]
    for thread in threads:
        of_thread = kernels[launched_by == thread]
        following = np.searchsorted(calls.start_ns[calls.of_operation[of_thread]], intervals.end - 1)
        for row in of_thread[unique(following[following < len(of_thread)])].tolist():
            label = kernel_name(context, row)
            libraries |= {name for name, pattern in _KERNELS.items() if pattern.search(label)}
    return sorted(libraries)


# Triton's do_bench writes 256 MB between two runs of a kernel, so that it finds nothing in the cache; smaller fills are
# a program's own.
FLUSH_NS = BUSY_NS
FLUSH_BYTES = 128 << 20
# So often in a row one kernel and one fill take turns: do_bench runs each configuration dozens of times.
LEAST_FLUSHES = MANY
_FILL = expression(r"FillFunctor|memset", re.IGNORECASE)


class Compilations(Struct, frozen=True):
    """Idle pieces of devices in which the host compiles, and the calls that end them or compile themselves."""

    start_ns: Int
    end_ns: Int
    region: Int
    gaps: int  # of the devices, in which these pieces lie
    calls: Rows  # of ``context.calls``
    who: tuple[str, ...]  # the compilers, as far as names show
    processes: int  # of compilers, beside the program

    @property
    def total_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


@once
def compilations(context: RuleContext) -> Compilations:
    """All of a trace. Calls of compilers count with their own time in gaps."""
    calls, hosts = context.calls, context.timeline.host_state
    is_compiling = context.named(calls.name, lambda name: is_compile_call(plain_name(name)))
    rows: list[tuple[Int, Int, Int]] = [(np.empty(0, np.int64),) * 3]
    chosen: list[Rows] = [np.empty(0, np.intp)]
    gaps = 0
    for device in context.timeline.devices:
        parts, held = device.segments, [np.empty(0, np.int64)]
        is_init = np.flatnonzero((parts.cause == Cause.INIT) & (parts.thread >= 0))
        for thread in unique(parts.thread[is_init]).tolist():
            of_thread = is_init[parts.thread[is_init] == thread]
            own = calls.rows_of(thread)
            linking = own.start + np.flatnonzero(is_compiling[own])
            either = any_of((hosts.compiling_for(thread), union(calls.start_ns[linking], calls.end_ns[linking])))
            inside = of_thread[contains(either, parts.start_ns[of_thread]) >= 0]
            if not len(inside):
                continue
            rows.append(tuple(c[inside].astype(np.int64) for c in (parts.start_ns, parts.end_ns, parts.region)))
            ends = own.start + np.searchsorted(calls.start_ns[own], parts.start_ns[inside])
            chosen += [ends[ends < own.stop], linking]
            held.append(device.gaps.at(parts.start_ns[inside]))
        gaps += len(unique(np.concatenate(held)))
    start, end, region = (np.concatenate(column) for column in zip(*rows, strict=True))
    idle = union(start, end) if len(start) else EMPTY
    processes = sum(is_compiler_process(process.name) for process in context.trace.processes)
    return Compilations(start, end, region, gaps, unique(np.concatenate(chosen)), _who(context, idle), processes)


def _who(context: RuleContext, inside: IntervalSet) -> tuple[str, ...]:
    """Compilers by the names of ranges there; else of binaries in samples there; else of all kernels."""
    trace = context.trace
    if not len(inside.start):
        return ()
    ranges = trace.ranges
    names = unique(ranges.name[(contains(inside, ranges.start_ns) >= 0)]).tolist()
    texts = [trace.names[name] for name in names]
    if compilers := _compilers(texts):
        return compilers
    if trace.captured.backtraces:
        stacks = trace.backtraces.load()
        frames: set[str] = set()
        for stack in unique(stacks.events.stack[contains(inside, stacks.events.start_ns) >= 0]).tolist():
            frames |= {file_name(stacks.module(frame)) for frame in stacks.frames_of(stack).tolist()}
        if compilers := _compilers(sorted(frames)):
            return compilers
    return _compilers([trace.names[name] for name in unique(context.operations.name).tolist() if name >= 0])


def _compilers(texts: list[str]) -> tuple[str, ...]:
    """The first two that any text names."""
    return tuple(who for who, pattern in COMPILERS if any(map(pattern.search, texts)))[:2]


class Autotuning(Struct, frozen=True):
    """``flushes``: fills of the cache; ``rows``: these and the kernels that they take turns with, of the operations."""

    rows: Rows
    flushes: int
    kernels: tuple[str, ...]

    @property
    def is_seen(self) -> bool:
        return self.flushes >= LEAST_FLUSHES


@once
def autotuning(context: RuleContext) -> Autotuning:
    """Runs in which one large fill comes again and again, with one and the same kernel between."""
    work, table = device_work(context), context.operations
    fills = context.named(table.name, _FILL.search)
    is_fill = (fills & (table.kind == OpKind.KERNEL) & (work.duration_ns >= FLUSH_NS)) | (
        (table.kind == OpKind.MEMSET) & (table.bytes >= FLUSH_BYTES)
    )
    if np.count_nonzero(is_fill) < LEAST_FLUSHES:
        return Autotuning(np.empty(0, np.intp), 0, ())
    order = np.flatnonzero(work.in_window & is_any(table.kind, (OpKind.KERNEL, OpKind.MEMSET)))
    keys = (order, table.start_ns[order], table.stream[order], table.process[order], table.device[order])
    order = order[np.lexsort(keys)]
    flush, name, stream = is_fill[order], table.name[order], table.stream[order]
    # A turn: fill, kernel, fill, and the kernel after it has the same name.
    turn = np.zeros(len(order), bool)
    if len(order) > 3:
        alike = (name[1:-2] == name[3:]) & (stream[:-3] == stream[3:]) & (name[:-3] == name[2:-1])
        turn[:-3] = flush[:-3] & ~flush[1:-2] & flush[2:-1] & ~flush[3:] & alike
    at = np.flatnonzero(turn)
    if not len(at):
        return Autotuning(np.empty(0, np.intp), 0, ())
    runs = np.split(at, np.flatnonzero(np.diff(at) != 2) + 1)
    kept = [run for run in runs if len(run) >= LEAST_FLUSHES - 1]
    if not kept:
        return Autotuning(np.empty(0, np.intp), 0, ())
    inside = np.concatenate([np.arange(int(run[0]), int(run[-1]) + 4) for run in kept])
    tried = sorted({context.trace.names[name[run[0] + 1]] for run in kept})
    return Autotuning(np.sort(order[inside]), sum(len(run) + 1 for run in kept), tuple(tried))


class Allocated(Struct, frozen=True):
    """What some calls allocate on GPUs, and how much of it is released again."""

    times: int
    total_bytes: int
    released_bytes: int
    common_bytes: int  # the size that most of it has
    common_times: int

    def __str__(self) -> str:
        """``200 times 512 MB, all released again``."""
        what = f"{count(self.common_times)} times {size(self.common_bytes)}"
        if self.common_times < self.times:
            what += f" and {count(self.times - self.common_times)} of other sizes"
        if self.released_bytes >= self.total_bytes:
            return f"{what}, all released again"
        if not self.released_bytes:
            return f"{what}, none released again"
        return f"{what}, {size(self.released_bytes)} of {size(self.total_bytes)} released again"

    @property
    def evidence(self) -> dict[str, object]:
        """What initialization consists of, as numbers."""
        return {
            "allocations": self.times,
            "allocated_bytes": self.total_bytes,
            "released_again_bytes": self.released_bytes,
            "common_size_bytes": self.common_bytes,
        }


def allocated_in(context: RuleContext, rows: Rows) -> Allocated | None:
    """What these calls allocate, by the allocations that begin in them; None: none is on record."""
    points, calls = context.trace.memory, context.calls
    if not len(points):
        return None
    inside = np.zeros(len(points), bool)
    for thread in unique(calls.thread[rows]).tolist():
        own = rows[calls.thread[rows] == thread]
        own = own[np.argsort(calls.start_ns[own], kind="stable")]
        last = np.searchsorted(calls.start_ns[own], points.start_ns, side="right") - 1
        until = np.append(calls.end_ns[own], -1)[last]
        inside |= (points.thread == thread) & (last >= 0) & (points.start_ns <= until) & (points.device >= 0)
    taken = np.flatnonzero(inside & (points.delta > 0))
    if not len(taken):
        return None
    total = int(points.delta[taken].sum())
    later = points.start_ns > points.start_ns[taken].min()
    released = (points.delta < 0) & later & is_in(points.address, points.address[taken])
    sizes, times = np.unique(points.delta[taken], return_counts=True)
    best = int(np.argmax(sizes * times))
    given_back = min(total, -int(points.delta[released].sum()))
    return Allocated(len(taken), total, given_back, int(sizes[best]), int(times[best]))
