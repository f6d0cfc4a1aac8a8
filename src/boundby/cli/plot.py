"""``boundby plot``: a figure for a paper or a slide."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from boundby.cli import outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import FILE, Real, analysis_options, output_option, view_options
from boundby.model.errors import InputError
from boundby.options import AnalysisOptions
from boundby.render.formats import FIGURES, FIGURES_OF_A_REPORT

if TYPE_CHECKING:
    from boundby.render.formats import Examined
    from boundby.results.report import Report

SIZES = ("paper", "column", "slide")

HELP = """Draw one figure of REPORT.

\b
{kinds}

REPORT is what analyze takes. For {of_a_report} the JSON that analyze saved will do.

\b
boundby plot report.sqlite -o account.pdf
boundby plot report.sqlite --kind timeline --size slide -o timeline.png
""".format(
    kinds="\n".join(f"{kind.name:<10} {kind.shows}" for kind in FIGURES),
    of_a_report=f"{', '.join(FIGURES_OF_A_REPORT[:-1])} and {FIGURES_OF_A_REPORT[-1]}",
)


@click.command(epilog=outcome.EPILOG, help=HELP)
@click.argument("report", type=FILE)
@click.option(
    "--kind",
    type=click.Choice([kind.name for kind in FIGURES]),
    default="account",
    help="What to draw. [account]",
)
@output_option("The file to write; .png, .svg or .pdf says the format.", required=True)
@click.option(
    "--size",
    type=click.Choice(SIZES),
    default="paper",
    help="Width in inches and text in points: 7 and 8 (paper), 3.4 and 6.5 (column) or 12.5 and 15 (slide). [paper]",
)
@click.option("--width", metavar="INCHES", type=Real(2, 60), help="Another width.")
@click.option("--height", metavar="INCHES", type=Real(1, 60), help="Another height than the content needs.")
@click.option("--font", metavar="POINTS", type=Real(4, 40), help="Another size of text.")
@click.option("--dpi", metavar="N", type=click.IntRange(50, 1200), default=200, help="Pixels per inch of a .png. [200]")
@click.option("--no-title", is_flag=True, help="Draw no title, where a caption says it.")
@analysis_options("window", "skip_first", "region", "devices", "processes", "nsys", "captures")
@view_options("quiet")
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
    options: AnalysisOptions,
    view: View,
) -> int:
    """Draw one figure of a report: the text of the help stands above."""
    from boundby.render import figures
    from boundby.render.figures.style import matplotlib
    from boundby.results import write

    format_name = figures.FORMATS.get(output.suffix.lower())
    if format_name is None:
        raise click.UsageError(f"The format of {output} cannot be told from its name: use .png, .svg or .pdf.")
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
    from boundby import api

    source: Report | Examined
    if api.is_saved(report):
        if kind not in FIGURES_OF_A_REPORT:
            raise InputError(
                f"A saved result does not hold what the figure {kind!r} needs.",
                "Give the report that it was made from.",
            )
        source = api.load(report, options)
    else:
        with view.progress() as progress:
            source = api.examine(report, options, progress=progress)
    figure = figures.KINDS[kind](source, look)
    with write.open_whole(output, inputs=[report]) as file:
        figures.save(figure, file, format_name, dpi=dpi)
    view.note(f"wrote {output}")
    return Exit.OK
