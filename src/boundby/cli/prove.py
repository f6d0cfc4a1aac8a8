"""``boundby prove``: delay parts of a running program, and say what each is worth."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.options import FILE, PLAIN, json_option, output_option, view_options

if TYPE_CHECKING:
    from boundby.render.formats import Surface
    from boundby.results.proof import Proof

PLACES = ("begin", "between", "end")


@click.command(epilog=outcome.EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--steps", type=click.IntRange(min=1), help="Count so many steps. [as many as make a good answer]")
@click.option("--step", "step_name", metavar="NAME", help="The NVTX range that is a step.")
@click.option(
    "--host-at",
    "place",
    type=click.Choice(PLACES),
    default="begin",
    help="Where in a step the host is delayed. [begin]",
)
@click.option("--report", type=FILE, help="Hold the verdict of this report against the experiment.")
@click.option("--run-on", is_flag=True, help="Let the program go on to its own end afterwards.")
@json_option
@output_option
@view_options(*PLAIN)
def prove(
    program: tuple[str, ...],
    steps: int | None,
    step_name: str | None,
    place: str,
    report: Path | None,
    run_on: bool,
    as_json: bool,
    output: Path | None,
    view: View,
) -> int:
    """Delay parts of a running program, and say what each is worth.

    PROGRAM is the command as you would type it: boundby prove --steps 60 -- python train.py

    It is run without a profiler, on one rank and, so far, on the CPU. Its host and its loader are delayed in some
    blocks of steps and not in others. It is ended after the last block. Ctrl-C tells what is known until then.
    """
    from boundby.api import analyze
    from boundby.experiment import judgement, live, planning
    from boundby.results import saved, write

    if output is not None:
        write.check(output)
    verdict = None if report is None else analyze(report)
    with view.progress() as progress:
        ran = live.run(
            live.Wanted(program, steps, place, step_name, run_on=run_on),
            say=view.note,
            progress=progress or (lambda _what, _fraction: None),
        )
    if ran.problem and not ran.blocks:
        raise planning.ExperimentError(f"The experiment has failed: {ran.problem}.", planning.MARK)
    if ran.plan is None:
        if ran.exit_code:
            return ran.exit_code
        raise planning.nothing_found(ran.told)
    proof = judgement.judge(shlex.join(program), ran.plan, ran.blocks, verdict)
    if proof is None:
        raise planning.ExperimentError("The program ended before anything was measured.", "Let it run for more steps.")
    as_json = as_json or (output is not None and output.suffix == ".json")
    to_file = output is not None and output != Path("-")
    text = saved.render(proof) if as_json else _told(proof, view.plain() if to_file else view.surface())
    console.deliver(text, output, view, utf8=as_json)
    return ran.exit_code


_ANSWERS = {
    "host": "The host sets the pace",
    "input": "The loader sets the pace",
    "device": "The device sets the pace",
    "serial": "Parts take turns: each saving counts",
    "balanced": "Parts are balanced: none alone saves much",
    "outside": "Something that was not delayed sets the pace",
    "unknown": "It cannot be told what sets the pace",
}


def _told(proof: Proof, surface: Surface) -> str:
    from boundby.model.units import duration, plural
    from boundby.render.face import Face

    face = Face(surface.width, surface.color_system, surface.unicode)
    lines = [
        f"{_ANSWERS[proof.bound]} (confidence {proof.confidence}): {plural(proof.steps, 'step')} of "
        f"{duration(proof.step_ns)}, marked by {proof.steps_by}."
    ]
    for part in proof.parts:
        worth, slope = part.saved_per_ns, part.slope
        lines.append(
            f"{part.part}: a millisecond saved saves {worth.value:.2f} ms [{worth.low:.2f}, {worth.high:.2f}]; "
            f"slope {slope.value:.2f} [{slope.low:.2f}, {slope.high:.2f}]. Delayed: {part.where}."
        )
    if proof.bound_next:
        lines.append(f"Once it takes no time: {_ANSWERS[proof.bound_next][0].lower()}{_ANSWERS[proof.bound_next][1:]}.")
    if proof.bound_by_trace:
        lines.append(f"By the trace: {proof.bound_by_trace}. {proof.agreement}: {proof.agreement_because}")
    return face.text([face.wrapped(line) for line in (*lines, *proof.doubts)])
