"""A rule's page, with what the rule declares: what ``boundby explain`` and the documentation show."""

from __future__ import annotations

import re
from collections.abc import Iterable

from boundby.model.expressions import expression
from boundby.model.units import duration, percent, size
from boundby.rules.rule import DATA, GROUPS, Rule, Threshold

_PAGE_LINK = expression(r"\[([a-z0-9-]+)\]\(\1\.md\)")


def page(rule: Rule, *, linked: bool = True) -> str:
    """Everything about one rule, ended by a line break. ``linked``: other rules are links to their pages."""
    text, see_also, links = rule.text.partition("\n## See also\n")
    if not linked:
        links = _PAGE_LINK.sub(r"boundby explain \1", links)
    parts = [
        f"# {rule.id}",
        f"**{rule.title}** ({GROUPS[rule.group].label})",
        text.strip(),
        *_thresholds(rule),
        *_needs(rule),
        (see_also + links).strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def pattern_page(key: str, text: str, rules: Iterable[Rule]) -> str:
    """A pattern's page with the rules that look for its causes, ended by a line break."""
    title, _, rest = text.partition("\n")
    shown = re.sub(r"^### ([a-z0-9-]+): (.+)$", r"### \2", rest, flags=re.MULTILINE).strip()
    of_pattern = [rule for rule in sorted(rules, key=lambda rule: rule.id) if key in rule.takes]
    listed = "\n".join(f"- `boundby explain {rule.id}`: {rule.title}" for rule in of_pattern)
    return f"{title} ({key})\n\n{shown}\n" + (f"\n## Rules that look for it\n\n{listed}\n" if listed else "")


def index(rules: Iterable[Rule]) -> str:
    """The table of all rules by group."""
    lines = [
        "# Rules",
        "",
        "What `boundby analyze` looks for. `boundby explain RULE` shows the same pages; "
        "[findings](../findings.md) says how they are ranked, turned off and changed.",
    ]
    for group, members in by_group(rules):
        lines += ["", f"## {GROUPS[group].label}", "", "| rule | what it finds |", "| --- | --- |"]
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


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
