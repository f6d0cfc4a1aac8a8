"""Comparison -> GitHub-flavoured Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boundby.model import units
from boundby.render.comparison import sentences
from boundby.render.markdown import code, escape
from boundby.render.text import region_name
from boundby.results.comparison import Comparison, DeviceChange, RegionChange

_INDENT = "\N{NO-BREAK SPACE}" * 4
_ARROW = "→"


def render(comparison: Comparison) -> str:
    """The comparison as Markdown, ended by a line break."""
    sections = [
        _sides(comparison),
        _doubts(comparison),
        *(_device(device, comparison) for device in comparison.devices),
        escape(sentences.significance_summary(comparison)),
        _regions(comparison),
        _findings(comparison),
        _predictions(comparison),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _sides(comparison: Comparison) -> str:
    rows = [
        (word, " · ".join([code(parts[0]), *(escape(part) for part in parts[1:])]))
        for word, parts in (
            ("before", sentences.side(comparison.before)),
            ("after", sentences.side(comparison.after)),
        )
    ]
    return _table(("", "what ran"), "ll", rows)


def _doubts(comparison: Comparison) -> str:
    if not comparison.doubts:
        return ""
    lines = [f"> {escape(doubt.message)} ({code(doubt.code)})  " for doubt in comparison.doubts]
    return "\n".join(["> [!WARNING]", *lines])


def _device(device: DeviceChange, comparison: Comparison) -> str:
    lines = [f"### {escape(sentences.headline(device, comparison))}", "", escape(sentences.verdict(device))]
    one, other = device.before, device.after
    if one is None or other is None:
        return "\n".join(lines).rstrip()
    rows = [
        (
            f"`{item.letter}` {item.label}",
            units.duration(item.before_ns),
            units.duration(item.after_ns),
            sentences.signed(item.delta_ns) if item.delta_ns else "none",
            sentences.change(item.change),
        )
        for item in sentences.causes(one, other)
    ]
    whole = (
        "**all**",
        units.duration(one.each_ns),
        units.duration(other.each_ns),
        sentences.signed(other.each_ns - one.each_ns),
        sentences.change(device.change),
    )
    table = _table(("cause", "before", "after", "change", ""), "lrrrr", [*rows, whole])
    return "\n".join([*lines, "", table])


def _regions(comparison: Comparison) -> str:
    shown, left_out = sentences.shown(comparison)
    if not shown:
        return ""
    rows = [_region(item, shown) for item in shown]
    heads = ("region", "inst", "before", "after", "change", "typical instance", "mostly", "bound by")
    text = f"#### Regions\n\n{_table(heads, 'lrrrrlll', rows)}"
    if left_out:
        text += f"\n\n{sentences.left_out(left_out)}"
    legend = "Before and after: the account's time per instance. Typical instance: the median's change, 95 % interval."
    return f"{text}\n\n{legend}"


def _region(item: RegionChange, shown: Sequence[RegionChange]) -> tuple[str, ...]:
    depth, name = sentences.label(item, shown)
    was = sentences.renamed(item)
    mark = {"faster": "🟢 ", "slower": "🔴 "}.get(item.significance.status, "")
    return (
        f"{_INDENT * depth}{code(name)}" + (f"<br><sub>{escape(was)}</sub>" if was else ""),
        sentences.instances(item, _ARROW),
        sentences.each(item.before),
        sentences.each(item.after),
        sentences.state(item),
        f"{mark}{escape(sentences.typical(item.significance))}",
        escape(sentences.mostly(item)),
        escape(sentences.bounds(item, _ARROW)),
    )


def _findings(comparison: Comparison) -> str:
    if not comparison.findings:
        return ""
    lines = [f"#### Findings: {sentences.findings_summary(comparison)}", ""]
    for item in comparison.findings:
        where = f"{code(region_name(item.finding.region))}: " if item.finding.region else ""
        figures = sentences.finding_figures(item)
        title = escape(item.finding.title).rstrip(".")
        lines.append(
            f"- **{sentences.finding_word(item)}** ({escape(item.finding.severity)}) {where}{title}"
            + (f"; {figures}" if figures else "")
        )
    return "\n".join(lines)


def _predictions(comparison: Comparison) -> str:
    rows = [
        (
            escape(item.subject),
            escape(sentences.prediction(item)),
            units.duration(item.expected_ns),
            units.duration(item.measured_ns),
            sentences.change(item.error),
        )
        for item in comparison.predictions
    ]
    if not rows:
        return ""
    heads = ("of", "predicted before, for the part that was done", "predicted", "measured", "error")
    return f"#### Predictions\n\n{_table(heads, 'llrrr', rows)}"


def _table(heads: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    marks = ["---:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows))
