"""Ranks that do the same: told by who meets whom, and by their kernels where that tells nothing or the wrong thing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boundby.jobs.meetings import MESSAGE, Aligned, is_passing, joined
from boundby.jobs.rank_summary import RankSummary
from boundby.model.arrays import Int64Array
from boundby.model.scale import HALF, NEARLY_ALL

#: Ranks whose kernels are so much the same (of all that either launched, what both did) do the same work.
ALIKE = NEARLY_ALL
#: Ranks that share less do not, whatever they meet in.
UNLIKE = HALF


def stages_of(summaries: Sequence[RankSummary], aligned: Aligned) -> tuple[tuple[int, ...], ...]:
    """Ranks that do the same: those that meet in collectives. Ranks of one pipeline, which pass work on to each other,
    do not; a group that holds two of them spans stages. Pipelines that meet in no group of one stage have the same
    stages where their kernels say so; ranks that meet and launch other kernels are apart."""
    count, matched = len(summaries), aligned.matched
    passing: set[tuple[int, ...]] = set()
    groups: set[tuple[int, ...]] = set()
    for number, kind in sorted(set(zip(matched.group.tolist(), matched.kind, strict=True))):
        members = matched.groups[number]
        if kind == MESSAGE:  # ranks that tell each other what they computed do the same work as often as not
            continue
        passes = len(members) == 2 and is_passing(kind) and (count > 2 or summaries[0].world_size == 2)
        (passing if passes else groups).add(members)
    pipeline = joined(count, passing)
    alike = joined(count, (one for one in groups if len({pipeline[rank] for rank in one}) == len(one)))
    stages = [tuple(members) for members in _members(alike)]
    kernels = [one.kinds_of_kernels for one in summaries]
    if passing and all(len(members) == 1 for members in stages):
        stages = _of_pipelines(_members(pipeline), kernels)
    parts = (part for members in stages for part in _apart(members, kernels))
    return tuple(sorted(parts, key=lambda members: members))


def _members(first: Sequence[int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for rank, one in enumerate(first):
        found.setdefault(one, []).append(rank)
    return [members for _, members in sorted(found.items())]


def _of_pipelines(pipelines: Sequence[Sequence[int]], kernels: Sequence[Int64Array]) -> list[tuple[int, ...]]:
    """The ranks at the same place of pipelines that are as long, where all launch the same kernels there."""
    of_length: dict[int, list[Sequence[int]]] = {}
    for one in pipelines:
        of_length.setdefault(len(one), []).append(one)
    found: list[tuple[int, ...]] = []
    for same in of_length.values():
        for members in zip(*same, strict=True):
            is_same = all(_likeness(kernels[members[0]], kernels[other]) >= ALIKE for other in members[1:])
            found += [members] if is_same else [(rank,) for rank in members]
    return found


def _apart(members: tuple[int, ...], kernels: Sequence[Int64Array]) -> list[tuple[int, ...]]:
    """``members`` by what they launch, where that makes parts of several ranks each; else all of them."""
    parts: list[list[int]] = []
    for rank in members:
        like = (part for part in parts if _likeness(kernels[part[0]], kernels[rank]) >= UNLIKE)
        part = next(like, None)
        if part is None:
            parts.append([rank])
        else:
            part.append(rank)
    return [tuple(part) for part in parts] if min(map(len, parts)) > 1 else [members]


def _likeness(one: Int64Array, other: Int64Array) -> float:
    """Of all kernels that either launched the share that both did (Jaccard's, of numbers); 1 where neither has any."""
    both, at, place = np.intersect1d(one[:, 0], other[:, 0], assume_unique=True, return_indices=True)
    shared = int(np.minimum(one[at, 1], other[place, 1]).sum()) if len(both) else 0
    every = int(one[:, 1].sum() + other[:, 1].sum()) - shared
    return shared / every if every else 1.0
