"""Every command and option says what it does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from boundby.cli.main import COMMANDS, cli

DOCS = Path(__file__).parent.parent.parent / "docs"


def commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {"boundby": cli, **{name: command for name, command in found.items() if command is not None}}


def test_every_listed_command_loads() -> None:
    assert set(COMMANDS) <= set(commands())


@pytest.mark.parametrize("name", commands())
def test_a_command_says_what_it_does(name: str) -> None:
    command = commands()[name]
    assert command.help
    summary = command.help.strip().splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) <= 75


@pytest.mark.parametrize("name", commands())
def test_every_option_says_what_it_does(name: str) -> None:
    for parameter in commands()[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts} has no help text"
            assert parameter.help.endswith((".", "]")), parameter.help  # a sentence; its default in brackets


@pytest.mark.parametrize("name", [name for name in commands() if name != "boundby"])
def test_every_argument_is_in_the_help(name: str) -> None:
    command = commands()[name]
    text = command.get_help(click.Context(command, info_name=name))
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(command)).strip(".[]") in (command.help or "")
    assert "Exit codes:" in text


SHOWN = (
    "analyze",
    "check",
    "compare",
    "diagnose",
    "doctor",
    "explain",
    "job",
    "profile",
    "prove",
    "rules",
    "serving",
    "simulate",
    "what-if",
)
MEASURED = ("compare", "devices", "latency", "stages", "throughput")
ALIKE = {"-o": "--output", "-q": "--quiet", "--format": "--format"}


@pytest.mark.parametrize("path", [(name,) for name in SHOWN] + [("measure", name) for name in MEASURED])
def test_what_shows_a_result_shows_it_alike(path: tuple[str, ...]) -> None:
    """``--format json``, ``-o`` and ``-q`` everywhere; where regions are listed, ``--top`` and ``--sort``."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(cli), name) or pytest.fail(f"no command {name}")
    options = {text: one for one in command.params if isinstance(one, click.Option) for text in one.opts}
    assert all(short in options and options[short] is options[full] for short, full in ALIKE.items())
    formats = options["--format"].type
    assert isinstance(formats, click.Choice)
    assert {"terminal", "json"} <= set(formats.choices)
    assert (
        path[-1] not in ("analyze", "compare", "job", "profile", "what-if")
        or len(path) > 1
        or {"--top", "--sort"} <= set(options)
    )


def test_what_agents_read_first_holds_commands_that_parse() -> None:
    text = (DOCS.parent / "llms.txt").read_text(encoding="utf-8")
    found = [shlex.split(line)[1:] for line in re.findall(r"^- `(boundby [^`]*)`", text, re.MULTILINE)]
    assert len(found) > 5
    for name, *words in found:
        if name in commands():
            commands()[name].make_context(name, [word for word in words if word != "..."])


def test_reports_are_completed_as_commands_are() -> None:
    """``boundby rep<TAB>``: a report may stand in a command's place."""
    context = cli.make_context("boundby", [], resilient_parsing=True)
    assert [(one.type, one.value) for one in cli.shell_complete(context, "rep")] == [("file", "rep")]
    assert {"compare", "check"} <= {one.value for one in cli.shell_complete(context, "c")}
    assert "file" not in {one.type for one in cli.shell_complete(context, "--")}
