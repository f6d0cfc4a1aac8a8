"""All that a rule may look at: the timeline, every figure, the reports so far, and what a change would save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import cast
from weakref import ref

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from boundby.attribution.regions import ROOT, Regions
from boundby.attribution.timeline import Timeline
from boundby.correlation.correlate import Calls
from boundby.evidence.operators import Operators, operators_of
from boundby.model.arrays import MISSING, group_counts, group_sums, largest, marked, pick, ranked, unique
from boundby.model.causes import Cause
from boundby.model.intervals import NOTHING
from boundby.model.late import answers
from boundby.model.late import once as once
from boundby.model.scale import MANY, MOST, NEGLIGIBLE, NEXT_TO_NOTHING
from boundby.model.units import count, duration, instant
from boundby.replay.questions import Savings
from boundby.results.report import DeviceReport, Example, RegionReport, WhatIf
from boundby.stats.figures import Figures
from boundby.trace.program import KnownProgram, program_of
from boundby.trace.tables import Operations, Trace
from boundby.trace.vocabulary.cuda import plain_name

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
SavingNs = tuple[int, int]

# A finding is told of the innermost region that holds this share of what it is about: above, it would be vague.
PLACE_SHARE = MOST
# Findings that save less of the window are not worth a reader's time; nor, where all are asked for, below the second.
WORTH_SHARE, WORTH_SHARE_OF_ALL = NEGLIGIBLE, NEXT_TO_NOTHING
# More examples than this are never compared: the longest are enough.
MOST_EXAMPLES = MANY


class CannotCheckError(Exception):
    """The trace lacks what a rule needs. The text completes "could not check, because ..." """


class RuleContext(Struct, frozen=True, dict=True):
    """One analyzed trace, for rules to look at. Facts beyond these are functions of it, in the other modules here."""

    timeline: Timeline
    figures: Figures
    devices: tuple[DeviceReport, ...]
    regions: tuple[RegionReport, ...]
    what_if: tuple[WhatIf, ...]
    savings: Savings | None  # None: no GPU work, or no calls
    thresholds: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (rule, name), as users changed them
    show_all: bool = False
    _used_in: dict[int, tuple[ref[npt.NDArray[np.integer]], list[int]]] = field(default_factory=dict)

    def forget(self) -> None:
        """Let go of what was worked out: facts may hold the context that holds them."""
        answers(self).clear()

    @property
    def trace(self) -> Trace:
        """The trace, its operations on the host's clock."""
        return self.timeline.trace

    @property
    def calls(self) -> Calls:
        """Outermost CUDA API calls, by thread and start."""
        return self.timeline.calls

    @property
    def operations(self) -> Operations:
        """What ran on the devices, one row an operation."""
        return self.trace.operations

    @property
    def tree(self) -> Regions:
        """The tree of regions."""
        return self.timeline.ownership.regions

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
    def is_cut(self) -> bool:
        """Whether the window is a part of the program that somebody chose: what reaches beyond counts in part."""
        window = self.timeline.window
        return bool(self.timeline.devices) and (window.kind in ("span", "nvtx") or window.skip_first > 0)

    @property
    def is_replayed(self) -> bool:
        """Whether savings come from replay; else from the account, and findings say so."""
        return self.savings is not None and self.savings.unreliable is None

    @cached_property
    def program(self) -> KnownProgram:
        """What kind of program it is: which remedies its user can follow."""
        return program_of(self.trace)

    def saving(
        self,
        causes: Sequence[str],
        *,
        calls: Rows | Bool | None = None,
        operations: Rows | Bool | None = None,
        regions: Bool | None = None,
    ) -> SavingNs | None:
        """What a program without these causes (keys of `Cause`) there would save: (low, high) in nanoseconds, by replay
        (`Savings.without`); None where the trace cannot be replayed to be trusted.

        ``calls``: rows of ``calls`` or a mask over them (the interval before a call belongs to it), ``operations``: the
        same of operations, ``regions``: a mask. Given calls or operations alone, the other is nothing; given neither,
        both are all. Removing waits looks at calls, removing device time at operations.
        """
        if self.savings is None:
            return None
        return self.savings.without(
            causes,
            calls=None if calls is None else _mask(calls, len(self.calls)),
            operations=None if operations is None else _mask(operations, len(self.operations)),
            regions=regions,
        )

    def savings_without_waits(self, *calls: Rows) -> list[SavingNs] | None:
        """What a program would save that does not wait in each of these selections (rows of ``calls``): `saving`, all
        replayed at once."""
        if self.savings is None:
            return None
        return self.savings.without_waits(_mask(rows, len(self.calls)) for rows in calls)

    def saving_by_speed(self, operations: Rows | Bool, least: float, most: float) -> SavingNs | None:
        """With these operations ``least`` to ``most`` times as fast; None where nothing can be replayed."""
        if self.savings is None:
            return None
        return self.savings.faster(_mask(operations, len(self.operations)), least, most)

    def account_ns(self, cause: Cause) -> int:
        """Where replay cannot tell what is saved at most: the account's time of an idle cause, on the device with most
        of it, since devices run side by side."""
        of_each = (int(device.segments.by_cause()[cause]) for device in self.timeline.devices)
        return max(of_each, default=self.time_ns(cause, ROOT))

    def path(self, region: int) -> tuple[str, ...]:
        """Names of a region, outermost first; () for the root."""
        return self.tree.path(region)

    def subtree(self, region: int) -> Bool:
        """Mask over regions: this one and all that lie in it."""
        return self.tree.subtree(region)

    def regions_under(self, path: Sequence[str]) -> Bool:
        """Mask over regions: those of this path in any domain, and all that lie in them."""
        wanted = tuple(path)
        return self.tree.under(np.array([bool(one) and one == wanted for one in map(self.path, range(len(self.tree)))]))

    def regions_where(self, matches: Callable[[str], object]) -> Bool:
        """Mask over regions: those whose name matches, and all that lie in them."""
        return self.tree.where(matches)

    def names_where(self, numbers: npt.NDArray[np.integer], matches: Callable[[str], object]) -> Bool:
        """Mask over ``trace.names``, and one entry for no name: which of those used in ``numbers`` match."""
        names = self.trace.names
        fits = np.zeros(len(names) + 1, bool)
        fits[[number for number in self._used(numbers) if number >= 0 and matches(names[number])]] = True
        return fits

    def named(self, numbers: npt.NDArray[np.integer], matches: Callable[[str], object]) -> Bool:
        """Which rows of a column of names have one that matches."""
        names = self.names_where(numbers, matches)
        return pick(names, numbers, names[-1]) if names.any() else np.zeros(len(numbers), bool)

    def _used(self, numbers: npt.NDArray[np.integer]) -> list[int]:
        """Which stand in a column; looked for once, as long as there is that column."""
        cached = self._used_in.get(id(numbers))
        if cached is None or cached[0]() is not numbers:
            cached = self._used_in[id(numbers)] = ref(numbers), unique(numbers).tolist()
        return cached[1]

    def time_ns(self, cause: Cause, region: int = ROOT) -> int:
        """The account: time of a cause in a region and all that lies in it."""
        return int(self.figures.inclusive[region, cause])

    def in_windows(self, start_ns: Int) -> Bool:
        """Which instants lie in the window of some device (what lies outside is not accounted for)."""
        inside = np.zeros(len(start_ns), bool)
        for device in self.timeline.devices:
            inside |= (start_ns >= device.low_ns) & (start_ns < device.high_ns)
        return inside

    def place(self, region_of_each: npt.NDArray[np.integer], weight: Int | None = None) -> int:
        """The innermost region that holds at least `PLACE_SHARE` of the weights (without: of all). Shapes (n,) both."""
        regions = len(self.tree)
        own = group_counts(region_of_each, regions) if weight is None else group_sums(region_of_each, weight, regions)
        inclusive = self.tree.accumulate(own)
        holds = inclusive >= max(PLACE_SHARE * int(own.sum()), 1)
        holds[ROOT] = True
        rows = np.flatnonzero(holds)
        return int(rows[np.lexsort((rows, inclusive[rows], -self.tree.depth[rows]))][0])

    def instant(self, host_ns: int, of_ns: int) -> str:
        """An instant of the host as ``--window`` takes it (`units.instant`)."""
        shift_ns = min((device.shift.shift_ns for device in self.timeline.devices), key=abs, default=0)
        return instant(host_ns - shift_ns, of_ns)

    def call_ns(self, rows: Rows | int) -> Int:
        """How long each of these calls took; of a window that cuts through the program, inside of it."""
        some = np.atleast_1d(rows)
        start, end = pick(self.calls.start_ns, some, 0), pick(self.calls.end_ns, some, 0)
        if self.is_cut:
            devices = self.timeline.devices
            low, high = min(device.low_ns for device in devices), max(device.high_ns for device in devices)
            start, end = np.clip(start, low, high), np.clip(end, low, high)
        length: Int = end - start
        return length.reshape(np.shape(rows))

    @cached_property
    def operators(self) -> Operators:
        """The framework's operators around every call."""
        return operators_of(self.timeline)

    def call_name(self, call: int) -> str:
        """The name of a call, without version suffixes."""
        return plain_name(self.trace.names[self.calls.name[call]])

    def call_totals(self, rows: Rows, length_ns: Int | None = None) -> list[tuple[str, int, int]]:
        """Name, number and nanoseconds of each kind among these calls, longest first. ``length_ns``: as long as they
        count, where that is not all of `call_ns`."""
        numbers, of_call = ranked(pick(self.calls.name, rows, NOTHING))
        counts = group_counts(of_call, len(numbers))
        times_ns = group_sums(of_call, self.call_ns(rows) if length_ns is None else length_ns, len(numbers))
        total: dict[str, tuple[int, int]] = {}  # names differ by version suffixes
        for number, times, ns in zip(numbers.tolist(), counts.tolist(), times_ns.tolist(), strict=True):
            name = plain_name(self.trace.names[number])
            before = total.get(name, (0, 0))
            total[name] = (before[0] + times, before[1] + ns)
        return sorted(((name, *both) for name, both in total.items()), key=lambda item: (-item[2], item[0]))

    def named_calls(self, rows: Rows, most: int = 5, length_ns: Int | None = None) -> list[str]:
        """``12 x cudaMalloc 3.40 ms`` of each kind of call, longest first."""
        totals = self.call_totals(rows, length_ns)[:most]
        return [f"{count(times)} x {name} {duration(ns)}" for name, times, ns in totals]

    def call_examples(self, rows: Rows) -> tuple[Example, ...]:
        """The longest of these calls."""
        longest = rows[largest(self.call_ns(rows), MOST_EXAMPLES, rows)]
        low_ns = min((device.low_ns for device in self.timeline.devices), default=0) if self.is_cut else MISSING
        columns = np.maximum(self.calls.start_ns[longest], low_ns), self.call_ns(longest), longest
        calls = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(Example(start_ns, length_ns, self.call_name(call)) for start_ns, length_ns, call in calls)


def _mask(chosen: Rows | Bool, size: int) -> Bool:
    if chosen.dtype == bool:
        return cast(Bool, chosen)
    return marked(chosen, size)
