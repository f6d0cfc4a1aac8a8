"""Options that several commands share, each declared once, and the one object that they become."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from boundby.cli.console import View
from boundby.options import AnalysisOptions

if TYPE_CHECKING:
    pass

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

FILE = click.Path(path_type=Path)


class Real(click.FloatRange):
    """A number within a range, of which ``nan`` is none: it lies in every range, and is no limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


WINDOW_HELP = (
    "The time to account for. gpu: from the first GPU work, or the first step if that begins earlier, to the last. "
    "all: the whole trace. START:END: a span, such as 1.5s:2s. nvtx:NAME: from the first NVTX range of this name to "
    "the last. [gpu]"
)


def _fraction(_context: click.Context, _option: click.Parameter, percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _byte_count(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text or "", re.IGNORECASE)
    if text is not None and match is None:
        raise click.BadParameter(f"{text!r} is not a size: write it as 4G or 500M.")
    return None if match is None else int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))


#: What a report is analysed by. A command may say something else instead of a help text.
_ANALYSIS: dict[str, Callable[..., Decorator]] = {
    "window": partial(
        click.option, "--window", metavar="gpu|all|START:END|nvtx:NAME", default="gpu", help="As for analyze."
    ),
    "skip_first": partial(
        click.option,
        "--skip-first",
        metavar="K",
        type=click.IntRange(min=0),
        default=0,
        help="Leave out the first K steps of every process.",
    ),
    "region": partial(
        click.option, "--region", metavar="GLOB", help="Only regions whose path matches, such as 'step/forward*'."
    ),
    "devices": partial(
        click.option,
        "--device",
        "devices",
        metavar="ID",
        type=int,
        multiple=True,
        help="Only this GPU; can be repeated.",
    ),
    "processes": partial(
        click.option,
        "--process",
        "processes",
        metavar="PID",
        type=int,
        multiple=True,
        help="Only this process; can be repeated.",
    ),
    "min_share": partial(
        click.option,
        "--min-share",
        metavar="PERCENT",
        type=Real(0, 100),
        callback=_fraction,
        help="Only regions with at least this share of the time. [1 in tables for people, else 0]",
    ),
    "no_fold": partial(click.option, "--no-fold", is_flag=True, help="Keep numbered regions (step 1, step 2) apart."),
    "no_find": partial(
        click.option,
        "--no-find",
        is_flag=True,
        help="If a program has no NVTX ranges, do not look for its iterations and phases.",
    ),
    "show_all": partial(
        click.option,
        "--all",
        "show_all",
        is_flag=True,
        help="Show also findings that save less than 1 %, and each finding in full.",
    ),
    "max_memory": partial(
        click.option,
        "--max-memory",
        metavar="SIZE",
        callback=_byte_count,
        help="The most memory to use, such as 4G. If it is too little for all of the report, its last part is "
        "read. [80 % of the machine's]",
    ),
    "max_time": partial(
        click.option,
        "--max-time",
        metavar="SECONDS",
        type=Real(min=0),
        help="The most CPU time for each stage of the analysis. A stage that takes longer is left out, or ends the "
        "command. [a minute, plus a second for every 20,000 events]",
    ),
    "disable": partial(
        click.option, "--disable", metavar="RULE", multiple=True, help="Leave out this rule; can be repeated."
    ),
    "nsys": partial(click.option, "--nsys", metavar="PATH", type=FILE, help="The nsys that exports .nsys-rep files."),
    "captures": partial(
        click.option,
        "--capture",
        "captures",
        metavar="FILE",
        type=FILE,
        multiple=True,
        help="A report in which the program captures its CUDA graphs, if REPORT only launches them; can be repeated.",
    ),
    "keep_export": partial(
        click.option, "--keep-export", is_flag=True, help="Keep the exported .sqlite file next to the report."
    ),
}
#: Flags that deny what is done without them.
_DENIED = {"no_fold": "fold", "no_find": "find_regions"}
#: How results look: of these every command that shows one has the first three, and the others where they act.
PLAIN = ("quiet", "color", "width")
_VIEW: dict[str, Callable[..., Decorator]] = {
    "quiet": partial(click.option, "-q", "--quiet", is_flag=True, help="No progress and no notes on stderr."),
    "color": partial(
        click.option,
        "--color/--no-color",
        default=None,
        help="Colour or none. [colour on a terminal; NO_COLOR is obeyed]",
    ),
    "width": partial(
        click.option,
        "--width",
        metavar="N",
        type=click.IntRange(min=40),
        help="Columns to fill. [the terminal's, else 100]",
    ),
    "full": partial(
        click.option, "--full", is_flag=True, help="All findings, regions, first responses, what-if, and a glossary."
    ),
    "top": partial(
        click.option, "--top", metavar="N", type=click.IntRange(min=1), help="Rows of each table on the screen."
    ),
    "sort": partial(
        click.option,
        "--sort",
        type=click.Choice(("time", "max", "idle", "instances")),
        default="time",
        help="What regions are sorted by: their time (as a tree), the most that can be saved (max), idle time, or how "
        "many instances they have. [time]",
    ),
}


def stacked(*options: Decorator) -> Decorator:
    """Options as decorators that stand one above the other."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def json_option(command: Command) -> Command:
    """``--format terminal|json``, and ``--json`` for short; the command gets ``as_json``."""

    @functools.wraps(command)
    def gathered(format_name: str, short: bool, **values: Any) -> Any:
        return command(**values, as_json=short or format_name == "json")

    return stacked(
        click.option(
            "--format",
            "format_name",
            type=click.Choice(("terminal", "json")),
            default="terminal",
            help="How to show it. [terminal]",
        ),
        click.option("--json", "short", is_flag=True, help="Short for --format json."),
    )(gathered)


def output_option(help: str = "Write to this file; .json says the format.", **more: Any) -> Decorator:
    """``-o FILE``, instead of standard output; the command gets ``output``."""
    return click.option(*("-o", "--output"), type=FILE, multiple=True, callback=_only_one, help=help, **more)


def _only_one(_context: click.Context, _option: click.Parameter, given: tuple[Path, ...]) -> Path | None:
    """The path that was given. Several are refused, since all but one would not be written."""
    if len(given) > 1:
        names = ", ".join(map(str, given))
        raise click.UsageError(f"-o takes one path, and was given {len(given)}: {names}. Run the command for each.")
    return given[-1] if given else None


def analysis_options(*names: str, **helps: str) -> Decorator:
    """Options of these names, in this order; the command gets one ``options``: an `AnalysisOptions`.

    ``helps`` replace help texts. Several of these on one command add up.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gathered(**values: Any) -> Any:
            given = {name: values.pop(name) for name in names}
            for flag, name in _DENIED.items():
                if flag in given:
                    given[name] = not given.pop(flag)
            values["options"] = replace(values.get("options", AnalysisOptions()), **given)
            return command(**values)

        return _declared(_ANALYSIS, names, helps)(gathered)

    return decorate


def view_options(*names: str, **helps: str) -> Decorator:
    """All of them, or those named; the command gets one ``view``: a `View`."""
    names = names or tuple(_VIEW)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gathered(**values: Any) -> Any:
            values["view"] = View(**{name: values.pop(name) for name in names})
            return command(**values)

        return _declared(_VIEW, names, helps)(gathered)

    return decorate


def _declared(known: dict[str, Callable[..., Decorator]], names: tuple[str, ...], helps: dict[str, str]) -> Decorator:
    """Options of these names, some of them with another help text."""
    return stacked(*(known[name](help=helps[name]) if name in helps else known[name]() for name in names))


def with_rule_config(options: AnalysisOptions) -> AnalysisOptions:
    """The options on top of what ``[tool.boundby]`` in the nearest pyproject.toml says of rules.

    Raises UserError for what is none of boundby's, before any hard work is done.
    """
    from boundby.rules.builtin import every
    from boundby.rules.settings import make_settings, read_config

    config = read_config(Path.cwd())
    disable, thresholds = (*config.get("disable", ()), *options.disable), config.get("thresholds") or None
    if disable or thresholds:
        make_settings(every(), disable=disable, thresholds=thresholds)
    return replace(options, disable=disable, thresholds=thresholds)
