"""The errors a user can cause or mend. The command line catches them in one place."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(Exception):
    """Bad input or a missing tool: one clear sentence, and what to do next.

    ``message`` says what is wrong; ``next_step`` says what the reader can do about it. Neither ends in a line
    break. The command line prints both and exits with ``exit_code`` (2: bad input or usage).
    """

    exit_code = 2

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message if not next_step else f"{message} {next_step}")
        self.message = message
        self.next_step = next_step


class InputError(UserError):
    """A report that cannot be read: missing, truncated, not an nsys export, locked, empty."""


class ToolError(UserError):
    """An outside program (nsys) that is missing, too old, or did not do what was asked of it."""


class OutputError(UserError):
    """A result that cannot be written: no permission, disk full, already there."""


class SelectionError(UserError):
    """A window, region, device or process that the report does not hold."""


class OutOfBoundsError(UserError):
    """A stage of an analysis has had all that it may take. ``because`` says so in other sentences."""

    def __init__(self, because: str, next_step: str) -> None:
        self.because = because
        super().__init__(f"{because[0].upper()}{because[1:]}.", next_step)


class OutOfTimeError(OutOfBoundsError):
    """``doing`` took ``most_s`` seconds of CPU time, or of another ``kind`` of time."""

    def __init__(self, doing: str, most_s: float, kind: str = "CPU time") -> None:
        next_step = "Look at a part of it, with --window, or allow more: boundby analyze --max-time SECONDS."
        super().__init__(f"{doing} took over {most_s:,g} s of {kind}", next_step)


class OutOfMemoryError(OutOfBoundsError):
    """``doing`` took ``most_bytes`` of memory beyond what had been taken before."""

    def __init__(self, doing: str, most_bytes: int) -> None:
        next_step = "Look at a part of it, with --window, or allow more: boundby analyze --max-memory SIZE."
        super().__init__(f"{doing} took over {most_bytes / 1e6:,.0f} MB of memory", next_step)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``Did you mean backward? ``; empty where no name there is comes near."""
    import difflib

    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"Did you mean {near[0]}? " if near else ""
