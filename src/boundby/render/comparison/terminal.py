"""Comparison -> what a terminal shows: the sentence first, the two accounts to one scale, then regions and the rest."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from boundby.document import comparison_document
from boundby.document.comparison_document import RegionRow
from boundby.document.text import clean
from boundby.model import units
from boundby.model.records import replace
from boundby.model.scale import LIST
from boundby.render.face import DEFAULT_WIDTH, DIM, MIN_WIDTH, STRONG, ColorSystem, Column, Face, fitting, natural, pad
from boundby.results.comparison import Comparison, DeviceChange

GOOD, BAD = "green", "red"
LEAST_NAME = 18  # cells for regions' names before columns are left out
LONGEST_CELL = 28
MAX_PREDICTIONS = LIST
MAX_FINDINGS = 12
LEGEND = (
    "BEFORE, AFTER: the account's time per instance. TYPICAL: change of the median instance where it is significant, "
    "with its 95 % interval."
)


def render(
    comparison: Comparison,
    *,
    width: int = DEFAULT_WIDTH,
    color_system: ColorSystem | None = None,
    unicode: bool = True,
    top: int | None = None,
    sort: str = "time",
) -> str:
    """The whole view as text, no line wider than ``width``; ``color_system=None`` means no colour."""
    face = Face(max(width, MIN_WIDTH), color_system, unicode)
    return face.text(
        [
            _sides(comparison, face),
            _doubts(comparison, face),
            *(_device(device, comparison, face) for device in comparison.devices),
            _summary(comparison, face),
            _regions(comparison, face, top, sort),
            _findings(comparison, face, top or MAX_FINDINGS),
            _predictions(comparison, face, top or MAX_PREDICTIONS),
        ]
    )


def _sides(comparison: Comparison, face: Face) -> list[Text]:
    lines: list[Text] = []
    for word, parts in comparison_document.sides(comparison):
        told = " · ".join(parts) if face.unicode else ", ".join(parts)
        lines += face.wrapped(told, first=face.line((f"{word:<8}", STRONG)))
    return lines


def _doubts(comparison: Comparison, face: Face) -> list[Text]:
    lines: list[Text] = []
    mark = face.line(("! ", "bold yellow" if face.color else STRONG))
    for doubt in comparison.doubts:
        lines += face.wrapped(f"{clean(doubt.message)} [{doubt.code}]", first=mark)
    return lines


def _device(device: DeviceChange, comparison: Comparison, face: Face) -> list[Text]:
    lines = face.wrapped(comparison_document.headline(device, comparison), style=STRONG)
    lines += face.wrapped(comparison_document.verdict(device))
    one, other = device.before, device.after
    if one is None or other is None:
        return lines
    lines.append(Text())
    room = face.width - 8 - 11
    for bar in comparison_document.bars(one, other):
        painted = face.bar(bar.parts, max(round(room * bar.scale), 1))
        lines.append(face.line(pad(bar.word, 8), painted, f" {units.duration(bar.each_ns)}"))
    columns = [
        Column("CAUSE", 14, lambda row, _: face.cause(row.cause)),
        Column("BEFORE", 10, lambda row, _: units.duration(row.before_ns), right=True),
        Column("AFTER", 8, lambda row, _: units.duration(row.after_ns), right=True),
        Column("CHANGE", 9, lambda row, _: row.delta, right=True),
        Column("", 7, lambda row, _: row.change, right=True),
    ]
    lines += [Text(), face.heads(columns), *(face.row(columns, row) for row in comparison_document.causes(one, other))]
    shares = (device.gpu_utilization_before, device.gpu_utilization_after)
    if None not in shares:
        busy = f"GPU busy {', then '.join(map(units.percent, shares))}"
        lines += face.wrapped(busy, style=DIM)
    return lines


def _summary(comparison: Comparison, face: Face) -> list[Text]:
    if not comparison.devices and not comparison.regions:
        return face.wrapped("Neither report holds anything to compare.", style=STRONG)
    return face.wrapped(comparison_document.significance_summary(comparison))


def _regions(comparison: Comparison, face: Face, top: int | None, sort: str) -> list[Text]:
    rows, left_out = comparison_document.regions(comparison, top, sort)
    if not rows:
        return []

    def column(head: str, told: Callable[[RegionRow], str], *, right: bool = False, goes: int = 0) -> Column:
        width = natural(head, (face.fit(told(row), LONGEST_CELL) for row in rows))
        return Column(head, width, lambda row, width: face.fit(told(row), width), right=right, goes=goes)

    typical = column("TYPICAL", lambda row: row.typical, goes=1)
    columns = [
        column("INST", lambda row: row.instances, right=True, goes=2),
        column("BEFORE", lambda row: row.before, right=True),
        column("AFTER", lambda row: row.after, right=True),
        column("CHANGE", lambda row: row.state, right=True),
        replace(typical, cell=lambda row, width: _typical(row, width, face)),
        column("MOSTLY", lambda row: row.mostly, goes=3),
        column("BOUND BY", lambda row: row.bounds, goes=4),
    ]
    longest = natural("", (" " * 2 * row.depth + face.safe(row.name) for row in rows))
    columns, room = fitting(columns, face.width, min(LEAST_NAME, longest))
    name = max(min(longest, room), 8)
    lines = [face.line(face.heading(pad("REGION", name)), "  ", face.heads(columns))]
    for row in rows:
        indent = min(2 * row.depth, name // 2)
        label = pad(" " * indent + face.fit(row.name, name - indent), name)
        lines.append(face.line(label, "  ", face.row(columns, row)))
        lines += face.wrapped(row.renamed, indent=indent + 2, style=DIM)
    return lines + face.wrapped(left_out, style=DIM) + face.wrapped(LEGEND, style=DIM)


def _typical(row: RegionRow, width: int, face: Face) -> Text:
    text = face.fit(row.typical, width)
    style = {"faster": GOOD, "slower": BAD}.get(row.status)
    return face.painted(text, style) if style else Text(text, style=DIM)


def _findings(comparison: Comparison, face: Face, most: int) -> list[Text]:
    rows = comparison_document.findings(comparison)
    lines = [face.heading(f"FINDINGS: {comparison_document.findings_summary(comparison)}")] if rows else []
    for row in rows[:most]:
        style = {"new": BAD, "worse": BAD, "resolved": GOOD, "improved": GOOD}.get(row.kind, "")
        mark = face.line(pad(face.painted(row.kind, style), 10), pad(face.fit(row.severity, 8), 8))
        where, figures = f"{row.where}: " if row.where else "", f"; {row.figures}" if row.figures else ""
        lines += face.wrapped(f"{where}{row.title}{figures}", first=mark)
    more = len(rows) - most
    return lines + face.wrapped(f"{more} more are in --format json." if more > 0 else "", style=DIM)


def _predictions(comparison: Comparison, face: Face, most: int) -> list[Text]:
    columns = [
        Column("PREDICTED", 10, lambda row, _: row.expected, right=True),
        Column("MEASURED", 8, lambda row, _: row.measured, right=True),
        Column("ERROR", 7, lambda row, _: row.error, right=True),
    ]
    rows = comparison_document.predictions(comparison)[:most]
    told = face.fit("made before, for the part that was done", face.width - 31)
    head = face.line(face.heads(columns), "  ", face.heading(told))
    lines = [head] if rows else []
    for row in rows:
        lines += face.wrapped(f"{row.subject}: {row.told}", first=face.line(face.row(columns, row), "  "))
    return lines
