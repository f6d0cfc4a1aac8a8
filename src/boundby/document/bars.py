"""An account as cells of a bar: which cause gets how many. Pure; each format paints them its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from boundby.model.causes import CAUSE_KEYS, OTHER, info
from boundby.model.scale import HARDLY

FOLD_BELOW = HARDLY  # causes that would read "<1 %" are folded into "other"


class Segment(Struct, frozen=True):
    """One cause's part of an account."""

    cause: str  # a cause key, or "other"
    ns: int
    fraction: float

    @property
    def letter(self) -> str:
        return info(self.cause).letter

    @property
    def label(self) -> str:
        return info(self.cause).label


def segments(time: Mapping[str, int], *, fold_below: float = 0.0) -> tuple[Segment, ...]:
    """The causes that took any time, in the order of the causes, small ones folded into one last ``other``."""
    total = sum(time.values())
    if total <= 0:
        return ()
    shown = [Segment(key, time[key], time[key] / total) for key in CAUSE_KEYS if time.get(key, 0) > 0]
    small = [segment for segment in shown if segment.fraction < fold_below]
    if len(small) < 2:  # one small cause may as well be named
        return tuple(shown)
    folded = sum(segment.ns for segment in small)
    kept = [segment for segment in shown if segment.fraction >= fold_below]
    return (*kept, Segment(OTHER.key, folded, folded / total))


def cells(parts: Sequence[Segment], width: int, *, at_least_one: bool = False) -> tuple[int, ...]:
    """How many of ``width`` cells each part gets: largest remainders, so that they sum to the width.

    ``at_least_one`` takes a cell from the largest for each part that would vanish, where there is room.
    """
    if not parts or width <= 0:
        return (0,) * len(parts)
    exact = [part.fraction * width for part in parts]
    given = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (given[i] - exact[i], i))
    for index in by_remainder[: max(width - sum(given), 0)]:
        given[index] += 1
    if at_least_one and width >= len(parts):
        for index in range(len(parts)):
            if given[index] == 0:
                given[max(range(len(parts)), key=lambda i: given[i])] -= 1
                given[index] = 1
    return tuple(given)


def letters(parts: Sequence[Segment], width: int, *, at_least_one: bool = False) -> str:
    """The bar without colour: ``CCCCCCCCMsssaah``."""
    lengths = cells(parts, width, at_least_one=at_least_one)
    return "".join(part.letter * length for part, length in zip(parts, lengths, strict=True))
