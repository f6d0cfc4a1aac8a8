"""``boundby explain``: what a rule looks for, how it tells, and what to do."""

from __future__ import annotations

import click

from boundby.cli import outcome


@click.command("explain", epilog=outcome.EPILOG)
@click.argument("rule")
@click.option("--markdown", is_flag=True, help="As Markdown, as the documentation has it.")
@click.option("--width", type=click.IntRange(min=40), help="Columns to fill. [the terminal's, at most 100]")
def explain(rule: str, markdown: bool, width: int | None) -> int:
    """Explain RULE: what it finds, how it tells, what to do, what disproves it.

    \b
    boundby explain sync-operator
    """
    from boundby.cli import stdout
    from boundby.rules import builtin as rules
    from boundby.rules.pages import page
    from boundby.rules.settings import find_rule

    found = find_rule(rules.every(), rule)
    if markdown:
        stdout.put(page(found), utf8=True)
        return outcome.OK
    from rich.console import Console
    from rich.markdown import Markdown

    surface = stdout.surface(width=width, color=None)
    console = Console(
        width=width or min(surface.width, stdout.PIPE_WIDTH),
        color_system=surface.color_system,
        force_terminal=surface.color_system is not None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(Markdown(page(found, linked=False), code_theme="ansi_dark", hyperlinks=False))
    lines = (line.rstrip() if surface.color_system is None else line for line in captured.get().splitlines())
    stdout.put("\n".join(lines) + "\n", utf8=False)
    return outcome.OK
