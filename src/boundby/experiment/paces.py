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

from boundby.model.scale import QUARTER
from boundby.model.statistics import student_tail

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

CONFIDENCE = 0.95
#: With fewer freedoms than this nothing can be said of the spread.
LEAST_FREEDOM = 2


class Block(Struct, frozen=True):
    """One block of steps: its condition, the time of a step, and what happened in it, a step."""

    condition: Condition
    pace_ns: float
    steps: int
    spans_ns: tuple[float, ...]
    delay_ns: Mapping[str, float]
    wait_ns: float
    """For a batch."""
    core_wait_ns: float
    fetch_ns: float | None
    """Of one batch, where it is fetched; None: none was."""


class Difference(Struct, frozen=True):
    """How much longer a step takes under a condition than in the blocks beside it."""

    condition: Condition
    blocks: int
    delay_ns: Mapping[str, float]
    value_ns: float
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


def read_block(told: Mapping[str, Any], condition: Condition, each: int) -> Block | None:
    """A block as the program's process noted it; None: nothing in it counts. ``each``: batches that arrive together."""
    spans = [np.diff(np.asarray(stretch, dtype=np.float64)) for stretch in told["stretches"]]
    single = np.concatenate(spans) if spans else np.empty(0)
    groups = [part[: len(part) // each * each].reshape(-1, each).mean(axis=1) for part in spans]
    grouped = np.concatenate(groups) if groups else np.empty(0)
    if not len(grouped):
        return None
    steps = len(single)
    batches, fetch, delay = told["fetched"]
    delays = {
        HOST: told["host_delay_ns"] / max(told["steps"], 1),
        INPUT: delay / batches / each if batches else 0.0,
        DEVICE: told["device_delay_ns"] / max(told["device_delays"], 1),
    }
    return Block(
        condition,
        middle_mean(grouped),
        steps,
        tuple(single),
        {part: delays[part] for part in condition.delayed},
        told["wait_ns"] / max(told["steps"], 1),
        told["core_wait_ns"] / max(told["all_steps"], 1),
        fetch / batches if batches else None,
    )


def middle_mean(values: Float | Sequence[float]) -> float:
    """The mean of the middle half: a step that was held up counts for nothing, two kinds of steps by their shares."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    left_out = int(len(ordered) * QUARTER)
    return float(ordered[left_out : len(ordered) - left_out].mean())


def compare(blocks: Sequence[Block | None]) -> Paces:
    """Each block with a condition against the one without beside it; the errors from how these differences scatter."""
    base = tuple(block for block in blocks if block is not None and block.condition == BASE)
    found: dict[Condition, list[tuple[Block, float]]] = {}
    for at, block in enumerate(blocks):
        if block is None or block.condition == BASE:
            continue
        beside = _beside(blocks, at)
        if beside is not None:
            found.setdefault(block.condition, []).append((block, block.pace_ns - beside.pace_ns))
    scatter, freedom = _scatter([[difference for _, difference in pairs] for pairs in found.values()])
    differences = []
    for condition, pairs in found.items():
        values = [difference for _, difference in pairs]
        delays = {part: float(np.mean([block.delay_ns[part] for block, _ in pairs])) for part in condition.delayed}
        differences.append(
            Difference(
                condition, len(pairs), delays, middle_mean(values), scatter / len(values) ** 0.5, max(freedom, 1)
            )
        )
    paces = [block.pace_ns for block in base]
    level = middle_mean(paces) if paces else 0.0
    error = float(np.std(paces, ddof=1)) / len(paces) ** 0.5 if len(paces) > 1 else 0.1 * level
    spans = tuple(span for block in base for span in block.spans_ns)
    return Paces(level, error, max(len(paces) - 1, 1), base, tuple(differences), spans)


def _beside(blocks: Sequence[Block | None], at: int) -> Block | None:
    """The nearest block without a delay: of two the one before for the first of a pair, after for the second."""
    for distance in (1, 2):
        for other in (at - distance, at + distance):
            if 0 <= other < len(blocks):
                block = blocks[other]
                if block is not None and block.condition == BASE:
                    return block
    return None


def _scatter(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Standard deviation within groups, all together, and its degrees of freedom."""
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in groups)
    return ((squares / freedom) ** 0.5, freedom) if freedom > 0 else (0.0, 0)


def student_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors the interval reaches to either side (Student's t)."""
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > 1 - confidence else (low, middle)
    return high
