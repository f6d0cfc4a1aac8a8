"""What is read from an SQLite file's pages is what SQLite reads: any table shape, damaged files, real exports."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from boundby.model.arrays import MISSING
from boundby.model.errors import InputError
from boundby.readers.nsys import pages
from boundby.readers.nsys.database import Database, open_readonly
from boundby.readers.nsys.gpu_tables import _COMMON, _SHAPE, _TABLES
from boundby.readers.nsys.host_tables import EVENTS
from tests.support.odd_databases import COLUMNS, TABLE, damage, write_odd
from tests.support.traces import trace_names, trace_path

NUMBERS = (*(column for column in COLUMNS if column != "text"), "domainId")
ONLY = ("eventType", (59, 60))


def differential(path: Path) -> tuple[str, str]:
    """What became of one database's numbers and texts: "same" from both readers, "asked" SQLite, "refused" by an error
    of one sentence, or "damaged": SQLite finds damage beyond what is wanted. Fails where the readers differ."""
    try:
        with open_readonly(path) as connection:
            database = Database(connection, path)
            present = [column for column in NUMBERS if database.has(TABLE, column)]
            if not present or not database.has(TABLE, "eventType", "text"):
                return "refused", "refused"
            compare_columns(database, TABLE, present, ONLY)
            return compare_columns(database, TABLE, present), compare_texts(database)
    except InputError:
        return "refused", "refused"


def compare_columns(database: Database, table: str, present: list[str], only: pages.Only | None = None) -> str:
    """Integer columns by both readers."""
    quick = database._from_pages(table, present, only)
    if quick is None:
        return "asked"
    try:
        plain = database._from_rows(table, present, only)
    except InputError:
        return "damaged"
    for column in present:
        assert np.array_equal(quick[column], plain[column]), (table, column)
    return "same"


def compare_texts(database: Database) -> str:
    """Texts by both readers."""
    reader = database._pages
    try:
        if reader is None or reader.texts(TABLE, "text", ONLY) is None:
            return "asked"
    except sqlite3.Error:  # a row that reaches onto other pages
        return "damaged"
    number, distinct = database.texts_of(TABLE, "text", only=ONLY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_pages", None)
        try:
            plain_number, plain = database.texts_of(TABLE, "text", only=ONLY)
        except InputError:
            return "damaged"
    read = [None if which < 0 else distinct[which] for which in number.tolist()]
    assert read == [None if which < 0 else plain[which] for which in plain_number.tolist()]
    return "same"


def test_every_shape_of_table_reads_alike(tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    outcomes: list[tuple[str, str]] = []
    for seed in range(80):
        write_odd(path, seed)
        outcomes.append(differential(path))
    numbers, texts = zip(*outcomes, strict=True)
    assert {*numbers, *texts} == {"same", "asked"}
    assert numbers.count("same") > 26, outcomes
    assert texts.count("same") > 18, outcomes


def test_damaged_files_give_the_same_or_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    outcomes: list[tuple[str, str]] = []
    for seed in range(80):
        write_odd(path, 1_000 + seed // 5)
        damage(path, seed)
        outcomes.append(differential(path))
    assert outcomes.count(("refused", "refused")) > 10, outcomes
    assert sum("damaged" in outcome for outcome in outcomes) < 5, outcomes


def test_a_header_whose_size_is_written_longer_is_none_like_the_row_before(tmp_path: Path) -> None:
    """SQLite takes it, so that a row has as large a header as the next one and a column less."""
    path = tmp_path / "long.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1 << 33, 1), (1, 1), (1, 1)])
        connection.commit()
    content = path.read_bytes()
    assert content.count(bytes([3, 2, 3, 9, 9])) == 1
    path.write_bytes(content.replace(bytes([3, 2, 3, 9, 9]), bytes([3, 2, 0x80, 3, 9])))
    with open_readonly(path) as connection:
        database = Database(connection, path)
        assert compare_columns(database, "t", ["a", "b"]) == "same"
        assert database._from_rows("t", ["b"], None)["b"].tolist() == [1, MISSING, 1]


@pytest.mark.parametrize("name", trace_names())
def test_real_exports_read_alike(name: str) -> None:
    wanted = {table: list(dict.fromkeys((*_COMMON, *extra, *_SHAPE))) for table, _, extra in _TABLES}
    wanted |= {table: ["start", "globalTid", *columns] for tables, columns in EVENTS.values() for table in tables}
    path = trace_path(name)
    outcomes: list[str] = []
    try:
        with open_readonly(path) as connection:
            database = Database(connection, path)
            for table, columns in wanted.items():
                present = [column for column in columns if database.has(table, column)]
                if present:
                    outcomes.append(compare_columns(database, table, present))
            if database.has(TABLE, "text"):
                compare_texts(database)
    except InputError:
        return  # says so elsewhere
    assert outcomes.count("same") == len(outcomes), outcomes


def test_room_for_texts_grows_with_what_is_short(tmp_path: Path) -> None:
    """Many short texts take no gigabyte, few long ones (some on pages of their own) no table of millions."""
    for texts in ([f"{row:x}" for row in range(40_000)], ["y" * 90_000 + str(row) for row in range(40)]):
        path = tmp_path / f"{len(texts)}.sqlite"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TABLE {TABLE} (start INTEGER, eventType INTEGER, text TEXT)")
            connection.executemany(f"INSERT INTO {TABLE} VALUES (1, 59, ?)", [(text,) for text in texts])
        with open_readonly(path) as open_:
            reader = Database(open_, path)._pages
            assert reader is not None
            tracemalloc.start()
            found = reader.texts(TABLE, "text")
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert found is not None
        assert [found.distinct[place].decode() for place in found.number.tolist()] == texts
        assert most < 40_000_000


def test_many_texts_find_room(tmp_path: Path) -> None:
    path = tmp_path / "texts.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (start INTEGER, eventType INTEGER, text TEXT)")
        rows = ((row, 59, f"{row % 9_000} {'x' * (row % 90)}") for row in range(30_000))
        connection.executemany(f"INSERT INTO {TABLE} VALUES (?, ?, ?)", rows)
    connection.close()
    with open_readonly(path) as open_:
        assert compare_texts(Database(open_, path)) == "same"
