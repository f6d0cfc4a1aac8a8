"""``boundby compare``: two runs in, what changed out; with limits, a gate. ``boundby check``: the gate of one run."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from boundby.cli import console, outcome
from boundby.cli.console import Destination, View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import (
    FILE,
    PLAIN,
    Command,
    analysis_options,
    json_option,
    output_option,
    stacked,
    view_options,
)
from boundby.model.errors import OutputError
from boundby.options import AnalysisOptions
from boundby.render.formats import Surface

if TYPE_CHECKING:
    from boundby.compare.gate import Budget
    from boundby.results.comparison import Comparison, GateResult


# What both share: options of a gate, and where its result goes.

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


class Places(Struct, frozen=True):
    """Where a gate's result is written beside standard output."""

    junit: Path | None
    summary: Path | None

    def check(self, inputs: Sequence[Path]) -> None:
        """Refuse what cannot be written before the hard work."""
        from boundby.results import write

        for path in (self.junit, self.summary):
            if path is not None:
                write.check(path, inputs=inputs)

    def deliver(self, result: GateResult | None, page: str, inputs: Sequence[Path]) -> None:
        """Write JUnit XML, and append ``page`` (Markdown) to the summaries."""
        from boundby.render import ci_files
        from boundby.results import write

        if self.junit is not None and result is not None:
            write.write_text(self.junit, ci_files.junit(result), inputs=inputs)
        job = os.environ.get(SUMMARY_VARIABLE)
        for summary_file in {self.summary, Path(job) if job else None} - {None}:
            if summary_file is not None:
                _append(summary_file, page)


def gate_options(command: Command) -> Command:
    """The options of a gate; the command gets ``budget`` (a file of limits) and ``places``."""

    @functools.wraps(command)
    def gathered(junit: Path | None, summary: Path | None, **values: Any) -> Any:
        return command(**values, places=Places(junit, summary))

    return stacked(
        click.option("--budget", metavar="FILE", type=FILE, help="A TOML file of limits."),
        click.option("--junit", metavar="FILE", type=FILE, help="Write the limits' results as JUnit XML."),
        click.option(
            "--summary",
            metavar="FILE",
            type=FILE,
            help="Append the result as Markdown. In GitHub Actions the step's summary gets it in any case.",
        ),
    )(gathered)


steps_option = click.option(
    "--steps",
    metavar="REGION",
    help="The region that is the program's step. Without it: the outermost that repeats.",
)


def gate_table(result: GateResult, surface: Surface) -> str:
    """The result for people."""
    from boundby.document.comparison_document import gate_document
    from boundby.render.formats import drawn

    return drawn(gate_document(result), "terminal", surface)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
    except OSError as error:
        raise OutputError(f"Cannot write the summary {path}: {error.strerror}.", "Write elsewhere.") from error


@click.command(epilog=outcome.EPILOG)
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
@click.option(
    "--format", "format_name", type=click.Choice(console.DOCUMENT_FORMATS), help="How to show the result. [terminal]"
)
@output_option("Write to this file (.html .md .json .txt say the format).")
@click.option(
    "--fail-on",
    metavar="CONDITION",
    multiple=True,
    help="Exit with 1 if this holds: 'regression > 5 %', 'step.time > 12 ms', 'findings.new.high > 0', or one word: "
    "regression, new-findings. Can be repeated.",
)
@gate_options
@analysis_options("window", "skip_first", "devices", "processes", "nsys")
@steps_option
@analysis_options(
    "no_fold", no_fold="Analyse numbered regions (step 1, step 2) separately. The two runs are still matched by step *."
)
@view_options(
    *(*PLAIN, "top", "sort"),
    sort="What regions are sorted by: their time (as a tree), the largest total change (max), idle time, or how many "
    "instances they have. [time]",
)
def compare(
    before: Path,
    after: Path,
    format_name: str | None,
    output: Path | None,
    fail_on: tuple[str, ...],
    budget: Path | None,
    places: Places,
    options: AnalysisOptions,
    steps: str | None,
    view: View,
) -> int:
    """Say what changed from the run BEFORE to the run AFTER.

    BEFORE and AFTER are what "boundby analyze" takes, or its results saved as JSON. Regions are matched by path, and by
    similarity where they were renamed; a change is called significant only if it exceeds the usual spread of instances.
    Two folders of ranks, or two job.json, are compared as jobs.

    \b
    boundby compare before.nsys-rep after.nsys-rep
    boundby compare main.json report.sqlite -o comparison.md --fail-on 'regression > 5 %'
    """
    from boundby import api
    from boundby.compare import gate as gates

    inputs = [before, after]
    limits = api.limits(budget_file=budget, fail_on=fail_on)
    places.check(inputs)
    target = console.destination(format_name, output, console.DOCUMENT_FORMATS, view, inputs)
    if api.is_job(before) and api.is_job(after):
        return _jobs(before, after, limits, target, options, places)
    with view.progress() as progress:
        earlier, later = (api.load(path, options, progress=progress) for path in inputs)
        comparison = api.compare_runs(earlier, later, steps=steps or limits.steps)
    result = None
    if limits.limits:
        result = gates.check(limits.limits, later, comparison, steps=steps or limits.steps)
    target.put(_render(target.kind, comparison, result, target.surface))
    if target.file is not None:
        _put_gate(result, view)
    places.deliver(result, _render("markdown", comparison, result, view.plain()), inputs)
    return outcome.of_gate(result)


def _put_gate(result: GateResult | None, view: View) -> None:
    """What of limits stands on the terminal where the comparison is in a file."""
    if result is not None and not view.quiet:
        console.put(gate_table(result, view.surface()))


def _jobs(
    before: Path,
    after: Path,
    limits: Budget,
    place: Destination,
    options: AnalysisOptions,
    places: Places,
) -> int:
    """Two jobs of many ranks."""
    from boundby import api
    from boundby.compare import gate as gates
    from boundby.compare.between import compare_jobs
    from boundby.document.job_document import job_comparison_document
    from boundby.render.formats import drawn

    with place.view.progress() as progress:
        earlier, later = (api.load_job(path, options, progress=progress) for path in (before, after))
    comparison = compare_jobs(earlier, later)
    result = gates.check_job(limits.limits, later, comparison) if limits.limits else None
    place.show(comparison, lambda _: job_comparison_document(comparison, result if place.kind == "html" else None))
    _put_gate(result, place.view)
    places.deliver(result, drawn(job_comparison_document(comparison), "markdown", place.surface), [before, after])
    return outcome.of_gate(result)


def _render(kind: str, comparison: Comparison, result: GateResult | None, surface: Surface) -> str:
    from boundby.document.comparison_document import document
    from boundby.render.formats import drawn

    if kind == "json":
        from boundby.results import saved

        limits = {} if result is None else {"gate": result.to_dict()}
        return saved.dumps(comparison.to_dict() | limits)
    return drawn(document(comparison, result, top=surface.top, sort=surface.sort), kind, surface)


@click.command(epilog=outcome.EPILOG)
@click.argument("report", required=False, type=FILE)
@click.option("-l", "--limit", "limits", metavar="LIMIT", multiple=True, help="A limit, such as 'step.time < 12 ms'.")
@gate_options
@analysis_options("window", "skip_first", "devices", "processes", "nsys", "captures")
@steps_option
@click.option("--quantities", is_flag=True, help="List the quantities that a limit can be set on.")
@json_option
@output_option("Write the result to this file as JSON.")
@view_options(*PLAIN, quiet="No progress, and no result if every limit is kept.")
def check(
    report: Path | None,
    limits: tuple[str, ...],
    budget: Path | None,
    places: Places,
    options: AnalysisOptions,
    steps: str | None,
    quantities: bool,
    as_json: bool,
    output: Path | None,
    view: View,
) -> int:
    """Check REPORT against limits; exit with 1 if one is broken.

    REPORT is anything that "boundby analyze" takes, or its result saved as JSON.

    \b
    boundby check report.sqlite --budget budget.toml
    boundby check report.sqlite -l 'step.time < 12 ms' -l 'gpu_utilization > 80 %'
    boundby check traces/ -l 'imbalance < 5 %'
    """
    if quantities:
        from boundby.compare.quantities import listing

        click.echo(listing())
        return Exit.OK
    if report is None:
        raise click.UsageError("Missing argument 'REPORT'.")
    if budget is None and not limits:
        raise click.UsageError("Give limits: --budget FILE, or --limit 'step.time < 12 ms'.")
    from boundby import api
    from boundby.document.comparison_document import gate_document
    from boundby.render import to_markdown
    from boundby.results import saved, write

    places.check([report])
    if output is not None:
        write.check(output, inputs=[report])
    result = _result(report, api.limits(budget_file=budget, texts=limits), options, steps, view)
    places.deliver(result, to_markdown.render(gate_document(result)), [report])
    if output is not None:
        write.write_text(output, saved.render(result), inputs=[report])
        view.note(f"wrote {output}")
    if as_json:
        console.put(saved.render(result), utf8=True)
    elif not (view.quiet and result.passed):
        console.put(gate_table(result, view.surface()))
    return outcome.of_gate(result)


def _result(report: Path, held: Budget, options: AnalysisOptions, steps: str | None, view: View) -> GateResult:
    """Limits of a job are checked against a job, others against a report."""
    from boundby import api
    from boundby.compare import gate as gates

    with view.progress() as progress:
        if any(limit.definition.of_job is not None for limit in held.limits):
            return gates.check_job(held.limits, api.load_job(report, options, progress=progress))
        loaded = api.load(report, options, progress=progress)
        return gates.check(held.limits, loaded, steps=steps or held.steps)
