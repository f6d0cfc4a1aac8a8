"""A guest does no harm: what fails here is one line on stderr, and the host's loop goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from boundby.model.errors import UserError


@contextlib.contextmanager
def harmless(doing: str) -> Iterator[None]:
    """Tell of whatever goes wrong inside, and go on after it."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"{doing} was interrupted; the program goes on. Press Ctrl-C again to end the program.")
    except Exception as error:
        warn(f"{doing} failed: {in_a_line(error)} The program goes on.")


def in_a_line(error: BaseException) -> str:
    """What went wrong, and what to do, as one line that ends with a full stop."""
    if isinstance(error, UserError):
        text = f"{error.message} {error.next_step}"
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def warn(text: str) -> None:
    """One line on stderr, wherever that leads."""
    with contextlib.suppress(Exception):
        print(f"boundby: {text}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Text on standard output, which a notebook or a logger may have replaced."""
    print(text, flush=True)
