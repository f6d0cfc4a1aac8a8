"""The rules on averages that mislead: first instances take longer, or there are too few or too different ones."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from boundby.evidence.context import CannotCheckError, Int, RuleContext, once
from boundby.evidence.host_idleness import Idleness, host_pieces
from boundby.evidence.initialization import setup_calls, warm_regions
from boundby.model.arrays import factorize, median, quantile, ranked, unique
from boundby.model.scale import HABIT, HALF, MANY, NEGLIGIBLE, QUARTER, SMALL
from boundby.model.units import count, duration, duration_range, place
from boundby.results.report import Example
from boundby.rules.builtin._telling import analyze
from boundby.rules.rule import Match, Rule
from boundby.stats.instances import instance_lengths
from boundby.structure.found import is_found
from boundby.structure.steps import SLOWER, count_warm_up
from boundby.trace.vocabulary.range_names import is_operator

# How long each instance of a repeated region took, in order of start.


class Repeated(Struct, frozen=True):
    """A region that repeats, outermost of its kind. ``warm_up`` instances come before the steady ones."""

    region: int
    start_ns: Int
    host_ns: Int  # how long the range was open
    length_ns: Int  # how long it took, see instance_lengths
    thread: int
    warm_up: int

    @property
    def steady_ns(self) -> Int:
        """Lengths after the warm-up."""
        return self.length_ns[self.warm_up :]

    def examples(self, name: str, first: int, stop: int) -> tuple[Example, ...]:
        """Instances ``first`` to ``stop`` of the region of this name, counted from 0."""
        return tuple(
            Example(int(self.start_ns[number]), int(self.length_ns[number]), f"{name}, instance {number + 1}")
            for number in range(first, stop)
        )


@once
def repeated_regions(context: RuleContext) -> list[Repeated]:
    """Regions with three instances or more that cover a part of the window worth telling, no one inside another.
    CannotCheckError without any range."""
    if not len(context.trace.ranges):
        raise CannotCheckError("the trace holds no ranges, and no iterations were found in it")
    timeline, tree, ranges = context.timeline, context.tree, context.trace.ranges
    taken = np.zeros(len(tree), bool)
    repeated = []
    for region in range(1, len(tree)):  # parents stand before their children
        if taken[tree.parent[region]]:
            taken[region] = True
            continue
        rows = np.flatnonzero((tree.of_range == region) & timeline.counted_ranges & ~ranges.is_open)
        if len(rows) < 3 or len(unique(ranges.thread[rows])) > 1:
            continue
        rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
        host = ranges.end_ns[rows] - ranges.start_ns[rows]
        length = instance_lengths(timeline, rows)
        if int(length.sum()) >= context.least_ns:
            taken[region] = True
            warm_up = count_warm_up(length, SLOWER)
            repeated.append(Repeated(region, ranges.start_ns[rows], host, length, int(ranges.thread[rows[0]]), warm_up))
    return repeated


def setup_inside(context: RuleContext, item: Repeated) -> int:
    """Time of loading and first allocations inside the warm-up instances, and of libraries that set themselves up
    there, by threads of their process."""
    calls, process = context.calls, context.trace.process_of_thread
    if not len(calls):
        return 0
    rows, pieces = setup_calls(context).once, host_pieces(context)
    idle = pieces.of_kind(Idleness.SETUP)
    start = np.concatenate((calls.start_ns[rows], pieces.start_ns[idle]))
    end = np.concatenate((calls.end_ns[rows], pieces.end_ns[idle]))
    same_process = process[np.concatenate((calls.thread[rows], pieces.thread[idle]))] == process[item.thread]
    setup_ns = 0
    for low, length in zip(item.start_ns[: item.warm_up].tolist(), item.host_ns.tolist(), strict=False):
        inside = same_process & (start >= low) & (end <= low + length)
        setup_ns += int((end - start)[inside].sum())
    return setup_ns


# So many instances of each kind of work, on average, tell a kind from an odd one.
LEAST_OF_KIND = HABIT
_FEW: tuple[str, ...] = ("Record more steps: the account is of these few, and one odd step distorts it",)
_NAMES = "Different shapes or data: give them different range names, so that each has an account of its own"
_OTHER_WORK = ("Give each kind of work a range name of its own, so that each has an account: an average tells of none",)


def _unsteady(context: RuleContext) -> Iterator[Match]:
    warm = warm_regions(context)
    for item in repeated_regions(context):
        steady = item.steady_ns
        if warm[item.region] or _is_operator(context, item):
            continue  # first calls differ from later ones: that is what a warm-up is for
        if int(steady.sum()) < QUARTER * context.longest_window_ns:
            continue
        low, middle, high = (quantile(steady, part) for part in (0.1, 0.5, 0.9))
        spread = (high - low) / max(middle, 1.0)
        if spread > HALF and _is_even_per_unit(context, item):
            continue  # they differ in size, and take equally long for each of what they carry
        if len(steady) < HABIT:
            title = f"only {count(len(steady))} instances come after warm-up, too few for an average"
            advice = _FEW
        elif spread > HALF:
            title, advice = _uneven(context, item, low, middle, high)
        else:
            continue
        yield Match(
            region=item.region,
            title=title,
            evidence={
                "instances": len(item.length_ns),
                "warm_up_instances": item.warm_up,
                "median_ns": round(middle),
                "p10_ns": round(low),
                "p90_ns": round(high),
                "spread_fraction": round(spread, 4),
            },
            saving_ns=None,
            advice=advice,
            examples=item.examples(place(context.path(item.region)), item.warm_up, len(item.length_ns)),
            severity="note",
            instances=len(steady),
        )


def _uneven(
    context: RuleContext, item: Repeated, low: float, middle: float, high: float
) -> tuple[str, tuple[str, ...]]:
    """How instances differ, and what to do about it. ``low`` and ``high``: one in ten is beyond."""
    steady = item.steady_ns
    if kinds := _kinds_of_work(context, item):
        title = (
            f"instances do {kinds} kinds of work, by their kernels: most take {duration(low)} to {duration(high)}, and "
            "instances of one kind take about equally long"
        )
        return title, _OTHER_WORK
    who = place(context.path(item.region))
    few = f"{who} takes {duration_range(int(steady.min()), int(steady.max()))}"
    tenths = f"one {who} in ten takes over {duration(high)}, one in ten under {duration(low)}"
    title = (
        f"{tenths if len(steady) >= MANY else few}{_on_host(item)} (median {duration(middle)}): an average tells little"
    )
    return title, _different(context, item)


def _on_host(item: Repeated) -> str:
    """Whose clock most instances go by; empty where their GPU work lasts longer."""
    return " on the host" if np.mean(item.steady_ns == item.host_ns[item.warm_up :]) > HALF else ""


def _is_operator(context: RuleContext, item: Repeated) -> bool:
    """Whether the instances are calls of one operator: on other shapes, for other parameters, it is other work."""
    return is_operator(context.tree.name[item.region])


def _different(context: RuleContext, item: Repeated) -> tuple[str, ...]:
    """A slow and a fast instance to look at, and names for them where the program gives names."""
    by_length = np.argsort(item.steady_ns, kind="stable") + item.warm_up
    slow, fast = (_window(context, item, int(by_length[at])) for at in (-1, len(by_length) // 10))
    look = f"Look at a slow and a fast one separately: {analyze(slow)}, then with {fast}"
    return (look,) if is_found(context.tree.domain[item.region]) else (look, _NAMES)


def _window(context: RuleContext, item: Repeated, number: int) -> str:
    start_ns, length_ns = int(item.start_ns[number]), int(item.length_ns[number])
    return f"--window {context.instant(start_ns, length_ns)}:{context.instant(start_ns + length_ns, length_ns)}"


def _is_even_per_unit(context: RuleContext, item: Repeated) -> bool:
    """Whether all steady instances carry a number (a batch size, tokens), and take as long for each of it."""
    ranges = context.trace.ranges
    rows = np.flatnonzero(
        (context.tree.of_range == item.region) & (ranges.payload > 0) & (ranges.thread == item.thread)
    )
    number = dict(zip(ranges.start_ns[rows].tolist(), ranges.payload[rows].tolist(), strict=True))
    carried = [number.get(start, 0) for start in item.start_ns[item.warm_up :].tolist()]
    if not carried or not all(carried):
        return False
    each = item.steady_ns / np.array(carried)
    low, middle, high = (quantile(each, part) for part in (0.1, 0.5, 0.9))
    return high - low <= HALF * middle


def _kinds_of_work(context: RuleContext, item: Repeated) -> int:
    """How many kinds of instances there are by the kernels and grids that they launch, if instances of one kind take
    equally long; 0 if they do not, or launch nothing."""
    table, calls = context.operations, context.calls
    rows = np.flatnonzero((calls.of_operation >= 0) & context.subtree(item.region)[context.timeline.launch_region])
    at = calls.start_ns[calls.of_operation[rows]]
    instance = np.searchsorted(item.start_ns, at, side="right") - 1
    inside = (instance >= 0) & (at < (item.start_ns + item.host_ns)[instance])
    _, token = factorize(table.name[rows[inside]], table.shape[rows[inside]])
    held = np.bincount(instance[inside], (token + 1.0) ** 2, len(item.start_ns))[item.warm_up :]
    length = item.steady_ns.astype(np.float64)
    kinds, kind = ranked(held)
    if not held.any() or LEAST_OF_KIND * len(kinds) > len(length):
        return 0
    middle = np.array([median(length[kind == number]) for number in range(len(kinds))])
    relative = length / np.maximum(middle[kind], 1)
    low, high = quantile(relative, 0.1), quantile(relative, 0.9)
    return len(kinds) if len(kinds) > 1 and high - low <= HALF else 0


UNSTEADY = Rule(
    id="unsteady",
    title="Too few or too uneven repetitions",
    group="init",
    check=_unsteady,
)


# Each third of what follows is shorter than the one before by this factor, where the work itself shrinks; a third has
# so many instances.
SHRINKS, LEAST_THIRD = 1 + SMALL, HABIT


def _warm_up(context: RuleContext) -> Iterator[Match]:
    for item in repeated_regions(context):
        if not item.warm_up or warm_regions(context)[item.region] or _is_operator(context, item) or _shrinks(item):
            continue
        first, usual = item.length_ns[: item.warm_up], float(median(item.steady_ns))
        excess = round(float(first.sum()) - usual * item.warm_up)
        least = NEGLIGIBLE * context.longest_window_ns
        if excess < least or not _is_inside(context, item):
            continue
        setup = setup_inside(context, item)
        if setup >= HALF * excess:
            continue  # lazy-initialization tells of it
        wait = context.program.pick(
            "cudaDeviceSynchronize", torch="torch.cuda.synchronize()", jax="block_until_ready()"
        )
        loading = [f"{duration(setup)} of it is loading and first allocations: see lazy-initialization"]
        who = place(context.path(item.region))
        which = f"{who} takes" if item.warm_up == 1 else f"{item.warm_up} of {who} take"
        each = duration_range(int(first.min()), int(first.max()))
        yield Match(
            region=item.region,
            title=f"the first {which} {each}, the other {count(len(item.steady_ns))} take {duration(usual)}"
            f"{_on_host(item)} (median)",
            evidence={
                "instances": len(item.length_ns),
                "warm_up_instances": item.warm_up,
                "first_ns": [int(value) for value in first[:5]],
                "later_median_ns": round(usual),
                "excess_ns": excess,
                "setup_calls_inside_ns": setup,
            },
            saving_ns=None,
            advice=(
                f"Look at the steady state: {analyze(_skip(context, item))}",
                f"When timing, run a few first, wait for the GPU ({wait}), then start the clock",
                *(loading if setup >= excess / 4 else []),
            ),
            examples=item.examples(place(context.path(item.region)), 0, item.warm_up),
            severity="note",
            instances=item.warm_up,
            facts={"rest": _skip(context, item)},
        )


def _skip(context: RuleContext, item: Repeated) -> str:
    """Options that leave these instances out; where they are not plainly the program's steps, they are named."""
    path = "/".join(context.path(item.region))
    named = "" if context.timeline.step_region == item.region else f"--window {shlex.quote(f'nvtx:{path}')} "
    return f"{named}--skip-first {item.warm_up}"


def _shrinks(item: Repeated) -> bool:
    """Whether later instances get shorter still: their work does (an elimination, a search), and none is warm-up."""
    steady = item.steady_ns.astype(np.float64)
    third = len(steady) // 3
    if third < LEAST_THIRD:
        return False
    first, middle, last = (float(median(part)) for part in (steady[:third], steady[third:-third], steady[-third:]))
    return first > SHRINKS * middle and middle > SHRINKS * last


def _is_inside(context: RuleContext, item: Repeated) -> bool:
    """Whether most of the first instances lies in the window: shares of it are not misled by what comes before."""
    low = min(device.low_ns for device in context.timeline.devices) if context.timeline.devices else 0
    start, length = item.start_ns[: item.warm_up], item.host_ns[: item.warm_up]
    inside = np.clip(start + length - np.maximum(start, low), 0, length)
    return 2 * int(inside.sum()) >= int(length.sum())


WARM_UP = Rule(
    id="warm-up",
    title="First instances are slower",
    group="init",
    check=_warm_up,
)
