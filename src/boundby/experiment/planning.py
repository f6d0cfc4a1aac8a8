"""From what a program showed while it warmed up to a plan: its steps, its parts, which blocks to run; and from the
blocks that were noted to paces and differences of neighbours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from boundby.measure import sampling
from boundby.model.errors import UserError
from boundby.model.late import expression
from boundby.model.scale import DISPATCH_NS, HALF, NOTABLE, QUARTER
from boundby.model.statistics import CONFIDENCE, FEWEST, student_tail
from boundby.results import write

#: Delays as shares of a step: beyond a quarter bias rules, not noise (docs/prove.md).
LARGE, SMALL = QUARTER, QUARTER / 2
#: A block counts at least so many steps, and a batch of every worker.
LEAST_STEPS = FEWEST
#: A block lasts so long, if as many steps are not asked for: a shorter one is lost to a single turn of another program.
BLOCK_NS = sampling.MIN_SAMPLING_NS
#: Two rounds give each condition four differences of neighbouring blocks, three give six.
ROUNDS, MOST_ROUNDS = 2, 4
#: A step that takes less cannot be delayed by a quarter: sleeps are that inexact.
SHORTEST_NS = DISPATCH_NS
#: A warm-up that is not steady after so many steps, or so long, goes on no longer.
MOST_WARM_UP, LONGEST_WARM_UP_NS = 300, 20_000_000_000
_STEP_NAME = expression(r"(?:^|[ _/-])(?:step|iteration|iter|batch)(?:$|[ _/#*-])", 2)
_NVTX = "nvtx:"
_TOLD = ("annotate.steps", "ProfilerStep")
_LOOPS = ("optimizer", "loader")
MARK = "Mark them: for batch in boundby.annotate.steps(loader), or with nvtx.annotate('step'): around each."


class ExperimentError(UserError):
    """A program on which no experiment can be made."""


class PlannedFeed(Struct, frozen=True):
    """The program's loader: ``main`` (the steps' own thread), ``workers`` or ``thread``."""

    kind: str
    workers: int = 0
    prefetch: int = 0

    @property
    def each(self) -> int:
        """Batches that are loaded at the same time."""
        return max(self.workers, 1)


class FoundParts(Struct, frozen=True):
    """What a program showed while it warmed up."""

    source: str
    step_ns: int
    feed: PlannedFeed | None
    device: str | None
    places: tuple[str, ...]
    ranks: int
    warm_up_steps: int
    is_steady: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """What can be delayed."""
        return (HOST, *((INPUT,) if self.feed else ()), *((DEVICE,) if self.device else ()))


class BlockPlan(Struct, frozen=True):
    """The blocks to run, and how long that takes."""

    found: FoundParts
    place: str
    blocks: tuple[Condition, ...]
    drop: int
    count: int

    @property
    def steps(self) -> int:
        """Steps that are counted."""
        return len(self.blocks) * self.count

    @property
    def all_steps(self) -> int:
        """With those that fill and drain queues."""
        feed = self.found.feed
        drain = feed.workers * max(feed.prefetch, 1) if feed else 0
        return len(self.blocks) * (self.count + self.drop + drain)

    @property
    def time_ns(self) -> int:
        """About how long it takes."""
        shares = [1 + block.share * len(block.delayed) for block in self.blocks]
        return round(self.all_steps * self.found.step_ns * float(np.mean(shares)))

    def shares(self, block: Condition) -> dict[str, float]:
        """By what share of a step each part is delayed where it happens: a step, or a batch of one worker."""
        each = {INPUT: self.found.feed.each if self.found.feed else 1}
        return {part: block.share * each.get(part, 1) for part in block.delayed}

    def to_dict(self) -> dict[str, Any]:
        """For the program's process."""
        return {
            "source": self.found.source,
            "place": self.place,
            "step_ns": self.found.step_ns,
            "drop": self.drop,
            "count": self.count,
            "each": self.found.feed.each if self.found.feed else 1,
            "blocks": [{"shares": self.shares(block), "remedy": block.remedy} for block in self.blocks],
        }


def _feed_of(told: Mapping[str, Any], source: str) -> PlannedFeed | None:
    """The loader of the steps that this source marks; None: there is none."""
    feed = told["feed"]
    if not feed:
        return None
    if feed["kind"] == "workers":
        return PlannedFeed("workers", feed["workers"], feed["prefetch"])
    return PlannedFeed("thread" if told["feed_is_apart"].get(source) else "main", feed["workers"], feed["prefetch"])


def look(told: Mapping[str, Any], *, named: str | None = None) -> FoundParts | None:
    """What the program shows so far; None: too little to tell. ``named``: the range that is the step."""
    times = {source: ticks for source, ticks in told["times"].items() if len(ticks) > 2}
    source = _steps_of(times, named)
    if source is None:
        return None
    spans = [after - before for before, after in pairwise(times[source])]
    settled = sampling.steady_from(spans)
    too_long = len(spans) >= MOST_WARM_UP or sum(spans) > LONGEST_WARM_UP_NS
    if settled is None and not (too_long and len(spans) >= sampling.MIN_STEADY):
        return None
    if len(spans) < sampling.MIN_STEADY:
        return None
    first = settled if settled is not None else len(spans) // 2
    return FoundParts(
        source,
        round(float(np.median(spans[first:]))),
        _feed_of(told, source),
        told["device"],
        tuple(told["places"]),
        int(told["ranks"]),
        len(spans),
        settled is not None,
    )


def _steps_of(times: Mapping[str, Sequence[int]], named: str | None) -> str | None:
    """What marks the steps: the program's own word first, then its optimizer, loader, then what repeats outermost."""
    ranges = {source: source.split(":", 2) for source in times if source.startswith(_NVTX)}
    if named is not None:
        wanted = [source for source, (_, _, name) in ranges.items() if name in (named, _folded(named))]
        return min(wanted, default=None)
    said = [source for source in _TOLD if source in times]
    said += sorted(
        (source for source, (_, _, name) in ranges.items() if _STEP_NAME.search(name)),
        key=lambda source: (int(ranges[source][1]), -len(times[source])),
    )
    said += [source for source in _LOOPS if source in times]
    said += sorted(ranges, key=lambda source: (int(ranges[source][1]), -len(times[source])))
    return said[0] if said else None


_DIGITS = expression(r"\d+")


def _folded(name: str) -> str:
    return _DIGITS.sub("*", name)


def plan(
    found: FoundParts,
    steps: int | None,
    *,
    place: str = "begin",
    removals: Sequence[str] = (),
    without_delays: bool = False,
) -> BlockPlan:
    """Which blocks to run in some ``steps`` (None: as many as make a good answer).

    Raises:
        ExperimentError: there cannot be an experiment.
    """
    check(found, place)
    each = found.feed.each if found.feed else 1
    drop = max(2, 2 * each)
    least = LEAST_STEPS if steps is not None else max(LEAST_STEPS, BLOCK_NS // found.step_ns)
    count = -(-least // each) * each
    if without_delays:
        return BlockPlan(found, place, (BASE,) * FEWEST, drop, count)
    both = conditions(found.parts, (SMALL, LARGE), removals)
    large = conditions(found.parts, (LARGE,), removals)
    if steps is None:
        steps = count * (1 + 3 * ROUNDS * len(both)) if len(found.parts) > 1 else 20 * count
    blocks = steps // count
    wanted = both if rounds_within(blocks, len(both)) >= ROUNDS else large
    rounds = min(rounds_within(blocks, len(wanted)), MOST_ROUNDS)
    if rounds < 1:
        least = count * (1 + 3 * len(large))
        raise ExperimentError(
            f"{steps} steps are too few: {len(large) + 1} kinds of blocks are needed, each of {count} steps.",
            f"Give at least --steps {least}, better {count * (1 + 3 * ROUNDS * len(large))}.",
        )
    ordered = order(wanted, rounds)
    return BlockPlan(found, place, ordered, drop, max(count, steps // len(ordered) // each * each))


def check(found: FoundParts, place: str) -> None:
    """Refuse what cannot be told."""
    if found.ranks > 1:
        raise ExperimentError(
            f"This is one of {found.ranks} ranks of a job: a delay here would hold up the others.",
            "Run the program on one rank (without torchrun), or look at the job: boundby job.",
        )
    if found.step_ns < SHORTEST_NS:
        raise ExperimentError(
            f"A step takes {found.step_ns / 1000:.0f} us: too short to delay a part of it by a quarter.",
            "Mark larger steps: several of these in one range.",
        )
    if place not in found.places:
        raise ExperimentError(
            f"The host cannot be delayed at {place!r} in a step of this program.",
            f"It can be at: {', '.join(found.places)}.",
        )


def nothing_found(told: Mapping[str, Any] | None) -> ExperimentError:
    """Why there is no experiment on a program that has ended."""
    if told is None or not told["times"]:
        return ExperimentError("The program showed no steps.", MARK)
    most = max(len(ticks) for ticks in told["times"].values())
    return ExperimentError(
        f"The program ended after {most} steps, before it had warmed up.",
        "Let it run for more steps, or fewer with --steps.",
    )


def make_folder_ready(folder: Path, plan_: BlockPlan) -> None:
    """Tell the program's process."""
    write.write_text(folder / "plan", json.dumps(plan_.to_dict()))


# Which parts of a program are delayed in which blocks of steps, in which order.
#
# A part is ``host`` (at one place of the step), ``input`` or ``device``. A condition delays some of them, by the same
# time each. All subsets are tried: two conditions for one part, four for two, eight for three; with two sizes of
# delay, so that a bend of the pace shows.

HOST, INPUT, DEVICE = PARTS = ("host", "input", "device")
NONE: tuple[str, ...] = ()


class Condition(NamedTuple):
    """The parts that are delayed, and by what share of a step; of a removal the remedy's id."""

    delayed: tuple[str, ...] = NONE
    share: float = 0.0
    remedy: str = ""


BASE = Condition()


def subsets(parts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """All but the empty one, in the order of `PARTS`, small ones first."""
    ordered = [part for part in PARTS if part in parts]
    return tuple(chosen for size in range(1, len(ordered) + 1) for chosen in combinations(ordered, size))


def conditions(parts: Sequence[str], shares: Sequence[float], remedies: Sequence[str] = ()) -> tuple[Condition, ...]:
    """All but the one without a delay: every subset of the parts with every size of delay, and every removal."""
    delays = [Condition(chosen, share) for share in shares for chosen in subsets(parts)]
    return (*delays, *(Condition(remedy=remedy) for remedy in remedies))


def order(wanted: Sequence[Condition], rounds: int) -> tuple[Condition, ...]:
    """Blocks in order: ``A B B A C C A ...``, in every other round backwards.

    Each block with a delay has a neighbour without one, once before and once after it, so that a drift of the machine
    that is even over four blocks cancels out; neighbouring conditions share the block between them.
    """
    blocks = [BASE]
    for number in range(rounds):
        for condition in wanted if number % 2 == 0 else reversed(wanted):
            blocks += [condition, condition, BASE]
    return tuple(blocks)


def rounds_within(blocks: int, wanted: int) -> int:
    """How many rounds of ``wanted`` conditions so many blocks hold."""
    return max(0, (blocks - 1) // (3 * wanted))


Float = NDArray[np.float64]


class Block(Struct, frozen=True):
    """One block of steps: its condition, the time of a step, and what happened in it, a step."""

    condition: Condition
    pace_ns: float
    steps: int
    spans_ns: tuple[float, ...]
    delay_ns: Mapping[str, float]
    core_wait_ns: Mapping[str, float]
    """How long each part could run and had no core: a delay that the machine made."""
    wait_ns: float
    """For a batch."""
    asleep_ns: float
    """How long the steps' thread slept elsewhere."""
    fetch_ns: float | None
    """Of one batch, where it is fetched, without waits for a core; None: none was."""


class Difference(Struct, frozen=True):
    """How much longer a step takes under a condition than in the blocks beside it."""

    condition: Condition
    blocks: int
    delay_ns: Mapping[str, float]
    core_wait_ns: Mapping[str, float]
    beside_core_wait_ns: Mapping[str, float]
    """``core_wait_ns`` of the blocks beside it."""
    longer_ns: float
    """As it ran."""
    value_ns: float
    """Without the waits for a core that lengthen a step."""
    error_ns: float
    freedom: int

    @property
    def margin_ns(self) -> float:
        """Half the width of the interval."""
        return self.error_ns * student_quantile(self.freedom)


class Paces(Struct, frozen=True):
    """All of an experiment."""

    step_ns: float
    error_ns: float
    freedom: int
    base: tuple[Block, ...]
    differences: tuple[Difference, ...]
    spans_ns: tuple[float, ...]
    """Single steps without a delay."""
    core_wait_ns: Mapping[str, float]
    """Without a delay."""
    free_ns: tuple[float, ...]
    """A step in each of these blocks, had every part a core whenever it could run."""


def read_block(told: Mapping[str, Any], condition: Condition, each: int) -> Block | None:
    """A block as the program's process noted it; None: nothing in it counts. ``each``: batches that arrive together."""
    stretches = [
        _in_turns(ends, steps, each) for ends, steps in zip(told["stretches"], told["stretch_steps"], strict=True)
    ]
    turns = np.concatenate(stretches) if stretches else np.empty((0, 5))
    if not len(turns):
        return None
    spans = [np.diff(np.asarray(ends, dtype=np.float64)) for ends in told["stretches"]]
    pace, host_delay, wait, host_core_wait, asleep = (float(mean) for mean in turns[middle(turns[:, 0])].mean(axis=0))
    batches = np.asarray(told["batches"] or np.zeros((1, 4)), dtype=np.float64)
    fetch, fetch_core_wait, core_wait_before, input_delay = batches[middle(batches.sum(axis=1))].mean(axis=0)
    delays = {
        HOST: host_delay,
        INPUT: float(input_delay) / each,
        DEVICE: middle_mean(told["device_delays_ns"] or [0.0]),
    }
    core_waits = {HOST: host_core_wait, INPUT: float(fetch_core_wait + core_wait_before) / each}
    return Block(
        condition,
        pace,
        sum(map(len, spans)),
        tuple(np.concatenate(spans)),
        {part: delays[part] for part in condition.delayed},
        core_waits,
        wait,
        asleep,
        float(fetch - fetch_core_wait) if told["batches"] else None,
    )


def _in_turns(ends: Sequence[float], steps: Sequence[Sequence[float]], each: int) -> Float:
    """Means of steps whose batches arrive together: the span, and what else was noted of each."""
    noted = np.column_stack([np.diff(np.asarray(ends, dtype=np.float64)), np.asarray(steps, dtype=np.float64)])
    means: Float = noted[: len(noted) // each * each].reshape(-1, each, noted.shape[1]).mean(axis=1)
    return means


def middle(values: Float | Sequence[float]) -> NDArray[np.int64]:
    """Which are the middle half: a step that was held up counts for nothing, two kinds of steps by their shares."""
    ordered = np.argsort(values, kind="stable")
    left_out = int(len(ordered) * QUARTER)
    return ordered[left_out : len(ordered) - left_out]


def middle_mean(values: Float | Sequence[float]) -> float:
    """The mean of the middle half."""
    return float(np.asarray(values, dtype=np.float64)[middle(values)].mean())


def compare(blocks: Sequence[Block | None]) -> Paces:
    """Each block with a condition against the one without beside it; errors are how these differences scatter, beyond
    what waits for a core explain.
    """
    base = tuple(block for block in blocks if block is not None and block.condition == BASE)
    by_condition: dict[Condition, list[tuple[Block, Block]]] = {}
    for at, block in enumerate(blocks):
        if block is None or block.condition == BASE:
            continue
        beside = _beside(blocks, at)
        if beside is not None:
            by_condition.setdefault(block.condition, []).append((block, beside))
    pairs_of_each = [*by_condition.values()]
    counting = _counting(pairs_of_each)
    typical = _typical(pairs_of_each, counting)
    differences = [_difference(pairs, counting, typical) for pairs in pairs_of_each]
    paces = [block.pace_ns for block in base]
    free = [_free(block, counting) for block in base]
    level = middle_mean(paces) if paces else 0.0
    error = float(np.std(free, ddof=1)) / len(paces) ** 0.5 if len(paces) > 1 else NOTABLE * level
    return Paces(
        level,
        error,
        max(len(paces) - 1, 1),
        base,
        tuple(differences),
        tuple(span for block in base for span in block.spans_ns),
        _means([base[at].core_wait_ns for at in middle(paces)]),
        tuple(free),
    )


#: Blocks under one condition, each with the one without a delay beside it.
Pairs = Sequence[tuple[Block, Block]]


def _counting(pairs_of_each: Sequence[Pairs]) -> tuple[str, ...]:
    """The parts whose waits for a core lengthen a step by as much: those that leave least unexplained.

    What a part waits for a core is a delay that the machine made: all of it shows in the pace, or it is hidden.
    """
    parts = sorted({part for pairs in pairs_of_each for block, _ in pairs for part in block.core_wait_ns})
    choices = [chosen for size in range(len(parts) + 1) for chosen in combinations(parts, size)]
    return min(choices, key=lambda chosen: _typical(pairs_of_each, chosen))


def _typical(pairs_of_each: Sequence[Pairs], counting: Sequence[str]) -> float:
    """The variance of differences within a condition, of the one in the middle."""
    each = [np.var([_longer(pair, counting) for pair in pairs], ddof=1) for pairs in pairs_of_each if len(pairs) > 1]
    return float(np.median(each)) if each else 0.0


def _free(block: Block, counting: Sequence[str]) -> float:
    return block.pace_ns - sum(block.core_wait_ns[part] for part in counting)


def _longer(pair: tuple[Block, Block], counting: Sequence[str]) -> float:
    return _free(pair[0], counting) - _free(pair[1], counting)


def _difference(pairs: Pairs, counting: Sequence[str], typical: float) -> Difference:
    """Load comes in bursts, which strike some conditions more: the variance is to one half a condition's own."""
    free = [_longer(pair, counting) for pair in pairs]
    chosen = [pairs[at] for at in middle(free)]
    blocks, beside = zip(*chosen, strict=True)
    number = len(pairs)
    variance = (typical + float(np.var(free, ddof=1))) * HALF if number > 1 else 2 * typical
    return Difference(
        pairs[0][0].condition,
        number,
        _means([block.delay_ns for block in blocks]),
        _means([block.core_wait_ns for block in blocks]),
        _means([block.core_wait_ns for block in beside]),
        float(np.mean([_longer(pair, ()) for pair in chosen])),
        middle_mean(free),
        (variance / number) ** HALF,
        max(2 * (number - 1), 1),
    )


def _means(of_parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        part: float(np.mean([paces_of[part] for paces_of in of_parts])) for part in (of_parts[0] if of_parts else ())
    }


def _beside(blocks: Sequence[Block | None], at: int) -> Block | None:
    """The nearest block without a delay: of two the one before for the first of a pair, after for the second."""
    for distance in (1, 2):
        for other in (at - distance, at + distance):
            if 0 <= other < len(blocks):
                block = blocks[other]
                if block is not None and block.condition == BASE:
                    return block
    return None


def student_quantile(freedom: float) -> float:
    """How many standard errors the interval reaches to either side (Student's t)."""
    low, high = 0.0, 1e3
    for _ in range(60):
        between = (low + high) / 2
        low, high = (between, high) if student_tail(between, freedom) > 1 - CONFIDENCE else (low, between)
    return high
