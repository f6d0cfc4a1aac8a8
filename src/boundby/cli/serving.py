"""``boundby serving``: what the steps of a server of language models take, by kind and size."""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import FILE, PLAIN, analysis_options, output_option, view_options
from boundby.options import AnalysisOptions
from boundby.render.formats import BY_SUFFIX

FORMATS = ("terminal", "markdown", "html", "json", "brief")


@click.command(epilog=outcome.EPILOG)
@click.argument("report", type=FILE)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="How to show the result. [terminal]")
@output_option("Write to this file (.html .md .json .txt say the format).")
@analysis_options("window", "devices", "processes", "max_memory", "max_time", "nsys", "keep_export")
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
    from boundby.results import saved, write

    file = None if output == Path("-") else output
    kind = format_name or ("terminal" if file is None else BY_SUFFIX.get(file.suffix.lower(), ""))
    if kind not in FORMATS:
        raise click.UsageError(f"Cannot tell a format from {file}: name it .html .md .json .txt, or give --format.")
    if file is not None:
        write.check(file, inputs=[report])
    with view.progress() as progress:
        found = api.serving(report, options, progress=progress)
    if kind == "json":
        text = saved.render(found)
    elif kind == "brief":
        text = brief.of_serving(found)
    else:
        text = drawn(document(found), kind, view.surface() if file is None else view.plain())
    console.deliver(text, output, view, utf8=kind != "terminal")
    return Exit.OK
