"""Comparison -> GitHub-flavoured Markdown, for a comment on a pull request."""

from __future__ import annotations

from boundby.document import comparison_document
from boundby.document.comparison_document import RegionRow
from boundby.model import units
from boundby.model.causes import info
from boundby.render.markdown import code, escape, table, warned
from boundby.results.comparison import Comparison, DeviceChange

_INDENT = "\N{NO-BREAK SPACE}" * 4
_MARK = {"faster": "🟢 ", "slower": "🔴 "}


def render(comparison: Comparison) -> str:
    """The comparison as Markdown, ended by a line break."""
    sections = [
        _sides(comparison),
        warned((doubt.message, doubt.code) for doubt in comparison.doubts),
        *(_device(device, comparison) for device in comparison.devices),
        escape(comparison_document.significance_summary(comparison)),
        _regions(comparison),
        _findings(comparison),
        _predictions(comparison),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _sides(comparison: Comparison) -> str:
    rows = [
        (word, " · ".join((code(what), *(escape(part) for part in parts))))
        for word, (what, *parts) in comparison_document.sides(comparison)
    ]
    return table(("", "what ran"), "ll", rows)


def _device(device: DeviceChange, comparison: Comparison) -> str:
    lines = [
        f"### {escape(comparison_document.headline(device, comparison))}",
        "",
        escape(comparison_document.verdict(device)),
    ]
    one, other = device.before, device.after
    if one is None or other is None:
        return "\n".join(lines).rstrip()
    rows = [
        (
            f"`{info(item.cause).letter}` {info(item.cause).label}",
            units.duration(item.before_ns),
            units.duration(item.after_ns),
            item.delta,
            item.change,
        )
        for item in comparison_document.causes(one, other)
    ]
    whole = (
        "**all**",
        units.duration(one.each_ns),
        units.duration(other.each_ns),
        comparison_document.signed(other.each_ns - one.each_ns),
        comparison_document.change(device.change),
    )
    return "\n".join([*lines, "", table(("cause", "before", "after", "change", ""), "lrrrr", [*rows, whole])])


def _regions(comparison: Comparison) -> str:
    rows, left_out = comparison_document.regions(comparison)
    if not rows:
        return ""
    heads = ("region", "inst", "before", "after", "change", "typical instance", "mostly", "bound by")
    text = table(heads, "lrrrrlll", map(_region, rows))
    legend = "Before and after: the account's time per instance. Typical instance: the median's change, 95 % interval."
    return "\n\n".join(filter(None, ("#### Regions", text, left_out, legend)))


def _region(row: RegionRow) -> tuple[str, ...]:
    return (
        f"{_INDENT * row.depth}{code(row.name)}" + (f"<br><sub>{escape(row.renamed)}</sub>" if row.renamed else ""),
        row.instances,
        row.before,
        row.after,
        row.state,
        f"{_MARK.get(row.status, '')}{escape(row.typical)}",
        escape(row.mostly),
        escape(row.bounds),
    )


def _findings(comparison: Comparison) -> str:
    rows = comparison_document.findings(comparison)
    if not rows:
        return ""
    lines = [f"#### Findings: {comparison_document.findings_summary(comparison)}", ""]
    for row in rows:
        where = f"{code(row.where)}: " if row.where else ""
        figures = f"; {row.figures}" if row.figures else ""
        lines.append(f"- **{row.word}** ({escape(row.severity)}) {where}{escape(row.title)}{figures}")
    return "\n".join(lines)


def _predictions(comparison: Comparison) -> str:
    rows = [
        (escape(row.subject), escape(row.told), row.expected, row.measured, row.error)
        for row in comparison_document.predictions(comparison)
    ]
    heads = ("of", "predicted before, for the part that was done", "predicted", "measured", "error")
    return f"#### Predictions\n\n{table(heads, 'llrrr', rows)}" if rows else ""
