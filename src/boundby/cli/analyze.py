"""``boundby analyze``: one or more reports in, what they are bound by out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import outcome
from boundby.cli.ruleoptions import RuleOptions, rule_options

if TYPE_CHECKING:
    from boundby.api import Analysis
    from boundby.cli.stdout import Surface
    from boundby.results.report import Report

FORMATS = ("terminal", "html", "markdown", "json", "csv", "perfetto")


@dataclass(frozen=True)
class Selection:
    """What of a report to analyse."""

    window: str
    skip_first: int
    region: str | None
    devices: tuple[int, ...]
    processes: tuple[int, ...]
    min_share: float | None  # a fraction; None: not given
    fold: bool
    nsys: Path | None
    keep_export: bool
    rules: RuleOptions
    find: bool


@dataclass(frozen=True)
class Result:
    """Where the results go, and how they look."""

    format: str
    output: Path | None  # None: standard output
    save: Path | None
    quiet: bool
    color: bool | None
    width: int | None


@click.command(epilog=outcome.EPILOG)
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@click.option(
    *("-o", "--output"),
    type=click.Path(path_type=Path),
    help="Write to this file (.html .md .json .csv .txt .pftrace say the format), or into this folder for several "
    "reports.",
)
@click.option("--save", metavar="DB", type=click.Path(path_type=Path), help="Add the result to a SQLite database.")
@click.option(
    "--window",
    metavar="gpu|all|START:END|nvtx:NAME",
    default="gpu",
    help="The time to account for: first to last GPU work, the whole trace, a span in seconds, or one NVTX range.",
)
@click.option("--skip-first", metavar="K", type=click.IntRange(min=0), default=0, help="Leave out the first K steps.")
@click.option("--region", metavar="GLOB", help="Only regions whose path matches, such as 'step/forward*'.")
@click.option("--device", "devices", metavar="ID", type=int, multiple=True, help="Only this GPU; can be repeated.")
@click.option("--process", "processes", metavar="PID", type=int, multiple=True, help="Only this process; repeatable.")
@click.option(
    "--min-share",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    help="Only regions with this share of the time. [1 in tables for people, else 0]",
)
@click.option("--no-fold", is_flag=True, help="Keep numbered regions (step 1, step 2) apart.")
@click.option("--no-find", is_flag=True, help="Find no iterations and phases where a program has no NVTX ranges.")
@click.option("--all", "show_all", is_flag=True, help="Findings that save less than 1 % as well, each in full.")
@click.option("--disable", metavar="RULE", multiple=True, help="Leave out this rule; can be repeated.")
@click.option("--nsys", metavar="PATH", type=click.Path(path_type=Path), help="The nsys that exports .nsys-rep files.")
@click.option("--keep-export", is_flag=True, help="Leave the exported .sqlite file beside the report.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
@click.option("--color/--no-color", default=None, help="Colour or none. [colour on a terminal; NO_COLOR is obeyed]")
@click.option("--width", type=click.IntRange(min=40), help="Columns to fill. [the terminal's, else 100]")
def analyze(
    reports: tuple[Path, ...],
    format_name: str | None,
    output: Path | None,
    save: Path | None,
    window: str,
    skip_first: int,
    region: str | None,
    devices: tuple[int, ...],
    processes: tuple[int, ...],
    min_share: float | None,
    no_fold: bool,
    no_find: bool,
    show_all: bool,
    disable: tuple[str, ...],
    nsys: Path | None,
    keep_export: bool,
    quiet: bool,
    color: bool | None,
    width: int | None,
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
    share = None if min_share is None else min_share / 100
    chosen = rule_options(disable, show_all=show_all)
    selection = Selection(
        window, skip_first, region, devices, processes, share, not no_fold, nsys, keep_export, chosen, not no_find
    )
    output = None if output == Path("-") else output
    if output is not None and len(reports) > 1 and not output.suffix and not output.exists():
        output.mkdir(parents=True)  # a new folder for the results of several reports
    target = Result(_format(format_name, output, reports), output, save, quiet, color, width)
    _check(target, reports)
    return _run(reports, selection, target)


def _format(name: str | None, output: Path | None, reports: Sequence[Path]) -> str:
    if name is None and output is not None and not output.is_dir() and len(reports) == 1:
        from boundby.render.write import format_of

        return format_of(output)
    return name or "terminal"


def _check(target: Result, reports: Sequence[Path]) -> None:
    """Whatever would fail after the hard work fails before it."""
    from boundby.render import write

    if target.output is None and target.format in ("csv", "html") and len(reports) > 1:
        raise click.UsageError(f"{target.format.upper()} holds one report. For several, give a folder with -o.")
    if target.format == "perfetto":
        from boundby.render.perfetto_packets import protos

        if target.output is None:
            raise click.UsageError("A Perfetto trace is binary: give a file (or a folder) with -o.")
        protos()
    if target.output is not None and not target.output.is_dir():
        if len(reports) > 1:
            raise click.UsageError(f"{target.output} is not a folder: several reports need one for their results.")
        write.check(target.output, inputs=reports)
    if target.save is not None:
        from boundby.render import store

        store.check(target.save)


def _run(reports: Sequence[Path], selection: Selection, target: Result) -> int:
    """Each report for itself: one that cannot be analysed does not keep the others from it."""
    together: list[Report] = []  # JSON of several reports is one array
    array = target.format == "json" and target.output is None and len(reports) > 1
    codes = []
    for number, (path, file) in enumerate(zip(reports, _file_names(reports, target), strict=True)):

        def deliver(examined: Analysis, file: Path | None = file, first: bool = number == 0) -> None:
            if array:
                together.append(examined.report)
            else:
                _show(examined, selection, target, file, reports, first=first)
            _save(examined.report, target)

        codes.append(_one(path, selection, target, deliver, alone=len(reports) == 1))
    if array:
        from boundby.cli import stdout
        from boundby.render import json

        stdout.put(json.render_many(together), utf8=True)
    return outcome.worst(codes)


def _one(path: Path, selection: Selection, target: Result, deliver: Callable[[Analysis], None], *, alone: bool) -> int:
    try:
        deliver(_analyze(path, selection, target.quiet))
    except BrokenPipeError:
        raise
    except Exception as error:
        if alone:
            raise
        return outcome.tell(error)
    return outcome.OK


def _analyze(path: Path, selection: Selection, quiet: bool) -> Analysis:
    from boundby import api
    from boundby.cli import progress

    with progress.shown(quiet=quiet) as update:
        return api.examine(
            path,
            window=selection.window,
            skip_first=selection.skip_first,
            region=selection.region,
            devices=selection.devices,
            processes=selection.processes,
            min_share=selection.min_share or 0.0,
            fold=selection.fold,
            nsys=selection.nsys,
            keep_export=selection.keep_export,
            disable=selection.rules.disable,
            thresholds=selection.rules.thresholds,
            show_all=selection.rules.show_all,
            find_regions=selection.find,
            progress=update,
        )


def _show(
    examined: Analysis,
    selection: Selection,
    target: Result,
    file: Path | None,
    inputs: Sequence[Path],
    *,
    first: bool,
) -> None:
    from boundby.cli import stdout
    from boundby.render import write

    report = examined.report
    if file is not None and target.format == "perfetto":
        from boundby.render import perfetto

        with write.open_whole(file, inputs=inputs) as stream:
            perfetto.write(stream, report, examined.timeline, examined.plot_data)
        _note(f"wrote {file}: open it at https://ui.perfetto.dev", target)
        return
    if file is not None:
        text = _text(examined, selection, target, stdout.plain())
        write.write_text(file, text, inputs=inputs)
        _note(f"wrote {file}", target)
        return
    surface = stdout.surface(width=target.width, color=target.color)
    text = _text(examined, selection, target, surface)
    if not first:
        text = f"\n---\n\n{text}" if target.format == "markdown" else f"\n\n{text}"
    stdout.put(text, utf8=target.format != "terminal")


def _text(examined: Analysis, selection: Selection, target: Result, surface: Surface) -> str:
    if target.format == "html":
        from boundby.render import page

        found = examined.report, examined.plot_data
        return page.render(*found, min_share=selection.min_share, next_bounds=examined.next_bounds)
    return renderer(target, selection.min_share, surface)(examined.report)


def renderer(target: Result, min_share: float | None, surface: Surface) -> Callable[[Report], str]:
    """The chosen format's ``render``; only its module is imported."""
    if target.format == "json":
        from boundby.render import json

        return json.render
    if target.format == "csv":
        from boundby.render import csv

        return csv.render
    if target.format == "markdown":
        from boundby.render import markdown

        return lambda report: markdown.render(report, min_share=min_share)
    from boundby.render import terminal

    return lambda report: terminal.render(
        report,
        width=target.width or surface.width,
        color_system=surface.color_system,
        unicode=surface.unicode,
        min_share=min_share,
    )


def _file_names(reports: Sequence[Path], target: Result) -> list[Path | None]:
    """Where each result goes: the file, or one file a report in the folder, told apart where names are alike."""
    if target.output is None:
        return [None] * len(reports)
    if not target.output.is_dir():
        return [target.output]
    from boundby.render.write import SUFFIXES

    names: list[Path | None] = []
    taken: dict[str, int] = {}
    for path in reports:
        stem = path.name.removesuffix(path.suffix)
        taken[stem] = taken.get(stem, 0) + 1
        unique = stem if taken[stem] == 1 else f"{stem}-{taken[stem]}"
        names.append(target.output / f"{unique}{SUFFIXES[target.format]}")
    return names


def _save(report: Report, target: Result) -> None:
    if target.save is None:
        return
    from boundby.render import store

    number = store.save(report, target.save)
    _note(f"saved as report {number} in {target.save}", target)


def _note(text: str, target: Result) -> None:
    if not target.quiet and sys.stderr.isatty():
        click.echo(f"boundby: {text}", err=True)
