"""Which parts of a program are delayed in which blocks of steps, in which order.

A part is ``host`` (at one place of the step), ``input`` or ``device``. A condition delays some of them, by the same
time each. All subsets are tried: two conditions for one part, four for two, eight for three; with two sizes of delay,
so that a bend of the pace shows.

Only Python's standard library: this runs inside the program, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

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
