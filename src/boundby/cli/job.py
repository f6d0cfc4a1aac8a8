"""``boundby job``: the reports of many ranks in, who holds up whom out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.options import FILE, PLAIN, analysis_options, view_options
from boundby.options import AnalysisOptions
from boundby.render.formats import BY_SUFFIX, Surface

if TYPE_CHECKING:
    from boundby.results.job import JobReport

FORMATS = ("terminal", "markdown", "html", "json", "perfetto")


@click.command(epilog=outcome.EPILOG)
@click.argument("reports", metavar="REPORTS...", nargs=-1, required=True, type=FILE)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@click.option("-o", "--output", type=FILE, help="Write to this file (.html .md .json .txt .pftrace say the format).")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), help="Local processes that read; without it one a core."
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A dask scheduler whose workers see the same files, or 'local' to start one; needs boundby[cluster].",
)
@analysis_options("nsys", "keep_export")
@view_options(*PLAIN)
def job(
    reports: tuple[Path, ...],
    format_name: str | None,
    output: Path | None,
    workers: int | None,
    scheduler: str | None,
    options: AnalysisOptions,
    view: View,
) -> int:
    """Say what a job of many ranks is bound by, and who holds up whom.

    REPORTS are one report a rank (nsys or PyTorch profiler), a folder of them, or one report of several processes.

    \b
    boundby job rank*.nsys-rep
    boundby job traces/ -o job.html
    boundby job traces/ --scheduler tcp://head:8786 --format json -o job.json
    """
    from boundby import api
    from boundby.jobs import perfetto
    from boundby.jobs.merge import merge
    from boundby.results import write

    output = None if output == Path("-") else output
    kind = format_name or ("terminal" if output is None else BY_SUFFIX.get(output.suffix.lower(), ""))
    if kind not in FORMATS:
        endings = ".html .md .json .txt .pftrace"
        raise click.UsageError(f"Cannot tell a format from {output}: name it {endings}, or give --format.")
    if kind == "perfetto" and output is None:
        raise click.UsageError("A Perfetto trace is not text: name a file with -o, such as job.pftrace.")
    files = [path for path in reports if not path.is_dir()]
    if output is not None:
        write.check(output, inputs=files)
    with view.progress() as progress:
        ranks, name, left_out = api.job_ranks(reports, options, workers=workers, scheduler=scheduler, progress=progress)
        found = merge(ranks, name, left_out)
    if kind == "perfetto" and output is not None:
        with write.open_whole(output, inputs=files) as file:
            perfetto.write(file, ranks, found)
        view.note(f"wrote {output}; open it at https://ui.perfetto.dev")
        return outcome.OK
    pages = links(found, reports, output) if kind == "html" and output is not None else ()
    text = render(found, kind, view.surface() if output is None else view.plain(), pages)
    if output is not None:
        write.write_text(output, text, inputs=files)
        view.note(f"wrote {output}")
    else:
        console.put(text, utf8=kind != "terminal")
    return outcome.OK


def links(found: JobReport, reports: Sequence[Path], page: Path) -> list[str | None]:
    """For each rank the page of its own report, as ``page`` would name it: in the folder of its run, or beside its
    report under the same name; None where there is none."""
    from boundby.capture.folder import HTML
    from boundby.jobs.gather import SUFFIXES, find_reports

    of_report: dict[str, str | None] = {}
    for name, path in find_reports(reports)[1]:
        suffix = next((one for one in SUFFIXES if path.name.lower().endswith(one)), "")
        own = path / HTML if path.is_dir() else path.with_name(path.name.removesuffix(suffix) + ".html")
        of_report[name] = os.path.relpath(own, page.parent) if own.is_file() else None
    return [of_report.get(rank.name.partition(" process ")[0]) for rank in found.ranks]


def render(found: JobReport, kind: str, surface: Surface, links: Sequence[str | None] = ()) -> str:
    """The job in one of the formats that are text."""
    from boundby.render import job as shown
    from boundby.results import saved

    if kind == "json":
        return saved.render(found)
    if kind == "html":
        return shown.html(found, links)
    if kind == "markdown":
        return shown.render_markdown(found)
    return shown.terminal(found, width=surface.width, unicode=surface.unicode)
