"""Comparison -> one self-contained HTML page. Everything that a trace supplies is escaped by the template engine."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from boundby.model import units
from boundby.model.causes import COLORS, MEANING
from boundby.render import gate
from boundby.render.bars import FOLD_BELOW, segments
from boundby.render.comparison import sentences
from boundby.render.text import clean
from boundby.results.comparison import Account, Comparison
from boundby.results.gate import GateResult

if TYPE_CHECKING:
    from jinja2 import Template

ARROW = "→"
LABELLED = 0.05  # of the page's width: narrower parts of a bar have no letter


def render(comparison: Comparison, result: GateResult | None = None) -> str:
    """A whole page, with a gate's result where there is one."""
    return _template().render(**_facts(comparison), page=True, gate=_gate(result))


def fragment(comparison: Comparison) -> str:
    """The same for notebooks, without the page around it."""
    return _template().render(**_facts(comparison), page=False, gate=None)


def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    text = resources.files("boundby.render.comparison").joinpath("page.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        text
    )


def _facts(comparison: Comparison) -> dict[str, object]:
    shown, left_out = sentences.shown(comparison)
    return {
        "title": " → ".join(sentences.side(side)[-1] for side in (comparison.before, comparison.after)),
        "sides": [("before", sentences.side(comparison.before)), ("after", sentences.side(comparison.after))],
        "doubts": [(doubt.code, clean(doubt.message)) for doubt in comparison.doubts],
        "devices": [
            {
                "headline": sentences.headline(device, comparison),
                "verdict": sentences.verdict(device),
                "bars": _bars(device.before, device.after),
                "causes": [
                    {
                        "color": COLORS[item.cause],
                        "letter": item.letter,
                        "label": item.label,
                        "meaning": MEANING.get(item.cause, ""),
                        "before": units.duration(item.before_ns),
                        "after": units.duration(item.after_ns),
                        "delta": sentences.signed(item.delta_ns) if item.delta_ns else "none",
                        "change": sentences.change(item.change),
                    }
                    for item in sentences.causes(device.before, device.after)
                ],
            }
            for device in comparison.devices
        ],
        "summary": sentences.significance_summary(comparison),
        "regions": [
            {
                "depth": sentences.label(item, shown)[0],
                "name": sentences.label(item, shown)[1],
                "was": sentences.renamed(item),
                "instances": sentences.instances(item, ARROW),
                "before": sentences.each(item.before),
                "after": sentences.each(item.after),
                "state": sentences.state(item),
                "status": item.significance.status,
                "typical": sentences.typical(item.significance),
                "told": sentences.told(item.significance),
                "mostly": sentences.mostly(item),
                "bars": _bars(item.before, item.after),
                "bounds": sentences.bounds(item, ARROW),
            }
            for item in shown
        ],
        "left_out": sentences.left_out(left_out) if left_out else "",
        "findings_summary": sentences.findings_summary(comparison),
        "findings": [
            {
                "status": item.status,
                "kind": item.trend or item.status,
                "word": sentences.finding_word(item),
                "severity": clean(item.finding.severity),
                "text": sentences.finding(item),
                "figures": sentences.finding_figures(item),
                "advice": [clean(advice) for advice in item.finding.advice] if item.status != "resolved" else [],
            }
            for item in comparison.findings
        ],
        "predictions": [
            {
                "subject": clean(item.subject),
                "text": sentences.prediction(item),
                "expected": units.duration(item.expected_ns),
                "measured": units.duration(item.measured_ns),
                "error": sentences.change(item.error),
            }
            for item in comparison.predictions
        ],
    }


def _gate(result: GateResult | None) -> dict[str, object] | None:
    if result is None:
        return None
    rows = [
        {"kept": item.kept, "state": gate.state(item), "limit": clean(item.limit), "message": clean(item.message)}
        for item in sorted(result.limits, key=lambda item: item.kept)
    ]
    return {"headline": gate.headline(result), "passed": result.passed, "rows": rows}


def _bars(one: Account | None, other: Account | None) -> list[dict[str, object]]:
    """Both accounts to one scale: widths in percent of the longer."""
    longest = max((found.each_ns for found in (one, other) if found is not None), default=0.0)
    bars: list[dict[str, object]] = []
    for word, account in (("before", one), ("after", other)):
        if account is None or not longest:
            continue
        scale = account.each_ns / longest
        parts = [
            {
                "color": COLORS.get(part.cause, COLORS["unknown"]),
                "width": f"{100 * part.fraction * scale:.3f}",
                "letter": part.letter if part.fraction * scale > LABELLED else "",
                "told": f"{part.label} {units.percent(part.fraction)}",
            }
            for part in segments(account.time, fold_below=FOLD_BELOW)
        ]
        bars.append({"word": word, "parts": parts, "time": units.duration(account.each_ns)})
    return bars
