"""What removing each cause would save, by replay: for every device, and inside every region that matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from boundby.attribution.timeline import DeviceTimeline, Timeline
from boundby.model.arrays import FloatArray, Int64Array
from boundby.model.causes import BUSY_CAUSES, REMOVABLE, SCENARIO_OF_CAUSE, SCENARIOS, Cause
from boundby.model.scale import HALF, MARGIN, NEGLIGIBLE, NOTABLE
from boundby.native.passes import AT_ONCE
from boundby.replay.predictor import MODEL_ERROR, Predictor, ReplayStep, most_saved
from boundby.replay.removals import Scope, Without
from boundby.replay.trust import OpenRange
from boundby.results.report import OpenDoubt

# Regions below this share of the window are not replayed: they cannot save more than they hold.
REGION_SHARE = NEGLIGIBLE
# More regions than this are not replayed, largest first.
MOST_REGIONS = 60
# A cause of which a region holds less than this share of its own time is not replayed there.
CAUSE_SHARE = MARGIN
# A cause that saves less of the window everywhere is not looked for in the regions.
LEAST_SAVED_SHARE = 0.003
# Of what all waits would save, the account shows so much where it calls idle time ``sync``; else it shows no waits that
# cost.
LEAST_SHOWN = NOTABLE
# A cause with more of the window is what binds it, whatever the waits keep apart.
MOST_OF_IT = HALF
# Regions are replayed together up to so many questions: few passes that are not full, and few masks.
ASKED_TOGETHER = AT_ONCE
_HOST = tuple(cause for cause in REMOVABLE if cause not in (*BUSY_CAUSES, Cause.SYNC))


class Counterfactuals(Struct, frozen=True):
    """Savings in nanoseconds by cause: ``sync`` from the program as it ran, every other cause from the program that
    no longer waits, or as it ran where its waits are not what costs it most (`_is_as_it_ran`). Empty where there was
    nothing to replay. ``unreliable`` says why the trace cannot be replayed to be trusted; None: it can."""

    device: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # by device index
    following: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # by device index, its best cause gone too
    region: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # by region, summed over devices
    alone: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # by region, while all else stays as it ran
    predicted_ns: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # windows by device index and scenario
    between: Mapping[int, Mapping[str, OpenRange]] = field(default_factory=dict)  # how short and how long these may be
    doubts: Mapping[int, tuple[OpenDoubt, ...]] = field(default_factory=dict)  # by device index
    unreliable: str | None = None
    undelayed: Undelayed | None = None  # where nothing but turns on the device makes it unreliable
    #: By device index: much idle time in which launched work did not start for no reason on record, by what the account
    #: calls it.
    delayed: Mapping[int, Mapping[Cause, int]] = field(default_factory=dict)
    filled: Filled | None = None  # where work is lost

    def alone_ns(self, device: int, cause: str) -> int | None:
        """The window of a device (index) without this cause alone, everything else as it was; None: not replayed."""
        return self.predicted_ns.get(device, {}).get(SCENARIO_OF_CAUSE.get(cause, ""))


class Undelayed(Struct, frozen=True):
    """Savings by device index and by region, had no ready work been delayed (by what else has the device)."""

    device: Mapping[int, Mapping[str, int]]
    region: Mapping[int, Mapping[str, int]]


class Filled(Struct, frozen=True):
    """The account and the replay of the same trace, had the device been busy whenever lost work may have run."""

    device_ns: Mapping[int, Int64Array]  # by device index, shape (causes,)
    inclusive: Int64Array  # shape (regions, causes)
    replayed: Counterfactuals


def counterfactuals(predictor: Predictor, inclusive: Int64Array) -> Counterfactuals:
    """Replay the trace without each cause. ``inclusive`` is the account by region, shape (regions, causes)."""
    held_ns = predictor.held_ns()
    held = _worth_replaying(held_ns, 0)
    _ask_everywhere(predictor, held)
    predicted = _scenarios(predictor, held)
    device, is_as_it_ran = _device_savings(predictor, held, ())
    region, alone = _regions(predictor, inclusive, held, held_ns, is_as_it_ran=is_as_it_ran)
    return Counterfactuals(
        device=device,
        following={
            index: _following(predictor, position, device[index], held) for position, index in enumerate(device)
        },
        region=region,
        alone=alone,
        predicted_ns=predicted,
        between=_ranges(predictor, predicted, held),
        doubts=predictor.doubts,
        unreliable=predictor.unreliable,
        delayed=predictor.delayed,
        undelayed=_undelayed(predictor, inclusive, held, held_ns) if predictor.is_delayed else None,
    )


def _undelayed(predictor: Predictor, inclusive: Int64Array, held: set[Cause], held_ns: FloatArray) -> Undelayed:
    last = (predictor.undelayed,)
    device, _ = _device_savings(predictor, held, last)
    return Undelayed(device, _regions(predictor, inclusive, held, held_ns, last)[0])


def savings_by_cause(predictor: Predictor) -> dict[int, dict[str, int]]:
    """Savings by device index and cause: see `Counterfactuals`."""
    return _device_savings(predictor, _worth_replaying(predictor.held_ns(), 0), ())[0]


def _device_savings(
    predictor: Predictor, held: set[Cause], last: tuple[ReplayStep, ...]
) -> tuple[dict[int, dict[str, int]], bool]:
    """Savings by device index and cause, and whether all of them are from the program as it ran. ``held``: the causes
    that there is anything of; ``last``: changes that are made to all that is compared."""
    no_waits = ReplayStep(Without(("sync",)), predictor.everywhere)
    gone = {cause: ReplayStep(Without((cause.key,)), predictor.everywhere) for cause in held}
    first = {cause: _gone_before(predictor, cause, no_waits) for cause in REMOVABLE}
    waitless_steps = [(*first[cause], step, *last) for cause, step in gone.items() if cause != Cause.SYNC]
    predictor.ask((no_waits, *last), *waitless_steps, *((step, *last) for step in gone.values()))
    without_sync = predictor.windows(no_waits, *last)
    measured = predictor.windows(*last) if last else predictor.measured_ns
    waitless: dict[int, dict[str, int]] = {item.index: {} for item in predictor.devices}
    alone: dict[int, dict[str, int]] = {item.index: {} for item in predictor.devices}
    for cause in REMOVABLE:
        before = without_sync if first[cause] else measured
        after, after_alone = before, measured
        if cause in held:
            after = without_sync if cause == Cause.SYNC else predictor.windows(*first[cause], gone[cause], *last)
            after_alone = predictor.windows(gone[cause], *last)
        for number, item in enumerate(predictor.devices):
            waitless[item.index][cause.key] = max(before[number] - after[number], 0)
            alone[item.index][cause.key] = max(measured[number] - after_alone[number], 0)
    as_it_ran = [
        item.index for item in predictor.devices if _is_as_it_ran(item, waitless[item.index], alone[item.index])
    ]
    return waitless | {index: alone[index] for index in as_it_ran}, len(as_it_ran) == len(waitless)


def _gone_before(predictor: Predictor, cause: Cause, no_waits: ReplayStep) -> tuple[ReplayStep, ...]:
    """What is gone before this cause is: waits for the device, unless it is those themselves, or waits for other ranks,
    which last for longer then: the messages come when they come."""
    is_apart = cause == Cause.SYNC or (cause == Cause.HOST_BLOCKED and predictor.awaits_ranks)
    return () if is_apart else (no_waits,)


def _is_as_it_ran(device: DeviceTimeline, waitless: Mapping[str, int], alone: Mapping[str, int]) -> bool:
    """Whether a device's savings are to be held against each other from the program as it ran, not from the one that
    no longer waits.

    Waits keep host and device from overlapping; were each removed from the program as it ran, none would ever be sync
    bound. Yet the replay lets the host run ahead of the device for as long as it takes. Where the account shows no such
    waits but a host at work for longer than they would save, or where all hangs on a single wait, the waits are no
    trouble of their own."""
    time_ns, sync_ns = device.segments.by_cause(), waitless[Cause.SYNC.key]
    window_ns = int(time_ns.sum())
    error_ns, best_ns = MODEL_ERROR * window_ns, max(ns for key, ns in waitless.items() if key != Cause.SYNC.key)
    if sync_ns + error_ns < best_ns:
        return False
    costliest_ns = int(device.gaps.sync_ns.max(initial=0))
    if costliest_ns and sync_ns - costliest_ns + error_ns < best_ns:
        return True
    own_ns = max(min(int(time_ns[cause]), alone[cause.key]) for cause in _HOST)
    is_shown = time_ns[Cause.SYNC] >= LEAST_SHOWN * sync_ns and own_ns <= MOST_OF_IT * window_ns
    return not is_shown and own_ns > sync_ns + error_ns


def _ask_everywhere(predictor: Predictor, held: set[Cause]) -> None:
    """Replay at once what is asked of all regions together: scenarios, and each cause alone and once nothing waits."""
    keys = {cause.key for cause in held}
    causes = [(Without(scenario.causes),) for scenario in SCENARIOS.values() if keys & set(scenario.causes)]
    no_waits = Without(("sync",))
    both = [more for key in sorted(keys) for more in ((Without((key,)),), (no_waits, Without((key,))))]
    predictor.ask(
        *([ReplayStep(change, predictor.everywhere) for change in each] for each in (*causes, (no_waits,), *both))
    )


def _scenarios(predictor: Predictor, held: set[Cause]) -> dict[int, dict[str, int]]:
    """Windows by device index and scenario. Removing something never makes a program slower; a replay's rounding of
    dependencies can."""
    keys = {cause.key for cause in held}
    predicted: dict[int, dict[str, int]] = {item.index: {} for item in predictor.devices}
    for scenario in SCENARIOS.values():
        windows = predictor.without(scenario.causes) if keys & set(scenario.causes) else predictor.measured_ns
        for item, window, measured in zip(predictor.devices, windows, predictor.measured_ns, strict=True):
            predicted[item.index][scenario.key] = min(window, measured)
    for lengths in predicted.values():  # nor does removing more: where streams take turns, their order can
        for scenario in SCENARIOS.values():
            parts = [lengths[part.key] for part in SCENARIOS.values() if set(part.causes) < set(scenario.causes)]
            lengths[scenario.key] = min([lengths[scenario.key], *parts])
    return predicted


def _ranges(
    predictor: Predictor, predicted: Mapping[int, Mapping[str, int]], held: set[Cause]
) -> dict[int, dict[str, OpenRange]]:
    """What the trace leaves open of every scenario's windows."""
    keys = {cause.key for cause in held}
    open_ranges: dict[int, dict[str, OpenRange]] = {index: {} for index in predicted}
    causes = [scenario.causes for scenario in SCENARIOS.values() if keys & set(scenario.causes)]
    predictor.ask_open(*((ReplayStep(Without(each), predictor.everywhere),) for each in causes))
    for scenario in SCENARIOS.values():
        lengths = [by_scenario[scenario.key] for by_scenario in predicted.values()]
        ranges = [OpenRange(length, (), floor) for length, floor in zip(lengths, predictor.floors_ns, strict=True)]
        if keys & set(scenario.causes):
            ranges = predictor.between(lengths, ReplayStep(Without(scenario.causes), predictor.everywhere))
        for index, between in zip(predicted, ranges, strict=True):
            open_ranges[index][scenario.key] = between
    for ranges_of in open_ranges.values():  # an order that is open for a part is open for the whole
        for scenario in SCENARIOS.values():
            parts = [ranges_of[part.key] for part in SCENARIOS.values() if set(part.causes) <= set(scenario.causes)]
            lowers = {doubt.kind for part in parts for doubt in part.uncertainties if doubt.steps}
            for kind in sorted(lowers - {doubt.kind for doubt in ranges_of[scenario.key].uncertainties if doubt.steps}):
                ranges_of[scenario.key] = ranges_of[scenario.key].reaching(kind, steps=1)
    return open_ranges


def _regions(
    predictor: Predictor,
    inclusive: Int64Array,
    held: set[Cause],
    held_ns: FloatArray,
    last: tuple[ReplayStep, ...] = (),
    *,
    is_as_it_ran: bool = False,
) -> tuple[dict[int, dict[str, int]], dict[int, dict[str, int]]]:
    """Savings inside each region that matters, by cause: once its waits are gone (or, ``is_as_it_ran``, as the devices'
    are), and of each cause alone. ``held_ns``: see `Predictor.held_ns`; ``last``: see `_device_savings`, with which
    none is asked alone."""
    timeline = predictor.timeline
    at_most, alone_at_most = _most_everywhere(predictor, held, last)
    least = LEAST_SAVED_SHARE * timeline.total_ns
    may_alone = set() if last else {cause for cause, ns in alone_at_most.items() if ns >= least}
    filled = predictor.filled()
    alike: dict[bytes, int] = {}  # what lies in a region, and the first that holds just that
    first: dict[int, int] = {}
    waiting: dict[int, _Asked] = {}
    saved_of: dict[int, dict[str, int]] = {}
    found_alone: dict[int, dict[str, int]] = {}

    def replay() -> None:
        saved = _region_savings(predictor, list(waiting.values()), last)
        for number, (by_cause, alone) in zip(waiting, saved, strict=True):  # no more than the same cause everywhere
            waitless = {key: min(ns, at_most.get(Cause[key.upper()], 0)) for key, ns in by_cause.items()}
            found_alone[number] = {key: min(ns, alone_at_most[Cause[key.upper()]]) for key, ns in alone.items()}
            saved_of[number] = {**waitless, **found_alone[number]} if is_as_it_ran else waitless
        waiting.clear()

    for number in _regions_that_matter(timeline, inclusive):
        inside = timeline.ownership.regions.subtree(number)
        first[number] = alike.setdefault((inside & filled).tobytes(), number)
        if first[number] != number:
            continue
        worth = _worth_replaying(held_ns[inside], int(inclusive[number].sum()))
        has_waits = Cause.SYNC in worth  # else each cause alone saves as much as without them
        worth = {cause for cause in worth if at_most.get(cause, 0) >= least}
        alone = worth & may_alone - {Cause.SYNC} if has_waits else set[Cause]()
        if len(worth) + len(alone) + sum(each.questions for each in waiting.values()) > ASKED_TOGETHER:
            replay()
        waiting[number] = _Asked(predictor.scope(regions=inside), worth, alone)
    replay()
    return {number: saved_of[first_number] for number, first_number in first.items()}, {
        number: found_alone[first_number] for number, first_number in first.items()
    }


def _worth_replaying(held_ns: FloatArray, total_ns: int) -> set[Cause]:
    """Causes of which regions (rows of `Predictor.held_ns`) hold enough that removing them can save anything."""
    held = zip(REMOVABLE, held_ns.sum(axis=0).tolist(), strict=True)
    return {cause for cause, ns in held if ns > 0 and ns >= CAUSE_SHARE * total_ns}


def _most_everywhere(
    predictor: Predictor, held: set[Cause], last: tuple[ReplayStep, ...]
) -> tuple[dict[Cause, int], dict[Cause, int]]:
    """What removing each cause saves everywhere, from the program as it ran or as it would without waits, whichever
    is more, and from the program as it ran: removing it in a region only saves hardly more than that."""
    no_waits = ReplayStep(Without(("sync",)), predictor.everywhere)
    measured = predictor.windows(*last) if last else predictor.measured_ns
    waitless = predictor.windows(no_waits, *last)
    gone = {cause: ReplayStep(Without((cause.key,)), predictor.everywhere) for cause in held}
    predictor.ask(*((*steps, *last) for step in gone.values() for steps in ((step,), (no_waits, step))))
    alone = {cause: most_saved(measured, predictor.windows(gone[cause], *last)) for cause in held}
    then = {
        cause: most_saved(waitless, predictor.windows(no_waits, gone[cause], *last))
        for cause in held
        if _gone_before(predictor, cause, no_waits)
    }
    return {cause: max(alone[cause], then.get(cause, 0)) for cause in held}, alone


class _Asked(NamedTuple):
    """Of one region: the causes that are removed there once its waits are gone, and those that are alone, too."""

    scope: Scope
    worth: set[Cause]
    alone: set[Cause]

    @property
    def questions(self) -> int:
        return len(self.worth) + len(self.alone)


def _region_savings(
    predictor: Predictor, asked: Sequence[_Asked], last: tuple[ReplayStep, ...]
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Savings of removals of these causes inside one region only, for each of several: its waits, and every other cause
    once its waits are gone; then of those that are asked alone. Of several devices, which run at the same time, the one
    that saves most."""
    measured = predictor.windows(*last) if last else predictor.measured_ns
    questions: dict[tuple[int, Cause, bool], tuple[ReplayStep, ...]] = {}
    for number, (scope, worth, alone) in enumerate(asked):
        no_waits = ReplayStep(Without(("sync",)), scope)
        causes: list[Cause] = [cause for cause in sorted(worth) if cause != Cause.SYNC]
        gone: dict[Cause, ReplayStep] = {cause: ReplayStep(Without((cause.key,)), scope) for cause in causes}
        if Cause.SYNC in worth:
            questions[number, Cause.SYNC, False] = (no_waits, *last)
        questions |= {
            (number, cause, False): (*_gone_before(predictor, cause, no_waits), step, *last)
            for cause, step in gone.items()
        }
        questions |= {(number, cause, True): (gone[cause], *last) for cause in sorted(alone)}
    windows = dict(zip(questions, predictor.ask(*questions.values()), strict=True))
    saved = [(dict.fromkeys((cause.key for cause in REMOVABLE), 0), dict[str, int]()) for _ in asked]
    for (number, cause, is_alone), left in windows.items():
        before = measured
        if not is_alone and _gone_before(predictor, cause, questions[number, cause, is_alone][0]):
            before = windows.get((number, Cause.SYNC, False), measured)
        saved[number][is_alone][cause.key] = most_saved(before, left)
    return saved


def _following(predictor: Predictor, position: int, savings: Mapping[str, int], held: set[Cause]) -> dict[str, int]:
    """Savings on one device once its best cause is gone: of its waits, and of every other cause once they are gone."""
    best = max(sorted(savings), key=lambda cause: savings[cause])
    gone = tuple(dict.fromkeys(("sync", best)))
    also = [Without((cause.key,)) for cause in sorted(held) if cause.key not in gone]
    predictor.ask(
        *([ReplayStep(change, predictor.everywhere) for change in (Without(gone), *more)] for more in [(), *zip(also)])
    )
    base = predictor.without(gone)[position]
    waits_ns = 0 if best == "sync" else max(predictor.without((best,))[position] - base, 0)
    others = (cause.key for cause in sorted(held) if cause.key not in gone)
    then = {key: max(base - predictor.without((key,), first=gone)[position], 0) for key in others}
    return {**then, "sync": waits_ns}


def _regions_that_matter(timeline: Timeline, inclusive: Int64Array) -> list[int]:
    share = inclusive.sum(axis=1) / max(timeline.total_ns, 1)
    rows = np.flatnonzero(share >= REGION_SHARE)
    rows = rows[rows > 0]
    return [int(row) for row in rows[np.lexsort((rows, -share[rows]))][:MOST_REGIONS]]
