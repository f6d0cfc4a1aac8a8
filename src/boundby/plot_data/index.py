"""Regions that a plot data names, numbered in the order in which they are first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import ROOT, Regions
from boundby.model.arrays import Int64Array, pick, unique
from boundby.results.plot_data import NO_REGION, RegionName
from boundby.trace.tables import Trace

# Names come from the trace and can be of any length (C++ templates): what is longer loses its middle.
LONGEST_NAME = 400


class RegionIndex:
    """Hands out small numbers for the timeline's regions; 0 is the root."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._number = np.full(len(regions), NO_REGION, np.int64)
        self._number[ROOT] = 0
        self._used = [ROOT]

    def of(self, region: npt.NDArray[Any]) -> Int64Array:
        """The plot data's numbers of these regions; negative ones stay NO_REGION."""
        self._use(unique(region).tolist())
        return pick(self._number, region, NO_REGION)

    def _use(self, regions: Iterable[int]) -> None:
        for number in regions:
            if number >= 0 and self._number[number] == NO_REGION:
                self._number[number] = len(self._used)
                self._used.append(number)

    def one(self, region: int) -> int:
        """The same for one region."""
        self._use((region,))
        return int(self._number[region]) if region >= 0 else NO_REGION

    def names(self) -> tuple[RegionName, ...]:
        """Paths and domains, by number."""
        paths = self._regions.paths([shorten(name) for name in self._regions.name])
        return tuple(RegionName(paths[region], self._regions.domain[region]) for region in self._used)


def shorten(text: str) -> str:
    """The text with at most LONGEST_NAME characters: the middle goes, both ends of a name tell it apart."""
    if len(text) <= LONGEST_NAME:
        return text
    half = (LONGEST_NAME - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def name_of(trace: Trace, number: int) -> str:
    """A name of the trace, shortened; ``""`` for none."""
    return shorten(trace.names[number]) if 0 <= number < len(trace.names) else ""
