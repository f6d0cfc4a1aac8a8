"""``boundby what-if``: how long would it take if some cost were gone?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import outcome
from boundby.cli.console import View
from boundby.cli.options import FILE, analysis_options, json_option, view_options
from boundby.options import AnalysisOptions

if TYPE_CHECKING:
    from boundby.replay import Answer


@click.command("what-if", epilog=outcome.EPILOG)
@click.argument("report", type=FILE)
@click.option(
    *("-s", "--scenario", "scenarios"),
    metavar="SCENARIO",
    multiple=True,
    help="What is removed or made faster, such as no_sync, kernels=2, 'kernel:*gemm*=3', cpu=10; joined by + for "
    "both at once. Can be repeated. Without it: every named scenario.",
)
@analysis_options(
    *("region", "window", "skip_first", "devices", "processes", "nsys"),
    region="Change only what belongs to these regions, such as 'step/loss'.",
)
@json_option
@click.option("-o", "--output", type=FILE, help="Write to this file (.json: JSON).")
@click.option("--top", metavar="N", type=click.IntRange(min=1), help="Only the N that save most, of each GPU.")
@view_options("quiet")
def what_if(
    report: Path,
    scenarios: tuple[str, ...],
    options: AnalysisOptions,
    as_json: bool,
    output: Path | None,
    top: int | None,
    view: View,
) -> int:
    """Predict what a change to the program in REPORT would save.

    The prediction is a replay of the dependencies that the trace holds, with that cost removed.

    \b
    boundby what-if report.sqlite
    boundby what-if report.sqlite -s no_sync -s no_sync+kernels=2 --region 'step/loss'
    """
    from boundby.api import what_if as predict
    from boundby.model.scenarios import SCENARIOS
    from boundby.results import write

    if output is not None:
        write.check(output, inputs=[report])
    with view.progress() as progress:
        answers, unreliable = predict(report, scenarios or tuple(SCENARIOS), options, progress=progress)
    if top is not None:
        ranked = sorted(answers, key=lambda one: (one.predicted_ns - one.baseline_ns, one.scenario))
        best = {device: [one for one in ranked if one.device == device][:top] for device in {a.device for a in answers}}
        answers = [one for one in answers if one in best[one.device]]
    if as_json or (output is not None and output.suffix == ".json"):
        found = [{**asdict(answer), "speedup": answer.speedup} for answer in answers]
        text = json.dumps({"unreliable": unreliable, "answers": found}, indent=2, ensure_ascii=False)
    else:
        text = _table(answers, unreliable, asked_for=bool(scenarios))
    if output is None:
        click.echo(text)
    else:
        write.write_text(output, text + "\n", inputs=[report])
        view.note(f"wrote {output}")
    return outcome.OK


LEAST_TOLD = 0.005  # of the window: a named scenario that changes less says nothing


def _table(answers: list[Answer], unreliable: str | None, *, asked_for: bool) -> str:
    """``asked_for``: each scenario was named, and has its row whatever it says."""
    from boundby.model.causes import BOUND_LABEL
    from boundby.model.scenarios import SCENARIOS
    from boundby.model.units import change as signed
    from boundby.model.units import duration, duration_range

    several = len({answer.device for answer in answers}) > 1
    lines = [f"! Not to be trusted on this trace: {unreliable}.", ""] if unreliable else []
    rows = [("SCENARIO", "NOW", "THEN", "CHANGE", "BETWEEN", "CONFIDENCE", "THEN BOUND BY")]
    for answer in answers:
        if not asked_for and abs(answer.predicted_ns / max(answer.baseline_ns, 1) - 1) < LEAST_TOLD:
            continue
        change = answer.predicted_ns / answer.baseline_ns - 1
        named = SCENARIOS.get(answer.scenario)
        name = f"{answer.scenario} ({named.label})" if named else answer.scenario
        rows.append(
            (
                f"GPU {answer.device}: {name}" if several else name,
                duration(answer.baseline_ns),
                duration(answer.predicted_ns),
                signed(change) if change else "none",
                duration_range(answer.low_ns, answer.high_ns),
                answer.confidence,
                BOUND_LABEL.get(answer.then_bound or "", "-"),
            )
        )
    if len(rows) == 1:
        return "\n".join([*lines, "None of the named scenarios changes the window by 0.5 %."])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        lines + ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    )
