"""``boundby profile``: run a program under nsys and say what it is bound by."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import outcome
from boundby.cli.ruleoptions import RuleOptions, rule_options

if TYPE_CHECKING:
    from boundby.capture.profile import Recording, Request
    from boundby.cli.progress import Progress
    from boundby.results.report import Report

FORMATS = ("terminal", "markdown", "json", "csv", "none")

EPILOG = """\b
The exit code is the program's own (128 + N if signal N ended it). If that is 0:
  0    all went well, or --duration was over and the program was stopped
  2    nothing could be recorded or analysed, or bad usage
  70   a bug in boundby
Without a run:
  126  the program cannot be run
  127  there is no such program
  130  interrupted twice: program ended, nothing analysed

\b
Exit codes: docs/exit-codes.md
"""


@dataclass(frozen=True)
class _View:
    """What to analyse, and how to show it."""

    format: str
    window: str
    skip_first: int
    min_share: float | None
    quiet: bool
    color: bool | None
    width: int | None
    rules: RuleOptions


@click.command(
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    *("-o", "--output"),
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder for report, analysis and run.json, else boundby-out/NAME-TIME.",
)
@click.option("--force", is_flag=True, help="Replace an earlier run in the folder of -o.")
@click.option(
    "--torch-ops",
    is_flag=True,
    help="Add ranges for the operators, modules, data loading and optimizer of a torch program, without a change to "
    "it. Costs 8 to 9 us a range with a CPU build of torch: see docs/profile.md.",
)
@click.option(
    "--trace",
    metavar="KINDS",
    help="What to trace, as nsys calls it, with commas between: cuda,cudnn,cublas,nvtx,osrt, and with MPI mpi,ucx, "
    "if not given.",
)
@click.option(
    "--delay", metavar="S", type=click.FloatRange(min=0), default=0.0, help="Begin to record after S seconds."
)
@click.option(
    "--duration",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    help="Record for S seconds, then stop the program.",
)
@click.option(
    "--capture-range",
    metavar="nvtx:NAME|cudaProfilerApi|steps",
    help="Record only the first NVTX range of this name, what lies between cudaProfilerStart and -Stop, or the active "
    "steps of boundby.annotate.steps. The program then runs on to its end.",
)
@click.option(
    "--nsys-args",
    metavar="ARGS",
    default="",
    help="More arguments for nsys profile, in quotes; they win over boundby's.",
)
@click.option("--nsys", metavar="PATH", type=click.Path(path_type=Path), help="The nsys to record with.")
@click.option(
    "--format", "format_name", type=click.Choice(FORMATS), default="terminal", help="How to show the result. [terminal]"
)
@click.option(
    "--window",
    metavar="gpu|all|START:END|nvtx:NAME",
    default="gpu",
    help="The time to account for: first to last GPU work, the whole trace, a span in seconds, or one NVTX range.",
)
@click.option("--skip-first", metavar="K", type=click.IntRange(min=0), default=0, help="Leave out the first K steps.")
@click.option(
    "--min-share",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    help="Only regions with this share of the time. [1 in tables for people, else 0]",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
@click.option("--color/--no-color", default=None, help="Colour or none. [colour on a terminal; NO_COLOR is obeyed]")
@click.option("--width", type=click.IntRange(min=40), help="Columns to fill. [the terminal's, else 100]")
def profile(
    program: tuple[str, ...],
    output: Path | None,
    force: bool,
    torch_ops: bool,
    trace: str | None,
    delay: float,
    duration: float | None,
    capture_range: str | None,
    nsys_args: str,
    nsys: Path | None,
    format_name: str,
    window: str,
    skip_first: int,
    min_share: float | None,
    quiet: bool,
    color: bool | None,
    width: int | None,
) -> int:
    """Run a program under nsys and say what it is bound by.

    PROGRAM is the command as you would type it: boundby profile -- python train.py --epochs 1

    Its input, output and exit code are its own. The analysis follows its output, and a folder keeps everything:
    the report, its export, the analysis and the circumstances. "boundby analyze FOLDER" shows it again.
    Ctrl-C stops the program and analyses what it did until then.
    """
    from boundby.capture.flags import Options
    from boundby.capture.profile import Request

    _check_range(capture_range)
    _check_window(window, skip_first)
    options = Options(
        trace=tuple(part.strip() for part in (trace or "").split(",") if part.strip()),
        delay_s=delay,
        duration_s=duration,
        capture_range=capture_range,
        nsys_args=_split(nsys_args),
    )
    share = None if min_share is None else min_share / 100
    view = _View(format_name, window, skip_first, share, quiet, color, width, rule_options())
    return _run(Request(program, options, output, force, nsys, torch_ops), view)


def _run(request: Request, view: _View) -> int:
    from boundby.capture import profile as capture
    from boundby.capture.session import GaveUpError
    from boundby.cli import progress

    def say(text: str) -> None:
        if not view.quiet:
            _note(text)

    try:
        recording = capture.record(request, say=say)
    except GaveUpError:
        raise KeyboardInterrupt from None
    code = recording.exit_code
    if recording.ran.outlived:
        say("the recording is over, and the program was stopped")
    elif code and recording.report is not None:
        say(f"the program ended with {_ending(code)}; this is what it did until then")
    try:
        with progress.shown(quiet=view.quiet) as update:
            capture.complete(recording, progress=update)
            report = _analyze(recording, view, update)
        _write(report, recording, view)
        _show(report, view)
        say(f"all of it is in {recording.folder.path}")
    except BrokenPipeError:
        raise
    except Exception as error:
        told = outcome.tell(error)
        return code or told
    return code


def _analyze(recording: Recording, view: _View, update: Progress | None) -> Report:
    from boundby import api

    return api.analyze(
        recording.folder.path,
        disable=view.rules.disable,
        thresholds=view.rules.thresholds,
        window=view.window,
        skip_first=view.skip_first,
        min_share=view.min_share or 0.0,
        nsys=recording.nsys.path,
        progress=update,
    )


def _write(report: Report, recording: Recording, view: _View) -> None:
    from boundby.capture import folder
    from boundby.render import json, markdown, write

    place = recording.folder.path
    write.write_text(place / folder.ANALYSIS, json.render(report))
    write.write_text(place / folder.PAGE, markdown.render(report, min_share=view.min_share))


def _show(report: Report, view: _View) -> None:
    if view.format == "none":
        return
    from boundby.cli import stdout
    from boundby.cli.analyze import Result, renderer

    surface = stdout.surface(width=view.width, color=view.color)
    result = Result(view.format, None, None, view.quiet, view.color, view.width)
    stdout.put(renderer(result, view.min_share, surface)(report), utf8=view.format != "terminal")


def _check_range(capture_range: str | None) -> None:
    if capture_range in (None, "cudaProfilerApi", "steps"):
        return
    kind, _, name = capture_range.partition(":")
    if kind != "nvtx" or not name:
        raise click.BadParameter(
            f"{capture_range!r} is none of nvtx:NAME, cudaProfilerApi and steps.", param_hint="--capture-range"
        )


def _check_window(window: str, skip_first: int) -> None:
    """What would fail after an hour on a GPU fails before it."""
    from boundby.attribution.windows import parse_window

    parse_window(window, skip_first)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} cannot be split into words: {error}.", param_hint="--nsys-args") from None


def _ending(code: int) -> str:
    import signal

    if code > 128:
        try:
            return f"{signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            pass
    return f"exit code {code}"


def _note(text: str) -> None:
    from boundby.render.text import clean

    click.echo(f"boundby: {clean(text)}", err=True)
