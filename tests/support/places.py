"""Everything of one report, byte for byte: what must be the same wherever it is made."""

from __future__ import annotations

import io
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from boundby import api
from boundby.render.formats import FORMATS, Surface

OUTPUTS = ("json", "html", "perfetto")


def everything(report: Path) -> dict[str, bytes]:
    """The JSON, the page and the Perfetto trace of a report."""
    analysis, made = api.examine(report), {}
    for name in OUTPUTS:
        form, stream = FORMATS[name], io.BytesIO()
        if form.write is not None:
            form.write(stream, analysis)
        elif form.render is not None:
            stream.write(form.render(analysis, Surface(100, None, unicode=True), None).encode())
        made[name] = stream.getvalue()
    return made


def shuffle_rows(path: Path, seed: int) -> Path:
    """Every table's rows in another order, in place; but where an id is the row's number, it stays so."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("chance", 0, random.Random(seed).random)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f'CREATE TEMP TABLE shuffled AS SELECT * FROM main."{table}" ORDER BY chance()')
            connection.execute(f'DELETE FROM main."{table}"')
            connection.execute(f'INSERT INTO main."{table}" SELECT * FROM shuffled')
            connection.execute("DROP TABLE shuffled")
        connection.execute("COMMIT")
    return path
