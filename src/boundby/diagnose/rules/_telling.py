"""How rules on the host's time word what they found: places named, places with the same advice told as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from boundby.diagnose.case import Case
from boundby.diagnose.rules._host import HostPieces, Place, Rows, times
from boundby.model.units import duration
from boundby.timeline.hotspots import PYTHON_CODE
from boundby.timeline.regions import ROOT

# More places than this are counted, not named.
MOST_NAMED = 3
# A stretch stands for its place if it is this share of it.
MOST_OF_IT = 0.5
LONGEST_SYMBOL = 60

_TEMPLATE, _ARGUMENTS = re.compile(r"<[^<>]*>"), re.compile(r"\([^()]*\)")


@dataclass(frozen=True)
class Folded:
    """Places to be told as one: ``place`` holds all their pieces, ``parts`` are in order of their time."""

    place: Place
    parts: tuple[Place, ...]

    @property
    def is_one(self) -> bool:
        return len(self.parts) == 1


def fold(
    case: Case, pieces: HostPieces, found: list[Place], key: Callable[[Place], object]
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
            _around(case, [one.region for one in ordered]),
            rows,
            pieces.total_ns(rows),
            len(np.unique(pieces.call[rows])),
        )
        yield Folded(whole, tuple(ordered)), told


def _around(case: Case, regions: list[int]) -> int:
    """The innermost region around all of these."""
    parent = case.timeline.setting.ownership.regions.parent
    chains = []
    for region in regions:
        chain = [region]
        while chain[-1] != ROOT:
            chain.append(int(parent[chain[-1]]))
        chains.append(chain)
    return next(region for region in chains[0] if all(region in chain for chain in chains))


def where_and_when(case: Case, pieces: HostPieces, folded: Folded) -> str:
    """``: 212 ms in one stretch``, `` between LOAD and FIT: 212 ms in one stretch``, or of several places
    ``: 617 ms in 2 places: LOAD 600 ms, FIT 17.0 ms``."""
    if folded.is_one:
        place = folded.parts[0]
        between = neighbours(case, pieces, place.rows) if place.region == ROOT else ""
        return f"{f' {between}' if between else ''}: {times(place)}"
    named = [f"{_name(case, pieces, one)} {duration(one.total_ns)}" for one in folded.parts[:MOST_NAMED]]
    more = len(folded.parts) - len(named)
    return (
        f": {duration(folded.place.total_ns)} in {len(folded.parts)} places: {', '.join(named)}"
        f"{f', {more} more' if more else ''}"
    )


def named_places(case: Case, pieces: HostPieces, folded: Folded) -> list[str]:
    """Every place with its time, for evidence."""
    return [f"{_name(case, pieces, one)}: {times(one)}" for one in folded.parts]


def _name(case: Case, pieces: HostPieces, place: Place) -> str:
    path = case.path(place.region)
    return path[-1] if path else neighbours(case, pieces, place.rows) or "outside of all ranges"


def neighbours(case: Case, pieces: HostPieces, rows: Rows) -> str:
    """``between COPY and FIT``: the ranges around the longest stretch, where it is most of what there is; else empty.
    Of ranges that end or begin together the outermost."""
    calls, trace = pieces.call[rows], case.timeline.setting.trace
    distinct, index = np.unique(calls, return_inverse=True)
    if not len(distinct):
        return ""
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, index, (pieces.end_ns - pieces.start_ns)[rows])
    longest = int(np.argmax(total))
    if total[longest] < MOST_OF_IT * total.sum():
        return ""
    mine = rows[index == longest]
    low, high = int(pieces.start_ns[mine].min()), int(pieces.end_ns[mine].max())
    threads = np.unique(pieces.thread[mine])
    ranges = trace.ranges
    here = np.flatnonzero(np.isin(ranges.thread, threads)) if len(ranges) else np.empty(0, np.intp)
    before = here[ranges.end_ns[here] <= low + (high - low) // 2]
    after = here[ranges.start_ns[here] >= low + (high - low) // 2]
    parts = []
    if len(before):
        last = before[np.lexsort((before, ranges.start_ns[before], -ranges.end_ns[before]))][0]
        parts.append(trace.names[ranges.name[last]])
    if len(after):
        following = after[np.lexsort((after, -ranges.end_ns[after], ranges.start_ns[after]))][0]
        parts.append(trace.names[ranges.name[following]])
    if len(parts) == 2:
        return f"between {parts[0]} and {parts[1]}"
    if len(parts) == 1:
        return f"after {parts[0]}" if len(before) else f"before {parts[0]}"
    return ""


def short_symbol(symbol: str) -> str:
    """A function's name without template parameters and arguments: ``ns::Class::method``."""
    if symbol == PYTHON_CODE:
        return "Python code"
    short = symbol.replace("(anonymous namespace)::", "")
    for pattern in (_TEMPLATE, _ARGUMENTS):
        while (shorter := pattern.sub("", short)) != short:
            short = shorter
    short = short.removesuffix(" const").strip().rsplit(" ", 1)[-1] or symbol
    return short if len(short) <= LONGEST_SYMBOL else f"...{short[3 - LONGEST_SYMBOL :]}"
