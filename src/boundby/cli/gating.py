"""What ``boundby check`` and ``boundby compare`` share: options of a gate, and where its result goes."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from boundby.cli.options import FILE, Command
from boundby.model.errors import OutputError
from boundby.render.formats import Surface

if TYPE_CHECKING:
    from boundby.results.gate import GateResult

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


class Places(Struct, frozen=True):
    """Where a gate's result is written beside standard output."""

    junit: Path | None
    summary: Path | None

    def check(self, inputs: Sequence[Path]) -> None:
        """Refuse what cannot be written before the hard work."""
        from boundby.results import write

        for path in (self.junit, self.summary):
            if path is not None:
                write.check(path, inputs=inputs)

    def deliver(self, result: GateResult | None, page: str, inputs: Sequence[Path]) -> None:
        """Write JUnit XML, and append ``page`` (Markdown) to the summaries."""
        from boundby.render import junit
        from boundby.results import write

        if self.junit is not None and result is not None:
            write.write_text(self.junit, junit.render(result), inputs=inputs)
        job = os.environ.get(SUMMARY_VARIABLE)
        for place in {self.summary, Path(job) if job else None} - {None}:
            if place is not None:
                _append(place, page)


def gate_options(command: Command) -> Command:
    """The options of a gate; the command gets ``budget`` (a file of limits) and ``places``."""

    @functools.wraps(command)
    def gathered(junit: Path | None, summary: Path | None, **values: Any) -> Any:
        return command(**values, places=Places(junit, summary))

    for option in (
        click.option(
            "--summary",
            metavar="FILE",
            type=FILE,
            help="Append the result as Markdown. In GitHub Actions the step's summary gets it in any case.",
        ),
        click.option("--junit", metavar="FILE", type=FILE, help="Write the limits' results as JUnit XML."),
        click.option("--budget", metavar="FILE", type=FILE, help="A TOML file of limits."),
    ):
        gathered = option(gathered)
    return gathered


steps_option = click.option(
    "--steps",
    metavar="REGION",
    help="The region that is the program's step. Without it: the outermost that repeats.",
)


def gate_table(result: GateResult, surface: Surface) -> str:
    """The result for people."""
    from boundby.document.comparison_document import gate_document
    from boundby.render.formats import drawn

    return drawn(gate_document(result), "terminal", surface)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
    except OSError as error:
        raise OutputError(f"Cannot write the summary {path}: {error.strerror}.", "Write elsewhere.") from error
