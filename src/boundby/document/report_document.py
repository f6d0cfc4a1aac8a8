"""A report below its accounts, regions and findings, as sections of a document; and its diagnosis, as one of its
own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from boundby.document import measurements, pattern_cards, report_document, sentences, view
from boundby.document.blocks import (
    Bar,
    Bars,
    Column,
    Document,
    Entries,
    Entry,
    Facts,
    Heading,
    Legend,
    Paragraph,
    Section,
    Span,
    Table,
    Verbatim,
    entries,
    region_name,
    section,
)
from boundby.document.pattern_cards import MOST_DEVICES
from boundby.document.sentences import captured_by, not_captured, not_read
from boundby.document.view import ShownAccount
from boundby.model import units
from boundby.model.scale import LIST
from boundby.results.report import Check, Report

MOST_PAYLOADS = MOST_WARNINGS = LIST
_LEAST_TELLING = ("traffic", "rate", "roofline")
_BETWEEN = (
    "These lines cover the inside of steps only: what lies between two steps, such as loading a batch, is in none of "
    "them."
)
_TOP = (
    Column("count", lambda one: units.count(one.count), right=True),
    Column("time", lambda one: units.duration(one.total_ns), right=True),
)
KERNELS = (Column("kernel", lambda one: Span(one.name, "code")), *_TOP)
_CALLS = (Column("CUDA API call, waiting included", lambda one: Span(one.name, "code")), *_TOP)
_SUMS = (
    Column("by region", lambda row: Span(row[0].lstrip(), "code")),
    Column("kernels", lambda row: row[1], right=True),
    Column("time", lambda row: row[2], right=True),
    Column("most in", lambda row: Span(row[3], "code"), goes=2),
    Column("calls", lambda row: row[4], right=True),
    Column("time", lambda row: row[5], right=True),
    Column("most in", lambda row: Span(row[6], "code"), goes=1),
)
_WHAT_IF = (
    Column("scenario", lambda row: row[0]),
    Column("predicted", lambda row: sentences.predicted_length(row[1]), right=True),
    Column("change", lambda row: sentences.predicted_change(row[1]), right=True),
)


def sections(report: Report, min_share: float | None = None) -> tuple[Section, ...]:
    """All of them; those of which the report holds nothing are left out."""
    accounts = view.accounts(report)[:MOST_DEVICES]
    kernels, calls = view.tops(report)
    no_predictions, peaks = sentences.no_predictions(report), measurements.work_title(report)
    return (
        *pattern_cards.sections(report),
        *_folded(
            "Kernels and CUDA calls with most time",
            Table(KERNELS, kernels),
            Table(_CALLS, calls),
            Table(_SUMS, tuple(view.region_sums(report, min_share)), depth=_depth),
            id="tops",
        ),
        *section(
            "What if (replayed; estimates)",
            Paragraph(f"{no_predictions}." if no_predictions else ""),
            None if no_predictions else Table(_WHAT_IF, tuple(sentences.notable_scenarios(report))),
            id="what-if",
            short="What if",
        ),
        *_folded(
            "Work and peaks",
            _table(
                measurements.WORK_COLUMNS,
                (row.cells(_ending(row.path)) for row in measurements.work_rows(report)),
                _LEAST_TELLING,
            ),
            Paragraph(f"{peaks}." if peaks else "", "faint"),
            id="peaks",
        ),
        *_folded(
            "Where a step's time goes: while the GPU works, and why it idles",
            _table(measurements.STEP_COLUMNS, steps := measurements.step_rows(report)),
            Paragraph(_BETWEEN if steps else "", "faint"),
            id="steps",
        ),
        *_folded(
            "Operators by shape: kernel time, and the work that follows from the sizes of inputs"
            if any(operator.sizes for operator in report.operators)
            else "Operators: kernel time",
            _table(measurements.OPERATOR_COLUMNS, operators := measurements.operator_rows(report), _LEAST_TELLING),
            Paragraph("Share is of all kernels' summed time, communication included." if operators else "", "faint"),
            id="operators",
        ),
        *_folded(
            "Collectives by size: speed, and at least how much of the time is waiting for other ranks",
            _table(measurements.COLLECTIVE_COLUMNS, measurements.collective_rows(report)),
            id="collectives",
        ),
        *_counters(report),
        *(
            part
            for device in report.devices
            for title in measurements.memory_titles(device)
            for part in _folded(
                f"Memory, {title}",
                _table(("allocated in, and held at the peak", "bytes", "share"), measurements.memory_held(device)),
                id="memory",
            )
        ),
        *_folded(
            "Forward and backward: kernel time of each region's operators, and of their gradients",
            _table(
                measurements.PASSES,
                ((_ending(path), *figures) for path, *figures in measurements.backward_passes(report)),
            ),
            id="passes",
        ),
        *_folded(
            "Payloads: the numbers that ranges carry, and the time for each of them",
            _table(("region", "ranges", "each", "sum", "time per unit"), _payloads(report)),
            id="payloads",
        ),
        *_checklist([account for account in accounts if account.checklist]),
        *_gaps(report),
    )


def warnings(report: Report) -> Iterator[Paragraph]:
    """What the trace's reader warned of."""
    for warning in report.trace.warnings[:MOST_WARNINGS]:
        yield Paragraph(f"{warning.message.rstrip('.')}. [{warning.code}]", "warning")
    more = len(report.trace.warnings) - MOST_WARNINGS
    if more > 0:
        yield Paragraph(f"{more} more warnings are in --format json.", "faint")


def _folded(title: str, *blocks: object, id: str) -> Iterator[Section]:
    short = title.partition(": ")[0]
    return (replace(part, is_folded=True) for part in section(title, *blocks, id=id, short=short))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], goes: Sequence[str] = ()) -> Table:
    """Names, then figures; without columns of which nothing is known. ``goes``: those that go where it gets narrow, the
    first of them first."""
    kept = tuple(rows)

    def column(place: int, head: str) -> Column:
        how_soon = len(goes) - goes.index(head) if head in goes else 0
        return Column(head, lambda row: row[place], right=place > 0, goes=how_soon)

    kept_columns = (index for index in range(len(heads)) if not index or any(row[index] for row in kept))
    return Table(tuple(column(index, heads[index]) for index in kept_columns), kept)


def _depth(row: Sequence[str]) -> int:
    return (len(row[0]) - len(row[0].lstrip())) // 2


def _ending(path: tuple[str, ...]) -> str:
    return units.place(path) or "(all)"


def _counters(report: Report) -> Iterator[Section]:
    for device in report.devices:
        if title := measurements.counters_title(device):
            yield from _folded(
                f"GPU counters, {title}",
                _table(measurements.COUNTER_COLUMNS, measurements.counters_by_kernel(device)),
                id="counters",
            )
    rows = (row for _, row in measurements.counters_by_region(report))
    yield from _folded("Counters by region", _table(("region", *measurements.COUNTER_COLUMNS[1:]), rows), id="counted")


def _payloads(report: Report) -> Iterator[tuple[str, ...]]:
    regions = [(region, region.payload) for region in report.regions if region.payload is not None]
    for region, payload in sorted(regions, key=lambda pair: -pair[0].share)[:MOST_PAYLOADS]:
        each = units.duration(payload.ns_per_unit) if payload.ns_per_unit is not None else ""
        least, most, total = (f"{number:,.6g}" for number in (payload.least, payload.most, payload.total))
        name = f"{region_name(region.path)} ({payload.name})" if payload.name else region_name(region.path)
        yield name, units.count(payload.count), least if least == most else f"{least} to {most}", total, each


def _checklist(members: Sequence[ShownAccount]) -> Iterator[Section]:
    """One device's with readings; of several one column a device, so that they compare."""
    if len(members) == 1:
        yield from _folded("Measured", Entries(tuple(map(_check, members[0].checklist))), id="measured")
        return
    names = list(dict.fromkeys(check.name for account in members for check in account.checklist))
    values = [{check.name: check.value for check in account.checklist} for account in members]

    def column(place: int, account: ShownAccount) -> Column:
        return Column(account.name, lambda name: values[place].get(name, ""), right=True, goes=place)

    columns = (Column("check", lambda name: name), *(column(index, member) for index, member in enumerate(members)))
    yield from _folded("Measured", Table(columns, tuple(names)), id="measured")


def _check(check: Check) -> Entry:
    points_to = f" → {sentences.bound_phrase(check.points_to)}" if check.points_to else ""
    return Entry(f"{check.reading}{points_to}", (Span(check.name), Span(check.value, "strong")))


def _gaps(report: Report) -> Iterator[Section]:
    gaps = tuple(
        Entry((f"{gap.cost} → ", Span(gap.remedy, "" if gap.reason else "code")), (Span(gap.kind),))
        for gap in not_captured(report)
    )
    unchecked = sentences.could_not_check(report.not_checked, every=report.analysis.show_all)
    unread = not_read(report)
    title = f"Not captured: what that hides, and how {captured_by(report)} captures it, or why it did not"
    yield from _folded(
        title if gaps else "Not checked",
        Entries(gaps),
        entries(("Could not check ", Span(rules, "code"), f", because {reason}.") for reason, rules in unchecked),
        Paragraph(f"Tables of the report that boundby does not read: {unread}." if unread else "", "faint"),
        id="not-captured",
    )


_REGIONS = (
    Column("region", lambda row: Span(region_name(row.region.path), "code")),
    Column("share", lambda row: units.percent(row.share), right=True),
    Column("pattern", lambda row: row.bound),
    Column("up to", lambda row: row.saves, right=True),
    Column("because", lambda row: row.because, prose=True),
)


def diagnosis(report: Report) -> Document:
    """All of it: the verdict, each pattern with its parts, where it is, what each cost is worth, what is missing."""
    accounts = view.accounts(report)
    named = {region.path for region in pattern_cards.regions(report)}
    rows = tuple(row for row in view.select(report, 0.0).rows if row.region.path in named)
    every = report_document.sections(report)
    return Document(
        " ".join(str(headline) for headline, _ in view.summaries(accounts)) or sentences.NOTHING,
        tuple(_opening(report, accounts)),
        (
            *(Section(part.title, part.blocks, part.id, part.short) for part in pattern_cards.sections(report)),
            *section("Where", Table(_REGIONS, rows), id="where"),
            *(part for part in every if part.id in ("what-if", "not-captured")),
        ),
    )


def _opening(report: Report, accounts: Sequence[ShownAccount]) -> Iterator[object]:
    """The verdict, why, what was analysed, and the account."""
    ended = sentences.end_above(report)
    if ended is not None:
        yield Heading(str(ended.headline))
        yield Verbatim("\n".join(ended.lines), "The program's own words")
        yield from map(Paragraph, ended.told)
    if not accounts:
        yield Heading(sentences.NOTHING)
    for headline, sure in view.summaries(accounts):
        yield Heading(str(headline))
        yield Paragraph(f"{sure.capitalize()}." if sure and len(accounts) > 1 else "", "faint")
    yield Facts((Span(sentences.what_ran(report), "code"), *sentences.circumstances(report)))
    for account in accounts[:MOST_DEVICES]:
        name = f"{account.name}: " if len(accounts) > 1 else ""
        for text in (*account.told, *account.doubts):
            yield Paragraph(f"{name}{text}")
    yield Bars(tuple(Bar(account.parts, word=account.name) for account in accounts[:MOST_DEVICES] if account.parts))
    yield Legend(tuple(dict.fromkeys(part.cause for account in accounts for part in account.parts)))
    yield from report_document.warnings(report)
