"""Report -> one screen of a terminal: the verdict and what to do first stand on top, all else fits below.

`boundby.render.terminal` shows everything (``--full``). Both draw the same parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from boundby.document import pattern_cards, sentences, view
from boundby.document.blocks import clean, part_name, region_name
from boundby.document.sentences import not_captured
from boundby.document.view import Row, ShownAccount
from boundby.model import units
from boundby.model.causes import SHORT_LABEL
from boundby.model.scale import A_FEW_LINES, COLUMN, GLANCE, HALF, HANDFUL, LEVELS, LIST, SLIGHT, SMALL, TABLE
from boundby.model.units import LINE
from boundby.render import terminal as parts
from boundby.render import to_terminal
from boundby.render.face import (
    DEFAULT_WIDTH,
    DIM,
    MIN_WIDTH,
    STRONG,
    ColorSystem,
    Face,
    FaceColumn,
    natural,
    pad,
)
from boundby.results.report import Finding, RegionReport, Report
from boundby.trace.vocabulary.last_words import UNCLEAR

MOST_LINES = TABLE  # of 100 columns: a terminal of usual height
MOST_FINDINGS = A_FEW_LINES
MOST_ENDED = LIST  # of how a program ended: the sentence, its own lines, when
MOST_ROWS = GLANCE
TWIN = 1 - SLIGHT  # of the time of the row above: a region in it with as many instances repeats that row
DEEP = LEVELS  # regions below this depth are left to --full
MOST_WHERE = 22  # cells of the region that a finding lies in: its path is in --full
TWO_COLUMNS = LINE  # cells from which kernels and calls stand side by side
CALLS_DECIDE = SMALL  # of the window in API calls or waits: then calls are shown beside kernels


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
    tops = _tops(report, face, options)
    below = [_findings(report, face, options), tops, _last(report, face)]
    taken = sum(len(section) + 1 for section in (*above, *below) if section)
    over = 0 if options.top else min(max(taken + 1 + 2 + 2 - MOST_LINES, 0), HANDFUL - 1)
    if tops and over:  # names with least time give way
        below[1], taken = tops[: max(len(tops) - over, 2)], taken - over
    room = min(max(MOST_LINES - taken - 1, 2 + 2), MOST_ROWS + 2)
    cards = [] if report.analysis.region_glob is None else _cards(report, face)
    return face.text([*above, _regions(report, face, options, room), *cards, *below])


def _cards(report: Report, face: Face) -> list[list[Text]]:
    """The patterns of the regions that were asked for."""
    of_regions = pattern_cards.by_subject(report, is_of_regions=True)
    return [to_terminal.section(part, face) for parts in of_regions for part in parts]


def _head(report: Report, face: Face) -> list[Text]:
    title = face.line((face.fit(sentences.what_ran(report), face.width), STRONG))
    told = [
        part
        for fact in sentences.circumstances(report)
        for part in ([fact] if len(fact) <= face.width - 2 else fact.split("; "))
    ]
    facts = [face.line((face.fit(fact, face.width - 2), DIM)) for fact in told]
    return [title, *face.flow(facts)[: _room(2, face)]]


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
        first, *rest = summary + _first(shown[0], face), parts.side_by_side(shown[:8], face)
    # An error that may have been caught is less than what the GPU is bound by; an end is more.
    is_less = report.trace.program is not None and report.trace.program.ended == UNCLEAR and report.devices
    return [first, ended, *rest] if is_less else [ended, first, *rest]


def _in_full(account: ShownAccount, face: Face) -> list[Text]:
    lines = parts.headline(account.headline, face)
    if steady := account.steady(face.width):
        lines += face.within(steady, 1)
    if account.lead is not None:
        lines += parts.told_of(account.lead, face)[:MOST_ENDED]
    elif account.because:
        lines += face.within(account.because, _room(2, face))
    lines += _first(account, face)
    lines += face.within(account.most, _room(2, face))
    shown = account.parts
    if not shown:
        return [*lines, face.line(("(no time in the window)", DIM))]
    if account.lead is not None and not account.lead.is_told:
        return lines
    lines.append(face.bar(shown, face.width, full=True))
    legend = [face.cause(part.cause, f"{part.label} {units.percent(part.fraction)}") for part in shown]
    if account.exposed:
        legend.append(face.line((account.exposed, STRONG)))
    lines += face.flow(legend)
    lines += [line for text in account.measured for line in face.within(text, _room(2, face))]
    return lines + face.within(account.sure, _room(3, face), style=DIM)


def _first(account: ShownAccount, face: Face) -> list[Text]:
    """What to do first, and about the second cause of a mixed verdict: never cut."""
    other = account.first_of_other
    lines = face.wrapped(other, first=Text("And: ", style=parts.first_style(face))) if other else []
    return [*parts.first(account.first, face), *lines]


def _regions(report: Report, face: Face, options: ScreenOptions, room: int) -> list[Text]:
    """Regions down to the depth that matters; ``room``: lines, heading and note included."""
    if not any(region.path for region in report.regions):
        return parts.no_regions(report, face)
    selection = view.select(report, options.min_share)
    notes = face.within(selection.uneven, _room(2, face), style=DIM)
    if any(row.region.found for row in selection.rows):
        notes += face.wrapped("(found): by what repeats, not by an NVTX range.", style=DIM)
    most = max(room - 2 - len(notes), 1) if options.top is None else options.top
    rows = _worth(selection, most, options)
    if not rows:
        return []
    names = max(len("REGION"), *(2 * row.depth + len(row.label) for row in rows))
    name, columns = _columns(names, rows, face)
    lines = [face.line(face.heading(pad("REGION", name)), "  ", face.heads(columns))]
    lines += [face.line(parts.region_label(row, name, face), "  ", face.row(columns, row)) for row in rows]
    left = sum(1 for region in report.regions if region.path) - sum(row.is_judged for row in rows)
    told = [f"{units.plural(left, 'more region')}: --full, or --top N."] if left else []
    if any(cell.plain.endswith("?") for cell in (parts.bound(row, face) for row in rows)):
        told.append("? after a bound: uncertain.")
    return lines + face.wrapped(" ".join(told), style=DIM) + notes


def _worth(selection: view.Selection, most: int, options: ScreenOptions) -> list[Row]:
    """The largest rows, each below what holds it, in the order of the tree."""
    every = list(selection.every_row)
    if options.top is None:
        every = _telling(every)
    if options.sort != "time":
        every = sorted(selection.rows, key=lambda row: -_weight(row.region, options.sort))
        return [replace(row, depth=0, label=region_name(row.region.path)) for row in every[:most]]
    ranked = sorted(range(len(every)), key=lambda place: (every[place].depth >= DEEP, -every[place].share, place))
    kept: set[int] = set()
    for place in ranked:
        line = [place]
        while every[line[-1]].depth:  # what holds it comes along
            line.append(next(p for p in range(line[-1] - 1, -1, -1) if every[p].depth < every[line[-1]].depth))
        if len(kept | set(line)) <= most:
            kept |= set(line)
    return [row for place, row in enumerate(every) if place in kept]


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
    """Without an operator's inner twins: one call each, all of its time."""
    kept: list[Row] = []
    for row in rows:
        above = kept[-1] if kept and kept[-1].depth < row.depth else None
        same = above is not None and (row.region.instances, row.bound) == (above.region.instances, above.bound)
        if above is not None and same and "::" in row.label and row.share >= TWIN * above.share:
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
    columns, room = parts.region_columns(names, rows, face, account=16)
    name = max(min(names, COLUMN, room), parts.MIN_NAME)
    spare = max(room - name, 0)
    return name, [replace(one, width=one.width + spare) if one.head == "ACCOUNT" else one for one in columns]


def _findings(report: Report, face: Face, options: ScreenOptions) -> list[Text]:
    """The best ones, two lines each; advice that stands on top already is not said again."""
    worth = [item for item in report.findings if item.severity != sentences.NOTE]
    shown = worth[: options.top or MOST_FINDINGS]
    if not shown:
        return face.wrapped(sentences.nothing_found(report)) + _notes(report, face)
    width = natural("SAVES", (sentences.saves(item) for item in shown))
    lines = [face.heading(f"FINDINGS ({len(worth)})  {'SAVES':>{max(width - 1, 5)}}")]
    said = {one.action for device in report.devices for one in device.first_responses[:1]}
    for rank, item in enumerate(shown, 1):
        lines += _finding(rank, item, width, face)[: 1 if item.advice[:1] and item.advice[0] in said else 2]
    return lines


def _notes(report: Report, face: Face) -> list[Text]:
    """Where there is no finding: what was noted all the same, a line each."""
    notes = [item for item in report.findings if item.severity == sentences.NOTE][:MOST_FINDINGS]
    return [line for item in notes for line in face.cut(face.wrapped(clean(item.title), first=Text("  note  ")), 1)]


def _finding(rank: int, item: Finding, width: int, face: Face) -> list[Text]:
    severity = parts.severity(item, face)
    head = face.line(f"{rank:>2} ", pad(severity, 7), f"{sentences.saves(item):>{width}}  ")
    told, room = clean(item.title), max(face.width - head.cell_len, 20)
    where = f" (in {face.fit(part_name(item.region[-1]), MOST_WHERE)})" if item.region else ""
    if len(where) > HALF * room:  # the title is what is read
        where = ""
    told = f"{_begin(told, room - len(where), face)}{where}"
    advice = clean(item.advice[0]) if item.advice else f"boundby explain {clean(item.rule)}"
    below = face.cut(face.wrapped(advice, indent=3, first=face.line((f"{face.arrow} ", DIM)), style=DIM), 1)
    return [face.line(head, told), *below]


def _begin(text: str, width: int, face: Face) -> str:
    """As many words from the beginning as fit: a sentence that is cut in its middle says nothing."""
    text = face.safe(text)
    if cell_len(text) <= width:
        return text
    kept = set_cell_size(text, width - cell_len(face.ellipsis))
    return f"{kept.rpartition(' ')[0].rstrip(' ,;:(') or kept}{face.ellipsis}"


def _tops(report: Report, face: Face, options: ScreenOptions) -> list[Text]:
    """Kernels with most time and, where the host's calls decide, these beside them."""
    kernels, calls = view.tops(report)
    most = options.top or HANDFUL
    window = max(view.window_total(report), 1)
    show_calls = sum(one.total_ns for one in calls) >= CALLS_DECIDE * window
    if not kernels:
        return parts.top("CUDA API CALLS", calls[:most], face.width, face) if show_calls else []
    if not show_calls or face.width < TWO_COLUMNS:
        return parts.top("TOP KERNELS", kernels[:most], face.width, face)
    half = (face.width - 4) // 2
    left = parts.top("TOP KERNELS", kernels[:most], half, face)
    right = parts.top("API CALLS (waits included)", calls[:most], half, face)
    rows = max(len(left), len(right))
    left += [Text()] * (rows - len(left))
    right += [Text()] * (rows - len(right))
    return [face.line(pad(one, half), "    ", other) for one, other in zip(left, right, strict=True)]


def _last(report: Report, face: Face) -> list[Text]:
    """What was not captured, in one line, and where the rest is."""
    lacking = [
        f"{gap.kind} ({gap.reason.partition(':')[0]})" if gap.reason else gap.kind for gap in not_captured(report)
    ]
    lost = [
        item
        for item in report.trace.warnings
        if item.code.startswith(("clock", "cycles", "events", "lost", "mpi", "row"))
    ]
    texts = [f"Not captured: {', '.join(lacking)}." if lacking else ""]
    texts += [f"! {clean(item.message).rstrip('.')}." for item in lost[:1]]
    bound = next((device.verdict.bound for device in report.devices), "")
    teach = f"; boundby explain {bound}" if bound in SHORT_LABEL and bound not in ("hidden", "unknown", "mixed") else ""
    more = f"More: --full (reasons, all findings, what-if, words){teach}."
    texts.append(more if len(more) <= face.width else f"More: --full{teach}.")
    return [line for text in texts for line in face.within(text, 1, DIM)]
