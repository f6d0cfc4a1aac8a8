"""NVTX_EVENTS as a column file beside an SQLite export: the same as in it, or not read at all."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import boundby
from boundby.capture import export
from boundby.capture.export import all_but, export_sqlite, export_to_temporary
from boundby.capture.nsys import Nsys
from boundby.model.arrays import MISSING
from boundby.model.errors import SelectionError
from boundby.model.stage import Room
from boundby.readers.nsys.columnar import (
    TABLES,
    ArrowFile,
    ColumnExport,
    NotPlainError,
    columns_beside,
    is_readable,
    open_database,
)
from boundby.readers.nsys.database import Database
from boundby.readers.nsys.pages import bits_of
from boundby.readers.nsys.reader import FIXED_BYTES, cut_to_fit
from boundby.results import saved
from tests.support.nsys import capture

pa = pytest.importorskip("pyarrow")


def table() -> Any:
    """Columns of all kinds that nsys writes, NULLs among them."""
    return pa.table(
        {
            "start": pa.array([5, 1, 2**40, -1], pa.int64()),
            "end": pa.array([7, None, 2**41, 3], pa.int64()),
            "eventType": pa.array([59, 60, 75, 34], pa.uint32()),
            "globalTid": pa.array([2**56 + 7] * 4, pa.uint64()),
            "textId": pa.array([None] * 4, pa.uint32()),
            "domainId": pa.array([0, 0, None, 3], pa.uint64()),
            "isDeep": pa.array([True, None, False, True], pa.bool_()),
            "share": pa.array([0.5, 1.5, None, 2.5], pa.float64()),
            "text": pa.array(["step 1", None, "", "ü\nstep 1"], pa.string()),
        }
    )


def write(rows: Any, path: Path, batches: int = 1, **options: Any) -> Path:
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, rows.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream,
    ):
        for _ in range(batches):
            stream.write_table(rows)
    return path


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_columns_are_read_as_pyarrow_reads_them(batches: int, tmp_path: Path) -> None:
    rows = table()
    file = ArrowFile(write(rows, tmp_path / "t.arrow", batches))
    assert file.rows == 4 * batches
    for name in rows.schema.names:
        expected = batches * rows[name].to_pylist()
        if name == "share":
            bits = [MISSING if value is None else bits_of(value) for value in expected]
            assert file.integers(name).tolist() == bits
        elif name == "text":
            number, texts = file.texts(name)
            assert [texts[one] if one >= 0 else None for one in number.tolist()] == expected
        else:
            values = [MISSING if value is None else int(value) for value in expected]
            assert file.integers(name).tolist() == values


def test_what_is_not_plain_is_not_read(tmp_path: Path) -> None:
    rows = table()
    whole = write(rows, tmp_path / "whole.arrow")
    assert is_readable(whole, "NVTX_EVENTS")
    assert not is_readable(tmp_path / "none.arrow", "NVTX_EVENTS")
    assert not is_readable(write(rows, tmp_path / "packed.arrow", compression="zstd"), "NVTX_EVENTS")
    assert not is_readable(write(rows.drop_columns(["textId"]), tmp_path / "fewer.arrow"), "NVTX_EVENTS")
    texts = rows["text"].combine_chunks().dictionary_encode()
    assert not is_readable(write(rows.set_column(8, "text", texts), tmp_path / "dictionary.arrow"), "NVTX_EVENTS")
    written = whole.read_bytes()
    for end in range(0, len(written) - 1, 7):  # the mark at the end is missing
        (tmp_path / "cut.arrow").write_bytes(written[:end])
        assert not is_readable(tmp_path / "cut.arrow", "NVTX_EVENTS")


def test_damage_never_leads_out_of_the_file(tmp_path: Path) -> None:
    written, chance = write(table(), tmp_path / "whole.arrow").read_bytes(), random.Random(1)
    damaged = tmp_path / "damaged.arrow"
    for _ in range(600):
        changed = bytearray(written)
        for _ in range(chance.choice((1, 1, 3))):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        damaged.write_bytes(changed)
        try:
            file = ArrowFile(damaged)
            for name in file.columns:
                file.some(name, file.integers("start") == 5)
        except (NotPlainError, KeyError):
            pass


@pytest.fixture(scope="module")
def ranges_report(nsys: Nsys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(nsys, tmp_path_factory.mktemp("split"), "cpu_steps.py", "5")


def test_a_split_export_gives_the_same_report(
    nsys: Nsys, ranges_report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nsys.version_tuple < export._WRITES_COLUMNS:
        pytest.skip(f"nsys {nsys.release} writes no columns")
    report = Path(shutil.copy(ranges_report, tmp_path / "report.nsys-rep"))
    whole = export_sqlite(report, tmp_path / "report.sqlite", nsys)
    monkeypatch.setattr(export, "LEAST_SPLIT_BYTES", 0)
    fractions: list[float | None] = []
    with export_to_temporary(report, nsys, progress=fractions.append) as part:
        assert all(columns_beside(part, table).is_file() for table in TABLES)
        with open_database(part, report) as split, open_database(whole, report) as one:
            assert type(split) is ColumnExport
            assert split.tables == one.tables
            assert split.row_count("NVTX_EVENTS") == next(one.rows("SELECT count(*) FROM NVTX_EVENTS"))[0]
            # Queries ask for what is no range: domains and marks.
            asked = "FROM NVTX_EVENTS NOT INDEXED WHERE eventType NOT IN (59, 60, 70, 71)"
            for column in ("start", "eventType", "globalTid", "domainId", "textId", "text", "jsonText"):
                assert list(split.rows(f"SELECT {column} {asked}")) == list(one.rows(f"SELECT {column} {asked}"))
            cuts = [(cut(split, most), cut(one, most)) for most in range(FIXED_BYTES, 2 * FIXED_BYTES, 20_000)]
            assert all(mine == others for mine, others in cuts)
            assert len(set(map(str, cuts))) > 2
    assert [one for one in fractions if one is not None] == sorted(one for one in fractions if one is not None)
    assert told(report, nsys=nsys.path) == told(whole)


def cut(database: Database, most_bytes: int) -> object:
    """From when on an export is read where memory is short, or what is said of it."""
    try:
        return cut_to_fit(database, Room(most_bytes))
    except SelectionError as error:
        return str(error)


def told(path: Path, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(saved.render(boundby.analyze(path, **options)).replace(str(path), "EXPORT"))
    del found["trace"]["source"], found["trace"]["nsys_version"]  # a report of ranges alone names who recorded it
    return found


def test_another_nsys_exports_the_whole(nsys: Nsys, ranges_report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that writes columns of another kind, or none."""
    monkeypatch.setattr(export, "LEAST_SPLIT_BYTES", 0)
    monkeypatch.setattr(export, "is_readable", lambda *_: False)
    with export_to_temporary(ranges_report, nsys) as exported:
        assert not any(columns_beside(exported, table).exists() for table in TABLES)
        with open_database(exported, ranges_report) as database:
            assert type(database) is Database
            assert database.holds("NVTX_EVENTS")


def test_patterns_match_all_names_but_some() -> None:
    patterns = all_but(TABLES).split(",")
    chance = random.Random(2)
    names = {name[:end] + extra for name in TABLES for end in range(len(name) + 1) for extra in ("", "S", "_X", "T_E")}
    names |= {"".join(chance.choices("NVTXOSR_ES", k=chance.randrange(1, 12))) for _ in range(500)}
    names |= {"CUPTI_ACTIVITY_KIND_KERNEL", "META_DATA_CAPTURE", "NVTX_PAYLOAD_SCHEMAS", "OSRT_CALLCHAINS", "StringIds"}
    for name in names - {""}:
        assert any(re.fullmatch(pattern, name) for pattern in patterns) == (name not in TABLES), name
