"""Which wait takes another's place: waits taken out one after the other, by replay.

Where one wait goes, the next often waits instead, so that each alone seems to cost nothing. What counts is the
chain: which to take out first, which then, and what all of them save.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from boundby.evidence.context import CannotCheckError, Rows, RuleContext, once
from boundby.evidence.waits import kinds_of_waits, largest_kinds, untold_waits, waits_of
from boundby.model.arrays import unique
from boundby.model.scale import HARDLY, SMALL
from boundby.model.units import duration

# Links of a chain: each asks for a replay of every kind that is left.
MOST_LINKS = 4
# A chain ends where this part of what all waits cost is gone.
MOST_OF = 1 - SMALL
# A wait is harmless if the host stands this part of the window in it, and without it the program takes as long.
STANDS, COSTS = SMALL, HARDLY


class Link(Struct, frozen=True):
    """One kind of waits: how long the host stands in them, and what is saved once they and those before are gone."""

    name: str
    waits: int
    held_ns: int
    saved_ns: int
    untold: int = 0  # others of this name, which wait for a copy, or after which memory is freed
    untold_ns: int = 0


class WaitChain(Struct, frozen=True):
    """Links in the order in which they go; ``whole_ns``: all waits gone; ``harmless``: kinds that cost nothing."""

    links: tuple[Link, ...]
    whole_ns: int
    harmless: tuple[Link, ...]

    @property
    def text(self) -> str:
        """``torch.nonzero, then torch.unique, then a boolean index wait instead: 62 ms in all``; empty for one."""
        if len(self.links) < 2:
            return ""
        steps = [f"{link.name} ({duration(link.saved_ns)})" for link in self.links]
        return f"{steps[0]}, then {', then '.join(steps[1:])}: {duration(self.whole_ns)} in all"


NO_CHAIN = WaitChain((), 0, ())


@once
def wait_chain(context: RuleContext) -> WaitChain:
    """The chain of this trace; `NO_CHAIN` where it cannot be replayed, or nothing waits."""
    if not context.is_replayed:
        return NO_CHAIN
    try:
        waits, kinds, every = waits_of(context), largest_kinds(context), kinds_of_waits(context)
    except CannotCheckError:
        return NO_CHAIN
    if not kinds:
        return NO_CHAIN
    held = {name: int(waits.held_ns[inside].sum()) for name, inside in kinds.items()}
    largest = list(kinds)
    [whole] = _saved(context, [list(every.values())])
    if whole < COSTS * context.longest_window_ns:  # none costs anything: the largest may be worth saying so
        harmless = [name for name in largest if held[name] >= STANDS * context.longest_window_ns]
        return WaitChain((), whole, tuple(_harmless(context, name, kinds[name]) for name in harmless))
    links: list[Link] = []
    gone: list[Rows] = []
    alone: dict[str, int] = {}
    while largest and len(links) < MOST_LINKS and (not links or links[-1].saved_ns < MOST_OF * whole):
        saved = dict(zip(largest, _saved(context, [[*gone, kinds[name]] for name in largest]), strict=True))
        alone = alone or saved
        best = max(largest, key=lambda name: (saved[name], held[name]))
        links.append(Link(best, len(kinds[best]), held[best], saved[best]))
        gone.append(kinds[best])
        largest.remove(best)
    harmless = [
        name
        for name in largest
        if held[name] >= STANDS * context.longest_window_ns and alone[name] < COSTS * context.longest_window_ns
    ]
    return WaitChain(tuple(links), whole, tuple(_harmless(context, name, kinds[name]) for name in harmless))


def _harmless(context: RuleContext, name: str, rows: Rows) -> Link:
    held_ns, others = waits_of(context).held_ns, untold_waits(context).get(name, rows[:0])
    return Link(name, len(rows), int(held_ns[rows].sum()), 0, len(others), int(held_ns[others].sum()))


def _saved(context: RuleContext, selections: Sequence[Sequence[Rows]]) -> list[int]:
    """The middle of what is saved without the waits (rows of `Waits`) of each of these."""
    calls = [waits_of(context).call[unique(np.concatenate(list(rows)))] for rows in selections]
    savings = context.savings_without_waits(*calls)
    return [0] * len(calls) if savings is None else [sum(saving) // 2 for saving in savings]
