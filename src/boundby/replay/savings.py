"""What one change alone would save, as rules ask for it: a range, by replay, each question answered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from boundby.model.arrays import BoolArray
from boundby.replay.predictor import LEAST_OPEN, MODEL_ERROR, Predictor, ReplayStep, most_saved
from boundby.replay.removals import Change, Faster, Without
from boundby.replay.uncertainty import OpenRange

SavingNs = tuple[int, int]
Key = tuple[object, ...]


class _Question(NamedTuple):
    """By what its answer is known, what changes, and in which calls, operations and regions (those of none: all)."""

    key: Key
    change: Change
    where: Mapping[str, BoolArray | None]


# Where the host's waits cost this share of the window, what another change saves depends on whether they go first.
WAITS_SHARE = 0.02


class Savings:
    """Savings of single changes to the program as it ran, in nanoseconds: (low, high).

    The range holds what the trace leaves open (delays that no recorded dependency explains would stay, or go) and the
    replay's own error. Where waits for the device matter, other changes are replayed on the program that no longer
    waits as well: syncs and launches, say, can cost the same idle time, and who removes one gains little by the other.
    Of several devices, which run at the same time, the one that saves most counts. Every answer is None where the
    trace cannot be replayed to be trusted; ``unreliable`` says why.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.unreliable = predictor.unreliable
        self._predictor = predictor
        self._known: dict[Key, SavingNs] = {}
        self._longest_ns = max(predictor.measured_ns, default=0)
        self._has_open = predictor.open_share >= LEAST_OPEN
        whole = replace(predictor.everywhere, operations=np.ones_like(predictor.everywhere.operations))
        self._explained = ReplayStep(predictor.without_open, whole)
        self._explained_ns: list[int] | None = None
        self.asked = 0  # questions that were replayed

    def without(
        self,
        causes: Sequence[str],
        *,
        calls: BoolArray | None = None,
        operations: BoolArray | None = None,
        regions: BoolArray | None = None,
    ) -> SavingNs | None:
        """Without these causes there: see `Predictor.scope`. Removing waits looks at calls, removing device time at
        operations (and the calls that launched them), removing launch overhead at both."""
        key = ("without", tuple(causes), _digest(calls), _digest(operations), _digest(regions))
        where = {"calls": calls, "operations": operations, "regions": regions}
        found = self._answers([_Question(key, Without(tuple(causes)), where)], is_wait="sync" in causes)
        return None if found is None else found[0]

    def without_waits(self, calls: Iterable[BoolArray]) -> list[SavingNs] | None:
        """Without the waits in each of these selections of calls: `without`, all replayed at once."""
        change = Without(("sync",))
        return self._answers(
            (_Question(("without", ("sync",), _digest(mask), None, None), change, {"calls": mask}) for mask in calls),
            is_wait=True,
        )

    def faster(self, operations: BoolArray, least: float, most: float) -> SavingNs | None:
        """With these operations (mask over ``trace.operations``) ``least`` to ``most`` times as fast."""
        digest = _digest(operations)
        asked = [_Question(("faster", factor, digest), Faster(operations, factor), {}) for factor in (least, most)]
        found = self._answers(asked, is_wait=False)
        return None if found is None else (found[0][0], max(found[0][1], found[1][1]))

    def _answers(self, asked: Iterable[_Question], *, is_wait: bool) -> list[SavingNs] | None:
        """What each of these questions saves; those that are new are replayed at once."""
        if self.unreliable is not None:
            return None
        keys, new = [], dict[Key, ReplayStep]()
        for key, change, where in asked:
            keys.append(key)
            if key not in self._known and key not in new:
                new[key] = ReplayStep(change, self._predictor.scope(**where))
        if new:
            self._known |= dict(zip(new, self._ranges([*new.values()], is_wait=is_wait), strict=True))
            self.asked += len(new)
        return [self._known[key] for key in keys]

    def _ranges(self, steps: Sequence[ReplayStep], *, is_wait: bool) -> list[SavingNs]:
        """What each of these changes saves: all that decides it is replayed at once."""
        predictor = self._predictor
        waitless = predictor.without(("sync",))
        waits_matter = most_saved(predictor.measured_ns, waitless) >= WAITS_SHARE * self._longest_ns
        asked: list[list[ReplayStep]] = [[step] for step in steps]
        if self._has_open:
            asked += [[step, self._explained] for step in steps]
        if has_waits := waits_matter and not is_wait:
            asked += [[ReplayStep(Without(("sync",)), predictor.everywhere), step] for step in steps]
        if self._has_open and self._explained_ns is None:
            *left, self._explained_ns = predictor.ask(*asked, [self._explained])
        else:
            left = predictor.ask(*asked)
        ranges = []
        for number in range(len(steps)):
            alone, *others = left[number :: len(steps)]
            found = OpenRange(most_saved(predictor.measured_ns, alone))
            if has_waits and found.told_ns:
                found = found.between("waits-first", most_saved(waitless, others[-1]))
            if self._explained_ns is not None:
                # Explaining nothing away shortens the trace itself; only what the change adds to that is its doing.
                found = found.between("unexplained", most_saved(self._explained_ns, others[0]))
            ends = round(found.low_ns * (1 - MODEL_ERROR)), round(found.high_ns * (1 + MODEL_ERROR))
            found = found.reaching("model", ends[0], min(ends[1], self._longest_ns))
            ranges.append((found.low_ns, found.high_ns))
        return ranges


def _digest(mask: BoolArray | None) -> tuple[int, int] | None:
    """64 bits and a count tell a few hundred masks apart; hashlib would load OpenSSL first, for 10 ms."""
    return None if mask is None else (hash(np.packbits(mask).tobytes()), int(np.count_nonzero(mask)))
