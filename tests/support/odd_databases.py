"""SQLite databases of every shape that an export's reader can meet, and some that were damaged since."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

TABLE = "NVTX_EVENTS"
COLUMNS = ("start", "end", "eventType", "textId", "globalTid", "text")

_SHAPES = (
    "start INTEGER, end INTEGER, eventType INTEGER, textId INTEGER, globalTid INTEGER, text TEXT",
    "start INTEGER PRIMARY KEY, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
    "text TEXT, start INTEGER, end INTEGER PRIMARY KEY, eventType INTEGER, textId INT, globalTid BIGINT",
    "start INTEGER PRIMARY KEY DESC, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
    "start INT PRIMARY KEY, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER",
    "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, "
    "PRIMARY KEY (start, end)",
    "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, PRIMARY KEY (end)",
    "start INTEGER, end INTEGER, eventType INTEGER, text TEXT UNIQUE, textId INTEGER, globalTid INTEGER",
    "start INTEGER PRIMARY KEY, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER) "
    "WITHOUT ROWID --",
    "start INTEGER, end REAL, eventType NUMERIC, text, textId, globalTid INTEGER",
    "start INTEGER, end INTEGER, eventType INTEGER, twice INTEGER AS (start * 2), text TEXT, textId INTEGER, "
    "globalTid INTEGER",
    "start INTEGER, end INTEGER, eventType INTEGER, twice INTEGER AS (start * 2) STORED, text TEXT, textId INTEGER, "
    "globalTid INTEGER",
    "START INTEGER, 'end' INTEGER, EventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, jsonText TEXT",
)


def write_odd(path: Path, seed: int) -> None:
    """A database with one table of ranges; what it looks like depends on the seed alone."""
    chance = random.Random(seed)
    log = path.with_name(path.name + "-wal")
    for old in (path, log):
        old.unlink(missing_ok=True)
    left: list[tuple[Path, bytes]] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {1 << chance.randint(9, 16)}")
        connection.execute(f"PRAGMA auto_vacuum = {chance.choice((0, 0, 1, 2))}")
        connection.execute(f"PRAGMA encoding = '{chance.choice(('UTF-8',) * 4 + ('UTF-16le', 'UTF-16be'))}'")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = " + chance.choice(("MEMORY", "MEMORY", "WAL")))
        connection.execute("CREATE TABLE before (a INTEGER, b TEXT)")
        connection.execute(f"CREATE TABLE {TABLE} ({chance.choice(_SHAPES)})")
        many = chance.choice((0, 1, 3, 40, 300, 2_000))
        connection.execute("BEGIN")
        _insert(connection, chance, many)
        if chance.random() < 0.4:
            connection.execute(f"DELETE FROM {TABLE} WHERE start % 3 = 0")
        if chance.random() < 0.3:
            _add_columns(connection, chance)
            _insert(connection, chance, chance.choice((0, 5, 200)))
        if chance.random() < 0.3:
            connection.execute(f"UPDATE OR IGNORE {TABLE} SET text = text || text WHERE eventType = 60")
        if chance.random() < 0.2:
            connection.execute(f"CREATE INDEX by_end ON {TABLE} (end DESC)")
        connection.execute("COMMIT")
        if chance.random() < 0.2:
            connection.execute("VACUUM")
        if chance.random() < 0.15:
            connection.execute(f"ALTER TABLE {TABLE} RENAME TO renamed")
            connection.execute(f"CREATE VIEW {TABLE} AS SELECT * FROM renamed WHERE start IS NOT NULL")
        if log.exists() and chance.random() < 0.5:  # as a program that was killed leaves it
            left = [(kept, kept.read_bytes()) for kept in (path, log)]
    for kept, content in left:
        kept.write_bytes(content)


def _insert(connection: sqlite3.Connection, chance: random.Random, rows: int) -> None:
    names = ", ".join(COLUMNS)
    long = chance.choice((0, 0, 0, 0.01, 0.5))  # texts on overflow pages
    strange = chance.choice((0, 0, 0, 0, 0.001))
    values = []
    for row in range(rows):
        start = (
            1000 * row + chance.randint(-3, 3) if chance.random() < 0.9 else chance.randint(-(1 << 63), (1 << 63) - 1)
        )
        end = chance.choice((None, start, 0, 1, -1, 127, 128, -129, 1 << 23, 1 << 31, 1 << 47, (1 << 63) - 1))
        text: object = chance.choice((None, "", "step", f"step {row}", "\u00e9\u4e2d", "with\0zero", b"\xff\x00blob"))
        if chance.random() < long:
            text = "x" * chance.choice((100, 500, 5_000, 70_000))
        tid: object = chance.choice((0, 1, 281_474_976_710_656, None))
        if chance.random() < strange:
            tid = chance.choice((1.5, "seven", 2.0, "12", b"\x01"))
        values.append((start, end, chance.choice((59, 60, 34, 75, None)), chance.choice((None, row % 7)), tid, text))
    marks = ", ".join("?" * len(COLUMNS))
    connection.executemany(f"INSERT OR IGNORE INTO {TABLE} ({names}) VALUES ({marks})", values)
    if rows and chance.random() < 0.1:  # rows with numbers far apart, negative ones too
        try:
            for number in (-(1 << 63), -5, 1 << 40, (1 << 63) - 2):
                statement = f"INSERT OR IGNORE INTO {TABLE} (rowid, {names}) VALUES (?, {marks})"
                connection.execute(statement, (number, *values[0]))
        except sqlite3.Error:
            pass  # without row numbers


def _add_columns(connection: sqlite3.Connection, chance: random.Random) -> None:
    default = chance.choice(("", "DEFAULT 7", "DEFAULT NULL", "DEFAULT -1 NOT NULL"))
    connection.execute(f"ALTER TABLE {TABLE} ADD COLUMN domainId INTEGER {default}")
    connection.execute(f"ALTER TABLE {TABLE} ADD COLUMN later TEXT")


def damage(path: Path, seed: int) -> None:
    """Flip bits, overwrite bytes or cut the end off."""
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    kind = chance.randrange(4)
    if kind == 0:
        del content[chance.randrange(len(content)) :]
    for _ in range(chance.choice((1, 1, 4, 40)) if kind else 0):
        if kind == 1:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        else:  # where structure is: the begin of a page
            page = int.from_bytes(content[16:18], "big") or 512
            page = 65536 if page == 1 else page
            place = chance.randrange(len(content) // page + 1) * page + chance.randrange(24 if kind == 2 else 120)
            if place < len(content):
                content[place] = chance.randrange(256)
    path.write_bytes(content)
