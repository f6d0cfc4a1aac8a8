"""All that a rule may look at: the timeline, every figure, the reports so far, and what a change would save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from boundby.attribution.regions import ROOT
from boundby.attribution.timeline import Timeline
from boundby.model.causes import Cause
from boundby.replay import Savings
from boundby.results.report import DeviceReport, RegionReport, WhatIf
from boundby.stats.figures import Figures

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.int64]
SavingNs = tuple[int, int]
T = TypeVar("T")

# A finding is told of the innermost region that holds this share of what it is about: above, it would be vague.
PLACE_SHARE = 0.8
# Findings that save less of the window are not worth a reader's time; nor, where all are asked for, below the second.
WORTH_SHARE, WORTH_SHARE_OF_ALL = 0.01, 0.001


class CannotCheckError(Exception):
    """The trace lacks what a rule needs. The text completes "could not check, because ..." """


@dataclass(frozen=True)
class RuleContext:
    """One analyzed trace, for rules to look at."""

    timeline: Timeline
    figures: Figures
    devices: tuple[DeviceReport, ...]
    regions: tuple[RegionReport, ...]
    what_if: tuple[WhatIf, ...]
    savings: Savings | None  # None: no GPU work, or no calls
    thresholds: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (rule, name), as users changed them
    show_all: bool = False
    _known: dict[Callable[[RuleContext], Any], Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def window_ns(self) -> int:
        """All devices' windows together (or all threads' time): what the account's shares are of."""
        return self.timeline.total_ns

    @property
    def longest_window_ns(self) -> int:
        """The longest device's window (or thread's time): what savings are set against, as devices run side by side."""
        windows = [device.high_ns - device.low_ns for device in self.timeline.devices]
        return max(windows or [thread.total_ns for thread in self.timeline.threads], default=0)

    @property
    def least_ns(self) -> int:
        """What is below this cannot save enough to be told: do not ask for its saving."""
        return max(round((WORTH_SHARE_OF_ALL if self.show_all else WORTH_SHARE) * self.longest_window_ns), 1)

    @property
    def is_replayed(self) -> bool:
        """Whether savings come from replay; else from the account, and findings say so."""
        return self.savings is not None and self.savings.unreliable is None

    def once(self, make: Callable[[RuleContext], T]) -> T:
        """``make(context)``, worked out once for all rules that ask. ``make`` is a function of a module."""
        if make not in self._known:
            self._known[make] = make(self)
        found: T = self._known[make]
        return found

    def saving(
        self,
        causes: Sequence[str],
        *,
        calls: Bool | None = None,
        operations: Bool | None = None,
        regions: Bool | None = None,
    ) -> SavingNs | None:
        """`Savings.without`, or None where nothing can be replayed."""
        if self.savings is None:
            return None
        return self.savings.without(causes, calls=calls, operations=operations, regions=regions)

    def saving_by_speed(self, operations: Bool, least: float, most: float) -> SavingNs | None:
        """`Savings.faster`, or None where nothing can be replayed."""
        return None if self.savings is None else self.savings.faster(operations, least, most)

    @cached_property
    def report_of(self) -> dict[int, RegionReport]:
        """Region reports by region index."""
        tree = self.timeline.ownership.regions
        index = {(tree.path(region), tree.domain[region]): region for region in range(len(tree))}
        return {index[(item.path, item.domain)]: item for item in self.regions if (item.path, item.domain) in index}

    def path(self, region: int) -> tuple[str, ...]:
        """Names of a region, outermost first; () for the root."""
        return self.timeline.ownership.regions.path(region)

    def subtree(self, region: int) -> Bool:
        """Mask over regions: this one and all that lie in it."""
        return self.timeline.ownership.regions.subtree(region)

    def time_ns(self, cause: Cause, region: int = ROOT) -> int:
        """The account: time of a cause in a region and all that lies in it."""
        return int(self.figures.inclusive[region, cause])

    def in_windows(self, start_ns: Int) -> Bool:
        """Which instants lie in the window of some device (what lies outside is not accounted for)."""
        found = np.zeros(len(start_ns), bool)
        for device in self.timeline.devices:
            found |= (start_ns >= device.low_ns) & (start_ns < device.high_ns)
        return found

    def place(self, region_of_each: Int, weight: Int) -> int:
        """The innermost region that holds at least `PLACE_SHARE` of the weights. Shapes (n,) both."""
        tree = self.timeline.ownership.regions
        exclusive = np.zeros(len(tree), np.int64)
        np.add.at(exclusive, region_of_each, weight)
        inclusive = tree.accumulate(exclusive)
        holds = inclusive >= max(PLACE_SHARE * int(weight.sum()), 1)
        holds[ROOT] = True
        rows = np.flatnonzero(holds)
        return int(rows[np.lexsort((rows, inclusive[rows], -tree.depth[rows]))][0])

    def account_saving(self, cause: Cause, region: int = ROOT) -> SavingNs:
        """Where replay cannot tell: between nothing and the account's time of an idle cause."""
        return 0, self.time_ns(cause, region)
