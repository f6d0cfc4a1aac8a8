"""``boundby profile``: run a program under nsys and say what it is bound by."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.options import FILE, WINDOW_HELP, analysis_options, view_options, with_rule_config
from boundby.options import AnalysisOptions
from boundby.render.formats import FORMATS

if TYPE_CHECKING:
    from boundby.api import Analysis
    from boundby.capture.profile import Recording, Request

SHOWN = (*(form.name for form in FORMATS.values() if form.after_profile), "none")

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


@click.command(
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    *("-o", "--output"),
    metavar="DIR",
    type=FILE,
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
@click.option("--nsys", metavar="PATH", type=FILE, help="The nsys to record with.")
@click.option(
    "--format", "format_name", type=click.Choice(SHOWN), default="terminal", help="How to show the result. [terminal]"
)
@analysis_options("window", "skip_first", "min_share", window=WINDOW_HELP)
@view_options()
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
    options: AnalysisOptions,
    view: View,
) -> int:
    """Run a program under nsys and say what it is bound by.

    PROGRAM is the command as you would type it: boundby profile -- python train.py --epochs 1

    Its input, output and exit code are its own. The analysis follows its output, and a folder keeps everything:
    the report, its export, the analysis and the circumstances. "boundby analyze FOLDER" shows it again.
    Ctrl-C stops the program and analyses what it did until then.
    """
    from boundby.attribution.windows import parse_window
    from boundby.capture.flags import Options
    from boundby.capture.profile import Request

    # What would fail after an hour on a GPU fails before it.
    _check_range(capture_range)
    parse_window(options.window, options.skip_first)
    wanted = Options(
        trace=tuple(part.strip() for part in (trace or "").split(",") if part.strip()),
        delay_s=delay,
        duration_s=duration,
        capture_range=capture_range,
        nsys_args=_split(nsys_args),
    )
    options = with_rule_config(options)
    return _run(Request(program, wanted, output, force, nsys, torch_ops), options, format_name, view)


def _run(request: Request, options: AnalysisOptions, format_name: str, view: View) -> int:
    from boundby import api
    from boundby.capture import profile as capture
    from boundby.capture.session import GaveUpError

    def say(text: str) -> None:
        if not view.quiet:
            _say(text)

    try:
        recording = capture.record(request, say=say)
    except GaveUpError:
        raise KeyboardInterrupt from None
    code = recording.exit_code
    if recording.ran.outlived:
        say("the recording is over, and the program was stopped")
    elif code and recording.report is not None:
        say(f"the program ended with {_ending(code)}; this is what it did until then")
    folder = recording.folder.path
    try:
        with view.progress() as progress:
            capture.complete(recording, progress=progress)
            analysis = api.examine(folder, options, nsys=recording.nsys.path, progress=progress)
        _write(analysis, recording, options.min_share)
        render = None if format_name == "none" else FORMATS[format_name].render
        if render is not None:
            text = render(analysis, view.surface(), options.min_share)
            console.put(text, utf8=format_name != "terminal")
        say(f"all of it is in {folder}: open {folder / 'report.html'}, or: boundby {folder} --full")
    except BrokenPipeError:
        raise
    except Exception as error:
        failure = outcome.tell(error)
        return code or failure
    return code


def _write(analysis: Analysis, recording: Recording, min_share: float | None) -> None:
    from boundby.capture import folder
    from boundby.render import markdown, page
    from boundby.results import saved, write

    place, report = recording.folder.path, analysis.report
    write.write_text(place / folder.ANALYSIS, saved.render(report))
    html = page.render(report, analysis.plot_data, min_share=min_share, next_bounds=analysis.next_bounds)
    write.write_text(place / folder.HTML, html)
    write.write_text(place / folder.PAGE, markdown.render(report, min_share=min_share))


def _check_range(capture_range: str | None) -> None:
    if capture_range in (None, "cudaProfilerApi", "steps"):
        return
    kind, _, name = capture_range.partition(":")
    if kind != "nvtx" or not name:
        raise click.BadParameter(
            f"{capture_range!r} is none of nvtx:NAME, cudaProfilerApi and steps.", param_hint="--capture-range"
        )


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


def _say(text: str) -> None:
    from boundby.render.text import clean

    click.echo(f"boundby: {clean(text)}", err=True)
