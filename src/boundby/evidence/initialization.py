"""What a program does once: calls that allocate, load and initialize, and regions that are warm-up by their names."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.correlation.correlate import FIRST_LOAD_FACTOR, FIRST_LOAD_MINIMUM_NS
from boundby.correlation.starting import LEAST_STEADY, STEADY_SHARE
from boundby.evidence.context import Bool, Int, Rows, RuleContext, SavingNs, once
from boundby.evidence.device_work import device_work
from boundby.model.arrays import in_order, is_any, marked, median, unique
from boundby.model.causes import Cause
from boundby.model.expressions import expression
from boundby.model.scale import SMALL
from boundby.trace.vocabulary.compilers import is_compile_call
from boundby.trace.vocabulary.cuda import CallClass, plain_name

# What ends the program is no steady state: what comes after so much of the kernels counts neither way.
TAIL = SMALL

# "warmup", "Warm-up Step *", "init_model", "setup": ranges that a program opens around what it does once.
WARM_NAME = expression(
    r"warm[ _-]?(?:up|ing)|^(?:init|initiali[sz](?:e|ation|ing)|set[ _-]?up|start[ _-]?up)"
    r"(?:[ _-]?(?:the )?(?:model|net|network|weights|cuda|gpu|device|context|handles?|librar(?:y|ies)))?$",
    re.IGNORECASE,
)


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


def rest_window(context: RuleContext) -> str | None:
    """The value of ``--window`` that shows it."""
    tree, best = context.tree, rest_region(context)
    if best is None:
        return None
    around = tree.accumulate(warm_regions(context).astype(np.int64)) > 0
    same = np.array([name == tree.name[best] for name in tree.name], bool)
    name = "/".join(tree.path(best)) if bool((same & around).any()) else tree.name[best]
    return f"'nvtx:{name}'"
