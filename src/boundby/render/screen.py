"""Report -> one screen of a terminal: the verdict and what to do first stand on top, all else fits below.

`boundby.render.terminal` shows everything (``--full``). Both draw the same parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text

from boundby.document import pattern_cards, sentences, view
from boundby.document.blocks import clean, part_name, region_name
from boundby.document.sentences import NVTX_RANGES, not_captured
from boundby.document.view import Row, ShownAccount
from boundby.model import units
from boundby.model.late import expression
from boundby.model.scale import A_FEW_LINES, COLUMN, GLANCE, HANDFUL, LEVELS, LIST, SLIGHT, SMALL, TABLE
from boundby.model.units import LINE
from boundby.render import terminal as parts
from boundby.render import to_terminal
from boundby.render.face import (
    DEFAULT_WIDTH,
    DIM,
    LONGEST_TAIL,
    MIN_WIDTH,
    STRONG,
    ColorSystem,
    Face,
    FaceColumn,
    natural,
    pad,
)
from boundby.results.report import CONFIDENCES, Finding, FirstResponse, RegionReport, Report
from boundby.trace.vocabulary.range_names import is_folded

_CLAIM = expression(r"(?:[^:;(]|\([^)]*\))+(?=[:;] )")  # what a sentence says before it proves it
_INSTANT = expression(r"--window \d")
MOST_LINES = TABLE  # of 100 columns: a terminal of usual height
MOST_FINDINGS = A_FEW_LINES
MOST_ENDED = LIST  # of how a program ended: the sentence, its own lines, when
MOST_ROWS = GLANCE
TWIN = 1 - SLIGHT  # of the time of the row above: a region in it with as many instances repeats that row
DEEP = LEVELS  # regions below this depth are left to --full
MOST_WHERE = 22  # cells of the region that a finding lies in: its path is in --full
TWO_COLUMNS = LINE  # cells from which kernels and calls stand side by side
CALLS_DECIDE = SMALL  # of the window in API calls or waits: then calls are shown beside kernels

_NOTE = Text("  note  ")
_NO_NVTX = "trace-no-nvtx"  # the note that says what the line in the place of regions, or their legend, says


class ScreenOptions(Struct, frozen=True):
    """What a user asked for. ``top``: rows of each table, instead of what fits; ``sort``: what regions go by."""

    min_share: float | None = None
    top: int | None = None
    sort: str = "time"


def render(
    report: Report,
    *,
    width: int = DEFAULT_WIDTH,
    color_system: ColorSystem | None = None,
    unicode: bool = True,
    options: ScreenOptions = ScreenOptions(),  # noqa: B008
) -> str:
    """At most `MOST_LINES` lines (more only where more rows were asked for, or on a narrow terminal)."""
    face = Face(max(width, MIN_WIDTH), color_system, unicode)
    above = [_head(report, face), *_accounts(report, face)]
    tops, last, regions = _tops(report, face, options), _last(report, face, above), _Regions.of(report, face, options)
    most, wanted = _room(MOST_LINES, face) - _height([*above, last]) - 1, regions.least(A_FEW_LINES)
    usual = most - wanted - _height([tops[: 1 + A_FEW_LINES]])
    below = [_findings(report, face, options, usual, most - regions.least(1)), tops, last]
    taken = _height([*above, *below]) + wanted + 1
    if not options.top:  # names with least time give way, then all of them
        kept = len(tops) - max(taken - MOST_LINES - 1, 0)
        below[1] = tops[:kept] if kept > 1 else []
    room = min(max(MOST_LINES - _height([*above, *below]), regions.least(1)), MOST_ROWS + 2)
    cards = [] if report.analysis.region_glob is None else _cards(report, face)
    return face.text([*above, regions.lines(room), *cards, *below])


def _height(sections: Iterable[Sequence[Text]]) -> int:
    """Lines of sections, with a blank one below each."""
    return sum(len(section) + 1 for section in sections if section)


def _cards(report: Report, face: Face) -> list[list[Text]]:
    """The patterns of the regions that were asked for."""
    of_regions = pattern_cards.by_subject(report, is_of_regions=True)
    return [to_terminal.section(part, face) for parts in of_regions for part in parts]


def _head(report: Report, face: Face) -> list[Text]:
    title = face.line((face.fit(sentences.what_ran(report), face.width), STRONG))
    lines = [
        part
        for fact in sentences.circumstances(report, names_instants=False)
        for part in ([fact] if len(fact) <= face.width - 2 else fact.split("; "))
    ]
    facts = [face.line((face.fit(fact, face.width - 2), DIM)) for fact in lines]
    return [title, *face.flow(facts)[: _room(3, face)]]


def _room(lines: int, face: Face) -> int:
    """As many lines as hold what so many of the usual width hold."""
    return max(math.ceil(lines * DEFAULT_WIDTH / face.width), lines)


def _accounts(report: Report, face: Face) -> list[list[Text]]:
    members = view.accounts(report)
    if not members:
        return [face.wrapped(sentences.NOTHING, style=STRONG)]
    ended = parts.ended(report, face)[:MOST_ENDED]
    if len(members) == 1:
        first, *rest = [_in_full(members[0], face)]
    else:
        shown = members if report.devices else members[: parts.MAX_THREADS]
        summary = parts.summary(shown, face)[: MOST_ENDED if shown[0].lead else 4]
        why = shown[0].because.replace(":", f" ({shown[0].name}):", 1) if shown[0].lead is None else ""
        about = [*_steady_of(shown, face), *_outside(shown[0], face)]
        first, *rest = (
            summary + about + face.within(why, _room(2, face)) + _first(shown[0], face),
            [*parts.side_by_side(shown[:8], face), *_doubts_of(shown, face)],
        )
    return [ended, first, *rest]


def _steady_of(shown: Sequence[ShownAccount], face: Face) -> list[Text]:
    """What repeats on the first of several devices, and what happens once."""
    told = shown[0].steady(face.width - len(shown[0].name) - len(" ()"))
    return face.within(f"{told.rstrip('.')} ({shown[0].name}).", 1) if told else []


def _doubts_of(shown: Sequence[ShownAccount], face: Face) -> list[Text]:
    """Why the least sure verdict of several is no surer."""
    unsure = max(shown, key=lambda account: CONFIDENCES.index(account.verdict.confidence))
    if unsure.lead is not None:
        return []
    return face.within(sentences.why_unsure(unsure.verdict, unsure.name), _room(3, face), style=DIM)


def _in_full(account: ShownAccount, face: Face) -> list[Text]:
    lines = parts.headline(account.headline, face)
    if steady := account.steady(face.width):
        lines += face.within(steady, _room(1, face) + bool(account.first_steps))
    lines += _outside(account, face)
    if account.lead is not None:
        lines += parts.told_of(account.lead, face)[:MOST_ENDED]
    elif account.because:
        lines += face.within(account.because, _room(2, face))
    lines += _first(account, face)
    lines += face.within(account.most, _room(3 if account.verdict.bound == "mixed" else 2, face))
    shown = account.parts
    if not shown:
        return [*lines, face.line(("(no time in the window)", DIM))]
    if account.lead is not None and not account.lead.is_told:
        return lines
    lines.append(face.bar(shown, face.width, full=True))
    lines += parts.legend(account, face)
    lines += [line for text in account.measured for line in face.within(text, _room(2, face))]
    return lines + [line for text in account.doubts for line in face.within(text, _room(3, face), style=DIM)]


def _outside(account: ShownAccount, face: Face) -> list[Text]:
    """How little of what is on record the window is, and who else had the device."""
    return face.within(account.outside, _room(2, face)) if account.outside else []


def _first(account: ShownAccount, face: Face) -> list[Text]:
    """What to do first, and about the second cause of a mixed verdict: never cut."""
    return [*to_terminal.first(account.first, face), *to_terminal.first(account.first_of_other, face, "And: ")]


class _Regions(Struct, frozen=True):
    """Regions down to the depth that matters; ``selection``: None: there are none."""

    report: Report
    face: Face
    options: ScreenOptions
    selection: view.Selection | None

    @classmethod
    def of(cls, report: Report, face: Face, options: ScreenOptions) -> _Regions:
        if not any(region.path for region in report.regions):
            return cls(report, face, options, None)
        selection = view.select(report, options.min_share)
        return cls(report, face, options, selection)

    def least(self, rows: int) -> int:
        """No fewer lines: a heading, so many rows, and what is to be said of these."""
        return len(self.lines(0) if self.selection is None else self._rows(self.selection, rows))

    def lines(self, room: int) -> list[Text]:
        """``room``: lines, heading and notes included."""
        if self.selection is None:
            return parts.no_regions(self.report, self.face)
        if self.options.top is not None:
            return self._rows(self.selection, self.options.top)
        most = max(room - 2, 1)
        while len(lines := self._rows(self.selection, most)) > room and most > 1:
            most -= 1
        return lines

    def _rows(self, selection: view.Selection, most: int) -> list[Text]:
        """So many of them, and what is to be said of these."""
        face, rows = self.face, _worth(selection, most, self.options)
        if not rows:
            return []
        names = max(len("REGION"), *(2 * row.depth + len(row.label) for row in rows))
        name, columns = _columns(names, rows, face)
        lines = [face.line(face.heading(pad("REGION", name)), "  ", face.heads(columns))]
        lines += [face.line(parts.region_label(row, name, face), "  ", face.row(columns, row)) for row in rows]
        left = sum(1 for region in self.report.regions if region.path) - sum(row.is_judged for row in rows)
        told = [f"{units.plural(left, 'more region')}: --full, or --top N."] if left else []
        told.append(parts.also_in_bars(self.report, rows, columns, face))
        told.append(view.uncertain(rows))
        folded = "* stands for any number." if any(is_folded(row.label) for row in rows) else ""
        heads = {column.head for column in columns}
        saves = view.most_saved(rows) if parts.MOST in heads else ""
        mean = view.on_the_host(self.report, rows) if parts.MEAN in heads else ""
        notes = (
            *told,
            folded,
            view.inside_its_like(rows),
            selection.share_of,
            mean,
            saves,
            view.beyond_the_bar(self.report),
            view.not_by_size(rows),
            view.of_each_alone(self.report, rows),
        )
        told = [" ".join(filter(None, notes)), view.uneven(rows), view.by_boundby(rows)]
        return [*lines, *(line for text in told for line in face.wrapped(text.strip(), style=DIM))]


def _worth(selection: view.Selection, most: int, options: ScreenOptions) -> list[Row]:
    """The largest rows, each below what holds it, in the order of the tree."""
    every = list(selection.every_row)
    if options.top is None:
        every = _telling(every)
    if options.sort != "time":
        every = sorted(selection.rows, key=lambda row: -_weight(row.region, options.sort))
        return [replace(row, depth=0, label=region_name(row.region.path)) for row in every[:most]]
    ranked = sorted(range(len(every)), key=lambda index: (every[index].depth >= DEEP, -every[index].share, index))
    kept: set[int] = set()
    for index in ranked:
        line = [index]
        while every[line[-1]].depth:  # what holds it comes along
            line.append(next(p for p in range(line[-1] - 1, -1, -1) if every[p].depth < every[line[-1]].depth))
        if len(kept | set(line)) <= most:
            kept |= set(line)
    return [row for index, row in enumerate(every) if index in kept]


def _telling(rows: Sequence[Row]) -> list[Row]:
    """Without rows of which the account holds nothing (overlapped ones tell that), where others tell something, and
    without those that repeat the row above."""
    kept = _without_twins(rows)
    telling = [row for row in kept if row.share > 0 or row.region.verdict.bound == "hidden"] or kept
    made: list[Row] = []
    line: list[int] = []
    for row in telling:
        while line and line[-1] >= row.depth:
            line.pop()
        made.append(replace(row, depth=len(line)))
        line.append(row.depth)
    return made


def _without_twins(rows: Sequence[Row]) -> list[Row]:
    """Without inner twins of an operator or a library's range: one call each, all of its time."""
    kept: list[Row] = []
    for row in rows:
        above = kept[-1] if kept and kept[-1].depth < row.depth else None
        same = above is not None and (row.region.instances, row.bound) == (above.region.instances, above.bound)
        is_library = "::" in row.label or bool(row.region.domain)
        if above is not None and same and is_library and row.share >= TWIN * above.share:
            continue
        kept.append(row)
    return kept


def _weight(region: RegionReport, sort: str) -> float:
    """What regions are sorted by: ``max``, ``idle`` or ``instances``."""
    if sort == "max":
        return region.max_saving_ns or 0
    if sort == "idle":
        return sum(ns for key, ns in region.time.items() if not key.startswith("gpu_"))
    return region.instances


def _columns(names: int, rows: Sequence[Row], face: Face) -> tuple[int, list[FaceColumn]]:
    columns, room = parts.region_columns(names, rows, face, account=len(parts.TIME))
    name = max(min(names, COLUMN, room), parts.MIN_NAME)
    spare = max(room - name, 0)
    return name, [
        replace(column, width=column.width + spare) if column.head == parts.TIME else column for column in columns
    ]


def _findings(report: Report, face: Face, options: ScreenOptions, room: int, most: int) -> list[Text]:
    """The best one, and as many of the next as ``room`` lines hold; what stands on top already is not said again.
    ``most``: lines for the best one, to which kernels and regions give way."""
    above = view.told_above(report)
    worth = _not_told(report, above)
    shown = worth[: options.top or MOST_FINDINGS]
    if not shown:
        notes = _notes(report, above)
        lines = face.wrapped(sentences.nothing_found(report, is_told_above=bool(above), notes=len(notes)))
        for item in notes[:MOST_FINDINGS]:
            lines += face.wrapped(_placed(item, clean(item.title), face), first=_NOTE)
        return lines
    width = natural("SAVES", (parts.saves(item, above) for item in shown))
    drawn = [_finding(rank, item, width, above, face) for rank, item in enumerate(shown, 1)]
    if not options.top:
        while len(drawn) > 1 and 1 + sum(map(len, drawn)) > room:
            drawn.pop()
        if above and 1 + len(drawn[0]) > most:
            drawn[0] = _titled(1, shown[0], width, above, face)
    number = f"{len(drawn)} of {len(worth)}" if len(drawn) < len(worth) else f"{len(worth)}"
    title = f"{'OTHER ' if above else ''}FINDINGS ({number})"
    return [parts.heads_of_findings(title, width, face), *(line for lines in drawn for line in lines)]


def _not_told(report: Report, above: Mapping[str, FirstResponse]) -> list[Finding]:
    """What First does not tell."""
    told = above.values()
    worth = (item for item in report.findings if item.severity != sentences.NOTE)
    return [item for item in worth if not any(sentences.is_told_by(response, item) for response in told)]


def _notes(report: Report, above: Mapping[str, FirstResponse]) -> list[Finding]:
    """Where there is no finding: what was noted all the same, and stands nowhere else."""
    whole = (response for response in above.values() if response.saving_ns is None)  # of which a finding is no part
    told = {_NO_NVTX, *(response.command.removeprefix("boundby explain ") for response in whole)}
    return [item for item in report.findings if item.severity == sentences.NOTE and item.rule not in told]


def _finding(rank: int, item: Finding, width: int, above: Mapping[str, FirstResponse], face: Face) -> list[Text]:
    """What, where, and what to do."""
    title = _titled(rank, item, width, above, face)
    advice = clean(item.advice[0]) if item.advice else f"boundby explain {clean(item.rule)}"
    return [*title, *face.whole(advice, 2, indent=3, first=face.line((f"{face.arrow} ", DIM)), style=DIM)]


def _titled(rank: int, item: Finding, width: int, above: Mapping[str, FirstResponse], face: Face) -> list[Text]:
    """What and where: whole, or less of it."""
    head = parts.head_of_finding(rank, item, width, above, face)
    text = clean(item.title)
    room = 2 * (face.width - head.cell_len) - (len(_placed(item, text, face)) - len(text)) - LONGEST_TAIL
    claim = _CLAIM.match(text) if len(text) > room else None
    return face.wrapped(_placed(item, text if claim is None else claim[0], face), first=head)


def _placed(item: Finding, text: str, face: Face) -> str:
    """With the region that it is in, where the text does not name that."""
    if not item.region or units.is_placed(text, item.region):
        return text
    return f"{text} (in {units.quoted(face.fit(part_name(item.region[-1]), MOST_WHERE))})"


def _tops(report: Report, face: Face, options: ScreenOptions) -> list[Text]:
    """Kernels with most time and, where the host's calls decide, these beside them."""
    kernels, calls = view.tops(report)
    most, gpus = options.top or HANDFUL, len(report.devices)
    of_kernels = "TOP KERNELS" if gpus < 2 else f"TOP KERNELS (sum of {gpus} GPUs)"
    window = max(view.window_total(report), 1)
    show_calls = sum(operation.total_ns for operation in calls) >= CALLS_DECIDE * window
    if not kernels:
        return parts.top("CUDA API CALLS", calls[:most], face.width, face) if show_calls else []
    if not show_calls or face.width < TWO_COLUMNS:
        return parts.top(of_kernels, kernels[:most], face.width, face)
    half = (face.width - 4) // 2
    left = parts.top(of_kernels, kernels[:most], half, face)
    is_more = sum(one.total_ns for one in calls) > window  # several threads at once
    head = f"API CALLS ({'threads summed' if is_more else 'waits included'})"
    right = parts.top(head, calls[:most], half, face)
    rows = max(len(left), len(right))
    left += [Text()] * (rows - len(left))
    right += [Text()] * (rows - len(right))
    return [face.line(pad(left_line, half), "    ", other) for left_line, other in zip(left, right, strict=True)]


def _lacking(report: Report, face: Face) -> list[str]:
    """What was not captured, each with its reason, unless that stands above."""
    is_told = not any(region.path for region in report.regions) and bool(parts.no_regions(report, face))
    is_told = is_told and not any(warning.code == "nvtx-incompatible" for warning in report.trace.warnings)
    lead = sentences.lead(report)
    told = "" if lead is None else str(lead.headline)
    return [
        f"{gap.kind} ({gap.reason.partition(':')[0]})" if gap.reason and clean(gap.reason) not in told else gap.kind
        for gap in not_captured(report)
        if not (is_told and gap.kind == NVTX_RANGES)
    ]


def _last(report: Report, face: Face, above: Sequence[Sequence[Text]]) -> list[Text]:
    """What was not captured, in one line, what instants above count from, and where the rest is."""
    lacking = _lacking(report, face)
    lost = [
        item
        for item in report.trace.warnings
        if item.code.startswith(("clock", "cycles", "events", "lost", "mpi", "row"))
    ]
    clock = sentences.instants_count_from(report)
    names_instants = _INSTANT.search(" ".join(line.plain for lines in above for line in lines)) is not None
    texts = [f"{clock[0].upper()}{clock[1:]}." if clock and names_instants else ""]
    texts.append(f"Not captured: {', '.join(lacking)}." if lacking else "")
    texts += [f"! {clean(item.message).rstrip('.')}." for item in lost[:1]]
    topic = next((sentences.topic(device.verdict) for device in report.devices), "")
    teach = f"; boundby explain {topic}" if topic else ""
    lines = [line for text in texts for line in face.whole(text, 1, style=DIM)]
    return [*lines, *_more(sentences.command(report, "--full"), teach, face)]


def _more(command: str, teach: str, face: Face) -> list[Text]:
    """``More: boundby analyze run.sqlite --full``, with as much beside it as the line holds."""
    more = f"More: {command}"
    if len(more) > face.width:
        lines = face.verbatim(command, len("More: "), DIM)
        return [face.line(("More: ", DIM), lines[0][len("More: ") :]), *lines[1:]]
    texts = (f"{more} (all findings, what-if, glossary){teach}", f"{more}{teach}")
    return [face.line((next((text for text in texts if len(text) <= face.width), more), DIM))]
