"""``boundby simulate``: a program with a known answer, written as an nsys export or as a PyTorch trace."""

from __future__ import annotations

import json
import random
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boundby.cli import outcome
from boundby.cli.console import View
from boundby.cli.shared_options import json_option, output_option, view_options
from boundby.model.errors import InputError, SelectionError
from boundby.model.scale import MANY

if TYPE_CHECKING:
    from boundby.simulate.counterfactual import Case
    from boundby.simulate.machine import Run

SCHEMAS = ("2019", "2022", "2023", "2026")


@click.command(epilog=outcome.EPILOG)
@click.option("--pattern", metavar="NAME", help="A program that boundby knows; see --list.")
@click.option("--program", metavar="FILE.py:make", help="Your own program: a function that returns it.")
@output_option("The trace to write: out.sqlite as nsys exports it, out.json[.gz] as PyTorch's profiler writes it.")
@click.option(
    "--seed", metavar="N", type=int, default=0, help="Seed of sizes and jitter: the same seed gives the same export."
)
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help=f"How many steps of a pattern to run. [{MANY}].")
@click.option("--schema", type=click.Choice(SCHEMAS), default="2023", help="The nsys generation to write as. [2023].")
@click.option("--truth", is_flag=True, help="Say what the program is bound by, and its time without each cost.")
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
    truth: bool,
    show_list: bool,
    as_json: bool,
    view: View,
) -> None:
    """Run a program on a simulated GPU and write its trace.

    Every cost is known, so the true bound and the time without each cost are known too. The trace is an nsys export, or
    by the name's suffix what PyTorch's profiler writes. It is marked as simulated; boundby and nsys stats read it
    like any other.

    \b
    boundby simulate --pattern sync -o sync.sqlite --truth
    boundby simulate --pattern sync -o sync.json
    boundby analyze sync.sqlite
    """
    if show_list:
        click.echo(_list(as_json=as_json), nl=False)
        return
    if (pattern is None) == (program is None):
        raise click.UsageError("Give one of --pattern NAME and --program FILE.py:make, or --list.")
    if output is None and not truth:
        raise click.UsageError("Give -o FILE to write the export, or --truth to see the answer.")
    if program is not None and steps is not None:
        raise click.UsageError("--steps goes with --pattern: your own program itself says how often it loops.")
    case = simulated(pattern, seed, steps or MANY) if pattern is not None else _load(program or "", seed)
    _run(case, output, schema, truth=truth, as_json=as_json, quiet=view.quiet)


def _run(case: Case, output: Path | None, schema: str, *, truth: bool, as_json: bool, quiet: bool) -> None:
    from boundby.simulate.machine import DeadlockError

    try:
        run = case.run()
    except DeadlockError as error:
        raise InputError(str(error), "Every Await needs a Signal of the same name in its process.") from error
    if output is not None:
        from boundby.results import write

        write.check(output, force=False)
        written = _write(run, output, schema)
        if not quiet and not as_json:
            click.echo("".join(f"wrote {path}\n" for path in written), nl=False)
    if as_json:
        told = {"wrote": None if output is None else str(output), "truth": _known(case) if truth else None}
        click.echo(json.dumps(told, indent=2))
    elif truth:
        click.echo(_truth(case), nl=False)


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
    from boundby.simulate.patterns import PATTERNS, STORIES

    every = {**PATTERNS, **STORIES}
    if as_json:
        rows = [{"name": name, "about": known.about, "bound": known.bound} for name, known in every.items()]
        return json.dumps(rows, indent=2) + "\n"
    return "".join(f"{name:<24} {known.about} [{known.bound}]\n" for name, known in every.items())


def _truth(case: Case) -> str:
    from boundby.model.units import duration

    lines = []
    for known in _known(case):
        lines.append(f"GPU {known['device']}: {known['bound']}, {duration(known['window_ns'])}")
        lines += [f"  {name:<20} {duration(window)}" for name, window in known["scenarios_ns"].items()]
    return "".join(f"{line}\n" for line in lines)


def _known(case: Case) -> list[dict[str, Any]]:
    """The truth of each device, as plain data."""
    every = [(device, case.truths.truth(device=device)) for device in case.truths.devices()]
    return [
        {"device": device, "bound": one.bound, "window_ns": one.window_ns, "scenarios_ns": dict(one.scenarios)}
        for device, one in every
    ]


def simulated(name: str, seed: int, steps: int) -> Case:
    """The program of a pattern, on a machine whose times jitter."""
    from boundby.simulate.counterfactual import Case
    from boundby.simulate.machine import Machine
    from boundby.simulate.patterns import PATTERNS, STORIES

    every = {**PATTERNS, **STORIES}
    if name not in every:
        raise SelectionError(f"There is no pattern {name!r}.", f"Choose one of {', '.join(every)}.")
    known = every[name]
    machine = Machine(host_jitter=0.05, device_jitter=0.01)
    return Case(name, known.make(random.Random(seed), steps), machine, seed, known.healthy)


def _load(place: str, seed: int) -> Case:
    """Run a file of the user's and call the function in it."""
    from boundby.simulate.counterfactual import Case
    from boundby.simulate.instructions import Program
    from boundby.simulate.machine import Machine

    file, _, name = place.rpartition(":")
    if not file:
        file, name = place, "make"
    if not Path(file).is_file():
        raise InputError(f"There is no file {file}.", "Give FILE.py:FUNCTION.")
    try:
        found = runpy.run_path(file).get(name)
        made = found() if callable(found) else None
    except (Exception, SystemExit) as error:
        raise InputError(f"{place} failed: {type(error).__name__}: {error}.", "Correct it and run again.") from error
    if isinstance(made, Program):
        return Case(name, made, Machine(), seed)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Program) and isinstance(made[1], Machine):
        return Case(name, *made, seed)
    hint = "The function takes nothing and returns a boundby.simulate.instructions.Program, or that and a Machine."
    raise InputError(f"{place} returns no program.", hint)
