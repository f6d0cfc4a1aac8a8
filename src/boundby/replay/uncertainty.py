"""What a trace leaves open of a number, as one list: its range, its confidence and the reasons are views of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from boundby.model.open_kinds import KINDS
from boundby.model.scale import MARGIN, QUARTER
from boundby.results.report import CONFIDENCES, Uncertainty

#: How wide, for its middle, a range is of which a prediction is high or medium confidence.
NARROW = 0.12
WIDE = QUARTER
#: A range narrower than this part of the window leaves nothing open that matters.
OPEN_SHARE = MARGIN
#: What the trace knows nothing of: whatever changes here, it lasts as long.
OUTSIDE = "outside"


def uncertainty(
    kind: str, low_ns: int = 0, high_ns: int = 0, steps: int = 0, *, where: Sequence[str] = (), sentence: str = ""
) -> Uncertainty:
    """One of a known kind; ``sentence``: where more is known of it than of its kind."""
    return Uncertainty(kind, tuple(where), low_ns, high_ns, steps, sentence or KINDS[kind].sentence)


def summed(told_ns: int, uncertainties: Iterable[Uncertainty]) -> tuple[int, int, int]:
    """How small and how large a number may be of which all this is uncertain, and by how many steps that lowers the
    confidence in it: the only place where uncertainties are put together."""
    low_ns = high_ns = told_ns
    steps = 0
    for one in uncertainties:
        low_ns, high_ns, steps = low_ns - one.low_ns, high_ns + one.high_ns, max(steps, one.steps)
    return low_ns, high_ns, steps


def level(steps: int) -> str:
    """The confidence that is left after so many steps down."""
    return CONFIDENCES[min(steps, len(CONFIDENCES) - 1)]


class OpenRange(NamedTuple):
    """A number with all that is uncertain of it."""

    told_ns: int
    uncertainties: tuple[Uncertainty, ...] = ()
    floor_ns: int = 0  # the busiest stream that is left, no more than is told

    @property
    def low_ns(self) -> int:
        return summed(self.told_ns, self.uncertainties)[0]

    @property
    def high_ns(self) -> int:
        return summed(self.told_ns, self.uncertainties)[1]

    @property
    def least_ns(self) -> int:
        """The low end as it is told: the work that is left takes its time, however little is known of all else."""
        return max(self.low_ns, self.floor_ns)

    @property
    def held_ns(self) -> int:
        """Of the high end: what is waited for outside of the trace."""
        return sum(one.high_ns for one in self.uncertainties if one.kind == OUTSIDE)

    @property
    def confidence(self) -> str:
        """By how narrow it is, and by what is uncertain whatever that is."""
        low_ns, high_ns, steps = summed(self.told_ns, self.uncertainties)
        width = 2 * (high_ns - low_ns) / max(high_ns + low_ns, 1)
        return level(max(0 if width <= NARROW else 1 if width <= WIDE else 2, steps))

    def confidence_of(self, measured_ns: int) -> str:
        """Never high where the range is worth a word and wider than what would be saved: then whether anything would
        be is open, as of a collective that may have waited for other ranks."""
        saved_ns = max(measured_ns - self.told_ns, OPEN_SHARE * measured_ns)
        is_open = self.high_ns - self.low_ns > saved_ns and self.low_ns < measured_ns
        return level(max(CONFIDENCES.index(self.confidence), int(is_open)))

    def reaching(
        self,
        kind: str,
        low_ns: int | None = None,
        high_ns: int | None = None,
        *,
        steps: int = 0,
        where: Sequence[str] = (),
    ) -> OpenRange:
        """The range with one thing more uncertain: because of it the number may be as small as that, and as large. What
        widens nothing and lowers no confidence is not uncertain."""
        low, high, _ = summed(self.told_ns, self.uncertainties)
        less, more = max(low - (low if low_ns is None else low_ns), 0), max((high_ns or high) - high, 0)
        if not (less or more or steps):
            return self
        return self._replace(uncertainties=(*self.uncertainties, uncertainty(kind, less, more, steps, where=where)))

    def between(self, kind: str, *others_ns: int) -> OpenRange:
        """The range with one thing more uncertain, because of which the number may as well be each of these."""
        return self.reaching(kind, min(others_ns, default=None), max(others_ns, default=None))

    def told_as(self, told_ns: int, kind: str) -> OpenRange:
        """This range's ends for another number. If that lies outside of them, the range is widened to it. What is
        between the two numbers is no longer uncertain at one end, and is at the other, of this kind."""
        later_ns = told_ns - self.told_ns
        rest = _less(self.uncertainties, "high_ns" if later_ns > 0 else "low_ns", abs(later_ns))
        found = self._replace(told_ns=told_ns, uncertainties=rest)
        return found.reaching(kind, min(self.low_ns, told_ns), max(self.high_ns, told_ns))

    def up_to(self, most_ns: int) -> OpenRange:
        """The range as far as it is no more than that."""
        found = self.told_as(min(self.told_ns, most_ns), "model")._replace(floor_ns=min(self.floor_ns, most_ns))
        return found._replace(uncertainties=_less(found.uncertainties, "high_ns", max(found.high_ns - most_ns, 0)))

    @property
    def told(self) -> tuple[Uncertainty, ...]:
        """What is uncertain, so that it adds up to the ends as they are told."""
        return _less(self.uncertainties, "low_ns", self.least_ns - self.low_ns)


def _less(uncertainties: Sequence[Uncertainty], end: str, ns: int) -> tuple[Uncertainty, ...]:
    """Without so many nanoseconds at one end, the last first."""
    kept = []
    for one in reversed(uncertainties):
        less_ns = min(getattr(one, end), ns)
        ns -= less_ns
        one = replace(one, **{end: getattr(one, end) - less_ns}) if less_ns else one
        if one.low_ns or one.high_ns or one.steps:
            kept.append(one)
    return tuple(reversed(kept))
