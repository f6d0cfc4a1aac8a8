"""How rules on the host's time word what they found: places named, places with the same advice told as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.host_idleness import HostPieces, Place, times
from boundby.model.units import duration

# More places than this are counted, not named.
MOST_NAMED = 3
# A stretch stands for its place if it is this share of it.
MOST_OF_IT = 0.5


@dataclass(frozen=True)
class Folded:
    """Places to be told as one: ``place`` holds all their pieces, ``parts`` are in order of their time."""

    place: Place
    parts: tuple[Place, ...]

    @property
    def is_one(self) -> bool:
        return len(self.parts) == 1


def fold(
    context: RuleContext, pieces: HostPieces, found: list[Place], key: Callable[[Place], object]
) -> Iterator[tuple[Folded, object]]:
    """Places of equal ``key`` (their advice) together, most time first, with the key."""
    groups: dict[object, list[Place]] = {}
    for place in found:
        groups.setdefault(key(place), []).append(place)
    for told, parts in groups.items():
        ordered = sorted(parts, key=lambda one: (-one.total_ns, one.region))
        if len(ordered) == 1:
            yield Folded(ordered[0], (ordered[0],)), told
            continue
        rows = np.sort(np.concatenate([one.rows for one in ordered]))
        whole = Place(
            _around(context, [one.region for one in ordered]),
            rows,
            pieces.total_ns(rows),
            len(np.unique(pieces.call[rows])),
        )
        yield Folded(whole, tuple(ordered)), told


def _around(context: RuleContext, regions: list[int]) -> int:
    """The innermost region around all of these."""
    parent = context.tree.parent
    chains = []
    for region in regions:
        chain = [region]
        while chain[-1] != ROOT:
            chain.append(int(parent[chain[-1]]))
        chains.append(chain)
    return next(region for region in chains[0] if all(region in chain for chain in chains))


def where_and_when(context: RuleContext, pieces: HostPieces, folded: Folded) -> str:
    """``: 212 ms in one stretch``, `` between LOAD and FIT: 212 ms in one stretch``, or of several places
    ``: 617 ms in 2 places: LOAD 600 ms, FIT 17.0 ms``."""
    if folded.is_one:
        place = folded.parts[0]
        between = neighbours(context, pieces, place.rows) if place.region == ROOT else ""
        return f"{f' {between}' if between else ''}: {times(place)}"
    named = [f"{_name(context, pieces, one)} {duration(one.total_ns)}" for one in folded.parts[:MOST_NAMED]]
    more = len(folded.parts) - len(named)
    return (
        f": {duration(folded.place.total_ns)} in {len(folded.parts)} places: {', '.join(named)}"
        f"{f', {more} more' if more else ''}"
    )


def named_places(context: RuleContext, pieces: HostPieces, folded: Folded) -> list[str]:
    """Every place with its time, for evidence."""
    return [f"{_name(context, pieces, one)}: {times(one)}" for one in folded.parts]


def _name(context: RuleContext, pieces: HostPieces, place: Place) -> str:
    if len(np.unique(pieces.region[place.rows])) > 1:
        return "smaller ones"
    path = context.path(place.region)
    return "/".join(path[-2:]) or neighbours(context, pieces, place.rows) or "outside of all ranges"


def neighbours(context: RuleContext, pieces: HostPieces, rows: Rows) -> str:
    """``between COPY and FIT``: the ranges around these stretches, or around most of them; empty without ranges."""
    total: dict[str, int] = {}
    for call in np.unique(pieces.call[rows]).tolist():
        mine = rows[pieces.call[rows] == call]
        place = _between(context, pieces, mine)
        total[place] = total.get(place, 0) + pieces.total_ns(mine)
    place, time = min(total.items(), key=lambda item: (-item[1], item[0]))
    if not place or time == sum(total.values()):
        return place
    if time >= MOST_OF_IT * sum(total.values()):
        return f"mostly {place}"
    return f"outside of all ranges ({duration(time)} of it {place})"


def _between(context: RuleContext, pieces: HostPieces, rows: Rows) -> str:
    """The ranges of its threads before and after one stretch; of those that end or begin together the outermost."""
    ranges, names = context.trace.ranges, context.trace.names
    here = np.flatnonzero(np.isin(ranges.thread, np.unique(pieces.thread[rows])))
    middle = (int(pieces.start_ns[rows].min()) + int(pieces.end_ns[rows].max())) // 2
    before, after = here[ranges.end_ns[here] <= middle], here[ranges.start_ns[here] >= middle]
    last = before[np.lexsort((before, ranges.start_ns[before], -ranges.end_ns[before]))][:1]
    following = after[np.lexsort((after, -ranges.end_ns[after], ranges.start_ns[after]))][:1]
    told = [_quoted(names[ranges.name[row]]) for row in (*last.tolist(), *following.tolist())]
    if len(told) == 2:
        return f"between {told[0]} and {told[1]}"
    return "" if not told else f"after {told[0]}" if len(last) else f"before {told[0]}"


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name
