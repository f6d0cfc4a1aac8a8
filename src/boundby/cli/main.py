"""``boundby``: the command group and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TextIO

import click
from click.shell_completion import CompletionItem

from boundby.__about__ import __version__
from boundby.cli import outcome
from boundby.cli.outcome import Exit
from boundby.model import stage

#: command -> where it lives. Loaded when it is used, so that ``boundby --help`` answers at once.
COMMANDS = {
    "agent-guide": "boundby.cli.mcp:agent_guide",
    "analyze": "boundby.cli.analyze:analyze",
    "check": "boundby.cli.compare:check",
    "compare": "boundby.cli.compare:compare",
    "doctor": "boundby.cli.doctor:doctor",
    "explain": "boundby.cli.rules:explain",
    "job": "boundby.cli.job:job",
    "mcp": "boundby.cli.mcp:mcp",
    "measure": "boundby.cli.measure:measure",
    "plot": "boundby.cli.plot:plot",
    "profile": "boundby.cli.profile:profile",
    "prove": "boundby.cli.prove:prove",
    "rules": "boundby.cli.rules:rules",
    "what-if": "boundby.cli.what_if:what_if",
    "diagnose": "boundby.cli.diagnose:diagnose",
    "serving": "boundby.cli.diagnose:serving",
    "simulate": "boundby.cli.simulate:simulate",
}
#: Python looks for garbage in circles after every 700 new objects: a tenth of a small analysis, which has next to none.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000
atexit.register(gc.freeze)  # as it ends it looks once more: another tenth, for memory that goes anyway


class _LazyGroup(click.Group):
    """A group that imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and, since ``boundby REPORT`` analyses it, files."""
        items = super().shell_complete(ctx, incomplete)
        return items if incomplete.startswith("-") else [*items, CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``boundby --full REPORT`` analyses it, too."""
        own = {name for param in self.get_params(ctx) for name in param.opts}
        if args[:1] and args[0].startswith("-") and args[0] not in own and any(map(_names_a_report, args)):
            args = ["analyze", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """``boundby REPORT`` analyses it; a name that is nearly a command's is told."""
        word = args[0]
        if word not in self.list_commands(ctx) and _names_a_report(word):
            args = ["analyze", *args]
        elif word not in self.list_commands(ctx) and not word.startswith("-"):
            from boundby.model.errors import did_you_mean

            hint = did_you_mean(word, self.list_commands(ctx)) or f"There are {', '.join(self.list_commands(ctx))}."
            raise click.UsageError(f"There is no command {word!r}, and no such file. {hint.rstrip()}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


def _names_a_report(word: str) -> bool:
    """A file or folder that is there, or a name that only a report has."""
    from pathlib import Path

    from boundby.model.inputs import input_kind

    return Path(word).exists() or input_kind(word) is not None


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: boundby profile -- python train.py, or with a report: boundby REPORT",
)
@click.version_option(__version__, prog_name="boundby", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Say what a GPU program is bound by, where, why, and what to change.

    Reads reports of NVIDIA Nsight Systems (.nsys-rep, .qdrep, or their SQLite export) and PyTorch profiler traces.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (docs/exit-codes.md)."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    stage.own_process()
    _open_closed()
    ends = _catch_end()
    try:
        outcome.check_room()
        code = cli.main(
            args=list(arguments) if arguments is not None else None, prog_name="boundby", standalone_mode=False
        )
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the latter is what click makes of the former
        _let_go()
        return Exit.HUNG_UP
    except (KeyboardInterrupt, click.Abort) as error:
        if isinstance(error, TerminatedError) or isinstance(error.__cause__, TerminatedError):  # click makes it Abort
            click.echo("boundby: ended by SIGTERM", err=True)
            return Exit.TERMINATED
        click.echo("boundby: interrupted", err=True)
        return Exit.INTERRUPTED
    except click.ClickException as error:
        return outcome.tell_usage(error)
    except Exception as error:
        code = outcome.tell(error)
        _let_go()
    finally:
        if ends:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code if isinstance(code, int) else Exit.OK


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, which ends as Ctrl-C does: programs that were started end, folders that were made go."""


def _catch_end() -> bool:
    """Make SIGTERM an exception, where nobody else has done so."""
    try:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        signal.signal(signal.SIGTERM, _end)
    except ValueError:  # not in the main thread
        return False
    return True


def _end(_number: int, _frame: object) -> None:
    raise TerminatedError


def _open_closed() -> None:
    """Streams that were closed before this began: no report gets their numbers, what is written to output is an error
    (else a result would be lost without a word), and what is written to stderr is lost."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _let_go() -> None:
    """The reader (``head``, a pager) has gone, or a stream takes no more: keep Python from flushing into it at exit."""
    void = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        _abandon(stream, void)


def _abandon(stream: TextIO, void: int) -> None:
    try:
        stream.flush()
    except OSError:
        os.dup2(void, stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
