"""``boundby analyze``: one or more reports in, what they are bound by out."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from boundby.cli import console, outcome
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import (
    FILE,
    WINDOW_HELP,
    analysis_options,
    output_option,
    view_options,
    with_rule_config,
)
from boundby.model import door
from boundby.model.scale import ANSWER_S
from boundby.options import AnalysisOptions
from boundby.render.formats import BY_SUFFIX, FORMATS, Format, format_of

if TYPE_CHECKING:
    from boundby.api import Analysis
    from boundby.results.report import Report


class OutputTarget(Struct, frozen=True):
    """Where the results go, and in which format."""

    format: Format
    output: Path | None
    """A file, or a folder for several results; None: standard output."""
    save: Path | None
    """A database that gets them too."""
    inputs: tuple[Path, ...]
    """What must not be written over."""


@click.command(epilog=outcome.EPILOG)
@click.argument("reports", metavar="REPORT...", nargs=-1, required=True, type=FILE)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="How to show the result. brief: short JSON; items: findings as a flat list; names with csv: one table. "
    "[terminal]",
)
@output_option(
    "Write to this file (.html .md .json .csv .txt .pftrace say the format), or into this folder for several reports."
)
@click.option("--open", "show", is_flag=True, help="Show the page (or, with -o FILE.pftrace, Perfetto) in the browser.")
@click.option("--save", metavar="DB", type=FILE, help="Add the result to a SQLite database.")
@analysis_options("window", "skip_first", "region", "devices", "processes", "min_share", window=WINDOW_HELP)
@analysis_options(
    "no_fold", "no_find", "show_all", "disable", "nsys", "keep_export", "captures", "max_memory", "max_time"
)
@view_options()
def analyze(
    reports: tuple[Path, ...],
    format_name: str | None,
    output: Path | None,
    show: bool,
    save: Path | None,
    options: AnalysisOptions,
    view: View,
) -> int:
    """Say what the program in each REPORT is bound by.

    A REPORT is what nsys wrote (.nsys-rep or .qdrep; an nsys is needed to read these), its SQLite export, what
    torch.profiler wrote (.json, .json.gz), or the folder of a run that "boundby profile" made.

    \b
    boundby analyze report.nsys-rep
    boundby analyze trace.json.gz
    boundby analyze report.sqlite -o report.html
    boundby analyze report.sqlite --open
    boundby analyze report.sqlite --format json -o result.json
    boundby analyze rank*.nsys-rep --save runs.db
    """
    _load_numpy()
    options = with_rule_config(options)
    output = None if output == Path("-") else output
    if show:
        output = _page(output, reports)
    if output is not None and len(reports) > 1:
        _make_folder(output)
    target = OutputTarget(_format(format_name, output, reports), output, save, reports)
    if not view.quiet:
        _tell_format(target)
    _check(target)
    code = _run(options, target, view)
    if show and output is not None and code == Exit.OK:
        show_in_browser(output)
    return code


def _page(output: Path | None, reports: Sequence[Path]) -> Path:
    """The file that ``--open`` shows: a page of its own, where none is named."""
    if len(reports) > 1:
        raise click.UsageError("--open shows one report.")
    if output is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix="boundby-", dir=door.temporary())) / "report.html"
    if output.suffix not in (".html", ".htm", ".pftrace", ".perfetto-trace"):
        raise click.UsageError(f"--open shows pages and Perfetto traces, and {output} is neither.")
    return output


def _make_folder(output: Path) -> None:
    """A new folder for the results of several reports, where its name is no file's."""
    if not output.suffix and not output.exists():
        output.mkdir(parents=True)


def _load_numpy() -> None:
    """Import NumPy without its library of linear algebra, which nothing here asks for, starting a thread for each core.
    Programs started from here find the environment as it was."""
    if "OPENBLAS_NUM_THREADS" in os.environ:
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]


def _format(name: str | None, output: Path | None, reports: Sequence[Path]) -> Format:
    if name is None and output is not None and not output.is_dir() and len(reports) == 1:
        name = format_of(output)
    return FORMATS[name or "terminal"]


def _tell_format(target: OutputTarget) -> None:
    """Where the name of one report's file asks for another format than the one it gets."""
    chosen, output = target.format, target.output
    if output is None or len(target.inputs) > 1 or output.is_dir():
        return
    suffix = output.suffix.lower()
    if suffix in BY_SUFFIX and suffix not in chosen.suffixes:
        text = f"boundby: {output} will hold {chosen.name}, as --format asks, not {BY_SUFFIX[suffix]}, as its name does"
        click.echo(text, err=True)


def _check(target: OutputTarget) -> None:
    """Whatever would fail after the hard work fails before it."""
    from boundby.results import write

    several = len(target.inputs) > 1
    if target.output is None and target.format.between is None and several:
        raise click.UsageError(f"{target.format.name.upper()} holds one report. For several, give a folder with -o.")
    if target.output is None and target.format.write is not None:
        raise click.UsageError(f"The format {target.format.name} is binary: give a file (or a folder) with -o.")
    if target.format.check is not None:
        target.format.check()
    if target.output is not None and not target.output.is_dir():
        if several:
            raise click.UsageError(f"{target.output} is not a folder: several reports need one for their results.")
        write.check(target.output, inputs=target.inputs)
    if target.save is not None:
        from boundby.render import store

        store.check(target.save)


def _run(options: AnalysisOptions, target: OutputTarget, view: View) -> int:
    """Each report for itself: one that cannot be analysed does not keep the others from it."""
    several = len(target.inputs) > 1
    render_many = target.format.render_many if several and target.output is None else None
    together: list[Report] | None = None if render_many is None else []
    codes = []
    for number, file in enumerate(_file_names(target)):
        work = partial(_one, number, options, target, file, view, together)
        codes.append(_attempt(work) if several else work())
    if render_many is not None and together is not None:
        console.put(render_many(together), utf8=True)
    if several:
        view.note("ranks of one job? boundby job REPORTS... says who holds up whom")
    return max(codes)  # a bug outweighs bad input


def _attempt(work: Callable[[], int]) -> int:
    """Tell of what goes wrong, and go on."""
    try:
        return work()
    except BrokenPipeError:
        raise
    except Exception as error:
        return outcome.tell(error)


def _one(
    number: int,
    options: AnalysisOptions,
    target: OutputTarget,
    file: Path | None,
    view: View,
    together: list[Report] | None,
) -> int:
    """Analyse one report and show, or gather, the result."""
    from boundby import api

    with view.progress() as progress:
        analysis = api.examine(target.inputs[number], options, progress=progress)
    if together is not None:
        together.append(analysis.report)
    else:
        _show(analysis, target, file, view, is_first=number == 0)
    if target.save is not None:
        from boundby.render import store

        saved = store.save(analysis.report, target.save)
        view.note(f"saved as report {saved} in {target.save}")
    return Exit.OK


def _show(analysis: Analysis, target: OutputTarget, file: Path | None, view: View, *, is_first: bool) -> None:
    from boundby.results import write

    form, text = target.format, ""
    if form.render is not None:
        surface = view.plain() if file is not None else view.surface()
        text = form.render(analysis, surface, analysis.options.min_share)
    if file is None:
        console.put(text if is_first else f"{form.between or ''}{text}", utf8=form.name != "terminal")
        return
    with write.open_whole(file, inputs=target.inputs) as stream:
        if form.write is not None:
            with analysis.in_time("writing all events", 1.0):
                form.write(stream, analysis)
        else:
            stream.write(text.encode("utf-8", "replace"))
    view.note(f"wrote {file}{f': {form.hint}' if form.hint else ''}")


def _file_names(target: OutputTarget) -> list[Path | None]:
    """Where each result goes: the file, or one file a report in the folder, told apart where names are alike."""
    if target.output is None:
        return [None] * len(target.inputs)
    if not target.output.is_dir():
        return [target.output]
    names: list[Path | None] = []
    taken: dict[str, int] = {}
    for path in target.inputs:
        stem = path.name.removesuffix(path.suffix)
        taken[stem] = taken.get(stem, 0) + 1
        unique = stem if taken[stem] == 1 else f"{stem}-{taken[stem]}"
        names.append(target.output / f"{unique}{target.format.suffixes[0]}")
    return names


# ``--open``: show a page, or a Perfetto trace, in the browser of whoever sits at this machine.

PERFETTO = "https://ui.perfetto.dev"
PORT = 9001  # the one that Perfetto's page may load from


def show_in_browser(path: Path, *, port: int = PORT, wait_s: float = ANSWER_S) -> None:
    """Open it, or say what to do where nobody would see it."""
    import webbrowser

    is_trace = path.suffix in (".pftrace", ".perfetto-trace")
    if not has_screen(os.environ):
        click.echo(f"boundby: {_advice(path, is_trace)}", err=True)
    elif is_trace:
        serve(path, port=port, wait_s=wait_s)
    elif not webbrowser.open(path.resolve().as_uri()):
        click.echo(f"boundby: no browser could be started; open {path.resolve()}", err=True)


def has_screen(environment: Mapping[str, str]) -> bool:
    """Whether a browser that is started here shows itself to the user: not over ssh, and not without a display."""
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return False
    return sys.platform != "linux" or any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _advice(path: Path, is_trace: bool) -> str:
    where = path.resolve()
    if is_trace:
        return f"no screen here. On your machine: scp HOST:{where} . and open the file at {PERFETTO}"
    return f"no screen here. On your machine: scp HOST:{where} . and open it (the page is one file)"


def serve(path: Path, *, port: int = PORT, wait_s: float = ANSWER_S) -> bool:
    """Let Perfetto's page load a trace from this machine: one file, once, to nobody else. Whether it was loaded."""
    import webbrowser
    from http.server import HTTPServer, SimpleHTTPRequestHandler
    from urllib.parse import quote

    loaded = False

    class OneFile(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal loaded
            if self.path.partition("?")[0] != f"/{quote(path.name)}":
                self.send_error(404)
                return
            super().do_GET()
            loaded = True

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", PERFETTO)
            self.send_header("Cache-Control", "no-cache")
            super().end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    class Once(HTTPServer):
        allow_reuse_address = True
        timeout = wait_s
        is_late = False

        def handle_timeout(self) -> None:
            self.is_late = True

    try:
        server = Once(("127.0.0.1", port), partial(OneFile, directory=str(path.resolve().parent)))
    except OSError as error:
        click.echo(f"boundby: port {port} is taken ({error.strerror}); open {path} at {PERFETTO}", err=True)
        return False
    with server:
        address = f"{PERFETTO}/#!/?url=http://127.0.0.1:{server.server_port}/{quote(path.name)}"
        if not webbrowser.open(address):
            click.echo(f"boundby: open {address}", err=True)
        while not loaded and not server.is_late:
            server.handle_request()
    if not loaded:
        click.echo(f"boundby: nobody loaded {path} within {wait_s:g} s; open it at {PERFETTO}", err=True)
    return loaded
