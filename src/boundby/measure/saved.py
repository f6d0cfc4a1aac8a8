"""Results <-> JSON. A saved result can be shown, drawn and compared again.

``figures`` beside the raw numbers (median, percentiles, ...) are for readers of the file; loading works them out again.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from boundby.measure.results import Comparison, Devices, Latency, Methods, Result, StagesResult, Throughput
from boundby.results import saved
from boundby.results.write import write_text

KINDS = (Latency, Methods, StagesResult, Throughput, Devices, Comparison)


def loads(text: str, where: str = "The text") -> Result:
    """The result in a JSON text. Raises InputError: it is none, or of a later format."""
    return cast(Result, saved.loads(text, *KINDS, where=where))


def save(result: Result, path: str | Path) -> None:
    """Write a result as JSON, whole or not at all."""
    write_text(path, saved.render(result))


def load(path: str | Path) -> Result:
    """Read a result that ``save`` or ``boundby measure -o`` wrote. Raises InputError if it is none."""
    return cast(Result, saved.load(path, *KINDS))
