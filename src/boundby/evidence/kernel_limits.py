"""What a timeline tells of why a kernel takes its time, and the command that tells the rest."""

from __future__ import annotations

import re

import numpy as np

from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.kernels import WARP
from boundby.model.arrays import median
from boundby.model.expressions import expression
from boundby.model.scale import HALF, LIST
from boundby.model.units import count, counted, duration, percent

# A kernel in double precision says so in its types or, of a library, in its name.
_DOUBLE = expression(r"\bdouble\b|(?:^|_)(?:dgemm|dgemv|d884|zgemm)|_f64|f64f64")
# NVIDIA's cards for games and workstations compute FP64 at 1/32 of the rate of FP32 (1/64 since Ampere's GA10x).
_FEW_DOUBLES = expression(r"GeForce|RTX|GTX|Quadro (?!GP100|GV100)|\bT4\b|\bA(?:10|40|2|16)\b|\bL4(?:0S?)?\b", re.I)
# So few launches that each can be looked at; below this many there is nothing to sift.
LOOKED_AT, MANY_LAUNCHES = LIST, 50


def kernel_word(context: RuleContext, label: str) -> str:
    """What a profiler of single kernels finds this one by. Those of AMD search for it; ncu takes a whole name, or an
    expression where the label is cut."""
    found = re.search(r"\w+", label)
    plain = found[0] if found else "KERNEL"
    return f"regex:^{plain}" if label.endswith("...") and not context.trace.is_of_amd else plain


def profile_command(context: RuleContext, label: str) -> str:
    """The command that shows what limits a kernel, for its GPU's vendor."""
    kernel, program = kernel_word(context, label), context.trace.how_it_runs
    if context.trace.is_of_amd:
        return f"rocprof-compute profile -n limits -k {kernel} -- {program} (omniperf before ROCm 6.3)"
    return f"ncu --set full --launch-count 3 --kernel-name {kernel} {program}"


def profiler(context: RuleContext) -> str:
    """The profiler of single kernels, by its name."""
    return "rocprof-compute" if context.trace.is_of_amd else "ncu"


def limits(context: RuleContext, rows: Rows) -> tuple[str, ...]:
    """What launches of one kernel show by their grids, types and durations, the plainest first; empty: nothing."""
    work, table = device_work(context), context.operations
    longest = int(rows[np.argmax(work.duration_ns[rows])])
    blocks, threads = int(work.blocks[longest]), int(work.threads[longest])
    multiprocessors, found = int(work.multiprocessors[longest]), []
    if 0 < blocks * threads < WARP:
        found.append(f"it runs {counted(blocks * threads, 'thread', 'threads')} of the thousands that the GPU can hold")
    elif 0 < blocks <= HALF * multiprocessors:
        found.append(
            f"its {counted(blocks, 'block uses', 'blocks use')} {percent(blocks / multiprocessors)} of the GPU's "
            f"{multiprocessors} multiprocessors"
        )
    name, gpu = context.trace.names[table.name[longest]], context.trace.gpus[int(table.device[longest])].name
    if _DOUBLE.search(name) and _FEW_DOUBLES.search(gpu):
        found.append(f"its name says double precision, for which {gpu} has 1/32 of the FP32 units or fewer")
    length_ns = np.sort(work.duration_ns[rows].astype(np.int64))[::-1]
    few = int(np.searchsorted(np.cumsum(length_ns), HALF * length_ns.sum())) + 1
    if len(rows) >= MANY_LAUNCHES and few <= LOOKED_AT:
        found.append(
            f"{few} of its {count(len(rows))} launches hold half of its time: {duration(int(length_ns[0]))} the "
            f"longest, {duration(round(median(length_ns)))} the median"
        )
    return tuple(found)


def shape(context: RuleContext, rows: Rows) -> str:
    """``24 launches of 3.48 ms (median), 304 blocks of 256 threads``: of the longest, as far as the trace tells."""
    work = device_work(context)
    longest = int(rows[np.argmax(work.duration_ns[rows])])
    middle = duration(round(median(work.duration_ns[rows])))
    launches = f"{count(len(rows))} launches of {middle} (median)" if len(rows) > 1 else f"1 launch of {middle}"
    if not work.blocks[longest]:
        return launches
    blocks, threads = int(work.blocks[longest]), int(work.threads[longest])
    return f"{launches}, {counted(blocks, 'block', 'blocks')} of {counted(threads, 'thread', 'threads')}"
