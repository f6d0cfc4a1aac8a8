"""Kernels: runs of them that belong together (attention written out, optimizers tensor by tensor, elementwise chains),
and how many warps of one fit on a multiprocessor."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.evidence.context import Bool, Rows, RuleContext, once
from boundby.evidence.device_work import device_work, stream_order
from boundby.model.arrays import is_any, median, pick, unique
from boundby.model.late import expression
from boundby.model.scale import HABIT, HALF, LIST, MANY, QUARTER
from boundby.model.units import count, counted, duration, percent, plural
from boundby.replay.device_concurrency import MOST_BLOCKS, WARP
from boundby.trace.program import ProgramKind
from boundby.trace.tables import GpuFacts
from boundby.trace.vocabulary.kernel_names import MATMULS, KernelKind, StandardWork, is_library_kernel, standard_work

# Softmax and the matrix products on either side of it have at most so many kernels between them: scale, mask, dropout,
# dtype and layout copies, and where softmax is written out its own steps.
MOST_BETWEEN = 10
# A softmax written out takes a maximum, exponentials and a sum, a kernel or two apart.
WRITTEN_OUT = HABIT
# An update of one parameter by Adam takes at most so many elementwise kernels on either side of its addcdiv.
UPDATE_REACH = MOST_BETWEEN
# Fewer elementwise kernels in a row are no chain: two may well be unrelated.
SHORTEST_CHAIN = HABIT

BLOCK_THREADS = 256  # of a block that suits most kernels
REGISTER_UNIT = 256  # registers are given out to warps in units of this, since Kepler
SHARED_UNIT = 128  # bytes, since Ampere (256 before)
SYSTEM_SHARED = 1_024  # bytes of shared memory that CUDA keeps of each block, since Ampere

_MAXIMUM = expression(r"MaxOps|MaxNanFunctor|max_kernel_impl", re.IGNORECASE)
_EXPONENTIAL = expression(r"\bexp_kernel_cuda|ExpFunctor", re.IGNORECASE)
_BETWEEN = expression(r"dropout|elementwise_kernel_with_index|index_elementwise|triu_tril|masked_fill", re.IGNORECASE)
# What chooses between a score and minus infinity. An addition may as well be a bias for positions.
_MASK = expression(r"where|masked_(?!scale)|triu|tril_|upper_triang", re.IGNORECASE)
_ADDCDIV = expression(r"addcdiv", re.IGNORECASE)
_OPTIMIZER = expression(r"optimi[sz]er|\boptim\b|\badamw?\b|\bsgd\b|\bsgd\.step|adagrad|rmsprop|lamb\b", re.IGNORECASE)

# What only a program that trains has in its names.
_TRAINS = expression(r"backward|[wd]grad|optimi[sz]er|train|adam|sgd|multi_tensor", re.IGNORECASE)


@once
def is_training(context: RuleContext) -> bool:
    """Whether a kernel or a region has a name that only programs have which train."""
    names, used = context.trace.names, unique(context.operations.name)
    return any(
        map(_TRAINS.search, (*context.tree.name, *(names[name_id] for name_id in used.tolist() if name_id >= 0)))
    )


class Attention(Struct, frozen=True):
    """Attention written out: rows of trace.operations, one entry of ``instances`` for each softmax found."""

    between: Rows  # all kernels between the two matrix products
    products: Rows  # the matrix products
    instances: int
    forward: int  # of which are no backward pass
    is_masked: bool  # a kernel between the products chooses by a mask


@once
def attention(context: RuleContext) -> Attention:
    """Softmax between two matrix products on one stream. Ask with ``attention(context)``."""
    work, names = device_work(context), context.operations.name
    exponential = _named(context, _EXPONENTIAL)
    kind_of_name = work.kind.table
    may_begin = (kind_of_name == KernelKind.SOFTMAX) | ((kind_of_name == KernelKind.ELEMENTWISE) & exponential)
    if not may_begin.any() or not is_any(kind_of_name, MATMULS).any():
        return Attention(np.empty(0, np.intp), np.empty(0, np.intp), 0, 0, False)
    rows, follows = stream_order(context)
    name = names[rows]
    anchors = np.flatnonzero(pick(may_begin, name, False))
    kind = work.kind[rows]
    product = is_any(kind, MATMULS)
    allowed = is_any(kind, (KernelKind.ELEMENTWISE, KernelKind.REDUCTION, KernelKind.SOFTMAX))
    allowed |= pick(_named(context, _BETWEEN), name, False)
    maximum = (kind == KernelKind.REDUCTION) & pick(_named(context, _MAXIMUM), name, False)
    total = (kind == KernelKind.REDUCTION) & ~maximum
    backward = _named(context, expression("backward", re.IGNORECASE))
    inside, around, instances, forward, reached = np.zeros(len(rows), bool), np.zeros(len(rows), bool), 0, 0, -1
    for anchor in anchors.tolist():
        if anchor <= reached or (between := _between_products(anchor, follows, allowed, product)) is None:
            continue
        first, last = between
        if kind[anchor] != KernelKind.SOFTMAX and not (
            maximum[max(first, anchor - WRITTEN_OUT) : anchor].any() and total[anchor : anchor + 1 + WRITTEN_OUT].any()
        ):
            continue
        inside[first : last + 1] = True
        around[[first - 1, last + 1]] = True
        instances, reached = instances + 1, last
        forward += not bool(backward[name[first : last + 1]].any())
    is_masked = bool(pick(_named(context, _MASK), name[inside], False).any())
    return Attention(rows[inside], rows[around], instances, forward, is_masked)


def _between_products(anchor: int, follows: Bool, allowed: Bool, product: Bool) -> tuple[int, int] | None:
    """The first and the last kernel between the matrix products on either side of one; None: it does not stand between
    two. Masks over kernels in order of their streams: it ``follows`` the one before it on its own."""
    low, end = max(anchor - MOST_BETWEEN, 0), anchor + 1 + MOST_BETWEEN
    first = anchor - _leading((follows[low + 1 : anchor + 1] & allowed[low:anchor])[::-1])
    last = anchor + _leading(follows[anchor + 1 : end] & allowed[anchor + 1 : end])
    if first == 0 or last + 1 == len(follows) or not (follows[first] and follows[last + 1]):
        return None
    return (first, last) if product[first - 1] and product[last + 1] else None


def _leading(mask: Bool) -> int:
    """How many are true before the first that is not."""
    return len(mask) if mask.all() else int(mask.argmin())


@once
def optimizer_kernels(context: RuleContext) -> Rows:
    """Single-tensor kernels of an optimizer: elementwise ones launched in a range named after one, or around the
    addcdiv that ends Adam's update of each parameter."""
    of_optimizer = context.regions_where(_OPTIMIZER.search)
    of_name = (device_work(context).kind.table == KernelKind.ELEMENTWISE) & _named(context, _ADDCDIV)
    if not of_optimizer.any() and not of_name.any():
        return np.empty(0, np.intp)
    names, (rows, _) = context.operations.name, stream_order(context)
    elementwise = device_work(context).kind[rows] == KernelKind.ELEMENTWISE
    addcdiv = np.flatnonzero(pick(of_name, names[rows], False))
    around = addcdiv[:, None] + np.arange(-UPDATE_REACH, 3)
    is_optimizer = np.zeros(len(rows), bool)
    if len(addcdiv) > 1:  # one of them proves no loop over parameters
        is_optimizer[around[(around >= 0) & (around < len(rows))]] = True
    if of_optimizer.any():
        is_optimizer |= of_optimizer[context.timeline.launch_region[rows]]
    chosen: Rows = rows[is_optimizer & elementwise]
    return chosen


class Chains(Struct, frozen=True):
    """Elementwise and reduction kernels that follow each other directly on one stream."""

    rows: Rows
    chain: Rows  # which one each row is a link of


@once
def elementwise_chains(context: RuleContext) -> Chains:
    """Chains outside attention and optimizers, which have remedies of their own."""
    work, linked = device_work(context), (KernelKind.ELEMENTWISE, KernelKind.REDUCTION)
    if not len(work.kernels_of(linked)):
        return Chains(np.empty(0, np.intp), np.empty(0, np.intp))
    rows, follows = stream_order(context)
    taken = np.zeros(len(work.duration_ns), bool)
    taken[attention(context).between] = True
    taken[optimizer_kernels(context)] = True
    link = is_any(work.kind[rows], linked) & ~taken[rows]
    begins = link & ~(np.append(False, link[:-1]) & follows)
    number = np.cumsum(begins)[link] - 1
    length = np.bincount(number)
    long_enough = (length >= SHORTEST_CHAIN) & _differs(context.operations.name[rows[link]], number, len(length))
    is_kept = long_enough[number]
    return Chains(rows[link][is_kept], number[is_kept])


def _differs(name: npt.NDArray[np.integer], number: npt.NDArray[np.integer], chains: int) -> Bool:
    """Mask over chains: those of more than one kernel. One that repeats is a loop over data, which nothing fuses.
    ``name`` and ``number`` (of the chain) of each link, in order."""
    changes = (name[1:] != name[:-1]) & (number[1:] == number[:-1])
    differs: Bool = np.bincount(number[1:][changes], minlength=chains) > 0
    return differs


def _named(context: RuleContext, pattern: re.Pattern[str]) -> Bool:
    """Mask over names: in which of the kernels' the pattern is found."""
    return context.names_where(context.operations.name, pattern.search)


class Occupancy(Struct, frozen=True):
    """``fraction`` of the warps that a multiprocessor can hold; ``limit``: what stands in the way of more."""

    fraction: float
    limit: str  # "registers", "shared memory", "blocks", "nothing"


def theoretical_occupancy(facts: GpuFacts, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """The occupancy of a kernel that has blocks enough; None where the hardware or the shape is not told."""
    limits_known = (facts.warps_per_multiprocessor, facts.registers_per_multiprocessor, threads, registers)
    if not all(limits_known):
        return None
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    blocks = {
        "blocks": _most_blocks(facts.capability),
        "nothing": facts.warps_per_multiprocessor // warps,
        "registers": facts.registers_per_multiprocessor // of_warp // warps,
    }
    if shared_bytes and facts.shared_bytes_per_multiprocessor:
        unit = -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT + (SYSTEM_SHARED if facts.capability >= (8, 0) else 0)
        blocks["shared memory"] = facts.shared_bytes_per_multiprocessor // unit
    fewest = min(blocks.values())
    if fewest == 0:  # the kernel ran, so a limit is larger than told
        return None
    limit = "nothing" if blocks["nothing"] == fewest else min(name for name in blocks if blocks[name] == fewest)
    return Occupancy(min(fewest * warps / facts.warps_per_multiprocessor, 1.0), limit)


def _most_blocks(capability: tuple[int, int]) -> int:
    return {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}.get(capability, MOST_BLOCKS)


# A kernel in double precision says so in its types or, of a library, in its name.
_DOUBLE = expression(r"\bdouble\b|(?:^|_)(?:dgemm|dgemv|d884|zgemm)|_f64|f64f64")
# NVIDIA's cards for games and workstations compute FP64 at 1/32 of the rate of FP32 (1/64 since Ampere's GA10x).
_FEW_DOUBLES = expression(r"GeForce|RTX|GTX|Quadro (?!GP100|GV100)|\bT4\b|\bA(?:10|40|2|16)\b|\bL4(?:0S?)?\b", re.I)
# So few launches that each can be looked at; below this many there is nothing to sift.
LOOKED_AT, MANY_LAUNCHES = LIST, MANY


def kernel_word(label: str) -> str:
    """The kernel's name in code: without what is said of it in brackets."""
    word = re.search(r"\w+", label)
    return word[0] if word else "KERNEL"


def kernel_search(context: RuleContext, label: str) -> str:
    """What a profiler of single kernels finds this one by. Those of AMD search for a word; ncu takes a whole name, an
    expression where the label is cut, or one over template arguments where these tell kernels of one name apart."""
    word = kernel_word(label)
    if context.trace.is_of_amd:
        return word
    if label.endswith("..."):
        return f"regex:^{word}"
    inner = re.search(r"\((\w+)\)$", label)
    return f"'regex:{word}.*{inner[1]}' --kernel-name-base demangled" if inner else word


def launches_profiled(context: RuleContext, label: str, rows: Rows) -> str:
    """Options of ncu: a few launches of a kernel (``rows``: those of the window), from the one at which half of its
    time is over. The first ones of a program are seldom like the rest."""
    table, duration_ns = context.operations, device_work(context).duration_ns
    ordered = rows[np.argsort(table.start_ns[rows], kind="stable")]
    over_ns = np.cumsum(duration_ns[ordered].astype(np.int64))
    first = int(np.searchsorted(over_ns, HALF * over_ns[-1]))
    middle = int(table.start_ns[ordered[first]])
    alike = np.isin(table.name, unique(table.name[rows])) & (table.device == table.device[rows[0]])
    before = int(np.count_nonzero(alike & (table.start_ns < middle)))
    skipped = f"--launch-skip {before} " if before else ""
    return f"{skipped}--launch-count {min(HABIT, len(ordered) - first)} --kernel-name {kernel_search(context, label)}"


def profile_command(context: RuleContext, label: str, rows: Rows) -> str:
    """The command that shows what limits a kernel, for its GPU's vendor. ``rows``: its launches."""
    program = context.trace.how_it_runs
    if context.trace.is_of_amd:
        kernel = kernel_search(context, label)
        return f"rocprof-compute profile -n limits -k {kernel} -- {program} (omniperf before ROCm 6.3)"
    return f"ncu --set full {launches_profiled(context, label, rows)} {program}"


def ready_made(context: RuleContext, name: str) -> StandardWork | None:
    """What a library has ready in place of a kernel of the program's own."""
    is_own = context.program.kind == ProgramKind.CPP and not is_library_kernel(name) and not context.trace.is_of_amd
    return standard_work(name) if is_own else None


def profiler(context: RuleContext) -> str:
    """The profiler of single kernels, by its name."""
    return "rocprof-compute" if context.trace.is_of_amd else "ncu"


def is_slow_double(context: RuleContext, row: int) -> bool:
    """Whether a kernel computes in double precision, by its full name, on a GPU that is slow at it."""
    table = context.operations
    name, gpu = context.trace.names[table.name[row]], context.trace.gpus[int(table.device[row])].name
    return bool(_DOUBLE.search(name) and _FEW_DOUBLES.search(gpu))


def limits(context: RuleContext, rows: Rows) -> tuple[str, ...]:
    """What launches of one kernel show by their grids, types and durations, the plainest first; empty: nothing."""
    work = device_work(context)
    longest = int(rows[np.argmax(work.duration_ns[rows])])
    blocks, threads = int(work.blocks[longest]), int(work.threads[longest])
    multiprocessors, reasons = int(work.multiprocessors[longest]), []
    if 0 < blocks * threads < WARP:
        reasons.append(
            f"it runs {counted(blocks * threads, 'thread', 'threads')} of the thousands that the GPU can hold"
        )
    elif 0 < blocks <= HALF * multiprocessors:
        reasons.append(
            f"its {counted(blocks, 'block uses', 'blocks use')} {percent(blocks / multiprocessors)} of the GPU's "
            f"{multiprocessors} multiprocessors"
        )
    if is_slow_double(context, longest):
        gpu = context.trace.gpus[int(context.operations.device[longest])].name
        reasons.append(
            f"judging by its full name it computes in FP64, which {gpu} does at 1/32 of its FP32 speed or less"
        )
    if shrinks := _shrinks(context, rows):
        reasons.append(shrinks)
    length_ns = np.sort(work.duration_ns[rows].astype(np.int64))[::-1]
    few = int(np.searchsorted(np.cumsum(length_ns), HALF * length_ns.sum())) + 1
    if len(rows) >= MANY_LAUNCHES and few <= LOOKED_AT:
        reasons.append(
            f"{few} of its {count(len(rows))} launches hold half of its time: {duration(int(length_ns[0]))} the "
            f"longest, {duration(round(median(length_ns)))} the median"
        )
    return tuple(reasons)


def _shrinks(context: RuleContext, rows: Rows) -> str:
    """That launches take less and less time in one grid: more and more of their threads find nothing to do."""
    work = device_work(context)
    ordered = rows[np.argsort(context.operations.start_ns[rows], kind="stable")]
    blocks = unique(work.blocks[rows]).tolist()
    if len(rows) < MANY_LAUNCHES or len(blocks) > 1 or not blocks[0]:
        return ""
    parts = np.array_split(work.duration_ns[ordered], round(1 / QUARTER))
    middles = [round(median(part)) for part in parts]
    if sorted(middles, reverse=True) != middles or middles[-1] > HALF * middles[0]:
        return ""
    return (
        f"its time falls from {duration(middles[0])} to {duration(middles[-1])} while its grid stays "
        f"{blocks[0]:,} block{'s' * (blocks[0] > 1)}: launch fewer as the work shrinks"
    )


def shape(context: RuleContext, rows: Rows) -> str:
    """``24 launches of 3.48 ms (median), 304 blocks of 256 threads``: of the longest, as far as the trace tells; of a
    single one its time is told beside."""
    work = device_work(context)
    longest = int(rows[np.argmax(work.duration_ns[rows])])
    middle = duration(round(median(work.duration_ns[rows])))
    launches = f"{count(len(rows))} launches of {middle} (median)" if len(rows) > 1 else "1 launch"
    if not work.blocks[longest]:
        return launches
    blocks, threads = int(work.blocks[longest]), int(work.threads[longest])
    return f"{launches}, {counted(blocks, 'block', 'blocks')} of {plural(threads, 'thread')}"
