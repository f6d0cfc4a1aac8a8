"""Change an export that exists, as other tools and accidents do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def alter(path: Path, *statements: str, loose: str | None = None) -> Path:
    """Run SQL statements on the file. ``loose``: a table that first loses its NOT NULL and key constraints."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        if loose is not None:
            (declared,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (loose,)).fetchone()
            connection.execute(f'ALTER TABLE "{loose}" RENAME TO boundby_old')
            connection.execute(declared.replace("NOT NULL", "").replace("PRIMARY KEY", ""))
            connection.execute(f'INSERT INTO "{loose}" SELECT * FROM boundby_old')
            connection.execute("DROP TABLE boundby_old")
        for statement in statements:
            connection.execute(statement)
    return path


def rewrite_schema(path: Path, statement: str) -> Path:
    """Run one UPDATE or INSERT on sqlite_master: schemas that SQLite itself would refuse to make."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(statement)
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute(f"PRAGMA schema_version = {version + 1}")
    return path
