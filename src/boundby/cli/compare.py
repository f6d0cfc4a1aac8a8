"""``boundby compare``: two runs in, what changed out; with limits, a gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import gating, outcome

if TYPE_CHECKING:
    from boundby.cli.stdout import Surface
    from boundby.results.comparison import Comparison
    from boundby.results.gate import GateResult

FORMATS = ("terminal", "markdown", "html", "json")
SUFFIXES = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".txt": "terminal",
}


@click.command(epilog=outcome.EPILOG)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file (.html .md .json .txt say the format)."
)
@click.option(
    "--fail-on",
    metavar="CONDITION",
    multiple=True,
    help="Leave with 1 if this holds: 'regression > 5 %', 'step.time > 12 ms', 'findings.new.high > 0', or in a word "
    "regression, new-findings. Can be repeated.",
)
@gating.gate_options
@gating.selection_options
@click.option("--no-fold", is_flag=True, help="Analyse with numbered regions apart. They are matched folded anyway.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
@click.option("--color/--no-color", default=None, help="Colour or none. [colour on a terminal; NO_COLOR is obeyed]")
@click.option("--width", type=click.IntRange(min=40), help="Columns to fill. [the terminal's, else 100]")
def compare(
    before: Path,
    after: Path,
    format_name: str | None,
    output: Path | None,
    fail_on: tuple[str, ...],
    budget: Path | None,
    junit: Path | None,
    summary: Path | None,
    window: str,
    skip_first: int,
    devices: tuple[int, ...],
    processes: tuple[int, ...],
    nsys: Path | None,
    steps: str | None,
    no_fold: bool,
    quiet: bool,
    color: bool | None,
    width: int | None,
) -> int:
    """Say what changed from the run BEFORE to the run AFTER.

    Each is anything that "boundby analyze" takes, or its result saved as JSON. Regions are matched by path, and by
    likeness where they were renamed; a change is called significant only if it exceeds what instances differ anyway.

    \b
    boundby compare before.nsys-rep after.nsys-rep
    boundby compare main.json report.sqlite -o comparison.md --fail-on 'regression > 5 %'
    """
    from boundby import api
    from boundby.cli import progress, stdout
    from boundby.compare import gate as gates
    from boundby.options import AnalysisOptions

    inputs = [before, after]
    places = gating.Places(junit, summary)
    chosen = api.limits(budget_file=budget, fail_on=fail_on)
    output = None if output == Path("-") else output
    kind = format_name or (_format_of(output) if output is not None else "terminal")
    places.check(inputs)
    if output is not None:
        from boundby.render import write

        write.check(output, inputs=inputs)
    options = AnalysisOptions(window, skip_first, None, devices, processes, fold=not no_fold, nsys=nsys)
    with progress.shown(quiet=quiet) as update:
        one, other = (api.load(path, options, progress=update) for path in inputs)
        found = api.compare_runs(one, other, steps=steps or chosen.steps)
    result = gates.check(chosen.limits, other, found, steps=steps or chosen.steps) if chosen.limits else None
    surface = stdout.plain() if output is not None else stdout.surface(width=width, color=color)
    text = _render(kind, found, result, width or surface.width, surface)
    if output is not None:
        write.write_text(output, text, inputs=inputs)
        if result is not None and not quiet:
            stdout.put(_gate(result, stdout.surface(width=width, color=color)), utf8=False)
    else:
        stdout.put(text, utf8=kind != "terminal")
    places.deliver(result, _markdown(found, result), inputs)
    return outcome.GATE_FAILED if result is not None and not result.passed else outcome.OK


def _format_of(path: Path) -> str:
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        known = " ".join(sorted(SUFFIXES))
        raise click.UsageError(f"The format of {path} is not plain from its name: {known}, or --format.") from None


def _render(kind: str, found: Comparison, result: GateResult | None, width: int, surface: Surface) -> str:
    if kind == "markdown":
        return _markdown(found, result)
    if kind == "json":
        from boundby.render import gate
        from boundby.render.comparison import json
        from boundby.render.json import dumps

        return json.render(found) if result is None else dumps({**json.to_dict(found), "gate": gate.to_dict(result)})
    if kind == "html":
        from boundby.render.comparison import html

        return html.render(found, result)
    from boundby.render.comparison import terminal

    text = terminal.render(found, width=width, color_system=surface.color_system, unicode=surface.unicode)
    return text if result is None else f"{text}\n{_gate(result, surface, width)}"


def _gate(result: GateResult, surface: Surface, width: int | None = None) -> str:
    from boundby.render import gate

    return gate.render(result, width=width or surface.width, color_system=surface.color_system, unicode=surface.unicode)


def _markdown(found: Comparison, result: GateResult | None) -> str:
    from boundby.render import gate
    from boundby.render.comparison import markdown

    text = markdown.render(found)
    return text if result is None else f"{gate.markdown(result)}\n{text}"
