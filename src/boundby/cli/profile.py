"""``boundby profile``: run a program under nsys and say what it is bound by."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.shared_options import (
    FILE,
    WINDOW_HELP,
    Real,
    analysis_options,
    output_option,
    view_options,
    with_rule_config,
)
from boundby.model.errors import InputError
from boundby.options import AnalysisOptions
from boundby.render.formats import BY_SUFFIX, FORMATS

if TYPE_CHECKING:
    from boundby.api import Analysis
    from boundby.capture.recording import Request, Rhythm
    from boundby.capture.server import ServedPhase

SHOWN = (*(form.name for form in FORMATS.values() if form.after_profile), "none")

EPILOG = """\b
The exit code is the program's own (128 + N if signal N ended it). If that is 0:
  0    all went well, or --duration was over and the program was stopped
  2    nothing could be recorded or analysed, or bad usage
  70   a bug in boundby
Without an analysis:
  126  the program cannot be run
  127  there is no such program
  130  interrupted twice: boundby ended the program

\b
Exit codes: docs/exit-codes.md
"""


@click.command(
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("program", metavar="[PROGRAM...]", nargs=-1, type=click.UNPROCESSED)
@output_option("The folder for the report, the analysis and run.json. [boundby-out/NAME-TIME]", metavar="DIR")
@click.option(
    "--with",
    "profiler",
    type=click.Choice(("nsys", "torch")),
    default="nsys",
    help="The profiler that records. [nsys] PyTorch's own needs no nsys, but does not see the operating system.",
)
@click.option(
    "--torch-steps",
    metavar="WAIT,WARMUP,ACTIVE",
    default="1,1,3",
    help="With torch: how many steps to wait, to warm up and to record. [1,1,3]",
)
@click.option(
    "--torch-record",
    metavar="KINDS",
    default="stacks,shapes,memory",
    help="With torch: what else to record, separated by commas, or none. [stacks,shapes,memory]",
)
@click.option("--force", is_flag=True, help="Replace an earlier run in the folder of -o.")
@click.option("--in-job", is_flag=True, hidden=True, help="A launcher has started this: record one of its ranks.")
@click.option(
    "--torch-ops",
    is_flag=True,
    help="Add ranges for the operators, modules, data loading and optimizer of a torch program, without a change to "
    "it. Costs 8 to 9 us a range with a CPU build of torch: see docs/profile.md.",
)
@click.option(
    "--no-lines",
    is_flag=True,
    help="Do not mark, 50 times a second, which line of Python a torch program is at. Waits then have no source lines.",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Sample the GPU's counters (SMs, tensor cores, memory) 10,000 times a second. If the driver does not "
    "permit it, boundby says how to permit it, and ends. [1,000 times a second, where permitted]",
)
@click.option(
    "--trace",
    metavar="KINDS",
    help="What to trace, as nsys calls it, separated by commas. [cuda,cudnn,cublas,nvtx,osrt, and with MPI mpi,ucx]",
)
@click.option("--delay", metavar="S", type=Real(min=0), default=0.0, help="Start recording after S seconds.")
@click.option(
    "--duration",
    metavar="S",
    type=Real(min=0, min_open=True),
    help="Record for S seconds, then stop the program.",
)
@click.option(
    "--capture-range",
    metavar="nvtx:NAME|cudaProfilerApi|steps",
    help="Record only the first NVTX range of this name, what lies between cudaProfilerStart and cudaProfilerStop, or "
    "the active steps of boundby.annotate.steps. Afterwards the program runs on to its end.",
)
@click.option(
    "--nsys-args",
    metavar="ARGS",
    default="",
    help="More arguments for nsys profile, in quotes. They override boundby's.",
)
@click.option("--nsys", metavar="PATH", type=FILE, help="The nsys to record with.")
@click.option(
    "--server",
    metavar="URL",
    help="Record a phase of a server of vLLM or SGLang once it has requests. Without PROGRAM, the server runs already, "
    "and its own profiler records; with PROGRAM, that is the server, and nsys records it.",
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=1),
    default=40,
    help="With --server: how many of its steps to record. [40]",
)
@click.option(
    "--traces",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --server: the folder that the server's own profiler writes to (vLLM: its torch_profiler_dir).",
)
@click.option(
    "--format", "format_name", type=click.Choice(SHOWN), default="terminal", help="How to show the result. [terminal]"
)
@analysis_options("window", "skip_first", "min_share", window=WINDOW_HELP)
@view_options()
def profile(
    program: tuple[str, ...],
    output: Path | None,
    profiler: str,
    torch_steps: str,
    torch_record: str,
    force: bool,
    in_job: bool,
    torch_ops: bool,
    no_lines: bool,
    metrics: bool,
    trace: str | None,
    delay: float,
    duration: float | None,
    capture_range: str | None,
    nsys_args: str,
    nsys: Path | None,
    server: str | None,
    steps: int,
    traces: Path | None,
    format_name: str,
    options: AnalysisOptions,
    view: View,
) -> int:
    """Run a program under a profiler and say what it is bound by.

    PROGRAM is the command as you would type it: boundby profile -- python train.py --epochs 1

    Its input, output and exit code are its own. The analysis follows its output, and a folder keeps everything:
    the report, its export, the analysis and the circumstances. "boundby analyze FOLDER" shows it again.
    Ctrl-C stops the program and analyses what it did until then.

    A server of language models that runs already is recorded by its own profiler, while it serves requests:
    boundby profile --server http://localhost:8000 --traces DIR

    If PROGRAM is torchrun, mpirun or srun, each rank leaves such a folder, and the analysis is that of the whole job.
    "boundby job FOLDER" shows it again.
    """
    from boundby.attribution.windows import parse_window
    from boundby.capture import launched_ranks
    from boundby.capture.flags import CaptureOptions
    from boundby.capture.folder import release
    from boundby.capture.recording import Request
    from boundby.capture.server import ServedPhase
    from boundby.model.library import required

    if server is not None and not program:
        return _attach(ServedPhase(server, steps, delay, duration, traces), options, format_name, view)
    if not program:
        raise click.UsageError("Missing argument 'PROGRAM...'.")
    click.get_current_context().call_on_close(release)
    # What would fail after an hour on a GPU fails before it.
    required()
    if server is not None:
        capture_range = capture_range or "cudaProfilerApi"
        _ask(ServedPhase(server, steps, delay, duration, is_under_nsys=True), view)
        delay, duration = 0.0, None
    _check_range(capture_range)
    parse_window(options.window, options.skip_first)
    wanted = CaptureOptions(
        trace=_kinds(trace or ""),
        delay_s=delay,
        duration_s=duration,
        capture_range=capture_range,
        nsys_args=_split(nsys_args),
        lines=not no_lines,
        metrics=metrics,
    )
    again: dict[str, object] = {"--trace": trace, "--delay": delay or None, "--duration": duration}
    again |= {"--capture-range": capture_range}
    again |= {"--nsys-args": nsys_args or None, "--nsys": nsys, "--window": options.window}
    again |= {"--skip-first": options.skip_first, "--min-share": options.min_share}
    options = with_rule_config(options)
    if profiler == "torch":
        return _run_with_torch(
            program, output, _rhythm(torch_steps, torch_record), options, format_name, view, force=force
        )
    if launched_ranks.is_launcher(program) and not in_job:
        flags = {"--torch-ops": torch_ops, "--no-lines": no_lines, "--metrics": metrics, "--force": force}
        words = [f"{name}={value}" for name, value in again.items() if value is not None]
        words += [flag for flag, is_given in flags.items() if is_given]
        return _run_job(Request(program, wanted, output, force, nsys), words, options, format_name, view)
    request = Request(program, wanted, output, force, nsys, torch_ops)
    rank = _as_rank(request, in_job=in_job)
    if rank is None:
        return _run(request, options, format_name, view, is_server=server is not None)
    return _run_rank(rank, options, view, in_job=in_job)


def _kinds(trace: str) -> tuple[str, ...]:
    """What to trace, of words separated by commas."""
    return tuple(part.strip() for part in trace.split(",") if part.strip())


def _run_rank(rank: Request, options: AnalysisOptions, view: View, *, in_job: bool) -> int:
    if in_job or (rank.place and rank.place.rank):  # one rank's word on what is recorded is enough
        view = replace(view, quiet=True)
    return _run(rank, options, "none", view)


def _as_rank(request: Request, *, in_job: bool) -> Request | None:
    """The request of one rank of a job, with a folder of its own; None: this is no rank."""
    from boundby.capture import launched_ranks
    from boundby.trace.facts import JobPlace

    job_place = JobPlace.in_environment(os.environ)
    if job_place.rank is None and in_job:
        job_place = JobPlace(0, 1)
    if job_place.rank is None:
        return None
    chosen = launched_ranks.folder_of(job_place.rank, request.folder, request.program)
    if in_job and request.folder is not None:
        chosen = request.folder / f"rank_{job_place.rank}"
    return replace(request, options=replace(request.options, is_rank=True), folder=chosen, place=job_place)


def _attach(phase: ServedPhase, options: AnalysisOptions, format_name: str, view: View) -> int:
    """A server that runs already: it records, and what its steps take is told of the trace that it wrote."""
    from boundby import api
    from boundby.capture.server import record_phase
    from boundby.document.serving_document import document
    from boundby.render.formats import drawn
    from boundby.results import saved

    phase_recorded = record_phase(phase, view.say)
    if not phase_recorded.traces:
        view.say("the trace lies where the server was told to write it: boundby serving FILE")
        return outcome.Exit.OK
    with view.progress() as progress:
        report = api.serving(phase_recorded.traces[0], options, progress=progress)
    if format_name == "json":
        console.put(saved.render(report), utf8=True)
    elif format_name != "none":
        console.put(drawn(document(report), "terminal", view.surface()))
    view.say(f"recorded: {', '.join(map(str, phase_recorded.traces))}; boundby serving FILE shows it again")
    return outcome.Exit.OK


def _ask(phase: ServedPhase, view: View) -> None:
    """Have a server that is about to start record itself under nsys, beside this program."""
    import threading

    from boundby.capture.server import record_phase
    from boundby.model.errors import UserError

    def ask() -> None:
        try:
            phase_recorded = record_phase(phase, view.say)
            done = "has recorded" if phase_recorded.ended else f"stops recording by itself after {phase.steps} steps"
            view.say(f"{phase_recorded.engine} {done}; then Ctrl-C ends it, and the answer follows")
        except UserError as error:
            view.say(f"{error} Nothing is recorded: Ctrl-C ends the program.")

    threading.Thread(target=ask, name="boundby-server", daemon=True).start()


def _run_job(request: Request, words: list[str], options: AnalysisOptions, format_name: str, view: View) -> int:
    """A launcher: every rank records itself below one folder, then all are joined."""
    from datetime import datetime

    from boundby.capture import folder, launched_ranks
    from boundby.capture.nsys import find_nsys
    from boundby.capture.recording import check_program
    from boundby.trace.facts import JobPlace

    check_program(request.program)
    nsys = find_nsys(request.nsys)
    now = datetime.now().astimezone()
    shared = JobPlace.in_environment(os.environ).rank is not None  # one launcher a node: they fill the folder together
    if shared and request.folder is not None:
        request.folder.mkdir(parents=True, exist_ok=True)
        job_folder = request.folder
    else:
        job_folder = folder.make_folder(request.folder, request.program, now, force=request.force).path
    if request.force:
        launched_ranks.clear(job_folder)
    view.say(f"recording each rank with nsys {nsys.release} into {job_folder}")
    started = launched_ranks.launch(request.program, words, job_folder)
    code = launched_ranks.run(started)
    launched_ranks.tidy(job_folder)
    if code:
        view.say(f"{request.program[0]} ended with {outcome.ending(code)}; this is what the ranks did until then")
    if shared:
        view.say(f"when all nodes are done: boundby job {job_folder}")
        return code
    return _finish(code, lambda: _join(job_folder, options, format_name, view))


def _finish(code: int, tell: Callable[[], None]) -> int:
    """Tell what was recorded; the exit code is the program's own, else of what went wrong in telling."""
    try:
        tell()
    except BrokenPipeError:
        raise
    except Exception as error:
        failure = outcome.tell(error)
        return code or failure
    return code


def _join(place: Path, options: AnalysisOptions, format_name: str, view: View) -> None:
    """The job's report, its files, and what is shown of it; of a job of one rank, that rank's."""
    from boundby.capture import launched_ranks

    recorded = launched_ranks.recorded(place)
    if not recorded:
        raise InputError(
            f"No rank left a recording in {place}.", "Does the program start? boundby doctor checks the rest."
        )
    pointer = f"open {recorded[0] / 'report.html'}, or: boundby {recorded[0]} --full"
    if len(recorded) > 1:
        pointer = _tell_job(place, options, format_name, view)
    elif render := None if format_name == "none" else FORMATS[format_name].render:
        from boundby import api

        analysis = api.examine(recorded[0], options)
        console.put(render(analysis, view.surface(), options.min_share), utf8=format_name != "terminal")
    view.say(f"all of it is in {place}: {pointer}")


def _tell_job(place: Path, options: AnalysisOptions, format_name: str, view: View) -> str:
    """Join the reports in a folder, write the answer beside them, show it; where to look further."""
    from boundby import api
    from boundby.capture import launched_ranks
    from boundby.cli import job as jobs
    from boundby.results import write

    with view.progress() as progress:
        report = api.job(place, options, progress=progress)
        report, links = jobs.add_pages(report, [place], place / launched_ranks.JOB_HTML, options, progress=progress)
    for name in (launched_ranks.JOB_ANALYSIS, launched_ranks.JOB_HTML, launched_ranks.JOB_PAGE):
        kind = BY_SUFFIX[Path(name).suffix]
        write.write_text(place / name, jobs.render(report, kind, view.plain(), links))
    if format_name in jobs.FORMATS:
        console.put(jobs.render(report, format_name, view.surface(), links), utf8=format_name != "terminal")
    return f"open {place / launched_ranks.JOB_HTML}, or: boundby job {place}"


def _run(request: Request, options: AnalysisOptions, format_name: str, view: View, *, is_server: bool = False) -> int:
    from boundby import api
    from boundby.capture import recording as capture
    from boundby.capture.session import GaveUpError

    try:
        recording = capture.record(request, say=view.say)
    except GaveUpError:
        raise KeyboardInterrupt from None
    code = recording.exit_code
    if recording.ran.outlived:
        view.say("the recording is over, and the program was stopped")
    elif code and recording.report is not None:
        said = recording.ran.last_words
        words = f" ({said.words})" if said is not None and said.lines else ""
        from boundby.trace.vocabulary.last_words import INTERRUPTED

        how = "was interrupted by" if said is not None and said.ended == INTERRUPTED else "failed with"
        view.say(f"the program {how} {outcome.ending(code)}{words}; this is what it did until then")
    folder = recording.folder.path

    def tell() -> None:
        with view.progress() as progress:
            capture.complete(recording, progress=progress)
            analysis = api.examine(folder, options, nsys=recording.nsys.path, progress=progress)
        _answer(analysis, folder, options, format_name, view)
        if is_server:
            view.say(f"what its steps take, by kind and size: boundby serving {folder}")

    return _finish(code, tell)


def _rhythm(steps: str, record: str) -> Rhythm:
    from boundby.capture.recording import Rhythm

    kinds = {kind.strip() for kind in record.split(",") if kind.strip()} - {"none"}
    if wrong := kinds - {"stacks", "shapes", "memory"}:
        raise click.BadParameter(
            f"{sorted(wrong)[0]!r} is not one of stacks, shapes, memory.", param_hint="--torch-record"
        )
    try:
        wait, warmup, active = (int(part) for part in steps.split(","))
    except ValueError:
        wait = warmup = active = -1
    if min(wait, warmup, active - 1) < 0:
        raise click.BadParameter(f"{steps!r} is not WAIT,WARMUP,ACTIVE, such as 1,1,3.", param_hint="--torch-steps")
    return Rhythm(wait, warmup, active, "stacks" in kinds, "shapes" in kinds, "memory" in kinds)


def _run_with_torch(
    program: tuple[str, ...],
    output: Path | None,
    rhythm: Rhythm,
    options: AnalysisOptions,
    format_name: str,
    view: View,
    *,
    force: bool,
) -> int:
    from boundby import api
    from boundby.capture import recording as capture

    recording = capture.record_with_torch(program, output, rhythm, force=force, say=view.say)
    code, folder = recording.exit_code, recording.folder.path
    if code:
        view.say(f"the program ended with {outcome.ending(code)}; this is what it did until then")

    def tell() -> None:
        if len(recording.traces) > 1:  # one a rank
            view.say(f"all of it is in {folder}: {_tell_job(folder, options, format_name, view)}")
            return
        trace = capture.check(recording)
        with view.progress() as progress:
            analysis = api.examine(trace, options, progress=progress)
        _answer(analysis, folder, options, format_name, view)

    return _finish(code, tell)


def _answer(analysis: Analysis, place: Path, options: AnalysisOptions, format_name: str, view: View) -> None:
    """Into its folder, and what is shown of it."""
    from boundby.capture import folder
    from boundby.render import markdown, page
    from boundby.results import saved, write

    report = analysis.report
    write.write_text(place / folder.ANALYSIS, saved.render(report))
    write.write_text(place / folder.HTML, page.of(analysis, options.min_share))
    write.write_text(place / folder.PAGE, markdown.render(report, min_share=options.min_share))
    render = None if format_name == "none" else FORMATS[format_name].render
    if render is not None:
        console.put(render(analysis, view.surface(), options.min_share), utf8=format_name != "terminal")
    view.say(f"all of it is in {place}: open {place / folder.HTML}, or: boundby {place} --full")


def _check_range(capture_range: str | None) -> None:
    if capture_range in (None, "cudaProfilerApi", "steps"):
        return
    kind, _, name = capture_range.partition(":")
    if kind != "nvtx" or not name:
        raise click.BadParameter(
            f"{capture_range!r} is not nvtx:NAME, cudaProfilerApi or steps.", param_hint="--capture-range"
        )


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} cannot be split into words: {error}.", param_hint="--nsys-args") from None
