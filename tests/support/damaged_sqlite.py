"""Damage to nsys exports: bytes, pages, and with SQLite's own help tables, columns and values."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

PAGE = 4096
#: What a column can hold that no profiler writes.
VALUES: tuple[object, ...] = (
    *(None, 0, 1, -1, 59, 60, 67, 75, 1 << 24, 1 << 32, (1 << 63) - 1, -(1 << 63), 1 - (1 << 63), 10**9, -(10**9)),
    *(0.5, 1e300, float("inf"), "", "soon", "7", "a/b", "x" * 5_000, "\x1b[31m", "a\nb\0c", b"\xff\xfe", b""),
)


def damaged_bytes(data: bytes, chance: random.Random) -> bytes:
    """A few accidents: flipped bits, spoiled page heads, zeros, noise, pages in the wrong place, cuts."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 10))):
        place = chance.randrange(len(out))
        page = place // PAGE * PAGE
        length = chance.choice((1, 8, 100, PAGE))
        accident = chance.choice(("flip", "flip", "flip", "head", "zeros", "noise", "page", "cut"))
        if accident == "flip":
            out[place] ^= 1 << chance.randrange(8)
        elif accident == "head":
            out[min(page + chance.randrange(120), len(out) - 1)] = chance.randrange(256)
        elif accident == "zeros":
            out[place : place + length] = bytes(len(out[place : place + length]))
        elif accident == "noise":
            out[place : place + length] = chance.randbytes(len(out[place : place + length]))
        elif accident == "page":
            other = chance.randrange(len(out)) // PAGE * PAGE
            out[page : page + PAGE] = out[other : other + PAGE]
        elif chance.random() < 0.3:
            del out[max(place, 1) :]
    return bytes(out)


def damage(path: Path, chance: random.Random) -> None:
    """Damage the export in place, one way or several."""
    if chance.random() < 0.4:
        path.write_bytes(damaged_bytes(path.read_bytes(), chance))
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for _ in range(chance.choice((1, 1, 2, 4))):
            with suppress(sqlite3.Error):  # a constraint forbids it, or the last one spoiled the schema: less damage
                chance.choice(_EDITS)(connection, chance)


def _table(connection: sqlite3.Connection, chance: random.Random) -> str:
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    # Events matter most: what they are called is what most tables of enumerations are not.
    likely = [name for (name,) in tables if not name.startswith("ENUM_")]
    return str(chance.choice(likely if chance.random() < 0.9 else [name for (name,) in tables]))


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _some(chance: random.Random) -> str:
    """A condition that some rows meet, or all."""
    step = chance.choice((1, 2, 7, 50))
    return f"(rowid + {chance.randrange(50)}) % {step} = 0"


def _values(connection: sqlite3.Connection, chance: random.Random) -> None:
    table = _table(connection, chance)
    column = chance.choice(_columns(connection, table))
    value = chance.choice(VALUES)
    connection.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {_some(chance)}', (value,))


def _shift(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Numbers are off: by a little, by a lot, or by a factor."""
    table = _table(connection, chance)
    column = chance.choice(_columns(connection, table))
    change = chance.choice(("+ 1", "- 1000", "+ 1000000000", "* 2", "* -1", "/ 1000", "% 3", "& 7"))
    connection.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = "{column}" {change} WHERE {_some(chance)}')


def _copied_column(connection: sqlite3.Connection, chance: random.Random) -> None:
    table = _table(connection, chance)
    one, other = (chance.choice(_columns(connection, table)) for _ in range(2))
    connection.execute(f'UPDATE OR IGNORE "{table}" SET "{one}" = "{other}" WHERE {_some(chance)}')


def _column_gone(connection: sqlite3.Connection, chance: random.Random) -> None:
    table = _table(connection, chance)
    column = chance.choice(_columns(connection, table))
    change = f'DROP COLUMN "{column}"' if chance.random() < 0.5 else f'RENAME COLUMN "{column}" TO "other"'
    connection.execute(f'ALTER TABLE "{table}" {change}')


def _rows(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Some rows are gone, or there twice."""
    table = _table(connection, chance)
    if chance.random() < 0.6:
        connection.execute(f'DELETE FROM "{table}" WHERE {_some(chance)}')
    else:
        connection.execute(f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" WHERE {_some(chance)}')


def _table_gone(connection: sqlite3.Connection, chance: random.Random) -> None:
    table = _table(connection, chance)
    change = chance.choice(("DROP TABLE {0}", "DELETE FROM {0}", "ALTER TABLE {0} RENAME TO other"))
    connection.execute(change.format(f'"{table}"'))


def _other_table(connection: sqlite3.Connection, chance: random.Random) -> None:
    """Something else under a table's name: a copy without types, a view, a view of itself."""
    table = _table(connection, chance)
    kind = chance.choice(("TABLE", "VIEW"))
    source = chance.choice(("boundby_old", "boundby_old", f'"{table}"'))
    connection.execute(f'ALTER TABLE "{table}" RENAME TO boundby_old')
    connection.execute(f'CREATE {kind} "{table}" AS SELECT * FROM {source}')


_EDITS: tuple[Callable[[sqlite3.Connection, random.Random], None], ...] = (
    *(_values, _values, _values, _shift, _shift, _copied_column, _column_gone, _rows, _rows, _table_gone, _other_table),
)


def damage_tables(path: Path, chance: random.Random, tables: Sequence[str]) -> None:
    """Damage to values, rows, columns or the whole of some of these tables, and to nothing else."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for _ in range(chance.choice((1, 2, 4, 8))):
            table = chance.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            if not columns:
                continue
            column, every = chance.choice(columns), chance.choice((1, 2, 10, 100))
            some = f"rowid % {every} = {chance.randrange(every)}"
            with suppress(sqlite3.Error):  # a constraint forbids it
                statement, values = chance.choice(
                    (
                        (f"UPDATE {table} SET {column} = ? WHERE {some}", (chance.choice(VALUES),)),
                        (f"UPDATE {table} SET {column} = {column} * ? WHERE {some}", (chance.choice((-1, 0, 3, 1e9)),)),
                        (f"UPDATE {table} SET {column} = ? WHERE {some}", (chance.getrandbits(64) - (1 << 63),)),
                        (f"DELETE FROM {table} WHERE {some}", ()),
                        (f"INSERT INTO {table} SELECT * FROM {table} WHERE {some}", ()),
                        (f"ALTER TABLE {table} DROP COLUMN {column}", ()),
                        (f"DROP TABLE {table}", ()),
                    )
                )
                connection.execute(statement, values)
