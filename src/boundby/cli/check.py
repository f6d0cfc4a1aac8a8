"""``boundby check``: does a run keep its limits?"""

from __future__ import annotations

from pathlib import Path

import click

from boundby.cli import gating, outcome


@click.command(epilog=outcome.EPILOG)
@click.argument("report", required=False, type=click.Path(path_type=Path))
@click.option("-l", "--limit", "limits", metavar="LIMIT", multiple=True, help="A limit, such as 'step.time < 12 ms'.")
@gating.gate_options
@gating.selection_options
@click.option("--quantities", is_flag=True, help="List what a limit can be set on.")
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, and no result if every limit is kept.")
@click.option("--color/--no-color", default=None, help="Colour or none. [colour on a terminal; NO_COLOR is obeyed]")
@click.option("--width", type=click.IntRange(min=40), help="Columns to fill. [the terminal's, else 100]")
def check(
    report: Path | None,
    limits: tuple[str, ...],
    budget: Path | None,
    junit: Path | None,
    summary: Path | None,
    window: str,
    skip_first: int,
    devices: tuple[int, ...],
    processes: tuple[int, ...],
    nsys: Path | None,
    steps: str | None,
    quantities: bool,
    as_json: bool,
    quiet: bool,
    color: bool | None,
    width: int | None,
) -> int:
    """Hold limits against REPORT and leave with 1 if one is broken.

    REPORT is anything that "boundby analyze" takes, or its result saved as JSON.

    \b
    boundby check report.sqlite --budget budget.toml
    boundby check report.sqlite -l 'step.time < 12 ms' -l 'gpu_utilization > 80 %'
    """
    if quantities:
        from boundby.compare.quantities import listing

        click.echo(listing())
        return outcome.OK
    if report is None:
        raise click.UsageError("Missing argument 'REPORT'.")
    if budget is None and not limits:
        raise click.UsageError("Give limits: --budget FILE, or --limit 'step.time < 12 ms'.")
    from boundby import api
    from boundby.cli import progress, stdout
    from boundby.compare import gate as gates
    from boundby.render import gate

    places = gating.Places(junit, summary)
    places.check([report])
    chosen = api.limits(budget_file=budget, texts=limits)
    with progress.shown(quiet=quiet) as update:
        found = api.load(
            report,
            progress=update,
            window=window,
            skip_first=skip_first,
            devices=devices,
            processes=processes,
            nsys=nsys,
        )
    result = gates.check(chosen.limits, found, steps=steps or chosen.steps)
    places.deliver(result, gate.markdown(result), [report])
    if as_json:
        stdout.put(gate.json(result), utf8=True)
    elif not (quiet and result.passed):
        surface = stdout.surface(width=width, color=color)
        text = gate.render(
            result, width=width or surface.width, color_system=surface.color_system, unicode=surface.unicode
        )
        stdout.put(text, utf8=False)
    return outcome.OK if result.passed else outcome.GATE_FAILED
