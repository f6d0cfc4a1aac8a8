"""``boundby serving``: what the steps of a server of language models take, by kind and size."""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import FILE, PLAIN, analysis_options, output_option, view_options
from boundby.options import AnalysisOptions

FORMATS = (*console.DOCUMENT_FORMATS, "brief")


@click.command(epilog=outcome.EPILOG)
@click.argument("report", type=FILE)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@output_option("Write to this file (.html .md .json .txt say the format).")
@analysis_options("window", "devices", "processes", "max_memory", "max_time", "nsys", "keep_export", "captures")
@view_options(*PLAIN)
def serving(report: Path, format_name: str | None, output: Path | None, options: AnalysisOptions, view: View) -> int:
    """Say what a server's steps take, by kind (prefill, decode, mixed) and size.

    REPORT is a report of nsys or a trace of PyTorch's profiler in which vLLM, SGLang or TensorRT-LLM served requests.
    Steps are known by the engine's names, else by what repeats and by its kernels of attention.

    \b
    boundby serving report.sqlite
    boundby serving trace.json.gz -o serving.html
    """
    from boundby import api
    from boundby.document.serving_document import document
    from boundby.render import brief
    from boundby.render.formats import drawn
    from boundby.results import saved

    place = console.destination(format_name, output, FORMATS, view, [report])
    with view.progress() as progress:
        found = api.serving(report, options, progress=progress)
    if place.kind == "json":
        text = saved.render(found)
    elif place.kind == "brief":
        text = brief.of_serving(found)
    else:
        text = drawn(document(found), place.kind, place.surface)
    place.put(text)
    return Exit.OK
