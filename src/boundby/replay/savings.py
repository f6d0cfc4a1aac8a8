"""What one change alone would save, as rules ask for it: a range, by replay, each question answered once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from boundby.replay.removals import Predictor, unreliable

Bool = npt.NDArray[np.bool_]
SavingNs = tuple[int, int]

# On simulated programs 95 of 100 predictions lie within 0.2 % of the truth (1.2 % in the worst scenario, see
# docs/what-if.md), but a real machine does more than the model knows: no saving is told as more certain than this.
MODEL_ERROR = 0.05
# Delays that no dependency explains are replayed without as well where they are this share of the window or more.
HOLD_SHARE = 0.001
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

    def __init__(self, predictor: Predictor, unreliable_because: str | None = None) -> None:
        self._predictor = predictor
        self.unreliable = unreliable_because or unreliable(predictor.graph, predictor.devices)
        self._known: dict[tuple[object, ...], SavingNs] = {}
        self._measured = [device.high_ns - device.low_ns for device in predictor.devices]
        held = int(predictor.graph.hold_ns.sum())
        self._has_holds = held >= HOLD_SHARE * max(self._measured, default=0)
        self._unheld: list[int] | None = None
        self._waitless: list[int] | None = None
        self.asked = 0  # questions that were replayed

    def without(
        self,
        causes: Sequence[str],
        *,
        calls: Bool | None = None,
        operations: Bool | None = None,
        regions: Bool | None = None,
    ) -> SavingNs | None:
        """Without these causes there: see `Predictor.without`."""
        key = ("without", tuple(causes), _digest(calls), _digest(operations), _digest(regions))

        def replay(holds: bool, waits: bool) -> list[int]:
            return self._predictor.without(causes, calls, operations, regions, holds=holds, waits=waits)

        return self._answer(key, replay, is_wait="sync" in causes)

    def faster(self, operations: Bool, least: float, most: float) -> SavingNs | None:
        """With these operations ``least`` to ``most`` times as fast."""
        slow, quick = self._faster(operations, least), self._faster(operations, most)
        return None if slow is None or quick is None else (slow[0], max(slow[1], quick[1]))

    def _faster(self, operations: Bool, factor: float) -> SavingNs | None:
        key = ("faster", factor, _digest(operations))

        def replay(holds: bool, waits: bool) -> list[int]:
            return self._predictor.faster(operations, factor, holds=holds, waits=waits)

        return self._answer(key, replay, is_wait=False)

    def _answer(
        self, key: tuple[object, ...], replay: Callable[[bool, bool], list[int]], *, is_wait: bool
    ) -> SavingNs | None:
        if self.unreliable is not None:
            return None
        if key not in self._known:
            self._known[key] = self._range(replay, is_wait=is_wait)
            self.asked += 1
        return self._known[key]

    def _range(self, replay: Callable[[bool, bool], list[int]], *, is_wait: bool) -> SavingNs:
        saved = [_most_saved(self._measured, replay(True, True))]
        if self._has_holds:
            if self._unheld is None:
                self._unheld = self._predictor.without((), holds=False)
            # Explaining nothing away shortens the trace itself; only what the change adds to that is its doing.
            saved.append(_most_saved(self._unheld, replay(False, True)))
        waitless = self._without_waits()
        matters = _most_saved(self._measured, waitless) >= WAITS_SHARE * max(self._measured, default=0)
        if not is_wait and saved[0] and matters:
            saved.append(_most_saved(waitless, replay(True, False)))
        low, high = min(saved), max(saved)
        return round(low * (1 - MODEL_ERROR)), min(round(high * (1 + MODEL_ERROR)), max(self._measured, default=0))

    def _without_waits(self) -> list[int]:
        if self._waitless is None:
            self._waitless = self._predictor.without(("sync",))
        return self._waitless


def _most_saved(before: Sequence[int], after: Sequence[int]) -> int:
    return max(0, *(b - a for b, a in zip(before, after, strict=True)))


def _digest(mask: Bool | None) -> bytes | None:
    return None if mask is None else hashlib.blake2b(np.packbits(mask).tobytes(), digest_size=16).digest()
