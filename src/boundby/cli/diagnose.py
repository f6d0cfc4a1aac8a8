"""A report told in words alone: ``boundby diagnose``, pattern by pattern; ``boundby serving``, by the steps of a server
of language models."""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import (
    FILE,
    PLAIN,
    WINDOW_HELP,
    analysis_options,
    output_option,
    view_options,
    with_rule_config,
)
from boundby.options import AnalysisOptions


@click.command(epilog=outcome.EPILOG)
@click.argument("report", type=FILE)
@click.option("--format", "format_name", type=click.Choice(console.DOCUMENT_FORMATS), help="How to show it. [terminal]")
@output_option("Write to this file (.md .html .json .txt say the format).")
@analysis_options("window", "skip_first", "region", "devices", "processes", window=WINDOW_HELP)
@analysis_options("no_fold", "no_find", "nsys", "keep_export", "captures", "max_memory", "max_time")
@view_options(*PLAIN)
def diagnose(report: Path, format_name: str | None, output: Path | None, options: AnalysisOptions, view: View) -> int:
    """Write a diagnosis of REPORT: pattern, signs and what to do.

    It covers each GPU and each region that matters, and says what would bound the program after the change.
    "boundby analyze" has the same verdict beside figures and findings; "boundby explain PATTERN" teaches one pattern.

    \b
    boundby diagnose report.sqlite
    boundby diagnose trace.json.gz -o report.md
    """
    from boundby import api
    from boundby.document.report_document import diagnosis

    target = console.destination(format_name, output, console.DOCUMENT_FORMATS, view, [report])
    with view.progress() as progress:
        analysed = api.analyze(report, with_rule_config(options), progress=progress)
    target.show(analysed, diagnosis)
    return Exit.OK


SERVING_FORMATS = (*console.DOCUMENT_FORMATS, "brief")


@click.command(epilog=outcome.EPILOG)
@click.argument("report", type=FILE)
@click.option("--format", "format_name", type=click.Choice(SERVING_FORMATS), help="How to show the result. [terminal]")
@output_option("Write to this file (.html .md .json .txt say the format).")
@analysis_options("window", "devices", "processes", "max_memory", "max_time", "nsys", "keep_export", "captures")
@view_options(*PLAIN)
def serving(report: Path, format_name: str | None, output: Path | None, options: AnalysisOptions, view: View) -> int:
    """Say what a server's steps take, by kind and size.

    REPORT is a report of nsys or a trace of PyTorch's profiler in which vLLM, SGLang or TensorRT-LLM served requests.
    The kinds of steps are prefill, decode and mixed. boundby finds steps by the engine's names for them, else by what
    repeats and by its attention kernels.

    \b
    boundby serving report.sqlite
    boundby serving trace.json.gz -o serving.html
    """
    from boundby import api
    from boundby.document.serving_document import document
    from boundby.render import brief

    target = console.destination(format_name, output, SERVING_FORMATS, view, [report])
    with view.progress() as progress:
        served = api.serving(report, options, progress=progress)
    if target.kind == "brief":
        target.put(brief.of_serving(served))
    else:
        target.show(served, document)
    return Exit.OK
