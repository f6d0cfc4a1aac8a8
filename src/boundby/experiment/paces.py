"""From the blocks that the program's process noted to paces, differences of neighbouring blocks, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from boundby.experiment.conditions import BASE, DEVICE, HOST, INPUT, Condition
from boundby.model.scale import QUARTER
from boundby.model.statistics import student_tail

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
