"""``boundby doctor``: does recording work here, and what will be missing?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import console
from boundby.cli.console import View
from boundby.cli.outcome import Exit
from boundby.cli.shared_options import FILE, PLAIN, output_option, view_options
from boundby.render.formats import Surface

if TYPE_CHECKING:
    from rich.text import Text

    from boundby.capture.checkup import Checkup, Examination

FORMATS = ("terminal", "json")
FORMAT_VERSION = 1
STYLES = {"ok": "green", "note": "dim", "warning": "yellow", "failed": "bold red", "skipped": "dim"}

EPILOG = """\b
Exit codes:
  0    recording works, though the report may lack what a warning names
  1    something keeps recording from working
  2    bad usage
  70   a bug in boundby
  130  interrupted
"""


@click.command(epilog=EPILOG)
@click.option(
    "--python",
    metavar="PATH",
    type=FILE,
    help="The Python of the programs to be profiled, whose packages are checked. [the one that runs boundby]",
)
@click.option("--nsys", metavar="PATH", type=FILE, help="The nsys to check.")
@click.option("--numbers", is_flag=True, help="List the numbers by which boundby decides, with units and reasons.")
@click.option("--quick", is_flag=True, help="Skip the recording of one second.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="terminal", help="A table, or JSON.")
@output_option()
@view_options(*PLAIN)
def doctor(
    python: Path | None,
    nsys: Path | None,
    numbers: bool,
    quick: bool,
    format_name: str,
    output: Path | None,
    view: View,
) -> int:
    """Check whether recording works here, and what to do if not.

    Checks nsys (by a recording of one second), the nvtx package, what the operating system, the container and the
    driver permit, the GPU, torch and the disk. It changes nothing.
    """
    is_json = format_name == "json" or (output is not None and output.suffix == ".json")
    if numbers:
        text = _numbers_json() if is_json else _numbers(view.surface() if output is None else view.plain())
        console.deliver(text, output, view, utf8=is_json)
        return Exit.OK
    diagnosis = _examined(nsys, python, quick, view)
    if is_json:
        console.deliver(_json(diagnosis), output, view, utf8=True)
    else:
        console.deliver(_table(diagnosis, view.surface() if output is None else view.plain()), output, view)
    return Exit.GATE_FAILED if diagnosis.status == "failed" else Exit.OK


def _examined(nsys: Path | None, python: Path | None, quick: bool, view: View) -> Checkup:
    from boundby.capture.checkup import Checkup, examine

    with view.progress() as progress:
        update = progress or (lambda _what, _fraction: None)
        update("recording a second of a small program", None)
        checks = []
        for check in examine(nsys, python, quick=quick):
            checks.append(check)
            update(f"checking: {check.name} done", None)
    return Checkup(tuple(checks))


def _numbers(surface: Surface) -> str:
    """Every number of the register, module by module."""
    from rich.table import Table

    from boundby.model.numbers import register

    table = Table(box=None, show_header=True, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("NUMBER", "VALUE", "UNIT", "WHY"):
        table.add_column(head, overflow="fold")
    rows = list(register())
    for number in rows:
        table.add_row(*map(_cell, (f"{number.module}.{number.name}", number.value, number.unit, number.why)))
    return console.painted(
        table, "", _cell(f"{len(rows)} numbers. docs/numbers.md says what each decides."), surface=surface
    )


def _numbers_json() -> str:
    import json

    from boundby.model.numbers import register

    data = {"format_version": FORMAT_VERSION, "numbers": [number._asdict() for number in register()]}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _json(diagnosis: Checkup) -> str:
    import json

    from boundby.__about__ import __version__

    data = {
        "format_version": FORMAT_VERSION,
        "tool": {"name": "boundby", "version": __version__},
        "status": diagnosis.status,
        "checks": [
            {"name": each.name, "status": each.status, "found": each.found, "advice": each.advice or None}
            for each in diagnosis.checks
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _table(diagnosis: Checkup, surface: Surface) -> str:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in diagnosis.checks:
        table.add_row(_cell(check.status, STYLES[check.status]), _cell(check.name), _with_advice(check, surface))
    return console.painted(table, "", _cell(_sentence(diagnosis.checks), "bold"), surface=surface)


def _with_advice(check: Examination, surface: Surface) -> Text:
    text = _cell(check.found)
    if check.advice:
        text.append(f"\n{'→' if surface.unicode else '->'} ", "bold")
        text.append_text(_cell(check.advice))
    return text


def _cell(text: str, style: str = "") -> Text:
    from rich.text import Text

    from boundby.document.blocks import clean

    return Text(clean(text), style)


def _sentence(checks: Iterable[Examination]) -> str:
    failed = [check.name for check in checks if check.status == "failed"]
    warned = [check.name for check in checks if check.status == "warning"]
    if failed:
        return f"Recording does not work as it should: {', '.join(failed)}."
    if warned:
        return f"Recording works. It will lack something: {', '.join(warned)}."
    return "Recording works."
