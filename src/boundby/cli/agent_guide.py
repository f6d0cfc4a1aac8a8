"""``boundby agent-guide``: how an agent works with boundby, as text to read or to keep."""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli import console, outcome
from boundby.cli.outcome import Exit


@click.command("agent-guide", epilog=outcome.EPILOG)
def agent_guide() -> int:
    """Print how an agent works with boundby.

    It names the commands, and says how to read their answers and when not to believe them.

    \b
    boundby agent-guide > AGENTS.boundby.md
    """
    console.put(text(), utf8=True)
    return Exit.OK


def text() -> str:
    """The guide, Markdown."""
    return Path(__file__).with_name("agent-guide.md").read_text(encoding="utf-8")
