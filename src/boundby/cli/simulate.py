"""``boundby simulate``: a program with a known answer, written as an nsys export or as a PyTorch trace."""

from __future__ import annotations

import json
import random
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundby.cli import outcome
from boundby.cli.console import View
from boundby.cli.shared_options import json_option, output_option, view_options
from boundby.model.errors import InputError, SelectionError
from boundby.model.scale import MANY

if TYPE_CHECKING:
    from boundby.simulate.machine import Run, Script

SCHEMAS = ("2019", "2022", "2023", "2026")


@click.command(epilog=outcome.EPILOG)
@click.option("--pattern", metavar="NAME", help="A program that boundby knows; see --list.")
@click.option(
    "--program",
    metavar="FILE.py:make",
    help="Your own program: a function that returns a boundby.simulate.instructions.Program.",
)
@output_option("The trace to write: out.sqlite as nsys exports it, out.json[.gz] as PyTorch's profiler writes it.")
@click.option(
    "--seed", metavar="N", type=int, default=0, help="Seed of sizes and jitter: the same seed gives the same export."
)
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help=f"How many steps of a pattern to run. [{MANY}]")
@click.option("--schema", type=click.Choice(SCHEMAS), default="2023", help="The nsys generation to write as. [2023]")
@click.option("--list", "show_list", is_flag=True, help="List the patterns.")
@json_option
@view_options("quiet", quiet="Do not name the file that was written.")
def simulate(
    pattern: str | None,
    program: str | None,
    output: Path | None,
    seed: int,
    steps: int | None,
    schema: str,
    show_list: bool,
    as_json: bool,
    view: View,
) -> None:
    """Run a program on a simulated GPU and write its trace.

    Every cost is known, so what bounds the program is known too. The trace is an nsys export, or, if its name ends in
    .json or .json.gz, what PyTorch's profiler writes. It is marked as simulated; boundby and nsys stats read it like
    any other.

    \b
    boundby simulate --pattern sync -o sync.sqlite
    boundby simulate --pattern sync -o sync.json
    boundby analyze sync.sqlite
    """
    if show_list:
        click.echo(_list(as_json=as_json), nl=False)
        return
    if (pattern is None) == (program is None):
        raise click.UsageError("Give --pattern NAME or --program FILE.py:make, or --list for the names of patterns.")
    if output is None:
        raise click.UsageError("-o is missing: the file to write the trace to.")
    if program is not None and steps is not None:
        raise click.UsageError("--steps goes with --pattern: your own program itself says how often it loops.")
    script = _pattern(pattern, seed, steps or MANY) if pattern is not None else _load(program or "", seed)
    _run(script, output, schema, as_json=as_json, quiet=view.quiet)


def _run(script: Script, output: Path, schema: str, *, as_json: bool, quiet: bool) -> None:
    from boundby.results import write
    from boundby.simulate import machine

    try:
        run = machine.simulate(script)
    except machine.DeadlockError as error:
        raise InputError(str(error), "Every Await needs a Signal of the same name in its process.") from error
    write.check(output, force=False)
    written = _write(run, output, schema)
    if as_json:
        click.echo(json.dumps({"wrote": str(output)}, indent=2))
    elif not quiet:
        click.echo("".join(f"wrote {path}\n" for path in written), nl=False)


def _write(run: Run, output: Path, schema: str) -> list[Path]:
    """The files written: an nsys export, or a PyTorch trace of each process."""
    from boundby.simulate.kineto import write_kineto
    from boundby.simulate.nsys_export import write_export

    if not output.name.endswith((".json", ".json.gz")):
        return [write_export(run, output, schema)]
    processes = sorted({thread.process for thread in run.script.threads})
    if len(processes) == 1:
        return [write_kineto(run, output)]
    stem, _, suffix = output.name.partition(".json")
    every = [output.with_name(f"{stem}.rank{process}.json{suffix}") for process in processes]
    return [write_kineto(run, path, process=process) for process, path in zip(processes, every, strict=True)]


def _list(*, as_json: bool) -> str:
    from boundby.simulate.patterns import EVERY

    if as_json:
        rows = [{"name": name, "about": program.about, "bound": program.bound} for name, program in EVERY.items()]
        return json.dumps(rows, indent=2) + "\n"
    return "".join(f"{name:<24} {program.about} [{program.bound}]\n" for name, program in EVERY.items())


def _pattern(name: str, seed: int, steps: int) -> Script:
    from boundby.simulate.machine import realise
    from boundby.simulate.patterns import EVERY, JITTERY

    if name not in EVERY:
        raise SelectionError(f"There is no pattern {name!r}.", f"Choose one of {', '.join(EVERY)}.")
    return realise(EVERY[name].make(random.Random(seed), steps), JITTERY, seed)


def _load(place: str, seed: int) -> Script:
    """Run a file of the user's and call the function in it."""
    from boundby.simulate.instructions import Program
    from boundby.simulate.machine import Machine, realise

    file, _, name = place.rpartition(":")
    if not file:
        file, name = place, "make"
    if not Path(file).is_file():
        raise InputError(f"There is no file {file}.", "Give FILE.py:FUNCTION.")
    try:
        defined = runpy.run_path(file).get(name)
        made = defined() if callable(defined) else None
    except (Exception, SystemExit) as error:
        raise InputError(f"{place} failed: {type(error).__name__}: {error}.", "Correct it and run again.") from error
    if defined is None:
        raise InputError(f"{file} defines no {name}.", "Give FILE.py:FUNCTION.")
    if isinstance(made, Program):
        return realise(made, Machine(), seed)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Program) and isinstance(made[1], Machine):
        return realise(*made, seed)
    hint = "The function takes nothing and returns a boundby.simulate.instructions.Program, or that and a Machine."
    raise InputError(f"{place} returns no program.", hint)
