"""Files made to do harm: schemas that run on, compressed bombs, names that are none. One sentence each, soon."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks import fuzz

import boundby
from boundby import api
from boundby.cli.main import main
from boundby.model import stage
from boundby.model.errors import UserError
from boundby.readers import read_trace
from boundby.readers.kineto import reader as kineto
from boundby.readers.nsys import database
from tests.readers.kineto.test_reader import small
from tests.support.alter import alter, rewrite_schema
from tests.support.bad_files import good

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n"
#: 10^12 rows, without recursion.
CROSSED = (
    "WITH d(i) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) SELECT a.i AS start, a.i AS end FROM "
    + ", ".join(f"d AS {name}" for name in "abcdefghijkl")
)


def instead(select: str) -> tuple[str, ...]:
    """A view in a table's place."""
    return (f"DROP TABLE {KERNELS}", f"CREATE VIEW {KERNELS} AS {select}")


def sentence(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        boundby.analyze(path)
    assert caught.value.next_step
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (instead(ENDLESS), "its schema holds more than tables"),
        (instead(CROSSED), ".sqlite took over"),
        (instead("SELECT load_extension('x') AS start, 1 AS end"), "its schema holds more than tables"),
        (instead("SELECT length(zeroblob(1 << 30)) AS start, 1 AS end"), "its schema holds more than tables"),
        (instead("SELECT length(printf('%.*c', 1 << 30, 'x')) AS start, 1 AS end"), "its schema holds more than"),
        (instead(f"SELECT * FROM {KERNELS}"), "damaged"),
        ((f"DROP TABLE {KERNELS}", f"CREATE VIRTUAL TABLE {KERNELS} USING fts5(start, end)"), ""),
        (("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END",), ""),
        ((f"ALTER TABLE {KERNELS} ADD COLUMN more INTEGER AS (zeroblob(1 << 30)) VIRTUAL",), ""),
        (tuple(f"CREATE TABLE t{number} (a)" for number in range(3_000)), ""),
        (("CREATE TABLE wide (" + ", ".join(f"c{number}" for number in range(1_900)) + ")",), ""),
    ],
)
def test_schemas_that_do_more_than_hold_tables(
    statements: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "LEAST_S", 1.0)  # whole seconds: half of one rounds to none
    path = alter(good(tmp_path), "BEGIN", *statements, "COMMIT")
    if says:
        assert says in sentence(path)
    else:
        assert boundby.analyze(path).regions


def test_nothing_is_written_whatever_a_schema_asks(tmp_path: Path) -> None:
    path = good(tmp_path)
    rewrite_schema(path, "UPDATE sqlite_master SET rootpage = 900000 WHERE name = 'StringIds'")
    before = path.read_bytes()
    assert "damaged" in sentence(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_page_counts_far_above_the_file(tmp_path: Path) -> None:
    path = good(tmp_path)
    with path.open("r+b") as file:
        file.seek(28)
        file.write(b"\xff\xff\xff\xfe")
    assert "is truncated" in sentence(path)


def test_a_connection_reads_and_does_nothing_else(tmp_path: Path) -> None:
    with database.open_readonly(good(tmp_path)) as connection:
        for statement in (
            "CREATE TEMP TABLE t (a)",
            "ATTACH 'other.sqlite' AS other",
            "DELETE FROM StringIds",
            "PRAGMA writable_schema = ON",
            "PRAGMA journal_mode = WAL",
        ):
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                connection.execute(statement)


@pytest.mark.parametrize("name", ["-o", "--help.sqlite", "a\nb.sqlite", "\x1b[31mred.sqlite", "'; rm -rf $HOME.sqlite"])
def test_names_of_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = good(tmp_path).rename(tmp_path / name)
    assert main(["analyze", "--format", "brief", "--", name]) == 0
    os.truncate(path, 5_000)
    assert main(["analyze", "--", name]) == 2
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    assert len(err.splitlines()) == 2


def test_folders_of_very_many_files(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"{number}.sqlite").touch()
    assert len(sentence(tmp_path)) < 1_000


def _nested(_: Path) -> str:
    return '{"traceEvents": [{"ph": "X", "args": ' + '{"a":' * 200_000 + "1" + "}" * 200_000 + "}]}"


def _in_the_top(_: Path) -> str:
    return '{"deviceProperties": ' + "[" * 200_000 + "]" * 200_000 + ', "traceEvents": []}'


def _numbers(_: Path) -> str:
    return small().text().replace('"ts": 10', '"ts": 1e999').replace('"dur": 5', '"dur": ' + "9" * 5_000)


def _twice(_: Path) -> str:
    return small().text().replace('"ts": 10', '"ts": 11, "ts": 10, "ts": null')


def _long_names(_: Path) -> str:
    return small().text().replace("aten::mm", "x" * 4_000_000)


@pytest.mark.parametrize("text", [_nested, _in_the_top, _numbers, _twice, _long_names])
def test_json_that_is_a_bomb(text: Callable[[Path], str], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text(tmp_path))
    assert fuzz.outcome(fuzz.analyse, path) in (fuzz.SENTENCE, fuzz.REPORT)


def test_compressed_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "MOST_UNPACKED", 1 << 22)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 25)))
    with pytest.raises(UserError, match="unpacks to more than"):
        read_trace(path)


@pytest.mark.parametrize("depth", [900, 100_000])
def test_saved_results_that_are_bombs(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"format_version": 1, "trace": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(UserError):
        api.load(path)


def test_files_that_grow_while_they_are_read(tmp_path: Path) -> None:
    """What an exporter adds meanwhile is not seen."""
    path = good(tmp_path)
    with database.open_readonly(path) as connection, closing(sqlite3.connect(path, timeout=0)) as writer:
        assert connection.execute("SELECT count(*) FROM StringIds").fetchone()
        writer.execute("DELETE FROM StringIds")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            writer.commit()
