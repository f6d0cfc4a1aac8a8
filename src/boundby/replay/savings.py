"""What one change alone would save, as rules ask for it: a range, by replay, each question answered once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boundby.model.arrays import BoolArray
from boundby.model.records import replace
from boundby.replay.predictor import LEAST_OPEN, MODEL_ERROR, Predictor, Step, most_saved
from boundby.replay.removals import Change, Faster, Scope, Without

SavingNs = tuple[int, int]

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
        self._known: dict[tuple[object, ...], SavingNs] = {}
        self._longest_ns = max(predictor.measured_ns, default=0)
        self._has_open = predictor.open_share >= LEAST_OPEN
        whole = replace(predictor.everywhere, operations=np.ones_like(predictor.everywhere.operations))
        self._explained = Step(predictor.without_open, whole)
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
        scope = self._predictor.scope(calls=calls, operations=operations, regions=regions)
        return self._answer(key, Without(tuple(causes)), scope, is_wait="sync" in causes)

    def without_waits(self, calls: Sequence[BoolArray]) -> list[SavingNs] | None:
        """Without the waits in each of these selections of calls: `without`, all replayed at once."""
        if self.unreliable is not None:
            return None
        keys = [("without", ("sync",), _digest(mask), None, None) for mask in calls]
        new = {key: mask for key, mask in zip(keys, calls, strict=True) if key not in self._known}
        steps = [Step(Without(("sync",)), self._predictor.scope(calls=mask)) for mask in new.values()]
        self._known |= dict(zip(new, self._ranges(steps, is_wait=True), strict=True))
        self.asked += len(new)
        return [self._known[key] for key in keys]

    def faster(self, operations: BoolArray, least: float, most: float) -> SavingNs | None:
        """With these operations (mask over ``trace.operations``) ``least`` to ``most`` times as fast."""
        low, high = (
            self._answer(
                ("faster", factor, _digest(operations)),
                Faster(operations, factor),
                self._predictor.everywhere,
                is_wait=False,
            )
            for factor in (least, most)
        )
        return None if low is None or high is None else (low[0], max(low[1], high[1]))

    def _answer(self, key: tuple[object, ...], change: Change, scope: Scope, *, is_wait: bool) -> SavingNs | None:
        if self.unreliable is not None:
            return None
        if key not in self._known:
            [self._known[key]] = self._ranges([Step(change, scope)], is_wait=is_wait)
            self.asked += 1
        return self._known[key]

    def _ranges(self, steps: Sequence[Step], *, is_wait: bool) -> list[SavingNs]:
        """What each of these changes saves."""
        explained = [(step, self._explained) for step in steps if self._has_open]
        left = self._predictor.ask(*((step,) for step in steps), *explained)
        if self._has_open and self._explained_ns is None:
            self._explained_ns = self._predictor.windows(self._explained)
        return [
            self._range(step, left[number], left[len(steps) + number] if explained else None, is_wait=is_wait)
            for number, step in enumerate(steps)
        ]

    def _range(self, step: Step, left: list[int], explained: list[int] | None, *, is_wait: bool) -> SavingNs:
        predictor, saved = self._predictor, [most_saved(self._predictor.measured_ns, left)]
        if explained is not None and self._explained_ns is not None:
            # Explaining nothing away shortens the trace itself; only what the change adds to that is its doing.
            saved.append(most_saved(self._explained_ns, explained))
        waitless = predictor.without(("sync",))
        waits_matter = most_saved(predictor.measured_ns, waitless) >= WAITS_SHARE * self._longest_ns
        if not is_wait and saved[0] and waits_matter:
            no_waits = Step(Without(("sync",)), predictor.everywhere)
            saved.append(most_saved(waitless, predictor.windows(no_waits, step)))
        low, high = min(saved), max(saved)
        return round(low * (1 - MODEL_ERROR)), min(round(high * (1 + MODEL_ERROR)), self._longest_ns)


def _digest(mask: BoolArray | None) -> tuple[int, int] | None:
    """64 bits and a count tell a few hundred masks apart; hashlib would load OpenSSL first, for 10 ms."""
    return None if mask is None else (hash(np.packbits(mask).tobytes()), int(np.count_nonzero(mask)))
