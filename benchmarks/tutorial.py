"""The tutorial's output, by running its commands.

Every block below a comment ``<!-- output: COMMAND; "START" N -->`` in docs/tutorial.md is what the command prints:
N lines from the first that begins with START. ``python -m benchmarks.tutorial --write`` makes them anew; a test holds
them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import tempfile
from functools import cache
from pathlib import Path

from boundby.cli.main import main as boundby

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
_BLOCK = re.compile(
    r'(<!-- output: boundby (?P<command>.+?); "(?P<start>.+?)" (?P<lines>\d+) -->\n+```\n).*?(?=```)', re.DOTALL
)


def made(text: str, folder: Path) -> str:
    """The page with every block as its command prints it. The traces are simulated in ``folder``."""

    @cache
    def output(command: str) -> list[str]:
        told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            boundby(shlex.split(command))
        told.seek(0)
        return told.read().splitlines()

    def block(match: re.Match[str]) -> str:
        lines, start = output(match["command"]), match["start"]
        first = next(number for number, line in enumerate(lines) if line.startswith(start))
        shown = lines[first : first + int(match["lines"])]
        return match[1] + "\n".join(line.rstrip() for line in shown) + "\n"

    before, columns = Path.cwd(), os.environ.pop("COLUMNS", None)
    os.chdir(folder)
    try:
        for variant in ("before", "after"):
            with contextlib.redirect_stdout(io.StringIO()):
                boundby(["simulate", "--pattern", f"segmentation_{variant}", "-o", f"{variant}.sqlite"])
        return _BLOCK.sub(block, text)
    finally:
        os.chdir(before)
        if columns is not None:
            os.environ["COLUMNS"] = columns


def main() -> None:
    """Say whether the page is as its commands print it, or make it so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/tutorial.md")
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        new = made(text, Path(folder))
    if parser.parse_args().write:
        PAGE.write_text(new, encoding="utf-8")
    print("as printed" if new == text else "not as printed")


if __name__ == "__main__":
    main()
