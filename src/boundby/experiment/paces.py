"""Which parts are delayed in which blocks, and from the blocks that were noted to paces and differences of
neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from boundby.model.scale import HALF, NOTABLE, QUARTER
from boundby.model.statistics import CONFIDENCE, student_tail

# Which parts of a program are delayed in which blocks of steps, in which order.
#
# A part is ``host`` (at one place of the step), ``input`` or ``device``. A condition delays some of them, by the same
# time each. All subsets are tried: two conditions for one part, four for two, eight for three; with two sizes of
# delay, so that a bend of the pace shows.
#
# Only Python's standard library: this runs inside the program, too.

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
    found: dict[Condition, list[tuple[Block, Block]]] = {}
    for at, block in enumerate(blocks):
        if block is None or block.condition == BASE:
            continue
        beside = _beside(blocks, at)
        if beside is not None:
            found.setdefault(block.condition, []).append((block, beside))
    pairs_of_each = [*found.values()]
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
    return {part: float(np.mean([one[part] for one in of_parts])) for part in (of_parts[0] if of_parts else ())}


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
