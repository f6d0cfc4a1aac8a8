"""``boundby analyze``: one or more reports in, what they are bound by out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import Surface, View
from boundby.cli.options import FILE, WINDOW_HELP, analysis_options, view_options, with_rule_config
from boundby.options import AnalysisOptions

if TYPE_CHECKING:
    from boundby.api import Analysis
    from boundby.results.report import Report

FORMATS = ("terminal", "html", "markdown", "json", "csv", "perfetto")


@dataclass(frozen=True)
class Target:
    """Where the results go, and in which format."""

    format: str
    output: Path | None
    """A file, or a folder for several results; None: standard output."""
    save: Path | None
    """A database that gets them too."""
    inputs: tuple[Path, ...]
    """What must not be written over."""


@click.command(epilog=outcome.EPILOG)
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=FILE)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@click.option(
    *("-o", "--output"),
    type=FILE,
    help="Write to this file (.html .md .json .csv .txt .pftrace say the format), or into this folder for several "
    "reports.",
)
@click.option("--save", metavar="DB", type=FILE, help="Add the result to a SQLite database.")
@analysis_options("window", "skip_first", "region", "devices", "processes", "min_share", window=WINDOW_HELP)
@analysis_options("no_fold", "no_find", "show_all", "disable", "nsys", "keep_export")
@view_options()
def analyze(
    reports: tuple[Path, ...],
    format_name: str | None,
    output: Path | None,
    save: Path | None,
    options: AnalysisOptions,
    view: View,
) -> int:
    """Say what the program in each REPORT is bound by.

    A REPORT is what nsys wrote (.nsys-rep or .qdrep; an nsys is needed to read these), its SQLite export, or the
    folder of a run that "boundby profile" made.

    \b
    boundby analyze report.nsys-rep
    boundby analyze report.sqlite -o report.html
    boundby analyze report.sqlite --format json -o result.json
    boundby analyze rank*.nsys-rep --save runs.db
    """
    options = with_rule_config(options)
    output = None if output == Path("-") else output
    if output is not None and len(reports) > 1 and not output.suffix and not output.exists():
        output.mkdir(parents=True)  # a new folder for the results of several reports
    target = Target(_format(format_name, output, reports), output, save, reports)
    _check(target)
    return _run(options, target, view)


def _format(name: str | None, output: Path | None, reports: Sequence[Path]) -> str:
    if name is None and output is not None and not output.is_dir() and len(reports) == 1:
        from boundby.results.write import format_of

        return format_of(output)
    return name or "terminal"


def _check(target: Target) -> None:
    """Whatever would fail after the hard work fails before it."""
    from boundby.results import write

    several = len(target.inputs) > 1
    if target.output is None and target.format in ("csv", "html") and several:
        raise click.UsageError(f"{target.format.upper()} holds one report. For several, give a folder with -o.")
    if target.format == "perfetto":
        from boundby.render.perfetto_packets import protos

        if target.output is None:
            raise click.UsageError("A Perfetto trace is binary: give a file (or a folder) with -o.")
        protos()
    if target.output is not None and not target.output.is_dir():
        if several:
            raise click.UsageError(f"{target.output} is not a folder: several reports need one for their results.")
        write.check(target.output, inputs=target.inputs)
    if target.save is not None:
        from boundby.render import store

        store.check(target.save)


def _run(options: AnalysisOptions, target: Target, view: View) -> int:
    """Each report for itself: one that cannot be analysed does not keep the others from it."""
    several = len(target.inputs) > 1
    array: list[Report] | None = None  # JSON of several reports is one array
    if target.format == "json" and target.output is None and several:
        array = []
    codes = []
    for number, file in enumerate(_file_names(target)):
        work = partial(_one, number, options, target, file, view, array)
        codes.append(_attempt(work) if several else work())
    if array is not None:
        from boundby.results import saved

        console.put(saved.render_many(array), utf8=True)
    return max(codes)  # a bug outweighs bad input


def _attempt(work: Callable[[], int]) -> int:
    """Tell of what goes wrong, and go on."""
    try:
        return work()
    except BrokenPipeError:
        raise
    except Exception as error:
        return outcome.tell(error)


def _one(
    number: int, options: AnalysisOptions, target: Target, file: Path | None, view: View, array: list[Report] | None
) -> int:
    """Analyse one report and show, or gather, the result."""
    from boundby import api
    from boundby.native.library import why_not

    with view.progress() as progress:
        analysis = api.examine(target.inputs[number], options, progress=progress)
    if reason := why_not():
        view.note(f"no native core ({reason}): plain Python replayed, which says the same but takes longer")
    if array is not None:
        array.append(analysis.report)
    else:
        _show(analysis, target, file, view, is_first=number == 0)
    if target.save is not None:
        from boundby.render import store

        saved = store.save(analysis.report, target.save)
        view.note(f"saved as report {saved} in {target.save}")
    return outcome.OK


def _show(analysis: Analysis, target: Target, file: Path | None, view: View, *, is_first: bool) -> None:
    from boundby.results import write

    if file is not None and target.format == "perfetto":
        from boundby.render import perfetto

        with write.open_whole(file, inputs=target.inputs) as stream:
            perfetto.write(stream, analysis.report, analysis.timeline, analysis.plot_data)
        view.note(f"wrote {file}: open it at https://ui.perfetto.dev")
        return
    text = _text(analysis, target.format, view.plain() if file is not None else view.surface())
    if file is not None:
        write.write_text(file, text, inputs=target.inputs)
        view.note(f"wrote {file}")
        return
    if not is_first:
        text = f"\n---\n\n{text}" if target.format == "markdown" else f"\n\n{text}"
    console.put(text, utf8=target.format != "terminal")


def _text(analysis: Analysis, format_name: str, surface: Surface) -> str:
    min_share = analysis.options.min_share
    if format_name == "html":
        from boundby.render import page

        shown = analysis.report, analysis.plot_data
        return page.render(*shown, min_share=min_share, next_bounds=analysis.next_bounds)
    return renderer(format_name, min_share, surface)(analysis.report)


def renderer(format_name: str, min_share: float | None, surface: Surface) -> Callable[[Report], str]:
    """The chosen format's ``render``; only its module is imported."""
    if format_name == "json":
        from boundby.results import saved

        return saved.render
    if format_name == "csv":
        from boundby.render import csv

        return csv.render
    if format_name == "markdown":
        from boundby.render import markdown

        return lambda report: markdown.render(report, min_share=min_share)
    from boundby.render import terminal

    return lambda report: terminal.render(
        report,
        width=surface.width,
        color_system=surface.color_system,
        unicode=surface.unicode,
        min_share=min_share,
    )


def _file_names(target: Target) -> list[Path | None]:
    """Where each result goes: the file, or one file a report in the folder, told apart where names are alike."""
    if target.output is None:
        return [None] * len(target.inputs)
    if not target.output.is_dir():
        return [target.output]
    from boundby.results.write import SUFFIXES

    names: list[Path | None] = []
    taken: dict[str, int] = {}
    for path in target.inputs:
        stem = path.name.removesuffix(path.suffix)
        taken[stem] = taken.get(stem, 0) + 1
        unique = stem if taken[stem] == 1 else f"{stem}-{taken[stem]}"
        names.append(target.output / f"{unique}{SUFFIXES[target.format]}")
    return names
