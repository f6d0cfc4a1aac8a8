"""``boundby what-if``: how long would it take if some cost were gone?"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import FILE, PLAIN, analysis_options, json_option, output_option, view_options
from boundby.model.scale import HARDLY, NARROW
from boundby.options import AnalysisOptions

if TYPE_CHECKING:
    from boundby.render.formats import Surface
    from boundby.replay.questions import Answer

SORTS = ("scenario", "max")


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
    *("region", "window", "skip_first", "devices", "processes", "nsys", "captures"),
    region="Change only what belongs to these regions, such as 'step/loss'.",
)
@json_option
@output_option()
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="scenario",
    help="Order of rows: as asked for (scenario), or what saves most first (max). [scenario]",
)
@click.option(
    "--explain-range",
    "explains_range",
    is_flag=True,
    help="List each prediction's uncertainties below the table: what each adds, and what would settle it.",
)
@view_options(*PLAIN, "top", top="Only the N changes that save most, for each GPU.")
def what_if(
    report: Path,
    scenarios: tuple[str, ...],
    options: AnalysisOptions,
    as_json: bool,
    output: Path | None,
    sort: str,
    explains_range: bool,
    view: View,
) -> int:
    """Predict what a change to the program in REPORT would save.

    For each prediction, boundby replays the dependencies that the trace holds, with a cost removed or reduced.

    \b
    boundby what-if report.sqlite
    boundby what-if report.sqlite -s no_sync -s no_sync+kernels=2 --region 'step/loss'
    """
    from boundby.api import what_if as predict
    from boundby.model.causes import SCENARIOS
    from boundby.results import write

    if output is not None:
        write.check(output, inputs=[report])
    with view.progress() as progress:
        answers, unreliable = predict(report, scenarios or tuple(SCENARIOS), options, progress=progress)
    answers = _chosen(answers, view.top, sort)
    to_file = output is not None and output != Path("-")
    if as_json or (output is not None and output.suffix == ".json"):
        rows = [{**to_builtins(answer), "speedup": answer.speedup} for answer in answers]
        text = json.dumps({"unreliable": unreliable, "answers": rows}, indent=2, ensure_ascii=False) + "\n"
    else:
        surface = view.plain() if to_file else view.surface()
        text = _table(answers, unreliable, surface, asked_for=bool(scenarios))
        if explains_range and not unreliable:
            text += _ranges(answers, surface, asked_for=bool(scenarios))
    console.deliver(text, output, view, utf8=as_json)
    return Exit.OK


LEAST_TOLD = HARDLY  # of the window: a named scenario that changes less says nothing


def _chosen(answers: list[Answer], top: int | None, sort: str) -> list[Answer]:
    """As asked for, or what saves most first; of each GPU the ``top`` that save most."""
    ranked = sorted(answers, key=lambda candidate: (candidate.predicted_ns - candidate.baseline_ns, candidate.scenario))
    ordered = ranked if sort == "max" else answers
    if top is None:
        return ordered
    best = {
        gpu: [ranked_answer for ranked_answer in ranked if ranked_answer.device == gpu][:top]
        for gpu in {answer.device for answer in answers}
    }
    return [kept for kept in ordered if kept in best[kept.device]]


def _table(answers: list[Answer], unreliable: str | None, surface: Surface, *, asked_for: bool) -> str:
    """``asked_for``: each scenario was named, and has its row whatever it says."""
    from boundby.document.sentences import untrusted
    from boundby.model.causes import SHORT_LABEL
    from boundby.model.units import change, duration, duration_range
    from boundby.render.face import Face, FaceColumn, fitting, natural, pad

    face = Face(surface.width, surface.color_system, surface.unicode)
    if unreliable:
        why = f"{untrusted(unreliable)}. boundby analyze tells what the account alone knows."
        return face.text([face.wrapped(why)])
    rows = _rows(answers, asked_for=asked_for)
    if not rows:
        return face.text([face.wrapped("None of the named scenarios changes the window by 0.5 %.")])
    several = len({answer.device for answer in answers}) > 1
    named = partial(_named, several=several)
    cells: tuple[tuple[str, Callable[[Answer], str], int], ...] = (
        ("NOW", lambda row: duration(row.baseline_ns), 3),
        ("THEN", lambda row: duration(row.predicted_ns), 0),
        ("CHANGE", lambda row: change(_change(row)) if _change(row) else "none", 0),
        ("BETWEEN", lambda row: duration_range(*row.ends_ns), 0),
        ("CONFIDENCE", lambda row: row.confidence, 2),
        ("NEXT", lambda row: SHORT_LABEL.get(row.then_bound or "", "-"), 1),
    )
    columns = [
        FaceColumn(head, natural(head, map(cell, rows)), partial(_cell, cell), goes=goes) for head, cell, goes in cells
    ]
    longest = natural("SCENARIO", map(named, rows))
    columns, room = fitting(columns, face.width, longest)
    name = max(min(longest, room), NARROW)
    table = [face.line(face.heading(pad("SCENARIO", name)), "  ", face.heads(columns))]
    table += [face.line(pad(face.fit(named(row), name), name), "  ", face.row(columns, row)) for row in rows]
    if not any(column.head == "NOW" for column in columns):
        whole = dict.fromkeys((row.device, duration(row.baseline_ns)) for row in rows)
        sentence = ", ".join(f"GPU {gpu} {now}" if several else now for gpu, now in whole)
        table += face.wrapped(f"Now: {sentence}.")
    return face.text([table])


def _rows(answers: list[Answer], *, asked_for: bool) -> list[Answer]:
    return [answer for answer in answers if asked_for or abs(_change(answer)) >= LEAST_TOLD]


def _named(one: Answer, *, several: bool) -> str:
    from boundby.model.causes import SCENARIOS

    scenario = SCENARIOS.get(one.scenario)
    name = f"{one.scenario} ({scenario.label})" if scenario else one.scenario
    return f"GPU {one.device}: {name}" if several else name


def _ranges(answers: list[Answer], surface: Surface, *, asked_for: bool) -> str:
    """Of each prediction what is uncertain, by how much that moves either end of its range, and what would settle
    it."""
    from boundby.model.units import duration, duration_range, percent
    from boundby.render.face import Face

    face = Face(surface.width, surface.color_system, surface.unicode)
    several = len({answer.device for answer in answers}) > 1
    sections = []
    for row in _rows(answers, asked_for=asked_for):
        head = f"{_named(row, several=several)}: {duration(row.predicted_ns)}"
        lines = face.wrapped(f"{head}, between {duration_range(*row.ends_ns)}")
        for each in row.uncertainties:
            ends = ((each.low_ns, "shorter"), (each.high_ns, "longer"))
            added = " and ".join(
                f"{duration(ns)} ({percent(ns / max(row.baseline_ns, 1))}) {way}" for ns, way in ends if ns
            )
            steps = "" if not each.steps else f"confidence {'low' if each.steps > 1 else 'medium'} at most"
            locations = f": {', '.join(each.where)}" if each.where else ""
            effect = "; ".join(filter(None, (added, steps)))
            lines += face.wrapped(f"{effect}: {each.sentence}{locations}.", indent=2)
            if each.capture:
                lines += face.wrapped(f"To settle it: {each.capture}.", indent=4)
        sections.append(lines if row.uncertainties else [*lines, *face.wrapped("Nothing is uncertain.", indent=2)])
    return "\n" + face.text(sections) if sections else ""


def _cell(told: Callable[[Answer], str], one: Answer, _: int) -> str:
    return told(one)


def _change(one: Answer) -> float:
    return one.predicted_ns / max(one.baseline_ns, 1) - 1
