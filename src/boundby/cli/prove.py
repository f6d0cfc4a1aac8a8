"""``boundby prove``: delay parts of a program, and say what faster parts save."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.shared_options import FILE, PLAIN, json_option, output_option, view_options

if TYPE_CHECKING:
    from boundby.experiment.live import ProgramRun, Wanted
    from boundby.results.proof import Removal
    from boundby.results.report import Report

PLACES = ("begin", "between", "end")


EPILOG = """\b
The exit code is the program's own (128 + N if signal N ended it), and 0 where the experiment ended it. Else:
  2    no experiment can be made, or bad usage
  70   a bug in boundby
  126  the program cannot be run
  127  there is no such program
  130  interrupted; what was measured until then is printed

\b
Exit codes: docs/exit-codes.md
"""


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=1),
    help="Measure about N steps, delayed ones included. [as many as make a good answer]",
)
@click.option("--step", "step_name", metavar="NAME", help="The NVTX range that is a step.")
@click.option(
    "--host-at",
    "place",
    type=click.Choice(PLACES),
    default="begin",
    help="Where in a step the host is delayed: before the launches (begin), before those of the optimizer "
    "(between), or after the last launch (end). [begin]",
)
@click.option(
    "--try",
    "remedies",
    metavar="ID",
    multiple=True,
    help="Try a remedy and measure what it saves; can be repeated. input_free (batches from memory), or the ID of a "
    "first response, such as host_blocked.workers; docs/prove.md lists them.",
)
@click.option("--report", type=FILE, help="Compare the verdict of this report with the experiment.")
@click.option("--run-on", is_flag=True, help="Let the program go on to its own end afterwards.")
@json_option
@output_option("Write to this file (.html .md .json .txt say the format).")
@view_options(*PLAIN)
def prove(
    program: tuple[str, ...],
    steps: int | None,
    step_name: str | None,
    place: str,
    remedies: tuple[str, ...],
    report: Path | None,
    run_on: bool,
    as_json: bool,
    output: Path | None,
    view: View,
) -> int:
    """Delay parts of a program, and say what faster parts save.

    PROGRAM is the command as you would type it: boundby prove --steps 60 -- python train.py

    boundby runs it without a profiler, on one rank. In some blocks of steps boundby delays its host, its loader or its
    device, in others nothing. After the last block boundby ends the program. After Ctrl-C it says what is known so far.
    """
    from boundby.api import analyze
    from boundby.document.proof_document import document
    from boundby.experiment import judgement, live
    from boundby.experiment.inside.conductor import CACHED

    to = console.destination(
        "json" if as_json else None, output, console.DOCUMENT_FORMATS, view, [] if report is None else [report]
    )
    live.check(remedies)
    verdict = None if report is None else analyze(report)
    blocked = tuple(remedy for remedy in remedies if remedy == CACHED)
    wanted = live.Wanted(program, steps, place, step_name, blocked, run_on)
    ran, removals = _run(wanted, remedies, verdict, view)
    proof = None
    if ran.plan is not None:
        proof = judgement.judge(shlex.join(program), ran.plan, ran.blocks, verdict, removals, ran.problem)
    if proof is None:
        return _nothing(ran, view)
    to.show(proof, document)
    return ran.exit_code


def _run(
    wanted: Wanted, remedies: tuple[str, ...], verdict: Report | None, view: View
) -> tuple[ProgramRun, list[Removal]]:
    """The experiment, and after a whole one what other runs of the program show of remedies."""
    from boundby.experiment import live

    removals: list[Removal] = []
    with view.progress() as progress:
        report_progress = progress or (lambda _what, _fraction: None)
        ran = live.run(wanted, say=view.say, progress=report_progress)
        for remedy in [key for key in remedies if key in live.WHOLE] if ran.is_complete else ():
            removals += live.try_whole(wanted, remedy, verdict, view.say, report_progress)
    return ran, removals


def _nothing(ran: ProgramRun, view: View) -> int:
    """The exit code of a program that failed before anything was measured. Raises why nothing was, of any other."""
    if not ran.exit_code:
        raise ran.why_nothing
    view.say(f"the program ended with {outcome.ending(ran.exit_code)} before anything was measured")
    return ran.exit_code
