"""Two runs compared, and the limits of a gate, as documents: their sentences, and the rows of their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from boundby.document.blocks import (
    FOLD_BELOW,
    Bar,
    Bars,
    Column,
    Document,
    Entries,
    Entry,
    Facts,
    Heading,
    Only,
    Paragraph,
    Role,
    Section,
    Span,
    Table,
    clean,
    file_name,
    in_region,
    part_name,
    region_name,
    section,
    segments,
)
from boundby.document.sentences import (
    NOTE,
    bound_label,
    bound_word,
    each_time,
    gpus,
    is_not_by_size,
    saves_elsewhere,
    saves_range,
)
from boundby.document.view import NO_RANGE
from boundby.model import units
from boundby.model.causes import CAUSE_KEYS, LETTER, NOUN, SHORT_LABEL, info
from boundby.model.late import expression
from boundby.model.scale import COLUMN, GLANCE, HARDLY, LIST, NEARLY_ALL, NEGLIGIBLE, SMALL, TABLE, TENFOLD
from boundby.model.statistics import MANY_SAMPLES
from boundby.results.comparison import (
    Account,
    Comparison,
    DeviceChange,
    FindingChange,
    GateResult,
    LimitResult,
    Prediction,
    RegionChange,
    Side,
    Significance,
)
from boundby.results.report import Finding
from boundby.rules import remedies

MIN_SHARE = NEGLIGIBLE  # of either run: regions and causes below it are left out of tables for people
MAX_ROWS = TABLE
MANY = MANY_SAMPLES  # instances that are not too few, but each much like the one before
ONE_RUN = SMALL  # two runs of one program differ by as much: a smaller change of the whole is none without a test
ALIKE = HARDLY  # changes of less are told as "as long as before"
FINDING_WORDS = {
    "new": "new",
    "visible": "hidden before",
    "resolved": "resolved",
    "remains": "still there",
    "unchecked": "could not be checked",
}
TREND_WORDS = {"improved": "improved", "worse": "worse"}  # of those that remain
MOST_TOLD = COLUMN  # characters of what a finding was: more would hide what it is
SHARED = "shared-gpu"  # the rule on time that another program, or a lower clock, takes from this one
#: A number or a range with its unit, as `units` writes them; not the digits of a name.
_FIGURE = expression(
    r"(?<![\w.])\d+(?:[.,]\d+)*(?:-\d+(?:[.,]\d+)*)?[kM]?(?: (?:%|[num]?s|[kMGT]?B(?:/s)?|min|h))?(?!\w)"
)

MOST_FINDINGS, MOST_PREDICTIONS = GLANCE, LIST  # in texts, where none are asked for by number
_MEANS = "Before, after, change: mean time of one instance"
_OF_HOST = "; in parentheses on the host, of a region without GPU time of its own"
_MEDIANS = (
    'Median change: of the median instance (95 % interval), by its time on the GPU, or on the host where "host" stands.'
)
_STILL_THERE = "A finding that is still there can hold the program up for longer, or save more, once others are gone."
_HIDDEN = "Hidden before: no finding in the first run, though its cause took about as long there."
_REPLAYED = (
    "How well the first run foretells the second. Replayed: the first run with these causes cut to what was measured "
    "in the second. Error: how far that is off."
)
_NOT_KNOWN = "Not known: the GPU work of some launches is not on record there, so that these times are incomplete."
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("new", "worse", "slower"), "bad"),
    **dict.fromkeys(("resolved", "improved", "faster"), "good"),
}
_CAUSES = (
    Column("cause", lambda row: row.told),
    Column("before", lambda row: units.duration(row.before_ns), right=True),
    Column("after", lambda row: units.duration(row.after_ns), right=True),
    Column("change", lambda row: row.delta, right=True),
    Column("", lambda row: row.change, right=True),
)
_REGIONS = (
    Column("region", lambda row: Span(row.name, "code")),
    Column("inst", lambda row: row.instances, right=True, goes=2),
    Column("before", lambda row: row.before, right=True),
    Column("after", lambda row: row.after, right=True),
    Column("change", lambda row: row.state, right=True),
    Column("median change", lambda row: Span(row.typical, _ROLES.get(row.status, "faint"), tip=row.tested), goes=1),
    Column("account", lambda row: row.bars, where="page"),
    Column("mostly", lambda row: row.mostly, goes=3),
    Column("bound by", lambda row: row.bounds, goes=4),
)
_PREDICTIONS = (
    Column("part", lambda row: Span(row.subject, "code")),
    Column("replayed", lambda row: row.expected, right=True),
    Column("measured", lambda row: row.measured, right=True),
    Column("error", lambda row: row.error, right=True),
    Column("with", lambda row: row.told, prose=True),
)


def document(
    comparison: Comparison, result: GateResult | None = None, *, top: int | None = None, sort: str = "time"
) -> Document:
    """What changed, for people; with a gate's result where there is one."""
    (_, (before, *_)), (_, (after, *_)) = both = sides(comparison)
    rows, left_out = regions(comparison, top, sort)
    finding_rows, foretold = findings(comparison), predictions(comparison)
    most = top or MOST_FINDINGS
    more = f"{len(finding_rows) - most} more are in --format json." if len(finding_rows) > most else ""
    nothing = not comparison.devices and not comparison.regions
    summary = "Neither report holds anything to compare." if nothing else significance_summary(comparison)
    return Document(
        f"boundby: {before} → {after}",
        (
            *told_first(result),
            *(Facts((Span(parts[0], "code"), *parts[1:]), word, "") for word, parts in both),
            *(Paragraph(doubt.message, "warning") for doubt in comparison.doubts),
            *(block for device in comparison.devices for block in _device(device, comparison)),
            Paragraph(summary),
        ),
        (
            *limits(result),
            *section(
                "Regions",
                Table(_REGIONS, tuple(rows), depth=lambda row: row.depth, below=lambda row: row.below),
                Paragraph(left_out, "faint"),
                Paragraph(_legend(rows), "faint"),
                Paragraph(_NOT_KNOWN if any(row.change.why_not for row in rows) else "", "faint"),
                id="regions",
            ),
            *section(
                f"Findings: {findings_summary(comparison)}",
                Only("text", (Entries(tuple(_entry(row) for row in finding_rows[:most])), Paragraph(more, "faint"))),
                Only("page", (Entries(tuple(_entry(row, row.advice) for row in finding_rows)),)),
                Paragraph(_STILL_THERE if any(map(_would_save_more, comparison.findings)) else "", "faint"),
                Paragraph(_HIDDEN if any(map(_was_hidden, comparison.findings)) else "", "faint"),
                id="findings",
                short="Findings",
            ),
            *section(
                "Check of the replay",
                Only("text", (Table(_PREDICTIONS, tuple(foretold[: top or MOST_PREDICTIONS])),)),
                Only("page", (Table(_PREDICTIONS, tuple(foretold)),)),
                Paragraph(_REPLAYED if foretold else "", "faint"),
                id="predictions",
                short="Replay",
            ),
        ),
    )


def _device(device: DeviceChange, comparison: Comparison) -> Iterator[object]:
    whole = whole_run(comparison) if device is comparison.devices[0] else ""
    if whole and _is_opposite(device, comparison):
        yield Heading(f"{whole} {_around(device, comparison)}")
        whole = ""
    yield Heading(headline(device, comparison))
    yield Paragraph(whole)
    yield Paragraph(verdict(device))
    yield from (Paragraph(sentence) for sentence in not_its_own(device, comparison))
    earlier, later = device.before, device.after
    if earlier is None or later is None:
        return
    drawn = tuple(bars(earlier, later))
    yield Bars(drawn)
    named = {part.cause for bar in drawn for part in bar.parts}
    rows = [row for row in causes(earlier, later, least=0.0) if row.cause in named]
    yield Table(_CAUSES, (*rows, CauseRow("", earlier.each_ns, later.each_ns)))
    shares = (device.gpu_utilization_before, device.gpu_utilization_after)
    if None not in shares:
        yield Paragraph(f"GPU busy {', then '.join(map(units.percent, shares))}", "faint")


def _legend(rows: Sequence[RegionRow]) -> str:
    """What the columns of times are, as far as there are such."""
    of_host = _OF_HOST if any(time.startswith("(") for row in rows for time in (row.before, row.after)) else ""
    medians = _MEDIANS if any(row.change.significance.is_change for row in rows) else ""
    return " ".join(filter(None, (f"{_MEANS}{of_host}.", medians))) if rows else ""


def _entry(row: FindingRow, more: tuple[str, ...] = ()) -> Entry:
    figures = f"; {row.figures}" if row.figures else ""
    marks = (Span(row.word, _ROLES.get(row.kind, "strong")), Span(row.severity, "faint"))
    return Entry(f"{row.title}{row.where}{figures}", marks, more)


def change(fraction: float | None) -> str:
    """``-24 %``, ``+5.3 %``, ``0 %``; empty where there is nothing to set it against."""
    return "" if fraction is None else units.change(fraction)


def whole_run(comparison: Comparison) -> str:
    """How long the runs took in all; empty where it is not on record, or GPU work spans nearly all of both."""
    before, after = comparison.before.run_ns, comparison.after.run_ns
    if before is None or after is None or not _is_part(comparison):
        return ""
    old, new = units.duration(before), units.duration(after)
    if _is_other_program(comparison):
        return f"All that is on record, with what lies before and after GPU work: {old}, then {new}."
    outcome = f"{_speed(after / before - 1)}: {new} instead of {old} ({change(after / before - 1)})"
    return f"All that is on record, with what lies before and after GPU work, {outcome}."


def _is_opposite(device: DeviceChange, comparison: Comparison) -> bool:
    """Whether the whole run became longer and the time from the first to the last GPU work shorter, or the other way
    round: then that of the whole run comes first."""
    before, after = comparison.before.run_ns, comparison.after.run_ns
    if not before or after is None or device.change is None or device.is_per_step:
        return False
    of_run = after / before - 1
    return abs(of_run) >= ONE_RUN and of_run * device.change < 0


def _around(device: DeviceChange, comparison: Comparison) -> str:
    """``6.26 s of it lie before and after GPU work; 131 ms in the first run.``"""
    first_ns, later = (
        max((side.run_ns or 0) - (account.total_ns if account else 0), 0)
        for side, account in ((comparison.before, device.before), (comparison.after, device.after))
    )
    return f"{units.duration(later)} of it lie before and after GPU work; {units.duration(first_ns)} in the first run."


def not_its_own(device: DeviceChange, comparison: Comparison) -> Iterator[str]:
    """What part of the change may be that another program, or a lower clock, took less or more of the GPU's time:
    ``Up to 4.34 s of the change are no gain of the program, which itself is 1.5 to 3.1 times as fast: in the first run
    another process had GPU 0 for 4.34 s.``
    """
    if device.before is None or device.after is None or device is not comparison.devices[0]:
        return
    for item in comparison.findings:
        if item.finding.rule == SHARED and item.status != "unchecked":
            yield from _of_shared(item, device.before, device.after)


def _of_shared(item: FindingChange, one: Account, other: Account) -> Iterator[str]:
    old, new = (saving[1] if saving else 0 for saving in (item.saving_before_ns, item.saving_after_ns))
    if abs(old - new) < MIN_SHARE * max(one.total_ns, other.total_ns):
        return
    kind, run, account, title = "loss", "second", other, item.finding.title
    if old > new:
        kind, run, account, title = "gain", "first", one, item.title_before or title
    each, why = units.duration(abs(old - new) / (account.instances or 1)), clean(title).partition(":")[0]
    itself = _itself(one, other, old, new) if old > new else ""
    yield f"Up to {each} of the change are no {kind} of the program{itself}: in the {run} run {why}."


def _itself(one: Account, other: Account, old_ns: int, new_ns: int) -> str:
    """How much faster the program itself became, where up to so much of either run's time is not its own."""
    alone_ns = other.each_ns - new_ns / (other.instances or 1)
    if alone_ns <= 0 or one.each_ns <= other.each_ns:
        return ""
    least, most = (one.each_ns - old_ns / (one.instances or 1)) / other.each_ns, one.each_ns / alone_ns
    if least < 1:
        return f", which itself may be no faster (it is at most {most:.1f} times as fast)"
    return f", which itself is {least:.1f} to {most:.1f} times as fast"


def _is_other_program(comparison: Comparison) -> bool:
    """Whether more than the commands says that the reports are of different programs."""
    return any(doubt.code == "program" for doubt in comparison.doubts)


def _is_part(comparison: Comparison) -> bool:
    """Whether the time from the first to the last GPU work is only a part of either run."""
    windows = [
        window for device in comparison.devices for window in (device.before, device.after) if window is not None
    ]
    longest = max((window.total_ns for window in windows), default=0)
    both = (comparison.before, comparison.after)
    return all(side.window == "gpu" for side in both) and any(
        (side.run_ns or 0) * NEARLY_ALL > longest for side in both
    )


def headline(device: DeviceChange, comparison: Comparison) -> str:
    """``The program is 19.2 times as fast: 1.43 s instead of 27.4 s (-95 %).``"""
    earlier, later = device.before, device.after
    if earlier is None or later is None:
        only = earlier or later
        return f"{clean(only.name) if only else ''} worked only in the {'later' if earlier is None else 'earlier'} run."
    if device.why_not is not None:
        return f"Whether {clean(later.name)} is faster is not known: {clean(device.why_not)}.{_steps_told(comparison)}"
    if not comparison.is_one_program:
        return _of_two_programs(earlier, later, comparison)
    speed = _speed(device.change)
    if 0 < abs(device.change or 0) < ONE_RUN and not _is_significant(comparison):
        speed = "takes as long as before, as far as one run of each tells"
    return f"{_subject(later, device, comparison)} {speed}: {_times(earlier, later, device, comparison)}."


def _subject(other: Account, device: DeviceChange, comparison: Comparison) -> str:
    subject = "The program" if len(comparison.devices) == 1 else f"On {clean(other.name)} the program"
    if device.is_per_step or not whole_run(comparison):
        return subject
    return f"From first to last GPU work {subject[0].lower()}{subject[1:]}"


def _times(one: Account, other: Account, device: DeviceChange, comparison: Comparison) -> str:
    """``1.29 ms instead of 1.64 ms of its time per step * (-21 %)``."""
    per = f" per {clean(comparison.steps[-1])}" if device.is_per_step and comparison.steps else ""
    old, new = units.duration(one.each_ns), units.duration(other.each_ns)
    per = f" of its time{per}" if per else ""
    return f"{new}{per}" if old == new else f"{new} instead of {old}{per} ({change(device.change)})"


def _both(one: Account, other: Account) -> str:
    """``5.74 s instead of 55.1 s``"""
    return f"{units.duration(other.each_ns)} instead of {units.duration(one.each_ns)}"


def _of_two_programs(one: Account, other: Account, comparison: Comparison) -> str:
    if one.name == other.name and not _is_other_program(comparison):
        speed, times = _speed(other.each_ns / one.each_ns - 1 if one.each_ns else None), _both(one, other)
        from_to = "from first to last GPU work " if whole_run(comparison) else ""
        return f"If both commands run versions of one program, {from_to}it {speed}: {times}."
    times = f"{units.duration(one.each_ns)} on {clean(one.name)}, then {units.duration(other.each_ns)}"
    times += "" if one.name == other.name else f" on {clean(other.name)}"
    span = ". From first to last GPU work" if whole_run(comparison) else ""
    return f"The two reports are of different programs{span}: {times}."


def _is_significant(comparison: Comparison) -> bool:
    """The steps of the program, or any region where there are none, changed significantly."""
    steps = [item for item in comparison.regions if item.path == comparison.steps] or comparison.regions
    return any(item.significance.is_change for item in steps)


def _steps_told(comparison: Comparison) -> str:
    """How long a typical step took and takes: what both runs recorded."""
    step = next((item.significance for item in comparison.regions if item.path == comparison.steps), None)
    if step is None or step.median_before_ns is None or step.median_after_ns is None or step.series != "host":
        return ""
    old, new = units.duration(step.median_before_ns), units.duration(step.median_after_ns)
    return f" A typical step took {old} of host time and takes {new}."


def _speed(fraction: float | None) -> str:
    if fraction is None or abs(fraction) < ALIKE:
        return "takes as long as before"
    if fraction < 0:
        ratio = 1 / (1 + fraction) if fraction > -1 else float("inf")
        return f"is {ratio:.1f} times as fast" if ratio >= 1.1 else "is faster"
    return f"takes {1 + fraction:.1f} times as long" if fraction >= 0.1 else "is slower"


def verdict(device: DeviceChange) -> str:
    """``Copy changed most: -25.9 s. It was copy bound and is now compute bound.``"""
    earlier, later = device.before, device.after
    if earlier is None or later is None:
        return ""
    largest = _changed_most(earlier, later) if device.why_not is None else None
    most = "" if largest is None else f"{_noun(largest.cause).capitalize()} changed most: {largest.delta}. "
    old, new = (bound_label(item.verdict) for item in (earlier, later))
    if old == new and bound_word(earlier.verdict) == bound_word(later.verdict):
        return f"{most}It was {new} and still is."
    other = SHORT_LABEL[max(later.time, key=lambda cause: later.time[cause])]
    unlike = f" (removing that saves most, though {other} takes more time)"
    return f"{most}It was {old} and is now {new}{unlike if is_not_by_size(later.verdict, later.time) else ''}."


_STATUS = {
    "faster": "faster",
    "slower": "slower",
    "same": "without a significant change",
    "too_few": "with too few instances to tell",
    "not_tested": "not tested",
}


_STATUS_OF_ONE = {
    "faster": "is faster",
    "slower": "is slower",
    "same": "has not changed significantly",
    "too_few": "has too few instances to tell",
}


def _not_tested(regions: Sequence[RegionChange]) -> str:
    """`` Not tested: too few instances.``; empty where every region was."""
    reason = next((item.significance.reason for item in regions if item.significance.status == "not_tested"), "")
    return f" Not tested: {clean(reason)}." if reason else ""


def significance_summary(comparison: Comparison) -> str:
    """How many regions changed beyond what instances differ anyway."""
    both = [item for item in comparison.regions if item.path and item.before is not None and item.after is not None]
    if not both:
        return (
            "No region is in both reports, so that there is one time of each run: a small change may be chance. "
            "Annotate the program, or record several runs of each."
        )
    counts = Counter(item.significance.status for item in both)
    if len(both) == 1 and (only := _STATUS_OF_ONE.get(both[0].significance.status)):
        return f"The one region in both reports {only}, by the median instance."
    counted = [f"{counts[status]} {word}" for status, word in _STATUS.items() if counts[status]]
    regions = units.plural(len(both), "region")
    start = f"Of {regions} in both reports, by the median instance: {', '.join(counted)}.{_not_tested(both)}"
    is_same = counts["same"] and not counts["faster"] + counts["slower"]
    return f"No significant change. {start}" if is_same else start


def _typical(found: Significance) -> str:
    """The change of the median instance: ``-23 % (-25 to -21)``, ``host -23 %``, ``too few (5)``."""
    if found.status == "too_few":
        tested = min(found.instances_before, found.instances_after)
        return f"too few ({tested})" if tested < MANY else "too alike in a row to tell"
    if found.status == "not_tested":
        return ""
    if not found.is_change:
        return "not significant"
    return f"{'host ' * (found.series == 'host')}{change(found.change)}{_interval(found)}"


def _interval(found: Significance) -> str:
    if found.change_low is None or found.change_high is None:
        return ""
    low, high = (change(value).removesuffix(" %") for value in (found.change_low, found.change_high))
    return "" if low == high else f" ({low} to {high})"


def _tested(found: Significance) -> str:
    """The whole of a test, for a tooltip or a detail."""
    if found.status == "not_tested":
        return clean(found.reason)
    medians = (
        f"median {found.series} {units.duration(found.median_before_ns)}, then {units.duration(found.median_after_ns)}"
    )
    counts = f"{found.instances_before} and {found.instances_after} instances"
    p = "" if found.p_value is None else f", p = {found.p_value:.2g}"
    reason = f": {clean(found.reason)}" if found.reason else ""
    return f"{medians}; {counts}{p}{reason}"


def _each(account: Account | None) -> str:
    if account is None or not (account.total_ns or account.host_ns):
        return ""
    return each_time(account.total_ns, account.host_ns, int(account.instances))


def _instances(item: RegionChange) -> str:
    """``100``, or ``100→50``."""
    counts = [units.count(int(account.instances)) for account in (item.before, item.after) if account is not None]
    return "→".join(dict.fromkeys(counts))


def _state(item: RegionChange) -> str:
    """``-24 %``, ``new`` or ``gone``."""
    if item.before is None:
        return "new"
    if item.why_not is not None:
        return "not known"
    if item.after is not None and item.change is not None and item.change > TENFOLD:
        return "new"
    return "gone" if item.after is None else change(item.change)


def _bounds(item: RegionChange) -> str:
    """``sync``, ``sync → mixed``, or both causes of a mixed one that was so before."""
    words = [clean(bound_word(account.verdict)) for account in (item.before, item.after) if account is not None]
    if len(words := [*dict.fromkeys(words)]) < 2:
        return "".join(words)
    return " → ".join("mixed" if " + " in word else word for word in words)


def _renamed(item: RegionChange) -> str:
    """Where a region was matched by more than its path."""
    if item.matched_by != "similar" or item.before is None or item.after is None:
        return ""
    old, new = item.before.path, item.after.path
    sure = f"{item.similarity:.2f}"
    if old == new:
        return f"matched in another domain ({sure})"
    if old[-1:] == new[-1:] and item.similarity >= 0.995:
        return f"was {units.quoted(region_name(old))}" if old[:-1] else ""  # the outermost has no other name
    name = part_name(old[-1]) if len(old) == len(new) and old[:-1] == new[:-1] else region_name(old)
    return f"before: {units.quoted(name)} (matched by similarity, {sure})"


def _means(item: RegionChange) -> str:
    """Why the mean went the other way than the median; empty where it did not."""
    earlier, later, tested = item.before, item.after, item.significance
    if earlier is None or later is None or tested.series != "projected" or not tested.is_change or item.change is None:
        return ""
    medians, means = (tested.median_before_ns, tested.median_after_ns), (earlier.each_ns, later.each_ns)
    if not all(medians) or item.change * (tested.change or 0) >= 0 or abs(item.change) < ALIKE:
        return ""
    was, now = (mean / (median or 1) for mean, median in zip(means, medians, strict=True))
    median, mean, slow = ("rose", "fell", "fewer") if item.change < 0 else ("fell", "rose", "more")
    return (
        f"the median {median} while the mean {mean}: {slow} instances are very slow (the mean was {was:.1f} times the "
        f"median, and is {now:.1f} times)"
    )


class CauseRow(Struct, frozen=True):
    """One cause per instance, before and after; all of them where it has no key."""

    cause: str
    before_ns: float
    after_ns: float

    @property
    def told(self) -> Span:
        return Span(info(self.cause).label, "cause", self.cause) if self.cause else Span("all", "strong")

    @property
    def delta_ns(self) -> float:
        return self.after_ns - self.before_ns

    @property
    def delta(self) -> str:
        return signed(self.delta_ns) if self.delta_ns else "none"

    @property
    def change(self) -> str:
        return change(self.delta_ns / self.before_ns if self.before_ns else None)


def causes(one: Account | None, other: Account | None, *, least: float = MIN_SHARE) -> list[CauseRow]:
    """Causes that make up ``least`` of either account, in the causes' order."""
    rows = []
    for cause in CAUSE_KEYS:
        values = [(item.each_of(cause), item.each_ns) if item is not None else (0.0, 0.0) for item in (one, other)]
        if any(whole and value >= least * whole and value for value, whole in values):
            rows.append(CauseRow(cause, values[0][0], values[1][0]))
    return rows


def bars(one: Account | None, other: Account | None) -> list[Bar]:
    """The shorter one is the faster run."""
    longest = max((account.each_ns for account in (one, other) if account is not None), default=0.0)
    return [
        Bar(
            segments(account.time, fold_below=FOLD_BELOW),
            account.each_ns / longest,
            word,
            units.duration(account.each_ns),
        )
        for word, account in (("before", one), ("after", other))
        if account is not None and longest
    ]


def _changed_most(one: Account | None, other: Account | None) -> CauseRow | None:
    """The cause that changed most; None where none changed by much."""
    if one is None or other is None:
        return None
    largest = max(causes(one, other, least=0.0), key=lambda cause: abs(cause.delta_ns), default=None)
    is_little = largest is None or abs(largest.delta_ns) < MIN_SHARE * max(one.each_ns, other.each_ns)
    return None if is_little else largest


def _noun(cause: str) -> str:
    """``copy time``"""
    return NOUN.get(cause, SHORT_LABEL[cause])


def _mostly(item: RegionChange) -> str:
    """``sync -11.2 ms``"""
    largest = _changed_most(item.before, item.after) if item.why_not is None else None
    return "" if largest is None else f"{SHORT_LABEL[largest.cause]} {largest.delta}"


def signed(ns: float) -> str:
    """``+1.20 ms``."""
    return units.duration(ns) if ns < 0 else f"+{units.duration(ns)}"


class RegionRow(Struct, frozen=True):
    """One region of either run. ``name`` is its path from the row above that holds it; times are per instance."""

    change: RegionChange
    depth: int
    name: str
    below: str  # what it was called before, and why its mean and its median differ
    instances: str
    before: str
    after: str
    state: str
    typical: str
    tested: str
    mostly: str
    bounds: str

    @property
    def status(self) -> str:
        return self.change.significance.status

    @property
    def bars(self) -> tuple[Bar, ...]:
        """Before above after, to one scale."""
        return tuple(bars(self.change.before, self.change.after))


def regions(comparison: Comparison, top: int | None = None, sort: str = "time") -> tuple[list[RegionRow], str]:
    """The regions worth a row (a part of either run, or changed significantly), at most ``top``, and what became of the
    others. As a tree, or by one of `SORTS`, each then with its whole path."""
    named = [item for item in comparison.regions if item.path]
    weights = [_weight(item, comparison) for item in named]
    most = top or MAX_ROWS
    if sort != "time":
        worth = [item for item, weight in zip(named, weights, strict=True) if weight >= MIN_SHARE]
        shown = sorted(worth, key=lambda item: -SORTS[sort](item))[:most]
        rows = [_row(item, ()) for item in shown]
    else:
        least = MIN_SHARE
        if sum(weight >= least for weight in weights) > most:
            least = sorted(weights, reverse=True)[most - 1]
        shown = [item for item, weight in zip(named, weights, strict=True) if weight >= least][: top or len(named)]
        rows = [_row(item, shown) for item in shown]
    left_out = len(named) - len(rows)
    if comparison.outside is not None and _weight(comparison.outside, comparison) >= MIN_SHARE:
        rows.append(replace(_row(comparison.outside, ()), name=NO_RANGE, instances="", bounds=""))
    return rows, _left_out(left_out) if left_out else ""


def _row(item: RegionChange, shown: Sequence[RegionChange]) -> RegionRow:
    depth, name = _label(item, shown)
    return RegionRow(
        change=item,
        depth=depth,
        name=name,
        below="; ".join(filter(None, (_renamed(item), _means(item)))),
        instances=_instances(item),
        before=_each(item.before),
        after=_each(item.after),
        state=_state(item),
        typical=_typical(item.significance),
        tested=_tested(item.significance),
        mostly=_mostly(item),
        bounds=_bounds(item),
    )


def _weight(item: RegionChange, comparison: Comparison) -> float:
    sides = ((item.before, comparison.before.total_ns), (item.after, comparison.after.total_ns))
    shares = [
        max(figures.total_ns, min(figures.host_ns, whole)) / whole for figures, whole in sides if figures and whole
    ]
    return max(shares, default=0.0)


def _idle_ns(found: Account | None) -> float:
    return sum(ns for key, ns in found.time.items() if not key.startswith("gpu_")) if found else 0.0


#: What regions can be sorted by, the largest first; ``max``: what changed most in all.
SORTS: dict[str, Callable[[RegionChange], float]] = {
    "max": lambda item: abs((item.after.total_ns if item.after else 0) - (item.before.total_ns if item.before else 0)),
    "idle": lambda item: max(_idle_ns(item.before), _idle_ns(item.after)),
    "instances": lambda item: max(found.instances for found in (item.before, item.after) if found),
}


def _left_out(number: int) -> str:
    """What became of the regions that have no row."""
    noun = "region is" if number == 1 else "regions are"
    return f"{number} more {noun} in --format json."


def _label(item: RegionChange, rows: Sequence[RegionChange]) -> tuple[int, str]:
    """Depth below the nearest shown ancestor, and the path from there."""
    paths = {row.path for row in rows if (row.after is None) == (item.after is None)}
    above = [size for size in range(1, len(item.path)) if item.path[:size] in paths]
    start = above[-1] if above else 0
    return len(above), "/".join(part_name(part) for part in item.path[start:])


def sides(comparison: Comparison) -> list[tuple[str, tuple[str, ...]]]:
    """``before`` and ``after``, each with what ran, on what, and the file."""
    return [("before", _side(comparison.before)), ("after", _side(comparison.after))]


def _side(found: Side) -> tuple[str, ...]:
    parts = (
        clean(found.command or ""),
        *(gpus(found.gpus) or ["no GPU work"]),
        file_name(found.path),
    )
    return tuple(part for part in parts if part)


def _finding_word(item: FindingChange) -> str:
    """``resolved``, ``still there``, ``improved``: what became of it."""
    return {**FINDING_WORDS, **TREND_WORDS}[_kind(item)]


def _kind(item: FindingChange) -> str:
    """Trend, else status; ``visible``: new as a finding, while its cause took as long before."""
    return item.trend or ("visible" if _was_hidden(item) else item.status)


def _was_hidden(item: FindingChange) -> bool:
    return item.status == "new" and item.is_cost_alike


def finding_figures(item: FindingChange) -> str:
    """What it was, what was promised and what came of it, in one phrase."""
    old, new = item.saving_before_ns, item.saving_after_ns
    if item.status == "remains":
        return "; ".join(filter(None, (_was(item), _still_saves(item, old, new))))
    if item.status == "resolved":
        if item.finding.rule == SHARED:
            return "not in the second run"
        return "; ".join(filter(None, (_promised(item, old) if old else "", _credit(item))))
    saving = new or old
    return _would_save(item, saving) if saving else ""


def _would_save_more(item: FindingChange) -> bool:
    """Of what costs as much as before."""
    return item.status == "remains" and item.is_cost_alike


def _promised(item: FindingChange, saving_ns: tuple[int, int]) -> str:
    """``promised to save 1.10-1.30 s``; of what saves other runs, First's words."""
    if saves_elsewhere(item.finding.remedy):
        return f"promised: {_would_save(item, saving_ns)}"
    return f"promised to save {saves_range(saving_ns)}"


def _would_save(item: FindingChange, saving_ns: tuple[int, int]) -> str:
    """``would save 1.10-1.30 s``; of what saves this run nothing, who saves it, in First's words."""
    row, told = remedies.by_key().get(item.finding.remedy), saves_range(saving_ns)
    return row.saves(told) if row is not None and row.elsewhere else f"would save {told}"


def _still_saves(item: FindingChange, old: tuple[int, int] | None, new: tuple[int, int] | None) -> str:
    if not new:
        return ""
    is_there = item.region_before == item.finding.region  # what another place would have saved says nothing of this one
    before = f" (before: {saves_range(old)})" if old and is_there and saves_range(old) != saves_range(new) else ""
    return f"{_would_save(item, new)}{before}"


def _was(item: FindingChange) -> str:
    """What it said before: the figures that differ where these are few. Where it was worded in another way, all of it,
    or its place alone where that was another one."""
    if item.title_before is None or item.finding.severity == NOTE:
        return ""
    old, new = (clean(title).rstrip(".") for title in (item.title_before, item.finding.title))
    place = in_region(item.region_before or ()) if item.region_before != item.finding.region else ""
    shorter, longer = sorted((_FIGURE.sub("#", old), _FIGURE.sub("#", new)), key=len)
    if not longer.startswith(shorter):  # what one of the two adds at its end is said of the new one
        return f"it was{place} before" if place else f"before: {old}"
    parts = (_differing(old, new), place.strip())
    return " ".join(("was", *filter(None, parts))) if any(parts) else ""


def _differing(old: str, new: str) -> str:
    """What was said before, from the first figure that differs to the last; empty where none does, or it is too long
    to tell."""
    pairs = zip(_FIGURE.finditer(old), _FIGURE.finditer(new), strict=False)
    differ = [pair for pair, other in pairs if pair[0] != other[0]]
    if not differ:
        return ""
    difference = old[differ[0].start() : differ[-1].end()]
    difference += ")" * (difference.count("(") - difference.count(")"))
    return difference if len(difference) <= MOST_TOLD else ""


def _credit(item: FindingChange) -> str:
    """What its cause, else its region, has less: never a saving that is not its own."""
    if item.is_region_gone:
        return "its region is gone"
    gone = item.cause_ns if item.cause_ns is not None else item.measured_ns
    if gone is None:
        return ""
    what = "its region" if item.finding.region else "the window"
    if item.cause_ns is not None and item.cause is not None:
        what = f"{SHORT_LABEL[item.cause]} time {'there' if item.finding.region else 'in the window'}"
    sentence = (
        f"{what} is {units.duration(abs(gone))} {'shorter' if gone > 0 else 'longer'}" if gone else f"{what}: no change"
    )
    return f"{sentence}{_together(item)}"


def _together(item: FindingChange) -> str:
    """Who shares the credit."""
    if item.together < 2:
        return ""
    others = "another resolved finding" if item.together == 2 else f"{item.together - 1} other resolved findings"
    return f", by this and {others} together"


class FindingRow(Struct, frozen=True):
    """What became of a finding: ``kind`` is its trend (``improved``, ``worse``), else its status (``new``, ...)."""

    kind: str
    word: str
    severity: str
    where: str  # `` (in step/loss)``, behind the title; empty for the whole, and where the title names it
    title: str
    figures: str
    advice: tuple[str, ...]


def findings(comparison: Comparison) -> list[FindingRow]:
    """What the change achieved before what is left to do; of each by what it saves."""
    order = ["resolved", "improved", "worse", "new", "visible", "remains", "unchecked"]
    ordered = sorted(comparison.findings, key=lambda item: (order.index(_kind(item)), *_less_first(item)))
    return [
        FindingRow(
            kind=_kind(item),
            word=_finding_word(item),
            severity=clean(item.finding.severity),
            where=_place_of(item.finding),
            title=clean(item.finding.title).rstrip("."),
            figures=finding_figures(item),
            advice=tuple(map(clean, item.finding.advice)) if item.status != "resolved" else (),
        )
        for item in ordered
    ]


def _place_of(finding: Finding) -> str:
    region = finding.region or ()
    is_named = not region or units.is_placed(clean(finding.title), region)
    return "" if is_named else f" ({in_region(region).strip()})"


def _less_first(item: FindingChange) -> tuple[bool, int]:
    """Sorts what saves most first, notes last."""
    saving = item.saving_after_ns or item.saving_before_ns or (0, 0)
    return item.finding.severity == NOTE, -saving[1]


def findings_summary(comparison: Comparison) -> str:
    """``2 resolved, 1 new``."""
    counts = Counter(_finding_word(item) for item in comparison.findings)
    words = ("resolved", *TREND_WORDS.values(), *FINDING_WORDS.values())
    return ", ".join(f"{counts[word]} {word}" for word in dict.fromkeys(words) if counts[word])


class PredictionRow(Struct, frozen=True):
    subject: str
    told: str
    expected: str
    measured: str
    error: str


def predictions(comparison: Comparison) -> list[PredictionRow]:
    """The first report's replay with what was done, and what was measured."""
    both: tuple[DeviceChange | RegionChange, ...] = (*comparison.devices, *comparison.regions)
    accounts = {
        ("/".join(compared.before.path) or compared.before.name, compared.before.each_ns): (
            compared.before,
            compared.after,
        )
        for compared in both
        if compared.before is not None and compared.after is not None
    }
    subjects = Counter(item.subject for item in comparison.predictions)
    return [
        PredictionRow(
            subject=clean(item.subject) + (f", {_cut(item)}" if subjects[item.subject] > 1 else ""),
            told=_prediction(item, *accounts[item.subject, item.baseline_ns]),
            expected=units.duration(item.expected_ns),
            measured=units.duration(item.measured_ns),
            error=change(item.error),
        )
        for item in comparison.predictions
    ]


def _prediction(item: Prediction, one: Account, other: Account) -> str:
    """``copy cut from 26.2 s to 338 ms``."""
    was, now = (units.duration(sum(map(side.each_of, item.causes))) for side in (one, other))
    also = "; ".join(f"{LETTER[cause]} {SHORT_LABEL[cause]}" for cause in item.also)
    return f"{_cut(item)} cut from {was} to {now}{f' (these changed, too: {also})' if also else ''}"


def _cut(item: Prediction) -> str:
    return " and ".join(SHORT_LABEL.get(cause, cause) for cause in item.causes)


# The result of a gate as a document: one line a limit, those that are broken first.

UNTOLD = "cannot be told"


def gate_headline(result: GateResult) -> str:
    """``1 of 3 limits is broken.``"""
    total, broken, untold = len(result.limits), len(result.broken), len(result.untold)
    whole = {1: "The limit", 2: "Both limits"}.get(total, f"All {total} limits")
    if result.passed:
        return f"{whole} {'is' if total == 1 else 'are'} kept."
    parts = [f"{broken} of {total} limits {'is' if broken == 1 else 'are'} broken"] if broken else []
    parts += [f"{untold} {UNTOLD}" if broken else f"{untold} of {total} limits {UNTOLD}"] if untold else []
    return f"{', '.join(parts)}." if total > 1 else f"The limit {'is broken' if broken else UNTOLD}."


def limits(result: GateResult | None) -> tuple[Section, ...]:
    """The section of a gate; none where there was no gate."""
    if result is None:
        return ()
    ordered = sorted(result.limits, key=lambda item: item.kept)
    title = f"Limits: {gate_headline(result)}"
    return section(title, Entries(tuple(map(_limit_entry, ordered))), id="limits", short="Limits")


def told_first(result: GateResult | None) -> tuple[Heading, ...]:
    """Above all else of a document that has a gate: whether its limits are kept."""
    return () if result is None else (Heading(Span(gate_headline(result), "good" if result.passed else "bad")),)


def gate_document(result: GateResult) -> Document:
    """The gate alone."""
    return Document("boundby: limits", (), limits(result))


def _limit_entry(item: LimitResult) -> Entry:
    state = "skipped" if item.skipped else "UNKNOWN" if item.untold else "kept" if item.kept else "BROKEN"
    mark = Span(state, "good" if item.kept else "bad")
    return Entry((Span(item.limit, "code"), f": {item.message}"), (mark,), (item.reason,) if item.reason else ())
