"""The region tree of the terminal view: one line a region, its columns chosen by the width there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.text import Text

from boundby.model import units
from boundby.model.causes import LETTER
from boundby.render import sentences
from boundby.render.bars import segments
from boundby.render.face import DIM, STRONG, Face, pad
from boundby.render.selection import Row, Selection, longest_window, select
from boundby.render.text import clean
from boundby.results.report import RegionReport, Report, Verdict

GAP = "  "
MIN_NAME = 12
MIN_LABEL = 9  # deep rows stop indenting before their names vanish
WIDE_NAME = 48
NOTABLE = 0.05  # of the window: what a reason must save to be worth a line of its own
BECAUSE_COLUMN = 44  # narrower, the reason reads better on a line of its own


@dataclass(frozen=True)
class Columns:
    """Widths in cells; 0 means that the column is left out."""

    name: int
    instances: int
    time: int
    share: int
    bar: int
    bound: int
    saves: int
    because: int


def lines(report: Report, face: Face, min_share: float | None = None) -> list[Text]:
    """The section, heading included; empty where the report has no named regions."""
    selection = select(report, min_share)
    if not any(region.path for region in report.regions):
        return []
    if not selection.rows and selection.outside is None:
        return _left_out(selection, face)
    columns = _columns(selection, face)
    result = [_heading(columns, face)]
    whole = longest_window(report)
    told: list[str] = []  # the reasons given by the rows above, by depth
    for row in selection.rows:
        reason = clean(row.region.verdict.because).rstrip(".")
        result += _row(row, "" if reason in told[: row.depth] else reason, columns, face, whole)
        told[row.depth :] = [reason]
    if selection.outside is not None:
        result.append(_outside(selection.outside, selection.outside_share, columns, face))
    if columns.time and any(not row.region.total_ns for row in selection.rows):
        note = "A time in parentheses is the host's: the account holds none of that region."
        result += face.wrapped(note, style=DIM)
    if any(row.region.found for row in selection.rows):
        result += face.wrapped(sentences.FOUND, style=DIM)
    return result + _left_out(selection, face)


def _columns(selection: Selection, face: Face) -> Columns:
    """Fixed columns take what they need, the bar and the names share the rest; the least telling go first."""
    rows = selection.rows
    names = max([len("REGION"), len("(no range)"), *(2 * row.depth + len(row.label) for row in rows)])
    bound = max([8, *(len(_word(row.region.verdict)) + 2 for row in rows)])
    optional = {"saves": 7, "instances": 6, "bar": 10, "time": 9, "share": 5}
    widths = dict(optional)
    for dropped in ("saves", "instances", "bar", "time", "share"):
        fixed = bound + sum(widths.values()) + len(GAP) * (1 + sum(1 for width in widths.values() if width))
        if face.width - fixed >= max(min(names, 20), MIN_NAME):
            break
        widths[dropped] = 0
    fixed = bound + sum(widths.values()) + len(GAP) * (1 + sum(1 for width in widths.values() if width))
    name = max(min(names, WIDE_NAME, face.width - fixed), MIN_NAME)
    spare = max(face.width - fixed - name, 0)
    because = spare - len(GAP) if spare - len(GAP) >= BECAUSE_COLUMN else 0
    if widths["bar"]:
        widths["bar"] += min(spare, 30) if not because else 0
        if because > BECAUSE_COLUMN:
            grow = min(because - BECAUSE_COLUMN, 10)
            widths["bar"] += grow
            because -= grow
    return Columns(name=name, bound=bound, because=because, **widths)


def _heading(columns: Columns, face: Face) -> Text:
    cells = [pad("REGION", columns.name)]
    if columns.instances:
        cells.append(pad("INST", columns.instances, "right"))
    if columns.time:
        cells.append(pad("TIME/INST", columns.time, "right"))
    if columns.share:
        cells.append(pad("SHARE", columns.share, "right"))
    if columns.bar:
        cells.append(pad("ACCOUNT", columns.bar))
    cells.append(pad("BOUND BY", columns.bound))
    if columns.saves:
        cells.append(pad("SAVES", columns.saves, "right"))
    if columns.because:
        cells.append(pad("BECAUSE", columns.because))
    return face.heading(_joined(cells))


def _row(row: Row, reason: str, columns: Columns, face: Face, whole: int) -> list[Text]:
    region = row.region
    indent = "  " * min(row.depth, max(columns.name - MIN_LABEL, 0) // 2)
    name = Text.assemble(indent, (face.fit(row.label, columns.name - len(indent)), STRONG if row.depth == 0 else ""))
    saving = region.verdict.saving_ns
    saves = units.duration(saving) if saving is not None else ""
    cells = _measures(
        pad(name, columns.name), region.instances, sentences.each(region), region.share, region.time, columns, face
    )
    cells.append(pad(_bound(region, face), columns.bound))
    if columns.saves:
        cells.append(pad(saves, columns.saves, "right"))
    if not columns.because:
        notable = (saving or 0) >= NOTABLE * whole or region.verdict.bound in ("hidden", "mixed")
        own_line = face.wrapped(reason, indent=len(indent) + 2, style=DIM) if reason and notable else []
        return [_joined(cells), *own_line]
    narrow = Face(columns.because, face.color, face.unicode)
    first, *rest = narrow.wrapped(reason, style=DIM) if reason else [Text()]
    line = _joined([*cells, first])
    margin = " " * (line.cell_len - first.cell_len)
    return [line, *(Text.assemble(margin, more) for more in rest)]


def _measures(
    name: Text,
    instances: int | None,
    each: str,
    share: float,
    time: Mapping[str, int],
    columns: Columns,
    face: Face,
) -> list[Text]:
    cells = [name]
    if columns.instances:
        cells.append(pad(units.count(instances) if instances is not None else "", columns.instances, "right"))
    if columns.time:
        cells.append(pad(each, columns.time, "right"))
    if columns.share:
        cells.append(pad(units.percent(share), columns.share, "right"))
    if columns.bar:
        cells.append(pad(face.bar(segments(time), columns.bar), columns.bar))
    return cells


def _bound(region: RegionReport, face: Face) -> Text:
    verdict = region.verdict
    if verdict.bound not in LETTER:
        return Text(f"  {_word(verdict)}", style=DIM if verdict.bound == "hidden" else "")
    return Text.assemble(face.swatch(verdict.bound, LETTER[verdict.bound]), f" {_word(verdict)}")


def _word(verdict: Verdict) -> str:
    """``sync``, with a question mark where the confidence is low."""
    return sentences.bound_word(verdict) + ("?" if verdict.confidence == "low" else "")


def _outside(root: RegionReport, share: float, columns: Columns, face: Face) -> Text:
    """What no range owns: time, but nothing to judge."""
    name = pad(Text("(no range)", style=DIM), columns.name)
    return _joined(_measures(name, None, "", share, root.time_exclusive, columns, face))


def _left_out(selection: Selection, face: Face) -> list[Text]:
    if not selection.left_out:
        return []
    number = f"{selection.left_out} region{'s' if selection.left_out > 1 else ''}"
    verb = "are" if selection.left_out > 1 else "is"
    bound = units.percent(selection.min_share)
    return face.wrapped(f"{number} below {bound} {verb} not shown; --min-share 0 shows all.", style=DIM)


def _joined(cells: list[Text]) -> Text:
    line = Text(GAP).join(cells)
    line.no_wrap = True
    return line
