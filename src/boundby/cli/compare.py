"""``boundby compare``: two runs in, what changed out; with limits, a gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import Destination, View
from boundby.cli.shared_options import (
    FILE,
    PLAIN,
    Places,
    analysis_options,
    gate_options,
    gate_table,
    output_option,
    steps_option,
    view_options,
)
from boundby.options import AnalysisOptions
from boundby.render.formats import Surface

if TYPE_CHECKING:
    from boundby.compare.gate import Budget
    from boundby.results.comparison import Comparison, GateResult


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
@analysis_options("no_fold", no_fold="Analyse numbered regions separately. They are matched folded anyway.")
@view_options(
    *(*PLAIN, "top", "sort"),
    sort="What regions are sorted by: time (as a tree), the largest total change, idle time or instances.",
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

    Each is anything that "boundby analyze" takes, or its result saved as JSON. Regions are matched by path, and by
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
    place = console.destination(format_name, output, console.DOCUMENT_FORMATS, view, inputs)
    if api.is_job(before) and api.is_job(after):
        return _jobs(before, after, limits, place, options, places)
    with view.progress() as progress:
        one, other = (api.load(path, options, progress=progress) for path in inputs)
        comparison = api.compare_runs(one, other, steps=steps or limits.steps)
    result = None
    if limits.limits:
        result = gates.check(limits.limits, other, comparison, steps=steps or limits.steps)
    place.put(_render(place.kind, comparison, result, place.surface))
    if place.file is not None:
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
    from boundby.compare.jobs import compare as compare_jobs
    from boundby.document.job_document import job_comparison_document
    from boundby.render.formats import drawn
    from boundby.results import saved

    with place.view.progress() as progress:
        one, other = (api.load_job(path, options, progress=progress) for path in (before, after))
    found = compare_jobs(one, other)
    result = gates.check_job(limits.limits, other, found) if limits.limits else None
    shown = job_comparison_document(found, result if place.kind == "html" else None)
    place.put(saved.render(found) if place.kind == "json" else drawn(shown, place.kind, place.surface))
    _put_gate(result, place.view)
    places.deliver(result, drawn(job_comparison_document(found), "markdown", place.surface), [before, after])
    return outcome.of_gate(result)


def _render(kind: str, comparison: Comparison, result: GateResult | None, surface: Surface) -> str:
    from boundby.document.comparison_document import document
    from boundby.render.formats import drawn

    if kind == "json":
        from boundby.results import saved

        limits = {} if result is None else {"gate": result.to_dict()}
        return saved.dumps(comparison.to_dict() | limits)
    return drawn(document(comparison, result, top=surface.top, sort=surface.sort), kind, surface)
