"""``boundby check``: does a run keep its limits?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import (
    FILE,
    PLAIN,
    Places,
    analysis_options,
    gate_options,
    gate_table,
    json_option,
    output_option,
    steps_option,
    view_options,
)
from boundby.options import AnalysisOptions

if TYPE_CHECKING:
    from boundby.compare.gate import Budget
    from boundby.results.comparison import GateResult


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
