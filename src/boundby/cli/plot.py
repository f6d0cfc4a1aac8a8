"""``boundby plot``: a figure for a paper or a slide."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import outcome

if TYPE_CHECKING:
    from boundby.render.figures import Examined
    from boundby.results.report import Report

KINDS = ("account", "timeline", "regions", "gaps", "what-if", "instances")
SIZES = ("paper", "column", "slide")


@click.command(epilog=outcome.EPILOG)
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(KINDS), default="account", help="What to draw; the account, if not given.")
@click.option(
    *("-o", "--output"),
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write; .png, .svg or .pdf says the format.",
)
@click.option(
    "--size",
    type=click.Choice(SIZES),
    default="paper",
    help="Width and text: 7 inches and 8 points, one column (3.4 and 6.5) or a slide (12.5 and 15).",
)
@click.option("--width", metavar="INCHES", type=click.FloatRange(2, 60), help="Another width.")
@click.option(
    "--height", metavar="INCHES", type=click.FloatRange(1, 60), help="A height, in place of what the content needs."
)
@click.option("--font", metavar="POINTS", type=click.FloatRange(4, 40), help="Another size of text.")
@click.option("--dpi", type=click.IntRange(50, 1200), default=200, help="Pixels per inch of a .png. [200]")
@click.option("--no-title", is_flag=True, help="Leave the title to the caption.")
@click.option("--window", metavar="gpu|all|START:END|nvtx:NAME", default="gpu", help="As for analyze.")
@click.option("--skip-first", metavar="K", type=click.IntRange(min=0), default=0, help="Leave out the first K steps.")
@click.option("--region", metavar="GLOB", help="Only regions whose path matches, such as 'step/forward*'.")
@click.option("--device", "devices", metavar="ID", type=int, multiple=True, help="Only this GPU; can be repeated.")
@click.option("--process", "processes", metavar="PID", type=int, multiple=True, help="Only this process; repeatable.")
@click.option("--nsys", metavar="PATH", type=click.Path(path_type=Path), help="The nsys that exports .nsys-rep files.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
def plot(
    report: Path,
    kind: str,
    output: Path,
    size: str,
    width: float | None,
    height: float | None,
    font: float | None,
    dpi: int,
    no_title: bool,
    window: str,
    skip_first: int,
    region: str | None,
    devices: tuple[int, ...],
    processes: tuple[int, ...],
    nsys: Path | None,
    quiet: bool,
) -> int:
    """Draw one figure of REPORT.

    \b
    account    what each device's time went into
    timeline   utilization, causes and NVTX ranges over time
    regions    the tree of NVTX regions, with the causes of each
    gaps       when the GPU idled longest, and why
    what-if    the window now and without each cost
    instances  how long each instance of a region took

    REPORT is what analyze takes. For account, regions and what-if the JSON that analyze saved will do.

    \b
    boundby plot report.sqlite -o account.pdf
    boundby plot report.sqlite --kind timeline --size slide -o timeline.png
    """
    from boundby.render import figures, write
    from boundby.render.figures.style import matplotlib

    format_name = figures.FORMATS.get(output.suffix.lower())
    if format_name is None:
        raise click.UsageError(f"The format of {output} is not plain from its name: use .png, .svg or .pdf.")
    matplotlib()
    write.check(output, inputs=[report])
    look = figures.LOOKS[size]
    look = replace(
        look,
        width_in=width or look.width_in,
        height_in=height,
        font_pt=font or look.font_pt,
        title=not no_title,
    )
    found: Report | Examined
    if report.suffix.lower() == ".json":
        found = _saved(report, kind)
    else:
        from boundby import api
        from boundby.cli import progress

        with progress.shown(quiet=quiet) as update:
            found = api.examine(
                report,
                window=window,
                skip_first=skip_first,
                region=region,
                devices=devices,
                processes=processes,
                nsys=nsys,
                progress=update,
            )
    figure = figures.KINDS[kind](found, look)
    with write.open_whole(output, inputs=[report]) as file:
        figures.save(figure, file, format_name, dpi=dpi)
    if not quiet and sys.stderr.isatty():
        click.echo(f"boundby: wrote {output}", err=True)
    return outcome.OK


def _saved(path: Path, kind: str) -> Report:
    """A report that was saved as JSON. Raises UserError where a figure of that kind needs the trace."""
    import json

    from boundby.model.errors import InputError
    from boundby.render.figures import OF_A_REPORT
    from boundby.render.json_reader import report_from

    if kind not in OF_A_REPORT:
        raise InputError(f"A saved result does not hold what a figure of {kind} needs.", "Give the report itself.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.", "Check the name.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON.", "Make it with: boundby analyze REPORT -o result.json") from error
    return report_from(data)
