"""A rule's texts as a page of Markdown: what ``boundby explain`` shows and docs/rules holds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from boundby.model.units import duration, percent, size
from boundby.rules.findings import DATA
from boundby.rules.rule import GROUPS, Remedy, Rule, Threshold


def page(rule: Rule, *, linked: bool = True) -> str:
    """Everything about one rule, ended by a line break. ``linked``: other rules are links to their pages."""
    parts = [
        f"# {rule.id}",
        f"**{rule.title}** ({GROUPS[rule.group]})",
        f"```text\n{_dedented(rule.picture)}\n```",
        "## What happens",
        rule.meaning.strip(),
        "## What to do",
        *_remedies(rule.remedies),
        "## What would prove it wrong",
        rule.disproof.strip(),
        *_thresholds(rule),
        *_needs(rule),
        *_links(rule, linked=linked),
    ]
    return "\n\n".join(parts) + "\n"


def index(rules: Iterable[Rule]) -> str:
    """The table of all rules by group."""
    lines = [
        "# Rules",
        "",
        "What `boundby analyze` looks for. `boundby explain RULE` shows the same pages; "
        "[findings](../findings.md) says how they are ranked, turned off and changed.",
    ]
    for group, members in by_group(rules):
        lines += ["", f"## {GROUPS[group]}", "", "| rule | what it finds |", "| --- | --- |"]
        lines += [f"| [{rule.id}]({rule.id}.md) | {_cell(rule.title)} |" for rule in members]
    return "\n".join(lines) + "\n"


def by_group(rules: Iterable[Rule]) -> list[tuple[str, list[Rule]]]:
    """Rules of every group that has any, groups in their own order, rules by id."""
    ordered = sorted(rules, key=lambda rule: rule.id)
    groups = [(group, [rule for rule in ordered if rule.group == group]) for group in GROUPS]
    return [(group, members) for group, members in groups if members]


def amount(threshold: Threshold) -> str:
    """A threshold's value with its unit, as people read it."""
    if threshold.unit == "ns":
        return duration(threshold.value)
    if threshold.unit == "fraction":
        return percent(threshold.value)
    if threshold.unit == "bytes":
        return size(threshold.value)
    return f"{threshold.value:g} {threshold.unit}".removesuffix(" count")


def _remedies(remedies: Sequence[Remedy]) -> list[str]:
    parts = []
    for number, remedy in enumerate(remedies, 1):
        parts.append(f"{number}. {remedy.text.strip()}" if len(remedies) > 1 else remedy.text.strip())
        if remedy.code:
            parts.append(f"```{remedy.language}\n{_dedented(remedy.code)}\n```")
        if remedy.caution:
            parts.append(f"*Careful: {remedy.caution.strip()}*")
    return parts


def _thresholds(rule: Rule) -> list[str]:
    if not rule.thresholds:
        return []
    rows = ["| threshold | value | why |", "| --- | ---: | --- |"]
    rows += [
        f"| `{threshold.name}` | {amount(threshold)} | {_cell(threshold.reason)} |" for threshold in rule.thresholds
    ]
    first = rule.thresholds[0]
    how = f"```toml\n[tool.boundby]\nthresholds.{rule.id}.{first.name} = {first.value:g}  # {first.unit}\n```"
    return ["## Thresholds", "\n".join(rows), how]


def _needs(rule: Rule) -> list[str]:
    if not rule.needs:
        return []
    return ["## Needs", f"{', '.join(DATA.get(name, name) for name in rule.needs)}."]


def _links(rule: Rule, *, linked: bool) -> list[str]:
    lines = [f"- [{other}]({other}.md)" if linked else f"- boundby explain {other}" for other in rule.see_also]
    lines += [f"- [{title}]({address})" for title, address in rule.references.items()]
    return ["## See also", "\n".join(lines)] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _dedented(text: str) -> str:
    return textwrap.dedent(text).strip("\n")
