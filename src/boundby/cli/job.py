"""``boundby job``: the reports of many ranks in, who holds up whom out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import FILE, PLAIN, analysis_options, output_option, view_options, with_rule_config
from boundby.model.errors import UserError
from boundby.model.inputs import split_suffix
from boundby.options import AnalysisOptions
from boundby.render.formats import Surface

if TYPE_CHECKING:
    from boundby.jobs.gather import Gathered
    from boundby.opening import Progress
    from boundby.results.job_report import JobReport

#: Ranks that get a page of their own where they have none.
PAGES = ("named", "all", "none")
FORMATS = (*console.DOCUMENT_FORMATS, "perfetto")


@click.command(epilog=outcome.EPILOG)
@click.argument("reports", metavar="REPORTS...", nargs=-1, required=True, type=FILE)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@output_option("Write to this file (.html .md .json .txt .pftrace say the format).")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), help="Local processes that read the reports. [one per core]"
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A dask scheduler whose workers see the same files, or 'local' to start one; needs the package distributed.",
)
@click.option(
    *("-s", "--sort"),
    type=click.Choice(("rank", "own", "transfer", "waits", "others-wait")),
    default="rank",
    help="What ranks are sorted by: number (rank), own work, transfer, their waits for others, or others' waits for "
    "them. By number, a job of more than 16 ranks shows only those that stand out. [rank]",
)
@click.option(
    "--pages",
    type=click.Choice(PAGES),
    default="named",
    help="With -o job.html: make a page for each rank that the result lists (named), for all, or for none. A page "
    "that is there already stays. [named]",
)
@analysis_options("nsys", "keep_export")
@view_options(*PLAIN, "full", "top", full="Every rank and every prediction.", top="Show N ranks.")
def job(
    reports: tuple[Path, ...],
    format_name: str | None,
    output: Path | None,
    workers: int | None,
    scheduler: str | None,
    sort: str,
    pages: str,
    options: AnalysisOptions,
    view: View,
) -> int:
    """Say what a job of ranks is bound by, and who holds up whom.

    REPORTS are one report per rank (nsys or PyTorch profiler), a folder of them, or one report of several processes.

    \b
    boundby job rank*.nsys-rep
    boundby job traces/ -o job.html --pages all
    boundby job traces/ --sort others-wait --top 5
    boundby job traces/ --scheduler tcp://head:8786 --format json -o job.json
    """
    from boundby import api
    from boundby.jobs import job_perfetto
    from boundby.results import write

    files = [path for path in reports if not path.is_dir()]
    target = console.destination(format_name, output, FORMATS, view, files)
    kind, output = target.kind, target.file
    if kind == "perfetto" and output is None:
        raise click.UsageError("A Perfetto trace is not text: name a file with -o, such as job.pftrace.")
    with view.progress() as progress:
        found, ranks = api.joined(reports, options, workers=workers, scheduler=scheduler, progress=progress)
    if kind == "perfetto" and output is not None:
        with write.open_whole(output, inputs=files) as file:
            job_perfetto.write(file, ranks, found)
        view.note(f"wrote {output}; open it at https://ui.perfetto.dev")
        return Exit.OK
    linked: Sequence[str | None] = ()
    if kind == "html" and output is not None:
        with view.progress() as progress:
            found, linked = add_pages(
                found, reports, output, options, pages, workers=workers, scheduler=scheduler, progress=progress
            )
    target.put(render(found, kind, target.surface, linked, sort))
    return Exit.OK


def _pages_there(found: JobReport, path_of: Mapping[str, Path], folder: Path) -> list[str | None]:
    """For each rank the page that its report, if that holds no other rank, has already, from this folder."""
    from boundby.jobs.gather import report_of

    reports = [report_of(rank.name) for rank in found.ranks]
    ranks_of = Counter(reports)
    links: list[str | None] = []
    for report in reports:
        path = path_of.get(report)
        own = _page_of(path) if path is not None and ranks_of[report] == 1 else None
        links.append(os.path.relpath(own, folder) if own is not None and own.is_file() else None)
    return links


def add_pages(
    found: JobReport,
    reports: Sequence[Path],
    page: Path,
    options: AnalysisOptions,
    pages: str = "named",
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[JobReport, list[str | None]]:
    """For each rank a page of its own, as ``page`` would name it: where its report holds no other rank, in the folder
    of its run, or beside its report under the same name; else one is made in a folder beside ``page``, by the workers
    that read the reports. None where there is none; the report's notes say so."""
    from boundby.document import job_document as shown
    from boundby.jobs import gather

    folder = page.with_name(f"{page.stem}_ranks")
    path_of = dict(gather.find_reports(reports)[1])
    links = _pages_there(found, path_of, page.parent)
    chosen = {"named": set(shown.shown(found)[0]), "all": set(range(len(found.ranks))), "none": set[int]()}[pages]
    wanted = {  # by rank's name: the page to make
        rank.name: folder / (f"report_{index}.html" if rank.rank is None else f"rank_{rank.rank}.html")
        for index, (rank, link) in enumerate(zip(found.ranks, links, strict=True))
        if link is None and gather.report_of(rank.name) in path_of and index in chosen
    }
    if wanted:
        folder.mkdir(exist_ok=True)
    made = gather.each(
        [(name, path_of[gather.report_of(name)]) for name in wanted],
        with_rule_config(options),
        partial(write_page, targets={name: target.resolve() for name, target in wanted.items()}),
        stage="making pages of",
        workers=workers,
        scheduler=scheduler,
        progress=progress,
    )
    good = {answer.name for answer in made if not answer.problem}
    index_of = {rank.name: indexes for indexes, rank in enumerate(found.ranks)}
    for name in good:
        links[index_of[name]] = os.path.relpath(wanted[name], page.parent)
    notes = [answer.problem for answer in made if answer.problem]
    lacking = links.count(None) - len(notes)
    if lacking and pages == "named":
        having = len(links) - links.count(None)
        notes.append(f"Of {len(links)} ranks {having} have a page: those that stand out. --pages all makes the others.")
    return replace(found, notes=(*found.notes, *notes)), links


def _page_of(report: Path) -> Path:
    """Where the page of a report lies, if it has one."""
    from boundby.capture.folder import HTML

    if report.is_dir():
        return report / HTML
    parts = split_suffix(report)
    return report.with_name((parts[0] if parts else report.name) + ".html")


def write_page(name: str, path: Path, options: AnalysisOptions, *, targets: Mapping[str, Path]) -> Gathered:
    """One rank's own page, made by a worker."""
    from boundby import api
    from boundby.jobs.gather import Gathered, part_of
    from boundby.render import page
    from boundby.results import write

    try:
        analysis = api.examine(path, part_of(name, options))
        write.write_text(targets[name], page.of(analysis))
    except UserError as error:
        return Gathered(name, problem=f"{name} has no page: {error.message}")
    except Exception as error:
        return Gathered(name, problem=f"{name} has no page ({type(error).__name__}: {error}).")
    return Gathered(name)


def render(found: JobReport, kind: str, surface: Surface, links: Sequence[str | None] = (), sort: str = "rank") -> str:
    """The job in one of the formats that are text."""
    from boundby.document.job_document import JobLook, document
    from boundby.render import formats
    from boundby.results import saved

    if kind == "json":
        return saved.render(found)
    return formats.drawn(document(found, JobLook(sort, surface.top, surface.full), links), kind, surface)
