"""From what a program showed while it warmed up to a plan: its steps, its parts, which blocks to run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from boundby.experiment import paces
from boundby.experiment.paces import DEVICE, HOST, INPUT, Condition
from boundby.measure import sampling
from boundby.model.errors import UserError
from boundby.model.expressions import expression
from boundby.model.scale import DISPATCH_NS, QUARTER
from boundby.model.statistics import FEWEST
from boundby.results import write

#: Delays as shares of a step: beyond a quarter bias rules, not noise (docs/prove.md).
LARGE, SMALL = QUARTER, QUARTER / 2
#: A block counts at least so many steps, and a batch of every worker.
LEAST_STEPS = FEWEST
#: A block lasts so long, if as many steps are not asked for: a shorter one is lost to a single turn of another program.
BLOCK_NS = sampling.MIN_SAMPLING_NS
#: Two rounds give each condition four differences of neighbouring blocks, three give six.
ROUNDS, MOST_ROUNDS = 2, 4
#: A step that takes less cannot be delayed by a quarter: sleeps are that inexact.
SHORTEST_NS = DISPATCH_NS
#: A warm-up that is not steady after so many steps, or so long, goes on no longer.
MOST_WARM_UP, LONGEST_WARM_UP_NS = 300, 20_000_000_000
_STEP_NAME = expression(r"(?:^|[ _/-])(?:step|iteration|iter|batch)(?:$|[ _/#*-])", 2)
_NVTX = "nvtx:"
_TOLD = ("annotate.steps", "ProfilerStep")
_LOOPS = ("optimizer", "loader")
MARK = "Mark them: for batch in boundby.annotate.steps(loader), or with nvtx.annotate('step'): around each."


class ExperimentError(UserError):
    """A program on which no experiment can be made."""


class PlannedFeed(Struct, frozen=True):
    """The program's loader: ``main`` (the steps' own thread), ``workers`` or ``thread``."""

    kind: str
    workers: int = 0
    prefetch: int = 0

    @property
    def each(self) -> int:
        """Batches that are loaded at the same time."""
        return max(self.workers, 1)


class FoundParts(Struct, frozen=True):
    """What a program showed while it warmed up."""

    source: str
    step_ns: int
    feed: PlannedFeed | None
    device: str | None
    places: tuple[str, ...]
    ranks: int
    warm_up_steps: int
    is_steady: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """What can be delayed."""
        return (HOST, *((INPUT,) if self.feed else ()), *((DEVICE,) if self.device else ()))


class BlockPlan(Struct, frozen=True):
    """The blocks to run, and how long that takes."""

    found: FoundParts
    place: str
    blocks: tuple[Condition, ...]
    drop: int
    count: int

    @property
    def steps(self) -> int:
        """Steps that are counted."""
        return len(self.blocks) * self.count

    @property
    def all_steps(self) -> int:
        """With those that fill and drain queues."""
        feed = self.found.feed
        drain = feed.workers * max(feed.prefetch, 1) if feed else 0
        return len(self.blocks) * (self.count + self.drop + drain)

    @property
    def time_ns(self) -> int:
        """About how long it takes."""
        shares = [1 + block.share * len(block.delayed) for block in self.blocks]
        return round(self.all_steps * self.found.step_ns * float(np.mean(shares)))

    def shares(self, block: Condition) -> dict[str, float]:
        """By what share of a step each part is delayed where it happens: a step, or a batch of one worker."""
        each = {INPUT: self.found.feed.each if self.found.feed else 1}
        return {part: block.share * each.get(part, 1) for part in block.delayed}

    def to_dict(self) -> dict[str, Any]:
        """For the program's process."""
        return {
            "source": self.found.source,
            "place": self.place,
            "step_ns": self.found.step_ns,
            "drop": self.drop,
            "count": self.count,
            "each": self.found.feed.each if self.found.feed else 1,
            "blocks": [{"shares": self.shares(block), "remedy": block.remedy} for block in self.blocks],
        }


def _feed_of(told: Mapping[str, Any], source: str) -> PlannedFeed | None:
    """The loader of the steps that this source marks; None: there is none."""
    feed = told["feed"]
    if not feed:
        return None
    if feed["kind"] == "workers":
        return PlannedFeed("workers", feed["workers"], feed["prefetch"])
    return PlannedFeed("thread" if told["feed_is_apart"].get(source) else "main", feed["workers"], feed["prefetch"])


def look(told: Mapping[str, Any], *, named: str | None = None) -> FoundParts | None:
    """What the program shows so far; None: too little to tell. ``named``: the range that is the step."""
    times = {source: ticks for source, ticks in told["times"].items() if len(ticks) > 2}
    source = _steps_of(times, named)
    if source is None:
        return None
    spans = [after - before for before, after in pairwise(times[source])]
    settled = sampling.steady_from(spans)
    too_long = len(spans) >= MOST_WARM_UP or sum(spans) > LONGEST_WARM_UP_NS
    if settled is None and not (too_long and len(spans) >= sampling.MIN_STEADY):
        return None
    if len(spans) < sampling.MIN_STEADY:
        return None
    first = settled if settled is not None else len(spans) // 2
    return FoundParts(
        source,
        round(float(np.median(spans[first:]))),
        _feed_of(told, source),
        told["device"],
        tuple(told["places"]),
        int(told["ranks"]),
        len(spans),
        settled is not None,
    )


def _steps_of(times: Mapping[str, Sequence[int]], named: str | None) -> str | None:
    """What marks the steps: the program's own word first, then its optimizer, loader, then what repeats outermost."""
    ranges = {source: source.split(":", 2) for source in times if source.startswith(_NVTX)}
    if named is not None:
        wanted = [source for source, (_, _, name) in ranges.items() if name in (named, _folded(named))]
        return min(wanted, default=None)
    said = [source for source in _TOLD if source in times]
    said += sorted(
        (source for source, (_, _, name) in ranges.items() if _STEP_NAME.search(name)),
        key=lambda source: (int(ranges[source][1]), -len(times[source])),
    )
    said += [source for source in _LOOPS if source in times]
    said += sorted(ranges, key=lambda source: (int(ranges[source][1]), -len(times[source])))
    return said[0] if said else None


_DIGITS = expression(r"\d+")


def _folded(name: str) -> str:
    return _DIGITS.sub("*", name)


def plan(
    found: FoundParts,
    steps: int | None,
    *,
    place: str = "begin",
    removals: Sequence[str] = (),
    without_delays: bool = False,
) -> BlockPlan:
    """Which blocks to run in some ``steps`` (None: as many as make a good answer).

    Raises:
        ExperimentError: there cannot be an experiment.
    """
    check(found, place)
    each = found.feed.each if found.feed else 1
    drop = max(2, 2 * each)
    least = LEAST_STEPS if steps is not None else max(LEAST_STEPS, BLOCK_NS // found.step_ns)
    count = -(-least // each) * each
    if without_delays:
        return BlockPlan(found, place, (paces.BASE,) * FEWEST, drop, count)
    both = paces.conditions(found.parts, (SMALL, LARGE), removals)
    large = paces.conditions(found.parts, (LARGE,), removals)
    if steps is None:
        steps = count * (1 + 3 * ROUNDS * len(both)) if len(found.parts) > 1 else 20 * count
    blocks = steps // count
    wanted = both if paces.rounds_within(blocks, len(both)) >= ROUNDS else large
    rounds = min(paces.rounds_within(blocks, len(wanted)), MOST_ROUNDS)
    if rounds < 1:
        least = count * (1 + 3 * len(large))
        raise ExperimentError(
            f"{steps} steps are too few for {len(large) + 1} conditions in blocks of {count}.",
            f"Give at least --steps {least}, better {count * (1 + 3 * ROUNDS * len(large))}.",
        )
    order = paces.order(wanted, rounds)
    return BlockPlan(found, place, order, drop, max(count, steps // len(order) // each * each))


def check(found: FoundParts, place: str) -> None:
    """Refuse what cannot be told."""
    if found.ranks > 1:
        raise ExperimentError(
            f"This is one of {found.ranks} ranks of a job: a delay here would hold up the others.",
            "Run the program on one rank (without torchrun), or look at the job: boundby job.",
        )
    if found.step_ns < SHORTEST_NS:
        raise ExperimentError(
            f"A step takes {found.step_ns / 1000:.0f} us: too short to delay a part of it by a quarter.",
            "Mark larger steps: several of these in one range.",
        )
    if place not in found.places:
        raise ExperimentError(
            f"The host cannot be delayed at the place {place!r} of a step of this program.",
            f"It can at: {', '.join(found.places)}.",
        )


def nothing_found(told: Mapping[str, Any] | None) -> ExperimentError:
    """Why there is no experiment on a program that has ended."""
    if told is None or not told["times"]:
        return ExperimentError("The program showed no steps.", MARK)
    most = max(len(ticks) for ticks in told["times"].values())
    return ExperimentError(
        f"The program ended after {most} steps, before it had warmed up.",
        "Let it run for more steps, or fewer with --steps.",
    )


def make_folder_ready(folder: Path, plan_: BlockPlan) -> None:
    """Tell the program's process."""
    write.write_text(folder / "plan", json.dumps(plan_.to_dict()))
