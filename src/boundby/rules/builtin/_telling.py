"""How rules on the host's time word what they found: places named, places with the same advice told as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from boundby.attribution.regions import ROOT
from boundby.evidence.code_lines import PYTHON_CODE, Hotspot, line_of_calls, line_of_spots
from boundby.evidence.context import Rows, RuleContext
from boundby.evidence.device_work import device_work, scaled
from boundby.evidence.host_idleness import Place, examples, host_pieces, place_at, saving, times
from boundby.evidence.initialization import progress_at, rest_from
from boundby.evidence.latecomers import who
from boundby.model import units
from boundby.model.arrays import Int64Array, factorize, is_even, merged, unique
from boundby.model.intervals import NOTHING, CoveredTime, contains
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, HABIT, HALF, HARDLY, MANY, NEARLY_ALL, NOTABLE, QUARTER
from boundby.model.units import count, duration, percent
from boundby.results.report import CodeLine
from boundby.rules.remedies import sampler
from boundby.rules.rule import Match
from boundby.structure.found import is_found
from boundby.trace.vocabulary.range_names import fold_name

# More places than this are counted, not named.
MOST_NAMED = A_FEW_LINES
# A place is early if this share of its time lies before this share of the kernels.
EARLY, MOST_IS_EARLY = QUARTER, 1 - QUARTER
# What comes once is over when so much of it is.
MOST_IS_OVER = NEARLY_ALL
# A stretch stands for its place if it is this share of it.
MOST_OF_IT = HALF
# A function with fewer of the samples says nothing.
NAMED = NOTABLE
# Who opens so many files loads code, or data that lie in many files.
MANY_FILES = MANY
_OPENS = expression(r"^(?:__)?f?open(?:at)?(?:64)?(?:_2)?$")

Key = TypeVar("Key")


def match(
    context: RuleContext,
    place: Place,
    title: str,
    does: str,
    *,
    evidence: dict[str, object],
    advice: tuple[str, ...],
    removed_least: float | None,
    asleep_fraction: float | None = None,
    waiting_ns: int = 0,
    spots: Sequence[Hotspot] = (),
    is_beside: bool = False,
) -> Match:
    """A finding on a place. ``does``: what the host does there; ``waiting_ns``: for so long of it the host could run
    and waits for a core, which another rule speaks of; ``removed_least``: the fraction of what the program
    would save without it that a change is sure to bring (None: it is a note, and saves nothing); ``is_beside``: the
    change is to do it while the GPU works, which hides no more of it than the GPU works."""
    own_ns = place.total_ns - waiting_ns
    own = own_ns / max(place.total_ns, 1)
    shared = _of_place(context, place, waiting_ns, asleep_fraction)
    seen = [spot.label for spot in spots if spot.share >= HARDLY]
    hottest: dict[str, object] = {"hottest_functions": seen} if seen else {}
    if spots and spots[0].symbol != PYTHON_CODE:
        hottest["hottest_function"] = spots[0].short_symbol
    return Match(
        region=place.region,
        title=title,
        evidence={**shared, **evidence, **hottest},
        saving_ns=None if removed_least is None else scaled(saving(context, place), removed_least * own, own),
        advice=advice,
        examples=examples(context, place.rows, does),
        severity="note" if removed_least is None else None,
        instances=place.times,
        cost_ns=None if removed_least is None else min(own_ns, gpu_works_ns(context) if is_beside else own_ns),
        where=line_of_spots(context.trace, spots) or _line_after(context, place),
    )


def mostly_in(spots: Sequence[Hotspot]) -> str:
    """The function that most samples of a place fall into; empty where none holds half of them."""
    return spots[0].place if spots and spots[0].share >= MOST_OF_IT else ""


def spread(spots: Sequence[Hotspot]) -> str:
    """``, spread over many functions (the largest parts: parse, 31 % of the samples, then hash, 20 %)``,
    where none holds half. A standard library's functions say nothing of the program: their share is told, not their
    names."""
    named = [spot for spot in spots if spot.share >= NAMED][:MOST_NAMED]
    if not named:
        return ""
    if all(spot.is_of_standard_library for spot in named):
        most = f"none has more than {percent(named[0].share)} of the samples"
    else:
        first, *others = named
        shares = (f", then {spot.place}, {percent(spot.share)}" for spot in others)
        parts = "parts" if others else "part"
        most = f"the largest {parts}: {first.place}, {percent(first.share)} of the samples{''.join(shares)}"
    return f", spread over many functions ({most})"


_PRINTS, _TALKS = expression(r"print|verbose", re.IGNORECASE), expression(r"(?<=\s)(?:-v+|--verbose)(?=\s|$)")


def verbose(context: RuleContext, spots: Sequence[Hotspot]) -> dict[str, str]:
    """Of a function that prints by its name: the ``option`` by which the program was told to, and how it runs
    ``quiet``; empty of others."""
    command = context.trace.how_it_runs
    option = _TALKS.search(command) if mostly_in(spots) and _PRINTS.search(spots[0].short_symbol) else None
    return {} if option is None else {"option": option[0], "quiet": " ".join(_TALKS.sub("", command, count=1).split())}


def gpu_works_ns(context: RuleContext) -> int:
    """For how long the GPU that works longest does: beside no more than that can anything be hidden."""
    return max((device.busy.total for device in context.timeline.devices), default=0)


def _of_place(context: RuleContext, place: Place, waiting_ns: int, asleep_fraction: float | None) -> dict[str, object]:
    """What is told of any place."""
    shared: dict[str, object] = {
        "idle_ns": place.total_ns,
        "count": place.times,
        "share_of_window_fraction": round(share_of_window(context, place), 4),
    }
    if waiting_ns:
        shared["waits_for_a_core_ns"] = waiting_ns
    if not context.timeline.devices:
        threads = host_pieces(context).threads_of(place.rows)
        shared["thread_ids"] = [context.trace.threads[thread].tid for thread in threads]
    if asleep_fraction is not None and (context.trace.captured.cpu_scheduling or context.trace.captured.osrt):
        shared["host_asleep_fraction"] = round(asleep_fraction, 3)
    if place.parts:
        shared["places"] = [
            f"{_where(context, part) or 'elsewhere'}: "
            f"{times(context, part) if place.times > 1 else duration(part.total_ns)}"
            for part in place.parts
        ]
    return shared


def _line_after(context: RuleContext, place: Place) -> CodeLine | None:
    """The line of the calls that end a place's stretches: the host came from there."""
    pieces = host_pieces(context)
    return line_of_calls(context, pieces.call[place.rows], pieces.length_ns[place.rows])


def asleep_share(context: RuleContext, place: Place) -> float:
    """The share of a place's time in which the host sleeps."""
    pieces = host_pieces(context)
    return pieces.total_ns(pieces.asleep(place.rows)) / max(place.total_ns, 1)


def share_of_window(context: RuleContext, place: Place) -> float:
    """Of the time of the devices that idle for it, each for a thread of its own."""
    if not (devices := len(context.timeline.devices)):
        return place.total_ns / max(context.window_ns, 1)
    threads = len(host_pieces(context).threads_of(place.rows))
    return place.total_ns / max(min(threads, devices) * context.longest_window_ns, 1)


def preempted_ns(context: RuleContext, place: Place) -> int:
    """For how long of a place its threads could run and wait for a core."""
    pieces, total = host_pieces(context), 0
    for thread in pieces.threads_of(place.rows):
        preempted = context.timeline.host_state.evidence(thread).preempted
        if not len(preempted.start):
            continue
        rows, waits = pieces.of_thread(place.rows, thread), CoveredTime(preempted)
        total += int(waits.within(pieces.start_ns[rows], pieces.end_ns[rows]).sum())
    return total


def host(context: RuleContext, place: Place) -> str:
    """Who does what a place holds: where several ranks are looked at the one whose threads nearly all of it is of, or
    how many."""
    trace, pieces = context.trace, host_pieces(context)
    if len(trace.ranks) < 2 or is_even(trace.process_of_thread[unique(pieces.thread)]):
        return "the host"
    took_ns = np.bincount(trace.process_of_thread[pieces.thread[place.rows]], pieces.length_ns[place.rows])
    if took_ns.max() >= NEARLY_ALL * took_ns.sum():
        return who(trace, int(took_ns.argmax()))
    return f"the host (in {np.count_nonzero(took_ns)} ranks)"


def while_idle(context: RuleContext) -> str:
    """`` while the GPU idles``; empty in traces without GPU work."""
    return " while the GPU idles" if context.timeline.devices else ""


def is_of_one_step(context: RuleContext) -> bool:
    """Whether one step alone is on record."""
    step = context.timeline.step_region
    return step is not None and np.count_nonzero(context.timeline.ownership.regions.of_range == step) == 1


def begins_one_step(context: RuleContext, place: Place) -> bool:
    """Whether a place lies before the GPU's work of the only step: no earlier work is there to hide it behind."""
    starts_ns = host_pieces(context).start_ns[place.rows]
    return is_of_one_step(context) and bool((progress_at(context, starts_ns) <= 0).all())


def is_early(context: RuleContext, place: Place) -> bool:
    """Whether most of a place's time lies before most of the kernels: what comes there is paid once, at first calls. Of
    one step alone it is not known whether others do the same."""
    if not context.timeline.devices:
        return False
    if is_of_one_step(context):
        return False
    pieces = host_pieces(context)
    if np.count_nonzero(device_work(context).is_kernel) < HABIT:  # of which nothing is early
        return False
    length = pieces.length_ns[place.rows]
    early = progress_at(context, pieces.start_ns[place.rows]) < EARLY
    return context.trace.captured.kernels and int(length[early].sum()) >= MOST_IS_EARLY * int(length.sum())


def files_opened(context: RuleContext, place: Place) -> int:
    """How many files the threads of a place open there; 0 where OS calls were not captured, or not enough of them to
    say what the host does."""
    pieces, calls = host_pieces(context), context.trace.os_calls
    opens = context.named(calls.name, _OPENS.match)
    number = 0
    for thread in pieces.threads_of(place.rows):
        rows = np.flatnonzero(opens & (calls.thread == thread))
        number += int((contains(pieces.intervals(place.rows), calls.start_ns[rows]) >= 0).sum())
    return number if number >= MANY_FILES else 0


def is_annotated(context: RuleContext, region: int) -> bool:
    """Whether the program itself names this region."""
    return region != ROOT and not is_found(context.tree.domain[region])


def unseen_advice(context: RuleContext, *, is_python: bool = False, of_range: str = "") -> str:
    """What would tell what the host computes, where nothing on record does. ``is_python``: samples say that it is
    Python code, and no more; ``of_range``: a range does, and no more."""
    nothing = f"only the range {of_range} names this code" if of_range else "the recording does not name this code"
    if context.trace.is_told_by_frames:
        return f"Record with torch.profiler.profile(with_stack=True) to see its lines: {nothing}"
    if context.trace.captured.cpu_samples:
        if is_python:
            return "See its lines with py-spy record: the samples say no more than that it is Python code"
        more = "a longer run, or a smaller nsys profile --sampling-period"
        return f"Record more samples ({more}) to see its functions: too few samples lie in this time"
    shows = "its functions" if context.trace.captured.osrt else "its functions and files"
    return f"Record with {sampler(context.trace, context.program)} to see {shows}: {nothing}"


def early_advice(context: RuleContext, place: Place, files: int, *, is_known: bool) -> tuple[str, ...]:
    """What to do about what comes once, at first calls. ``files``: so many are opened; ``is_known``: functions are."""
    keep, once = "Keep the process alive for the next job", "a longer run pays it only once"
    if files:
        what = context.program.pick("loading code or data does", torch="imports do", python="imports do")
        opened = f"{count(files)} files are opened there, as {what}"
        first = f"{keep}: this comes before most of the kernels, and {opened}, so that most likely {once}"
    elif is_known:
        first = f"{keep}: this comes before most of the kernels, so that most likely {once}"
    else:
        first = f"{unseen_advice(context)}. It comes before most of the kernels: if first calls cause it, {once}"
    rest = rest_after(context, place)
    return (first, f"Look at the rest without it: {analyze(rest)}") if rest else (first,)


def analyze(options: str) -> str:
    """``boundby analyze --window 9.701s: REPORT``: the report last, since an open window ends in a colon."""
    return f"boundby analyze {options} REPORT"


def rest_options(context: RuleContext, end_ns: Int64Array, length_ns: Int64Array) -> str:
    """Options that leave out stretches that come once and end at these instants. Steps can be skipped only where a
    region is plainly the program's step. Empty: hardly anything comes after them."""
    if context.timeline.step_region is not None:
        return "--skip-first 1"
    order = np.argsort(end_ns, kind="stable")
    over = int(np.searchsorted(np.cumsum(length_ns[order]), MOST_IS_OVER * int(length_ns.sum())))
    return rest_from(context, _stretch_end(context, int(end_ns[order][min(over, len(order) - 1)]), end_ns))


def _stretch_end(context: RuleContext, host_ns: int, end_ns: Int64Array) -> int:
    """The last of these instants in the gap of a device that this one lies in."""
    until_ns = host_ns
    for device in context.timeline.devices:
        row = int(np.searchsorted(device.gaps.end_ns, host_ns))
        if row < len(device.gaps) and device.gaps.start_ns[row] < host_ns:
            until_ns = max(until_ns, int(device.gaps.end_ns[row]))
    return int(end_ns[end_ns <= until_ns].max())


def known(**facts: str) -> dict[str, str]:
    """Those of these facts that are told."""
    return {name: fact for name, fact in facts.items() if fact}


def rest_after(context: RuleContext, place: Place) -> str:
    """Options that leave out what comes once in a place (such as ``--window``). Empty: hardly anything comes after."""
    pieces = host_pieces(context)
    return rest_options(context, pieces.end_ns[place.rows], pieces.length_ns[place.rows])


def fold(context: RuleContext, places: list[Place], key: Callable[[Place], Key]) -> Iterator[tuple[Place, Key]]:
    """Places of equal ``key`` (their advice) as one, most time first, with the key."""
    groups: dict[Key, list[Place]] = {}
    for place in places:
        groups.setdefault(key(place), []).append(place)
    for of_group, parts in groups.items():
        if len(parts) == 1:
            yield parts[0], of_group
            continue
        ordered = tuple(sorted(parts, key=lambda part: (-part.total_ns, part.region)))
        rows = merged(*(part.rows for part in ordered))
        yield place_at(context, _around(context, [part.region for part in ordered]), rows, ordered), of_group


def _around(context: RuleContext, regions: list[int]) -> int:
    """The innermost region around all of these."""
    chains = []
    for region in regions:
        chain = [region]
        while chain[-1] != ROOT:
            chain.append(int(context.tree.parent[chain[-1]]))
        chains.append(chain)
    return next(region for region in chains[0] if all(region in chain for chain in chains))


def where_and_when(context: RuleContext, place: Place) -> str:
    """``, for 212 ms in one stretch``, `` between LOAD and FIT, for 212 ms in one stretch``, or of several places
    ``, for 617 ms in 2 places (600 ms in LOAD, 17.0 ms in FIT)``; of one stretch over several ``in one stretch (...)``.
    """
    if not place.parts:
        between = neighbours(context, place.rows) if place.region == ROOT else ""
        threads = len(host_pieces(context).threads_of(place.rows))
        several = threads if len(context.timeline.devices) > 1 else 1
        return f"{f' {between}' if between else ''}, for {times(context, place, several)}"
    told = [(part, where) for part in place.parts if (where := _where(context, part))]
    number = f"{len(told)} places" if len(told) == len(place.parts) else "several places"
    number = "one stretch" if place.times == 1 else number
    if not told:
        return f", for {duration(place.total_ns)} in {number}"
    named = [f"{duration(part.total_ns)} {where}" for part, where in told[:MOST_NAMED]]
    rest_ns = sum(part.total_ns for part in place.parts) - sum(part.total_ns for part, _ in told[:MOST_NAMED])
    named += [f"{duration(rest_ns)} elsewhere"] if rest_ns else []
    return f", for {duration(place.total_ns)} in {number} ({', '.join(named)})"


def _where(context: RuleContext, place: Place) -> str:
    """``in LOAD``, ``between LOAD and FIT``; empty of what lies here and there, or in no range."""
    if not is_even(host_pieces(context).region[place.rows]):
        return ""
    named = units.place(context.path(place.region))
    return f"in {named}" if named else neighbours(context, place.rows)


def neighbours(context: RuleContext, rows: Rows) -> str:
    """``between COPY and FIT``: the ranges around these stretches, or around most of them; empty without ranges."""
    pieces, ranges = host_pieces(context), context.trace.ranges
    if len(rows) == 0 or len(ranges) == 0:
        return ""
    by_call = rows[np.argsort(pieces.call[rows], kind="stable")]
    first = np.append(0, np.flatnonzero(np.diff(pieces.call[by_call])) + 1)
    start, end = pieces.start_ns[by_call], pieces.end_ns[by_call]
    middle = (np.minimum.reduceat(start, first) + np.maximum.reduceat(end, first)) // 2
    time_ns = np.add.reduceat(end - start, first)
    # Stretches by their threads: most have the same, and one of them.
    threads = [tuple(sorted(set(part.tolist()))) for part in np.split(pieces.thread[by_call], first[1:])]
    return around(context, threads, middle, time_ns)


def around(context: RuleContext, threads: Sequence[tuple[int, ...]], at_ns: Int64Array, weight_ns: Int64Array) -> str:
    """``between COPY and FIT``: the ranges around these instants on their threads, or around most of their weight;
    empty where no two ranges are. Shapes (n,)."""
    ranges = context.trace.ranges
    if not len(threads) or not len(ranges):
        return ""
    total: dict[str, int] = {}
    for chosen in sorted(set(threads)):
        is_chosen = np.array([group == chosen for group in threads], bool)
        pairs, which = _between(context, np.flatnonzero(np.isin(ranges.thread, chosen)), at_ns[is_chosen])
        for (before, after), of_pair in zip(
            pairs, np.bincount(which, weight_ns[is_chosen], len(pairs)).tolist(), strict=True
        ):
            where = _told(context, before, after, is_one=len(threads) == 1)
            total[where] = total.get(where, 0) + int(of_pair)
    where, time = min(total.items(), key=lambda item: (-item[1], item[0]))
    if not where or time == sum(total.values()):
        return where
    return f"mostly {where}" if time >= MOST_OF_IT * sum(total.values()) else ""


def _between(context: RuleContext, around: Rows, middle: Int64Array) -> tuple[list[list[int]], Rows]:
    """The names (-1: none) of the ranges, of these, that end last before each instant and begin first after it, of
    equal ones the outermost: distinct pairs, and which each instant's is."""
    ranges = context.trace.ranges
    start, end = ranges.start_ns[around], ranges.end_ns[around]
    by_end, by_start = np.lexsort((around, start, -end)), np.lexsort((around, -end, start))
    ended, begins = np.searchsorted(-end[by_end], -middle), np.searchsorted(start[by_start], middle)
    name = ranges.name[around].astype(np.int64)
    before, after = np.append(name[by_end], NOTHING)[ended], np.append(name[by_start], NOTHING)[begins]
    pairs, which = factorize(before, after)
    return pairs.tolist(), which


# Operators that one call of PyTorch ends with, which is what a program has in its lines.
_IN_CALL = {"aten::lift_fresh": " (in torch.tensor)"}


def _told(context: RuleContext, before: int, after: int, *, is_one: bool) -> str:
    """The place between two ranges. Of several instants numbered names stand for all of their kind."""
    names = context.trace.names
    ends = [names[name] if is_one else fold_name(names[name]) for name in (before, after) if name != NOTHING]
    quoted = [units.quoted(name) for name in ends]
    if len(quoted) == 2 and fold_name(ends[0]) == fold_name(ends[1]):
        return f"between one {units.quoted(fold_name(ends[0]))} and the next"
    if len(quoted) == 2:
        return f"between {quoted[0]} and {quoted[1]}{_IN_CALL.get(ends[1], '')}"
    return "" if not quoted else f"after {quoted[0]}" if before != NOTHING else f"before {quoted[0]}"
