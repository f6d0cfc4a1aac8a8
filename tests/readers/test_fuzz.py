"""Damaged copies of small exports: each gives an error for the user, or an account that adds up. Nothing else."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boundby
from boundby.model.errors import UserError
from boundby.readers import read_trace
from tests.support.damaged_sqlite import PAGE, damaged_bytes
from tests.support.invariants import check_invariants
from tests.support.traces import trace_path
from tests.support.training import training_loop

BUILT = "built"
SOURCES = (BUILT, "oddities/tiny_old.sqlite", "openmp_heat_final.sqlite")
SEEDS = range(48)
WHOLE_ANALYSES = 5  # one file in so many: the rest is only read, which is much faster
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.one_of(
    st.none(),
    INT64,
    st.sampled_from((0, 1, -1, 59, 60, 67, 75, 1 << 24, 1 << 32, (1 << 63) - 1, -(1 << 63), 1 - (1 << 63))),
    st.integers(-(10**9), 10**9),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
)


def content(source: str, folder: Path) -> bytes:
    if source == BUILT:
        return training_loop(2).write(folder / "built.sqlite", "2026").read_bytes()
    return trace_path(source).read_bytes()


def survives(path: Path, *, only_read: bool = False) -> bool:
    """True for an account that adds up, False for an error that tells the user something."""
    try:
        if only_read:
            read_trace(path)
        else:
            check_invariants(boundby.analyze(path))
    except UserError as found:
        error = found
    else:
        return True
    assert error.message
    assert error.next_step
    return False


@pytest.mark.parametrize("source", SOURCES)
def test_damaged_files(source: str, tmp_path: Path) -> None:
    data = content(source, tmp_path)
    path = tmp_path / "damaged.sqlite"
    outcomes = set()
    for seed in SEEDS:
        path.write_bytes(damaged_bytes(data, random.Random(seed)))
        outcomes.add(survives(path, only_read=seed % WHOLE_ANALYSES != 0))
    assert outcomes == {True, False}


@pytest.mark.parametrize("source", SOURCES)
def test_cut_files_are_never_taken_for_whole(source: str, tmp_path: Path) -> None:
    data = content(source, tmp_path)
    path = tmp_path / "cut.sqlite"
    chance = random.Random(source)
    sizes = {
        1,
        15,
        16,
        99,
        100,
        PAGE,
        len(data) - PAGE,
        len(data) - 1,
        *(chance.randrange(len(data)) for _ in range(12)),
    }
    for size in sorted(sizes - {0}):
        path.write_bytes(data[:size])
        assert not survives(path), size


def integer_columns(data: bytes, path: Path) -> list[tuple[str, str]]:
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' "
            "AND c.type = 'INTEGER' AND NOT m.name LIKE 'ENUM_%' AND NOT c.pk"
        ).fetchall()


@pytest.mark.parametrize("source", SOURCES[:2])
def test_any_value_in_any_column(source: str, tmp_path: Path) -> None:
    data = content(source, tmp_path)
    path = tmp_path / "edited.sqlite"
    columns = integer_columns(data, path)

    @settings(max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.sampled_from(columns), VALUES, st.integers(0, 3)), min_size=1, max_size=3))
    def check(edits: list[tuple[tuple[str, str], object, int]]) -> None:
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            for (table, column), value, row in edits:
                rows = "" if row == 0 else f"WHERE rowid % {row + 1} = 0"
                connection.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ? {rows}', (value,))
            connection.commit()
        survives(path)

    check()
