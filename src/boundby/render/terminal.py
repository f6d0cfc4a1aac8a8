"""Report -> what a terminal shows: the sentence first, then the account, the regions and the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from boundby.document import report_document, sentences, view
from boundby.document.blocks import Segment, cells, clean, region_name, segments
from boundby.document.view import Row, ShownAccount
from boundby.model import units
from boundby.model.causes import BUSY_CAUSES, CAUSE_KEYS, LETTER, OTHER
from boundby.model.scale import COLUMN, HANDFUL, LIST, SMALL
from boundby.render import to_terminal
from boundby.render.face import (
    DEFAULT_WIDTH,
    DIM,
    GAP,
    MIN_WIDTH,
    STRONG,
    ColorSystem,
    Face,
    FaceColumn,
    fitting,
    natural,
    pad,
    telling,
)
from boundby.results.report import Finding, FirstResponse, Report, Top

MAX_THREADS = LIST
MIN_NAME = 12  # cells for regions' names
MIN_LABEL = to_terminal.LEAST_BAR  # deep rows stop indenting before their names vanish
WORTH_A_LINE = SMALL  # of the window: what a reason must save to be worth a line of its own
FINDING_INDENT = 3
SEVERITY_STYLE = {"high": "bold red", "medium": "bold yellow", "note": "dim"}
TIME, MEAN, MOST = "TIME BY CAUSE", "MEAN TIME", "SAVES UP TO"  # heads; a bar is no timeline
HOST_TIMES = "A time in parentheses is the host's: the account holds none of that region."
_BUSY = {cause.key for cause in BUSY_CAUSES}


def render(
    report: Report,
    *,
    width: int = DEFAULT_WIDTH,
    color_system: ColorSystem | None = None,
    unicode: bool = True,
    min_share: float | None = None,
) -> str:
    """The whole view as text, no line wider than ``width``; ``color_system=None`` means no colour."""
    face = Face(max(width, MIN_WIDTH), color_system, unicode)
    sections = [
        _head(report, face),
        *_accounts(report, face),
        _regions(report, face, min_share),
        _findings(report, face),
        *(to_terminal.section(part, face) for part in report_document.sections(report, min_share)),
    ]
    screen = " ".join(" ".join(line.plain for section in sections for line in section).split())
    return face.text(
        [*sections, _words(report, screen, face), to_terminal.lines(report_document.warnings(report), face)]
    )


def _head(report: Report, face: Face) -> list[Text]:
    title = face.line((face.fit(sentences.what_ran(report), face.width), STRONG))
    facts = (face.line((face.fit(fact, face.width - 2), DIM)) for fact in sentences.circumstances(report))
    return [title, *face.flow(facts)]


def _accounts(report: Report, face: Face) -> list[list[Text]]:
    """One section a device (or thread), or one section for them all where they are many."""
    return [ended(report, face), *_of_members(report, face)]


def ended(report: Report, face: Face) -> list[Text]:
    """That the program failed or was stopped, above all that it did until then."""
    lead = sentences.end_above(report)
    return [] if lead is None else [*headline(lead.headline, face), *told_of(lead, face)]


def told_of(lead: sentences.Lead, face: Face) -> list[Text]:
    """What stands below the sentence: the program's own lines, dimmed, and the rest."""
    lines = [face.line(("  " + face.fit(line.strip(), face.width - 2), DIM)) for line in lead.lines[-HANDFUL:]]
    return [*lines, *(line for text in lead.told for line in face.wrapped(text))]


def _of_members(report: Report, face: Face) -> list[list[Text]]:
    members = view.accounts(report)
    if not members:
        return [face.wrapped(sentences.NOTHING, style=STRONG)]
    shown = members if report.devices else members[:MAX_THREADS]
    is_one = shown[0].lead is None or len(shown) == 1  # what leads is said once for all threads
    if is_one and len(shown) <= view.IN_FULL:
        return [_in_full(account, face) for account in shown]
    more = f"{len(members) - len(shown)} more threads are not shown." if len(shown) < len(members) else ""
    lead = [] if shown[0].lead is None else to_terminal.first(shown[0].first, face)
    return [[*summary(shown, face), *lead], side_by_side(shown, face) + face.wrapped(more, style=DIM)]


def _in_full(account: ShownAccount, face: Face) -> list[Text]:
    lines = headline(replace(account, name=face.fit(account.name, face.width // 2)).headline, face)
    if account.lead is not None:
        lines += told_of(account.lead, face)
    else:
        lines += [line for text in account.reasons for line in face.wrapped(text)]
    lines += to_terminal.first(account.first, face)
    lines += to_terminal.first(account.first_of_other, face, "And: ")
    if account.lead is None:
        sentences = (account.most, account.exposed, *account.measured)
        lines += [line for text in sentences if text for line in face.wrapped(text)]
    parts = account.parts
    if not parts:
        return [*lines, Text(), face.line(("(no time in the window)", DIM))]
    lines += [Text(), face.bar(parts, face.width, full=True)]
    if account.utilization is not None:
        lines.append(_braces(account, account.utilization, face))
    lines += legend(account, face)
    return lines + [line for text in account.doubts for line in face.wrapped(text, style=DIM)]


def legend(account: ShownAccount, face: Face) -> list[Text]:
    """What the letters of its bar are, which is no timeline."""
    causes = [face.cause(part.cause, f"{account.named(part)} {units.percent(part.fraction)}") for part in account.parts]
    return face.flow([face.line(("Shares of the time:", DIM)), *causes])


def headline(headline: sentences.Headline, face: Face) -> list[Text]:
    # The coloured badge ends the sentence as a full stop would.
    after = "" if face.color and headline.after == "." else headline.after
    line = face.line((headline.before, STRONG), face.badge(headline.stressed, headline.bound), (after, STRONG))
    return [line] if line.cell_len <= face.width else face.wrapped(str(headline), style=STRONG)


def _braces(account: ShownAccount, utilization: float, face: Face) -> Text:
    """Under the bar: how much of it the GPU works, how much it idles."""
    lengths = cells(account.parts, face.width, at_least_one=True)
    busy = sum(length for part, length in zip(account.parts, lengths, strict=True) if part.cause in _BUSY)
    working = f"GPU busy {units.percent(utilization)}"
    waiting = f"{account.not_busy} {units.percent(1 - utilization)}"
    if busy < len(working) + 4:  # its label moves next door
        waiting = f"{waiting}, {working}"
    elif face.width - busy < len(waiting) + 4:
        working = f"{working}, {waiting}"
    return face.line((face.brace(working, busy) + face.brace(waiting, face.width - busy), DIM))


def summary(members: Sequence[ShownAccount], face: Face) -> list[Text]:
    if members[0].lead is not None:
        return [*headline(members[0].headline, face), *told_of(members[0].lead, face)]
    lines: list[Text] = []
    for summary_text, confidence in view.summaries(members):
        sentence, sure = headline(summary_text, face), Text(f"  ({confidence})" if confidence else "", style=DIM)
        if sentence[-1].cell_len + sure.cell_len > face.width:
            lines += [*sentence, sure]
        else:
            lines += [*sentence[:-1], face.line(sentence[-1], sure)]
    return lines


def side_by_side(members: Sequence[ShownAccount], face: Face) -> list[Text]:
    """One bar an account, all of one width, so that they compare; nothing where nothing is known of any."""
    columns = _columns_of_members(members, face)
    if not columns:
        return []
    lines = [face.heads(columns), *(face.row(columns, account) for account in members)]
    shown = _drawn((account.parts for account in members), columns)
    return lines + face.flow(face.cause(key) for key in (*CAUSE_KEYS, OTHER.key) if key in shown)


def _columns_of_members(members: Sequence[ShownAccount], face: Face) -> list[FaceColumn]:
    if not any(account.has_account for account in members):
        return []
    name = min(max(len(account.name) for account in members), face.width // 3)
    bound = natural("BOUND BY", (account.bound for account in members))
    verdict = (
        FaceColumn("BOUND BY", bound, lambda account, _: account.bound, tells=_has_verdict),
        FaceColumn(MOST, len(MOST), lambda account, _: account.saves, right=True, tells=has_saving),
    )
    beside = telling(verdict, members) if members[0].lead is None else []
    bar = face.width - name - len(GAP) - sum(column.width + len(GAP) for column in beside)
    return [
        FaceColumn("", name, lambda account, width: face.fit(account.name, width)),
        FaceColumn(TIME, max(bar, to_terminal.LEAST_BAR), lambda account, width: face.bar(account.parts, width)),
        *beside,
    ]


def _drawn(bars: Iterable[Sequence[Segment]], columns: Sequence[FaceColumn]) -> set[str]:
    """The causes whose letters are in these bars, of one width."""
    width = next((column.width for column in columns if column.head == TIME), 0)
    lengths = ((parts, cells(parts, width)) for parts in bars)
    return {part.cause for parts, taken in lengths for part, cell in zip(parts, taken, strict=True) if cell}


def also_in_bars(report: Report, rows: Sequence[Row], columns: Sequence[FaceColumn], face: Face) -> str:
    """What letters in the bars of regions are that no bar above them has."""
    members = view.accounts(report)
    above = {part.cause for account in members[:1] for part in account.parts}
    if len(members) > 1:
        above = _drawn((account.parts for account in members), _columns_of_members(members, face))
    return view.also_in_bars(_drawn((segments(row.time) for row in rows), columns), above)


def _regions(report: Report, face: Face, min_share: float | None) -> list[Text]:
    """One line a region; the columns are chosen by the width there is."""
    selection = view.select(report, min_share)
    if not any(region.path for region in report.regions):
        return no_regions(report, face)
    if not selection.every_row:
        return [line for note in selection.notes for line in face.wrapped(note, style=DIM)]
    names = max([len("REGION"), len(view.NO_RANGE), *(2 * row.depth + len(row.label) for row in selection.rows)])
    name, because, columns = _columns(names, selection, face)
    lines = [face.line(face.heading(pad("REGION", name)), "  ", face.heads(columns))]
    if because:
        lines = [face.line(*lines, face.heading("  BECAUSE"))]
    whole = view.longest_window(report)
    for row in selection.every_row:
        line = face.line(region_label(row, name, face), "  ", face.row(columns, row))
        if because:
            narrow = replace(face, width=line.cell_len + 2 + because)
            lines += narrow.wrapped(row.because, first=face.line(line, "  "), style=DIM)
            continue
        lines.append(line)
        verdict = row.region.verdict
        if (verdict.saving_ns or 0) >= WORTH_A_LINE * whole or verdict.bound in ("hidden", "mixed"):
            lines += face.wrapped(row.because, indent=len(_indent(row, name)) + 2, style=DIM)
    host_times = HOST_TIMES if selection.has_host_times and any(c.head == MEAN for c in columns) else ""
    letters = also_in_bars(report, selection.every_row, columns, face)
    for note in (letters, host_times, *selection.notes):
        lines += face.wrapped(note, style=DIM)
    return lines


def _columns(names: int, selection: view.Selection, face: Face) -> tuple[int, int, list[FaceColumn]]:
    """Cells for the name and for the reason (0: not beside the others), and the columns between them: these take what
    they need, the bar and the names share the rest; the least telling go first."""
    columns, room = region_columns(names, selection.rows, face, account=len(TIME))
    name = max(min(names, COLUMN, room), MIN_NAME)
    spare = max(room - name, 0)
    because = spare - 2 if spare - 2 >= COLUMN else 0
    wider = min(because - COLUMN, 10) if because else min(spare, 30)
    for index, column in enumerate(columns):
        if column.head == TIME:
            columns[index] = replace(column, width=column.width + wider)
            because -= wider if because else 0
    return name, because, columns


def region_columns(names: int, rows: Sequence[Row], face: Face, account: int) -> tuple[list[FaceColumn], int]:
    """The columns of regions that fit beside their names, here and on the screen, and the room they leave. ``account``:
    cells of the bar, at least."""
    widest = natural("BOUND BY", (bound(row, face) for row in rows))
    columns = (
        FaceColumn("COUNT", 6, lambda row, _: row.instances, right=True, goes=5),
        FaceColumn(MEAN, 9, lambda row, _: row.each, right=True, goes=2),
        FaceColumn("SHARE", 5, lambda row, _: units.percent(row.share), right=True, goes=1),
        FaceColumn(TIME, account, lambda row, width: face.bar(segments(row.time), width), goes=3, tells=_has_account),
        FaceColumn("BOUND BY", widest, lambda row, _: bound(row, face), tells=_has_verdict),
        FaceColumn(MOST, len(MOST), lambda row, _: row.saves, right=True, goes=4, tells=has_saving),
    )
    return fitting(telling(columns, rows), face.width, max(min(names, 20), MIN_NAME))


def _has_verdict(member: Row | ShownAccount) -> bool:
    return not member.has_no_verdict


def _has_account(row: Row) -> bool:
    return row.has_account


def has_saving(member: Row | ShownAccount) -> bool:
    """Whether a time stands there."""
    return _has_verdict(member) and member.saves not in ("", sentences.UNKNOWN, view.ONCE)


def region_label(row: Row, name: int, face: Face) -> Text:
    """A region's name, indented by how deep it lies, in ``name`` cells."""
    indent = _indent(row, name)
    style = "" if row.depth else STRONG if row.is_judged else DIM
    return pad(Text.assemble(indent, (face.fit(row.label, name - len(indent)), style)), name)


def _indent(row: Row, name: int) -> str:
    return "  " * min(row.depth, max(name - min(MIN_LABEL, cell_len(row.label)), 0) // 2)


def bound(row: Row, face: Face) -> Text:
    """The verdict behind its letter; of a mixed one the two letters, as the bar has them."""
    mixed = row.region.verdict.mixed_of
    if row.bound and not row.letter and mixed:
        return Text(f"  mixed: {' + '.join(LETTER[cause] for cause in mixed)}{'?' * row.is_uncertain}")
    if not row.letter:
        return Text(f"  {row.bound}", style=DIM if row.bound == "hidden" else "")
    return face.cause(row.region.verdict.bound, row.bound)


def no_regions(report: Report, face: Face) -> list[Text]:
    if not (report.devices or report.threads) or sentences.lead(report) is not None:
        return []
    if report.trace.captured.nvtx:
        return face.wrapped("No region is left after the selection; --min-share 0 shows all.", style=DIM)
    return face.wrapped("No NVTX ranges: annotate the program to see where its time goes.", style=DIM)


def _findings(report: Report, face: Face) -> list[Text]:
    shown = sentences.shown_findings(report)
    above = view.told_above(report)
    width = natural("SAVES", (saves(item, above) for item in shown))
    titles = {
        kind: f"{kind} ({sentences.count_findings(report, notes=kind == 'NOTES')})" for kind in ("FINDINGS", "NOTES")
    }
    lines: list[Text] = []
    for rank, finding in enumerate(shown, 1):
        is_note = finding.severity == sentences.NOTE
        if title := titles.pop("NOTES" if is_note else "FINDINGS", ""):
            lines += [*([Text()] if lines else []), heads_of_findings(title, width, face)]
        line = head_of_finding(rank, finding, width, above, face)
        lines.append(face.line(line, (f"boundby explain {clean(finding.rule)}", DIM)))
        lines += _finding(finding, face, in_full=report.analysis.show_all)
    lines += face.wrapped(sentences.left_out(report), style=DIM)
    healthy = face.wrapped(sentences.nothing_found(report))
    return [*healthy, Text(), *lines] if healthy and lines else healthy or lines


def heads_of_findings(title: str, width: int, face: Face) -> Text:
    """Over `head_of_finding`, for savings of so many cells."""
    return face.heading(face.fit(f" # PRIORITY  {'SAVES':>{width}}  {title}", face.width))


def head_of_finding(rank: int, finding: Finding, width: int, above: Mapping[str, FirstResponse], face: Face) -> Text:
    """Its number, how much it matters, and what it saves."""
    number = saves(finding, above)
    is_told = finding.saving_ns is None and number not in (
        "",
        sentences.UNKNOWN,
    )  # how much it matters depends on that number
    return face.line(f"{rank:>2} ", pad("" if is_told else severity(finding, face), 10), f"{number:>{width}}  ")


def saves(finding: Finding, above: Mapping[str, FirstResponse]) -> str:
    """As `sentences.saves`; of a finding without a number as the response says that is tried first and is about it.
    ``none in this run``: another run saves it."""
    if finding.saving_ns is not None and sentences.saves_elsewhere(finding.remedy):
        return sentences.NONE_IN_THIS_RUN
    told_by = next((response for response in above.values() if sentences.is_told_by(response, finding)), None)
    if finding.saving_ns is not None or finding.severity == sentences.NOTE:
        return sentences.saves(finding)
    if told_by is None:
        return sentences.UNKNOWN
    return "" if told_by.saving_ns is None else sentences.saves_range(told_by.saving_ns)


def severity(finding: Finding, face: Face) -> Text:
    """In its colour."""
    word = face.fit(clean(finding.severity), 8)
    return Text(word, style=SEVERITY_STYLE.get(word, STRONG) if face.color else STRONG)


def _finding(finding: Finding, face: Face, *, in_full: bool) -> list[Text]:
    """Where and what; what to do; the worst of it."""
    where = f"{region_name(finding.region)}: " if finding.region else ""
    lines = face.wrapped(f"{where}{clean(finding.title)}", indent=FINDING_INDENT)
    for advice in finding.advice if in_full else finding.advice[:1]:
        lines += face.wrapped(clean(advice), indent=FINDING_INDENT, first=face.line((f"{face.arrow} ", DIM)))
    worst = sentences.worst_instances(finding.examples if in_full else finding.examples[:1])
    return lines + face.wrapped(worst, indent=FINDING_INDENT, style=DIM)


def _kernel(name: str, room: int) -> str:
    """One ellipsis is enough for a name that is cut already."""
    return clean(name) if len(name) <= room else clean(name).removesuffix("...")


def top(head: str, tops: Sequence[Top], width: int, face: Face) -> list[Text]:
    """A table of names with most time."""
    columns = [
        FaceColumn(head, max(width - 18, 12), lambda operation, room: face.fit(_kernel(operation.name, room), room)),
        FaceColumn("COUNT", 6, lambda operation, _: units.count(operation.count), right=True),
        FaceColumn("TIME", 8, lambda operation, _: units.duration(operation.total_ns), right=True),
    ]
    return [face.heads(columns), *(face.row(columns, operation) for operation in tops)]


def _words(report: Report, screen: str, face: Face) -> list[Text]:
    """What the causes in the bars mean, for those that are in them, and the other words that are on the screen."""
    entries = sentences.words(report, screen)
    width = max((len(word) for _, word, _ in entries), default=0) + 3
    lines = [face.heading("WORDS")] if entries else []
    for letter, word, meaning in entries:
        lines += face.wrapped(meaning, first=face.line((letter, STRONG), f" {word}".ljust(width)), style=DIM)
    return lines
