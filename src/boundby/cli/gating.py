"""What ``boundby check`` and ``boundby compare`` share: options, and where a gate's result goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from boundby.model.errors import OutputError

if TYPE_CHECKING:
    from boundby.results.gate import GateResult

Command = TypeVar("Command", bound=Callable[..., Any])
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"

_SELECTION = (
    click.option("--window", metavar="gpu|all|START:END|nvtx:NAME", default="gpu", help="As for analyze."),
    click.option(
        "--skip-first", metavar="K", type=click.IntRange(min=0), default=0, help="Leave out the first K steps."
    ),
    click.option("--device", "devices", metavar="ID", type=int, multiple=True, help="Only this GPU; can be repeated."),
    click.option(
        "--process", "processes", metavar="PID", type=int, multiple=True, help="Only this process; repeatable."
    ),
    click.option(
        "--nsys", metavar="PATH", type=click.Path(path_type=Path), help="The nsys that exports .nsys-rep files."
    ),
    click.option(
        "--steps",
        metavar="REGION",
        help="The region that is the program's step. Without it: the outermost that repeats.",
    ),
)
_GATE = (
    click.option("--budget", metavar="FILE", type=click.Path(path_type=Path), help="A TOML file of limits."),
    click.option(
        "--junit", metavar="FILE", type=click.Path(path_type=Path), help="Write the limits' results as JUnit XML."
    ),
    click.option(
        "--summary",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Append the result as Markdown. In GitHub Actions the step's summary gets it anyway.",
    ),
)


def selection_options(command: Command) -> Command:
    """The options that say what of a report to look at."""
    return _with(_SELECTION, command)


def gate_options(command: Command) -> Command:
    """The options of a gate."""
    return _with(_GATE, command)


def _with(options: Iterable[Callable[[Any], Any]], command: Command) -> Command:
    for option in reversed(tuple(options)):
        command = option(command)
    return command


@dataclass(frozen=True)
class Places:
    """Where a gate's result is written beside standard output."""

    junit: Path | None
    summary: Path | None

    def check(self, inputs: Iterable[Path]) -> None:
        """Refuse what cannot be written before the hard work."""
        from boundby.render import write

        for path in (self.junit, self.summary):
            if path is not None:
                write.check(path, inputs=inputs)

    def deliver(self, result: GateResult | None, page: str, inputs: Iterable[Path]) -> None:
        """Write JUnit XML, and append ``page`` (Markdown) to the summaries."""
        from boundby.render import gate, write

        if self.junit is not None and result is not None:
            write.write_text(self.junit, gate.junit(result), inputs=inputs)
        told = os.environ.get(SUMMARY_VARIABLE)
        for place in {self.summary, Path(told) if told else None} - {None}:
            if place is not None:
                _append(place, page)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
    except OSError as error:
        raise OutputError(f"Cannot write the summary {path}: {error.strerror}.", "Write elsewhere.") from error
