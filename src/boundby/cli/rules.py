"""``boundby rules`` and ``boundby explain``: what boundby looks for, and how each rule tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import PLAIN, json_option, output_option, view_options
from boundby.render.formats import Surface

if TYPE_CHECKING:
    from boundby.rules.rule import Rule


@click.command("rules", epilog=outcome.EPILOG)
@click.option("--group", metavar="NAME", help="Only this group, such as sync.")
@json_option
@output_option()
@view_options(*PLAIN)
def rules(group: str | None, as_json: bool, output: Path | None, view: View) -> int:
    """List the rules: what boundby looks for in a report.

    \b
    boundby rules --group sync
    boundby explain sync-operator
    """
    from boundby.model.errors import SelectionError
    from boundby.rules import builtin as registry
    from boundby.rules.rule import GROUPS, by_group

    installed, broken = registry.third_party()
    known_rules = (*registry.builtin(), *installed)
    if group is not None and group not in GROUPS:
        raise SelectionError(f"There is no group {group!r}.", f"Groups: {', '.join(GROUPS)}.")
    groups = [(name, members) for name, members in by_group(known_rules) if group in (None, name)]
    surface = view.surface() if output is None else view.plain()
    if as_json or (output is not None and output.suffix == ".json"):
        listed = [_row(rule) for _, members in groups for rule in members]
        console.deliver(json.dumps(listed, indent=2, ensure_ascii=False) + "\n", output, view, utf8=True)
        return Exit.OK
    console.deliver(_table([(GROUPS[name].label, members) for name, members in groups], surface), output, view)
    for item in broken:
        click.echo(f"boundby: the rules of {item.rule} are left out: {item.reason}", err=True)
    return Exit.OK


@click.command("explain", epilog=outcome.EPILOG)
@click.argument("words", metavar="PATTERN|RULE", nargs=-1, required=True)
@click.option("--markdown", is_flag=True, help="As Markdown, as it is in docs/rules.")
@json_option
@output_option()
@view_options(*PLAIN, width="Columns to fill. [the terminal's, at most 100]")
def explain(words: tuple[str, ...], markdown: bool, as_json: bool, output: Path | None, view: View) -> int:
    """Explain PATTERN|RULE: a verdict's name, or a finding's rule.

    PATTERN is any name that a screen gives it (sync, launch overhead, host code, mixed, ...). Its page has its picture,
    its classic signs and what to try first. RULE is what stands before @ in a finding's id (sync-operator). Its
    page says what the rule finds, how it knows, what to do, and what disproves it.

    \b
    boundby explain sync
    boundby explain launch overhead
    boundby explain sync-operator
    """
    kind, name, text = explained(" ".join(words), linked=markdown)
    suffix = output.suffix if output is not None else ""
    if as_json or suffix == ".json":
        explanation = {"id": name, "kind": kind, "markdown": text}
        console.deliver(json.dumps(explanation, indent=2, ensure_ascii=False) + "\n", output, view, utf8=True)
        return Exit.OK
    if markdown or suffix in (".md", ".markdown"):
        console.deliver(text, output, view, utf8=True)
        return Exit.OK
    from rich.markdown import Markdown

    surface = view.surface() if output is None else view.plain()
    surface = replace(surface, width=view.width or min(surface.width, console.PIPE_WIDTH))
    drawn = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    console.deliver(console.painted(drawn, surface=surface), output, view)
    return Exit.OK


def explained(word: str, *, linked: bool) -> tuple[str, str, str]:
    """Of a pattern or a rule: which of the two it is, its id, its page. Raises SelectionError for any other word."""
    from boundby.claims.patterns import ALIASES, PAGES, named
    from boundby.rules import builtin as registry
    from boundby.rules.rule import page, pattern_page
    from boundby.rules.settings import find_rule

    every = registry.every()
    if pattern := named(word):
        return "pattern", pattern.key, pattern_page(pattern.key, pattern.text, every)
    rule = find_rule(every, word, also=(*PAGES, *ALIASES))
    return "rule", rule.id, page(rule, linked=linked)


def _row(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "group": rule.group,
        "title": rule.title,
        "needs": list(rule.needs),
        "thresholds": [
            {"name": threshold.name, "value": threshold.value, "unit": threshold.unit, "reason": threshold.reason}
            for threshold in rule.thresholds
        ],
        "docs": f"rules/{rule.id}",
    }


def _table(groups: list[tuple[str, list[Rule]]], surface: Surface) -> str:
    """One line a rule; titles that do not fit go on below themselves."""
    from rich.table import Table
    from rich.text import Text

    width = max((len(rule.id) for _, members in groups for rule in members), default=0)
    parts: list[Text | Table] = []
    for title, members in groups:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, width=width)
        table.add_column()
        for rule in members:
            table.add_row(Text(rule.id, style="bold"), Text(rule.title))
        parts += [Text(), Text(title.upper(), style="bold dim"), table]
    return console.painted(*parts[1:], surface=surface)
