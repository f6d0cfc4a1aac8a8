"""From measured paces to what a part is worth: the pace as the longest of the program's cycles.

A program that repeats has cycles: chains of work that the next step waits for. Of a cycle only counts which parts lie
on it. The pace is ``max over cycles c of (length_c + delays of the parts on c)``. A delay shows what lengthening a part
costs. What shortening it saves is another question: it ends where the longest cycle without that part begins. Both
sides are in the lengths, so these are what is fitted.

The lengths are known only as far as the paces tell, and different lengths can explain the same paces. So the fit is no
single answer but a set of them, weighed by how well they explain what was measured (Bayes' rule): a sequential Monte
Carlo sampler (Del Moral, Doucet, Jasra 2006), which also finds answers that lie far apart. The middle half of the set
gives the value, 95 % of it the interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from boundby.model.scale import HALF, MARGIN, NEGLIGIBLE, NOTABLE, SLIGHT
from boundby.model.statistics import CONFIDENCE

Float = NDArray[np.float64]

PARTICLES = 1_200
#: Steps of the sampler end when the effective number of particles has fallen to this share.
_KEPT = HALF
_MOVES = 4
#: Share of sets in which a chain of parts takes exactly what its work adds up to, or a part what was measured of it.
#: The others leave it open: taking a batch from a queue is the host's work and looks like waiting, a thread that
#: spins until something comes waits and looks like work.
_EXACT = HALF
#: How far the model itself may be off, as a share of the step.
_MODEL_ERROR = 0.003
#: Jitter rounds the corner between two cycles: the typical width of that, as a share of the step.
_ROUNDING = NEGLIGIBLE
#: Where the program waits for something outside (a sender, a clock), its pace is that of none of its parts. How
#: probable that is before anything is delayed: as long as its thread is seen asleep, within these.
_LEAST_OUTSIDE, _MOST_OUTSIDE = NEGLIGIBLE, NOTABLE
#: An interval is told no narrower than this on either side, so exactly the model holds (see docs/prove.md).
LEAST_MARGIN = SLIGHT
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


class DelayedPace(Struct, frozen=True):
    """A pace that was measured with these delays (ns a step, as they happened), against that without any.

    ``difference_ns`` is how much longer a step took; ``error_ns`` its standard error, with ``freedom`` degrees.
    ``core_wait_ns`` is how long each part could run and had no core, ``beside_ns`` the same where nothing was delayed.
    """

    delay_ns: Mapping[str, float]
    difference_ns: float
    error_ns: float
    freedom: float = 30.0
    core_wait_ns: Mapping[str, float] = {}
    beside_ns: Mapping[str, float] = {}


class Worth(Struct, frozen=True):
    """What a nanosecond is worth."""

    value: float
    low: float
    high: float


class Fit(Struct, frozen=True):
    """What the paces say together. Every part's worth is over the first ``reach_ns`` that are saved of it."""

    worth: Mapping[str, Worth]
    reach_ns: Mapping[str, float]
    likely: Mapping[str, float]
    """The probability of each answer: a part, ``serial``, ``balanced`` or ``outside``."""
    beyond: Mapping[str, float]
    """The probability of each answer, once the part that is worth most takes no time."""
    misfit: float = 0.0
    """How far the best answer is from the paces, in standard errors: above 1 they are told that much less exactly."""


def fit(
    step_ns: float,
    error_ns: float,
    paces: Sequence[DelayedPace],
    busy: Mapping[str, float | None],
    reach_ns: float,
    core_wait_ns: Mapping[str, float] | None = None,
    asleep_ns: float | None = None,
    whole: Collection[str] = (),
) -> Fit:
    """Weigh what lengths of cycles explain these paces.

    ``step_ns`` is without a delay, ``busy`` what each part's own work takes a step, as it was measured (None: it was
    not), ``core_wait_ns`` how long it could run a step and had no core: a delay as others are, but made by the machine.
    What a part is worth is told for all loads from none of that to all of it. ``asleep_ns`` is how long the steps'
    thread slept, not for a batch (None: that is not known). ``whole`` are the parts that cannot take longer than was
    measured.
    """
    parts = tuple(busy)
    random = np.random.default_rng(0)  # the same measurement gives the same answer
    asleep = _MOST_OUTSIDE if asleep_ns is None else min(max(asleep_ns / step_ns, _LEAST_OUTSIDE), _MOST_OUTSIDE)
    problem = _Problem(parts, step_ns, error_ns, paces, busy, core_wait_ns or {}, asleep, whole)
    state = _sample(problem, random)
    misfit = problem.misfit(state)
    if misfit > 1.0:  # cycles do not explain these paces as exactly as they were measured (Birge, 1932)
        problem.widen(misfit)
        state = _sample(problem, random)
    lengths, rounding = problem.lengths(state)
    lengths = lengths + random.random((PARTICLES, 1)) * problem.waits(state)
    now = _pace(lengths, rounding)
    own = {part: reach_ns if measured is None else measured for part, measured in busy.items()}
    reach = {part: min(reach_ns, max(own[part], step_ns * MARGIN)) for part in parts}
    saved = {part: _saved(problem, lengths, rounding, now, part, reach[part] / step_ns) for part in parts}
    likely = _likely(problem, lengths, saved)
    best = max(parts, key=lambda part: float(np.mean(saved[part])))
    return Fit(
        {part: _worth(_with_hidden(lengths, saved[part], random)) for part in parts},
        reach,
        likely,
        _next(problem, lengths, state, best),
        misfit,
    )


def _saved(problem: _Problem, lengths: Float, rounding: Float, now: Float, part: str, reach: float) -> Float:
    without = lengths - reach * problem.on[:, problem.parts.index(part)]
    return np.clip((now - _pace(without, rounding)) / reach, 0.0, 1.0)


def _with_hidden(lengths: Float, saved: Float, random: np.random.Generator) -> Float:
    """Where something that was not delayed sets the pace, it may be work of the part all the same.

    A delay outside of a lock costs nothing while another thread holds it, and work under the lock sets the pace.
    """
    number = len(saved)
    hidden = np.clip(random.uniform(-2.0, 2.0, number), 0.0, 1.0)  # as probable: none of it, and some or all
    return np.where(_is_outside(lengths), hidden, saved)


def _is_outside(lengths: Float) -> NDArray[np.bool_]:
    longest: NDArray[np.bool_] = lengths[:, 0] >= lengths.max(axis=1)
    return longest


def _worth(values: Float) -> Worth:
    low, high = np.quantile(values, _TAILS)
    middle = float(np.median(values))
    return Worth(
        round(middle, 3),
        round(max(0.0, min(float(low), middle - LEAST_MARGIN)), 3),
        round(min(1.0, max(float(high), middle + LEAST_MARGIN)), 3),
    )


SERIAL, BALANCED, OUTSIDE = "serial", "balanced", "outside"


def _likely(problem: _Problem, lengths: Float, saved: Mapping[str, Float]) -> dict[str, float]:
    """How probable it is that one part, several or none are worth more than half of what they save."""
    worth = np.stack([saved[part] > HALF for part in problem.parts], axis=1)
    number = worth.sum(axis=1)
    outside = (number == 0) & _is_outside(lengths)
    answers = {part: float(np.mean((number == 1) & worth[:, at])) for at, part in enumerate(problem.parts)}
    answers[SERIAL] = float(np.mean(number > 1))
    answers[BALANCED] = float(np.mean((number == 0) & ~outside))
    answers[OUTSIDE] = float(np.mean(outside))
    return answers


def _next(problem: _Problem, lengths: Float, state: Float, gone: str) -> dict[str, float]:
    """How probable each part is to limit the pace once ``gone`` takes no time, and that nothing is left."""
    at = problem.parts.index(gone)
    left = np.maximum(lengths - state[:, at : at + 1] * problem.on[:, at], 0.0)
    longest = problem.on[left.argmax(axis=1)].copy()
    longest[:, at] = 0
    alone = longest.sum(axis=1) == 1
    answers = {
        part: float(np.mean(alone & (longest[:, other] > 0))) for other, part in enumerate(problem.parts) if other != at
    }
    answers[SERIAL] = float(np.mean(longest.sum(axis=1) > 1))
    answers[OUTSIDE] = float(np.mean(longest.sum(axis=1) == 0))
    return answers


def _pace(lengths: Float, rounding: Float) -> Float:
    """The longest of the cycles (last axis), with its corners rounded."""
    longest = lengths.max(axis=-1)
    width = rounding.reshape(rounding.shape + (1,) * (longest.ndim - rounding.ndim))
    near = np.exp((lengths - longest[..., None]) / width[..., None])
    pace: Float = longest + width * np.log(near.sum(axis=-1))
    return pace


class _Problem:
    """What was measured, in units of the step; and the parameters of a set of lengths, one column each:

    the parts' own times, how much of their sum each chain of several parts takes, the pace from outside, the rounding,
    and the share of the waits for a core that lengthen a part (a wait for a clock goes on without a core).
    """

    def __init__(
        self,
        parts: tuple[str, ...],
        step_ns: float,
        error_ns: float,
        paces: Sequence[DelayedPace],
        busy: Mapping[str, float | None],
        core_wait_ns: Mapping[str, float],
        from_outside: float,
        whole: Collection[str],
    ) -> None:
        self.parts = parts
        number = len(parts)
        self.chains = [chain for size in range(2, number + 1) for chain in combinations(range(number), size)]
        rows = [(), *((at,) for at in range(number)), *self.chains]
        #: shape (cycles, parts): which parts lie on which cycle; the first cycle is the outside's
        self.on = np.array([[float(at in row) for at in range(number)] for row in rows])
        self._chained = self.on[1 + number :]
        self._measured = np.array([busy[part] or 0.0 for part in parts]) / step_ns
        self._exact = np.array([0.0 if busy[part] is None else _EXACT for part in parts])

        def of_cycles(times: Sequence[Mapping[str, float]]) -> Float:
            """Of these times of parts how much each cycle has, as shares of a step: shape (times, cycles)."""
            rows = np.array([[time.get(part, 0.0) for part in parts] for time in times]).reshape(-1, number)
            shares: Float = rows / step_ns @ self.on.T
            return shares

        self._added = of_cycles([pace.delay_ns for pace in paces])
        self._waited = of_cycles([pace.core_wait_ns for pace in paces])
        self._beside = of_cycles([pace.beside_ns for pace in paces])
        self._base = of_cycles([core_wait_ns])
        self._from_outside = from_outside
        self._most = np.where([part in whole for part in parts], self._measured, 1.0)
        self._differences = np.array([pace.difference_ns for pace in paces]) / step_ns
        own = np.array([pace.error_ns for pace in paces]) / step_ns
        self._errors = np.hypot(own, _MODEL_ERROR)
        self._freedom = np.array([pace.freedom for pace in paces])
        self._error = float(np.hypot(error_ns / step_ns, _MODEL_ERROR))
        self.columns = number + len(self.chains) + 3

    def draw(self, number: int, random: np.random.Generator) -> Float:
        """Sets before anything is measured, shape (number, columns)."""
        parts, chains = len(self.parts), len(self.chains)
        own = np.where(
            random.random((number, parts)) < self._exact,
            random.normal(self._measured, MARGIN * self._measured + _MODEL_ERROR, (number, parts)),
            random.uniform(0.0, self._most, (number, parts)),
        )
        exact = random.random((number, chains)) < _EXACT
        sums = np.where(exact, random.normal(1.0, MARGIN, (number, chains)), random.uniform(0.0, 1.0, (number, chains)))
        outside = np.where(random.random(number) < self._from_outside, random.uniform(0.0, 1.0, number), 0.0)
        rounding = random.exponential(_ROUNDING, number) + _MODEL_ERROR / 10
        counts = np.where(random.random(number) < _EXACT, 1.0, random.random(number))
        return np.column_stack([np.maximum(own, 0.0), sums, outside, rounding, counts])

    def lengths(self, state: Float) -> tuple[Float, Float]:
        """Shape (sets, cycles), and the rounding of each set."""
        parts, chains = len(self.parts), len(self.chains)
        own = state[:, :parts]
        chained = state[:, parts : parts + chains] * (own @ self._chained.T)
        return np.column_stack([state[:, -3], own, chained]), state[:, -2]

    def misfit(self, state: Float) -> float:
        """Of the set that explains the paces best: the root of the mean square, in standard errors."""
        off, _ = self._off(state)
        return float((off**2).mean(axis=1).min() ** HALF)

    def widen(self, by: float) -> None:
        """Take the paces for so many times less exact."""
        self._errors = self._errors * by
        self._error *= by

    def waits(self, state: Float) -> Float:
        """By how much waits for a core lengthen each cycle in each set where nothing is delayed."""
        counted: Float = state[:, -1:] * self._base
        return counted

    def _off(self, state: Float) -> tuple[Float, Float]:
        """By how many standard errors each pace is longer than in each set, and the pace there without a delay."""
        lengths, rounding = self.lengths(state)
        counts = state[:, -1:, None]
        now = _pace(lengths + self.waits(state), rounding)
        delayed = _pace(lengths[:, None, :] + self._added + counts * self._waited, rounding)
        beside = _pace(lengths[:, None, :] + counts * self._beside, rounding)
        off: Float = (1.0 + self._differences - (now[:, None] + delayed - beside)) / self._errors
        return off, now

    def score(self, state: Float) -> Float:
        """The logarithm of how probable the measurement is in each set."""
        off, now = self._off(state)
        fits = -0.5 * (self._freedom + 1) * np.log1p(off**2 / self._freedom)
        scores: Float = fits.sum(axis=1) - 0.5 * ((now - 1.0) / self._error) ** 2
        return scores


def _sample(problem: _Problem, random: np.random.Generator) -> Float:
    """Sets as they are after the measurement, equally weighed."""
    state = problem.draw(PARTICLES, random)
    scores = problem.score(state)
    reached = 0.0
    while reached < 1.0:
        step = _next_share(scores, 1.0 - reached)
        reached += step
        weights = np.exp(step * (scores - scores.max()))
        chosen = _resample(weights / weights.sum(), random)
        state, scores = state[chosen], scores[chosen]
        for _ in range(_MOVES):
            state, scores = _move(problem, state, scores, reached, random)
    return state


def _next_share(scores: Float, left: float) -> float:
    """How much more of the measurement can be told at once."""
    low, high = 0.0, left
    if _effective(high * scores) >= _KEPT:
        return left
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _effective(middle * scores) >= _KEPT else (low, middle)
    return max(low, 1e-6)


def _effective(logarithms: Float) -> float:
    weights = np.exp(logarithms - logarithms.max())
    return float(weights.sum() ** 2 / (weights**2).sum()) / len(weights)


def _resample(weights: Float, random: np.random.Generator) -> NDArray[np.int64]:
    """Systematic: each set as often as its weight says, give or take one."""
    number = len(weights)
    points = (np.arange(number) + random.random()) / number
    chosen: NDArray[np.int64] = np.minimum(np.searchsorted(np.cumsum(weights), points), number - 1)
    return chosen


def _move(
    problem: _Problem, state: Float, scores: Float, told: float, random: np.random.Generator
) -> tuple[Float, Float]:
    """Metropolis: one or two columns drawn anew from what is known before, so that only the scores decide."""
    number, columns = state.shape
    fresh = problem.draw(number, random)
    picked = np.zeros((number, columns), dtype=bool)
    picked[np.arange(number), random.integers(0, columns, number)] = True
    twice = np.flatnonzero(random.random(number) < HALF)
    picked[twice, random.integers(0, columns, len(twice))] = True
    tried = np.where(picked, fresh, state)
    tried_scores = problem.score(tried)
    taken = np.log(random.random(number)) < told * (tried_scores - scores)
    return np.where(taken[:, None], tried, state), np.where(taken, tried_scores, scores)
