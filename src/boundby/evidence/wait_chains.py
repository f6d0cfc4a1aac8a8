"""Which wait takes another's place: waits taken out one after the other, by replay.

Where one wait goes, the next often waits instead, so that each alone seems to cost nothing. What counts is the
chain: which to take out first, which then, and what all of them save.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boundby.evidence.context import CannotCheckError, Rows, RuleContext, once
from boundby.evidence.operator_syncs import EVERY
from boundby.evidence.waits import WaitKind, waits_of
from boundby.model.arrays import factorize, is_any, unique
from boundby.model.records import dataclass
from boundby.model.step_function import NOTHING
from boundby.model.units import duration
from boundby.trace.vocabulary.cuda import plain_name

# Kinds of waits that are tried, and links of a chain: each link asks for a replay of every kind that is left.
MOST_KINDS, MOST_LINKS = 5, 4
# A chain ends where this part of what all waits cost is gone.
MOST_OF = 0.95
# Longer traces take too long for a dozen replays more.
MOST_CALLS = 3_000_000
# A wait is harmless if the host stands this part of the window in it, and without it the program takes as long.
STANDS, COSTS = 0.05, 0.005


@dataclass(frozen=True)
class Link:
    """One kind of waits: how long the host stands in them, and what is saved once they and those before are gone."""

    name: str
    waits: int
    held_ns: int
    saved_ns: int


@dataclass(frozen=True)
class Chain:
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


NO_CHAIN = Chain((), 0, ())


@once
def wait_chain(context: RuleContext) -> Chain:
    """The chain of this trace; `NO_CHAIN` where it cannot be replayed, or nothing waits."""
    if not context.is_replayed or len(context.calls) > MOST_CALLS:
        return NO_CHAIN
    try:
        waits = waits_of(context)
    except CannotCheckError:
        return NO_CHAIN
    rows = np.flatnonzero(~is_any(waits.kind, (WaitKind.COPY, WaitKind.TAKEN_OVER)))
    names, of_wait = _names(context, rows)
    kinds = {name: rows[of_wait == number] for number, name in enumerate(names)}
    held = {name: int(waits.held_ns[inside].sum()) for name, inside in kinds.items()}
    largest = sorted(kinds, key=lambda name: (-held[name], name))[:MOST_KINDS]
    [whole] = _saved(context, [[rows]])
    if whole < context.least_ns:  # none costs anything: the largest may be worth saying so
        harmless = [name for name in largest if held[name] >= STANDS * context.longest_window_ns]
        return Chain((), whole, tuple(Link(name, len(kinds[name]), held[name], 0) for name in harmless))
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
    return Chain(tuple(links), whole, tuple(Link(name, len(kinds[name]), held[name], 0) for name in harmless))


def _names(context: RuleContext, rows: Rows) -> tuple[list[str], Rows]:
    """What waits are called, in order, and which of these each of them is."""
    waits = waits_of(context)
    kinds, of_row = factorize(waits.operator[rows], context.calls.name[waits.call[rows]])
    told = [
        plain_name(context.trace.names[name]) if operator == NOTHING else EVERY[operator].label
        for operator, name in kinds.tolist()
    ]
    names = sorted(set(told))
    return names, np.array([names.index(name) for name in told], np.intp)[of_row]


def _saved(context: RuleContext, selections: Sequence[Sequence[Rows]]) -> list[int]:
    """The middle of what is saved without the waits (rows of `Waits`) of each of these."""
    calls = [waits_of(context).call[unique(np.concatenate(list(rows)))] for rows in selections]
    savings = context.savings_without_waits(*calls)
    return [0] * len(calls) if savings is None else [sum(saving) // 2 for saving in savings]
