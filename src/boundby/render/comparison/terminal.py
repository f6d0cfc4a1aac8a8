"""Comparison -> what a terminal shows: the sentence first, the two accounts to one scale, then regions and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from boundby.model import units
from boundby.render.bars import FOLD_BELOW, segments
from boundby.render.comparison import sentences
from boundby.render.face import DIM, STRONG, Face, pad
from boundby.render.terminal import DEFAULT_WIDTH, MIN_WIDTH, ColorSystem, printed
from boundby.render.text import clean
from boundby.results.comparison import Account, Comparison, DeviceChange, RegionChange

GOOD, BAD = "green", "red"
LEAST_NAME = 18  # cells for regions' names before columns are left out
MAX_PREDICTIONS = 8
MAX_FINDINGS = 12


def render(
    comparison: Comparison,
    *,
    width: int = DEFAULT_WIDTH,
    color_system: ColorSystem | None = None,
    unicode: bool = True,
) -> str:
    """The whole view as text, no line wider than ``width``; ``color_system=None`` means no colour."""
    face = Face(max(width, MIN_WIDTH), color_system is not None, unicode)
    sections = [
        _sides(comparison, face),
        _doubts(comparison, face),
        *(_device(device, comparison, face) for device in comparison.devices),
        _summary(comparison, face),
        _regions(comparison, face),
        _findings(comparison, face),
        _predictions(comparison, face),
    ]
    lines = [line for section in sections if section for line in (*section, Text())]
    return printed(lines[:-1], face, color_system)


def _sides(comparison: Comparison, face: Face) -> list[Text]:
    lines: list[Text] = []
    for word, side in (("before", comparison.before), ("after", comparison.after)):
        lines += face.wrapped(
            " · ".join(sentences.side(side)) if face.unicode else ", ".join(sentences.side(side)),
            first=face.line((f"{word:<8}", STRONG)),
        )
    return lines


def _doubts(comparison: Comparison, face: Face) -> list[Text]:
    lines: list[Text] = []
    for doubt in comparison.doubts:
        mark = face.line(("! ", "bold yellow" if face.color else STRONG))
        lines += face.wrapped(f"{clean(doubt.message)} [{doubt.code}]", first=mark)
    return lines


def _device(device: DeviceChange, comparison: Comparison, face: Face) -> list[Text]:
    lines = face.wrapped(sentences.headline(device, comparison), style=STRONG)
    told = sentences.verdict(device)
    lines += face.wrapped(told) if told else []
    one, other = device.before, device.after
    if one is None or other is None:
        return lines
    lines += [Text(), *_bars(one, other, face), Text(), *_causes(one, other, face)]
    if device.gpu_utilization_before is not None and device.gpu_utilization_after is not None:
        busy = (units.percent(share) for share in (device.gpu_utilization_before, device.gpu_utilization_after))
        lines += face.wrapped(f"GPU busy {', then '.join(busy)}", style=DIM)
    return lines


def _bars(one: Account, other: Account, face: Face) -> list[Text]:
    """Both to one scale, so that the shorter bar is the faster run."""
    longest = max(one.each_ns, other.each_ns)
    room = face.width - 8 - 11
    lines = []
    for word, account in (("before", one), ("after", other)):
        cells = max(round(room * account.each_ns / longest), 1) if longest else 0
        bar = face.bar(segments(account.time, fold_below=FOLD_BELOW), cells)
        lines.append(face.line(pad(word, 8), bar, f" {units.duration(account.each_ns)}"))
    return lines


def _causes(one: Account, other: Account, face: Face) -> list[Text]:
    heads = f"{'CAUSE':<16}{'BEFORE':>10}{'AFTER':>10}{'CHANGE':>11}"
    lines = [face.heading(heads.rstrip())]
    for item in sentences.causes(one, other):
        name = face.line(face.swatch(item.cause, item.letter), f" {item.label}")
        lines.append(
            face.line(
                pad(name, 16),
                pad(units.duration(item.before_ns), 10, "right"),
                pad(units.duration(item.after_ns), 10, "right"),
                pad(sentences.signed(item.delta_ns) if item.delta_ns else "none", 11, "right"),
                pad(sentences.change(item.change), 9, "right"),
            )
        )
    return lines


def _summary(comparison: Comparison, face: Face) -> list[Text]:
    if not comparison.devices and not comparison.regions:
        return face.wrapped("Neither report holds anything to compare.", style=STRONG)
    return face.wrapped(sentences.significance_summary(comparison))


@dataclass(frozen=True)
class _Column:
    head: str
    align: str
    cell: Callable[[RegionChange], Text | str]
    can_go: int = 0  # columns with higher numbers are left out first where it gets narrow


def _regions(comparison: Comparison, face: Face) -> list[Text]:
    rows, left_out = sentences.shown(comparison)
    if not rows:
        return []
    columns = [
        _Column("INST", "right", lambda item: sentences.instances(item, face.arrow), 2),
        _Column("BEFORE", "right", lambda item: sentences.each(item.before)),
        _Column("AFTER", "right", lambda item: sentences.each(item.after)),
        _Column("CHANGE", "right", sentences.state),
        _Column("TYPICAL", "left", lambda item: _typical(item, face), 1),
        _Column("MOSTLY", "left", sentences.mostly, 3),
        _Column("BOUND BY", "left", lambda item: sentences.bounds(item, face.arrow), 4),
    ]
    labels = [sentences.label(item, rows) for item in rows]
    longest = max(2 * depth + Text(face.safe(text)).cell_len for depth, text in labels)
    while True:
        cells = [[_text(column.cell(item), face) for item in rows] for column in columns]
        widths = [
            max(len(column.head), *(cell.cell_len for cell in found))
            for column, found in zip(columns, cells, strict=True)
        ]
        room = face.width - sum(width + 2 for width in widths)
        loose = [column for column in columns if column.can_go]
        if room >= min(LEAST_NAME, longest) or not loose:
            break
        columns.remove(max(loose, key=lambda column: column.can_go))
    name = max(min(longest, room), 8)
    lines = [_line(pad("REGION", name), [column.head for column in columns], columns, widths, face, heading=True)]
    for index, (item, (depth, text)) in enumerate(zip(rows, labels, strict=True)):
        indent = min(2 * depth, name // 2)
        shown = pad(" " * indent + face.fit(text, name - indent), name)
        lines.append(_line(shown, [found[index] for found in cells], columns, widths, face))
        was = sentences.renamed(item)
        lines += face.wrapped(was, indent=indent + 2, style=DIM) if was else []
    lines += face.wrapped(sentences.left_out(left_out), style=DIM) if left_out else []
    lines += face.wrapped(
        "BEFORE, AFTER: the account's time per instance. TYPICAL: change of the median instance where it is "
        "significant, with its 95 % interval.",
        style=DIM,
    )
    return lines


def _typical(item: RegionChange, face: Face) -> Text:
    style = {"faster": GOOD, "slower": BAD}.get(item.significance.status, DIM)
    return Text(face.safe(sentences.typical(item.significance)), style=style if face.color or style == DIM else "")


def _text(cell: Text | str, face: Face) -> Text:
    return cell if isinstance(cell, Text) else Text(face.fit(cell, 28))


def _line(
    name: Text,
    cells: Sequence[Text | str],
    columns: Sequence[_Column],
    widths: Sequence[int],
    face: Face,
    *,
    heading: bool = False,
) -> Text:
    parts = [
        part
        for cell, column, width in zip(cells, columns, widths, strict=True)
        for part in (Text("  "), pad(cell, width, column.align))
    ]
    line = Text(no_wrap=True).append_text(name)
    for part in parts:
        line.append_text(part)
    return face.heading(line) if heading else line


def _findings(comparison: Comparison, face: Face) -> list[Text]:
    if not comparison.findings:
        return []
    lines = [face.heading(f"FINDINGS: {sentences.findings_summary(comparison)}")]
    for item in comparison.findings[:MAX_FINDINGS]:
        word = sentences.finding_word(item) if item.trend else item.status
        style = {"new": BAD, "worse": BAD, "resolved": GOOD, "improved": GOOD}.get(word, "") if face.color else ""
        mark = face.line(pad(Text(word, style=style), 10), pad(face.fit(clean(item.finding.severity), 8), 8))
        figures = sentences.finding_figures(item)
        lines += face.wrapped(sentences.finding(item) + (f"; {figures}" if figures else ""), first=mark)
    more = len(comparison.findings) - MAX_FINDINGS
    return lines + (face.wrapped(f"{more} more are in --format json.", style=DIM) if more > 0 else [])


def _predictions(comparison: Comparison, face: Face) -> list[Text]:
    if not comparison.predictions:
        return []
    heads = f"{'PREDICTED':>10}{'MEASURED':>10}{'ERROR':>9}  "
    told = "made before, for the part that was done"
    lines = [face.heading(face.fit(f"{heads}{told}", face.width))]
    for item in comparison.predictions[:MAX_PREDICTIONS]:
        figures = face.line(
            pad(units.duration(item.expected_ns), 10, "right"),
            pad(units.duration(item.measured_ns), 10, "right"),
            pad(sentences.change(item.error), 9, "right"),
            "  ",
        )
        lines += face.wrapped(f"{clean(item.subject)}: {sentences.prediction(item)}", first=figures)
    return lines
