"""The file that ``rows.Export`` makes: tables with their columns, texts as ids, in order or shuffled."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from boundby.simulate.schema import Column

_TIMES = frozenset(("start", "end", "timestamp"))


class Name(str):
    """A text that the export keeps in StringIds."""


Value = int | float | str | bytes | None
Row = dict[str, Value]


def write_tables(
    path: Path,
    schema: Mapping[str, tuple[Column, ...]],
    rows: Mapping[str, list[Row]],
    shuffle: int | None,
    shift: int,
    drop: frozenset[str],
    empty_tables: bool,
    page_size: int,
) -> Path:
    """Write the file anew, as ``Export.write`` says."""
    order = list(schema.items())
    chance = None if shuffle is None else random.Random(shuffle)
    if chance:
        chance.shuffle(order)
        rows = {table: chance.sample(found, len(found)) for table, found in rows.items()}
    texts = _number_texts(rows, chance)
    strings: list[Row] = [{"id": number, "value": text} for text, number in texts.items()]
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for table, columns in order:
            found = strings if table == "StringIds" else rows.get(table, [])
            if table not in drop and (found or empty_tables):
                kept = [column for column in columns if not {f"{table}.{column.name}", f"*.{column.name}"} & drop]
                _write_table(connection, table, kept, found, texts, shift)
        connection.execute("COMMIT")
    return path


def _number_texts(rows: Mapping[str, list[Row]], chance: random.Random | None) -> dict[str, int]:
    texts = dict.fromkeys(str(v) for found in rows.values() for row in found for v in row.values() if type(v) is Name)
    order = list(texts)
    if chance:
        chance.shuffle(order)
    return {text: number for number, text in enumerate(order, start=1)}


def _write_table(
    connection: sqlite3.Connection,
    table: str,
    columns: list[Column],
    rows: list[Row],
    texts: Mapping[str, int],
    shift: int,
) -> None:
    declared = ",\n".join(column.declaration() for column in columns)
    connection.execute(f'CREATE TABLE "{table}" (\n{declared}\n)')

    def value(row: Row, column: Column) -> Value:
        found = row.get(column.name)
        if found is None:
            return column.filler()
        if type(found) is Name:
            return texts[found]
        return found + shift if column.name in _TIMES and isinstance(found, int) else found

    marks = ", ".join("?" for _ in columns)
    values = ([value(row, column) for column in columns] for row in rows)
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
