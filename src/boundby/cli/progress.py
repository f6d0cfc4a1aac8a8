"""What is being done, on stderr, for as long as it takes. Only where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, "float | None"], None]


@contextmanager
def shown(*, quiet: bool) -> Iterator[Progress | None]:
    """A callback ``(what, fraction or None)`` that draws a line on stderr, or None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("reading", total=None)

        def update(what: str, fraction: float | None) -> None:
            from boundby.render.text import clean

            total = None if fraction is None else 1.0
            display.update(task, description=clean(what), completed=fraction or 0.0, total=total)

        yield update
