"""Report -> an HTML fragment for notebooks: no script, inline style, no colours but the causes' own.

Text takes the notebook's colour and grey is transparency, so that it reads in light and dark alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape as _escape

from boundby.model import units
from boundby.model.causes import COLORS, LETTER, MEANING
from boundby.render import sentences
from boundby.render.bars import FOLD_BELOW, Segment, segments
from boundby.render.selection import Row, Selection, select
from boundby.render.text import clean
from boundby.results.report import Report, Verdict

_FAINT = "opacity:.7"
_CELL = "padding:2px 10px 2px 0;text-align:left;border:none;white-space:nowrap"
_NUMBER = "padding:2px 10px 2px 0;text-align:right;border:none;white-space:nowrap"


def fragment(report: Report) -> str:
    """One ``<div>``: what ran, a sentence and a bar per device (or thread), the regions."""
    parts = [_head(report)]
    parts += [_account(sentences.gpu(item), item.verdict, item.time, item.window_ns) for item in report.devices]
    parts += [_account(sentences.thread(item), item.verdict, item.time, item.total_ns) for item in report.threads]
    if not report.devices and not report.threads:
        parts.append(_paragraph("Nothing to account for: no GPU work and no thread with NVTX ranges."))
    parts.append(_regions(select(report)))
    parts += [_paragraph(f"Warning: {clean(warning.message)}", faint=True) for warning in report.trace.warnings]
    return f'<div style="font-family:sans-serif;line-height:1.4;max-width:60em">{"".join(filter(None, parts))}</div>'


def text(value: str) -> str:
    """Escaped for content and for attributes alike, on one line."""
    return _escape(clean(value), quote=True)


def _paragraph(value: str, *, faint: bool = False) -> str:
    style = f"margin:.2em 0;{_FAINT}" if faint else "margin:.2em 0"
    return f'<div style="{style}">{text(value)}</div>' if value else ""


def _head(report: Report) -> str:
    facts = " · ".join(sentences.circumstances(report))
    return f"<div><strong>{text(sentences.what_ran(report))}</strong></div>{_paragraph(facts, faint=True)}"


def _account(subject: str, verdict: Verdict, time: Mapping[str, int], whole_ns: int) -> str:
    sentence = sentences.headline(verdict, subject)
    badge = f'<span style="{_color(sentence.bound)};padding:0 .4em;border-radius:3px">{text(sentence.stressed)}</span>'
    head = f"<strong>{text(sentence.before)}{badge}{text(sentence.after)}</strong>"
    parts = segments(time, fold_below=FOLD_BELOW)
    told = " ".join(filter(None, (sentences.because(verdict), sentences.outlook(verdict, whole_ns))))
    sure = " ".join(filter(None, (sentences.confidence(verdict), sentences.next_best(verdict, whole_ns))))
    body = _paragraph(told) + _bar(parts, "1.6em") + _legend(parts) + _paragraph(sure, faint=True)
    return f'<div style="margin:.8em 0"><div>{head}</div>{body}</div>'


def _color(cause: str) -> str:
    background, letter = COLORS.get(cause, COLORS["unknown"])
    return f"background:{background};color:{letter}"


def _bar(parts: tuple[Segment, ...], height: str, narrowest: float = 0.01) -> str:
    """Coloured boxes, with their letter where it fits; the figures show on hovering."""
    pieces = "".join(
        f'<div style="{_color(part.cause)};width:{100 * part.fraction:.3f}%;overflow:hidden;text-align:center"'
        f' title="{text(_told(part))}">{text(part.letter) if part.fraction > narrowest else ""}</div>'
        for part in parts
    )
    style = f"display:flex;height:{height};line-height:{height};margin:.3em 0;border-radius:3px;overflow:hidden"
    return f'<div style="{style};font-family:monospace">{pieces}</div>' if pieces else ""


def _told(part: Segment) -> str:
    meaning = MEANING.get(part.cause, "causes too small to show")
    return f"{part.label} {units.percent(part.fraction)}, {units.duration(part.ns)}: {meaning}"


def _legend(parts: tuple[Segment, ...]) -> str:
    entries = "".join(
        f'<span style="margin-right:1em;white-space:nowrap" title="{text(_told(part))}">'
        f'<span style="{_color(part.cause)};padding:0 .35em;font-family:monospace">{text(part.letter)}</span>'
        f" {text(part.label)} {text(units.percent(part.fraction))}</span>"
        for part in parts
    )
    return f'<div style="margin:.3em 0">{entries}</div>' if entries else ""


def _regions(selection: Selection) -> str:
    if not selection.rows:
        return ""
    heads = (
        *(("region", _CELL), ("inst", _NUMBER), ("time/inst", _NUMBER), ("share", _NUMBER)),
        *(("account", _CELL), ("bound by", _CELL), ("saves", _NUMBER), ("because", _CELL)),
    )
    head = "".join(f'<th style="{style};{_FAINT}">{name}</th>' for name, style in heads)
    body = "".join(_region(row) for row in selection.rows)
    table = f'<table style="border-collapse:collapse;font-size:.92em"><tr>{head}</tr>{body}</table>'
    left_out = f"Below {units.percent(selection.min_share)} and not shown: {selection.left_out}."
    return table + (_paragraph(left_out, faint=True) if selection.left_out else "")


def _region(row: Row) -> str:
    region, verdict = row.region, row.region.verdict
    saves = units.duration(verdict.saving_ns) if verdict.saving_ns is not None else ""
    letter = LETTER.get(verdict.bound, "")
    swatch = f'<span style="{_color(verdict.bound)};padding:0 .35em">{letter}</span> ' if letter else ""
    bound = swatch + text(sentences.bound_word(verdict))
    bar = f'<div style="width:12em">{_bar(segments(region.time), "1.1em", 0.06)}</div>'
    cells = (
        (f'<span style="padding-left:{1.2 * row.depth:.1f}em">{text(row.label)}</span>', _CELL),
        (units.count(region.instances), _NUMBER),
        (text(sentences.each(region)), _NUMBER),
        (text(units.percent(region.share)), _NUMBER),
        (bar, _CELL),
        (bound, _CELL),
        (saves, _NUMBER),
        (text(verdict.because), _CELL.replace("nowrap", "normal")),
    )
    columns = "".join(f'<td style="{style}">{content}</td>' for content, style in cells)
    return f"<tr>{columns}</tr>"
