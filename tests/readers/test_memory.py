"""Of an export whose analysis would take more memory than it may, the last part is read, as if captured alone."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from benchmarks.simulated.counterfactual import Case
from click.testing import CliRunner

from boundby.api import Analysis
from boundby.cli.main import cli
from boundby.model.errors import SelectionError
from boundby.model.stage import machine_bytes
from boundby.readers.nsys import reader
from boundby.readers.nsys.pages import PageReader
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import to_export
from boundby.simulate.patterns import PATTERNS
from tests.support.alter import alter

#: Of two rows of an export, what a flipped bit makes of them.
ODD_NUMBERS = ((1, -7), (3, (1 << 63) - 1))


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import random

    name = "healthy" if "healthy" in PATTERNS else next(iter(PATTERNS))
    known = PATTERNS[name]
    case = Case(name, known.make(random.Random(0), 40), Machine(), 0, known.healthy)
    path = tmp_path_factory.mktemp("memory") / "whole.sqlite"
    to_export(case.run()).write(path, "2023")
    return path


def rows_bytes(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in reader._TABLES
            if table in tables
        }
    return sum(reader._TABLES[table] * count for table, count in counts.items())


def half(path: Path) -> int:
    return reader.FIXED_BYTES + rows_bytes(path) // 2


def test_what_fits_is_read_whole(export: Path) -> None:
    whole = Analysis(export)
    told = Analysis(export, max_memory=reader.FIXED_BYTES + rows_bytes(export))
    assert told.report == whole.report
    assert (machine_bytes() or 1 << 30) > 1_000_000


@pytest.mark.parametrize("plain", [False, True])
def test_the_last_part_is_analysed_and_said(export: Path, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(PageReader, "of", lambda *_: None)
    whole, part = Analysis(export), Analysis(export, max_memory=half(export))
    (warning,) = (warning for warning in part.report.trace.warnings if warning.code == "max-memory")
    assert "only what begins at" in warning.message
    assert 0 < len(part.trace.operations) < len(whole.trace.operations)
    assert set(part.trace.operations.start_ns.tolist()) <= set(whole.trace.operations.start_ns.tolist())
    assert part.trace.span_ns[1] == whole.trace.span_ns[1]
    assert not part.timeline.losses.lost.any()  # no call without what it launched
    assert [device.verdict.bound for device in part.devices] == [device.verdict.bound for device in whole.devices]


@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "brief"])
def test_a_part_is_told_at_the_top(export: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def top(*options: str) -> str:
        ran = CliRunner().invoke(cli, ["analyze", str(export), "-q", "--format", form, *options])
        assert ran.exit_code == 0
        text = " ".join(ran.output.split())
        return text if form == "brief" else text[: text.index("GPU 0 ")] if form != "html" else text.split("<h2")[0]

    assert "the last part of the report (--max-memory)" in top("--max-memory", str(half(export)))
    assert "last part of the report" not in top()


def test_backtraces_take_room_whatever_part_is_read(export: Path, tmp_path: Path) -> None:
    sampled = tmp_path / "sampled.sqlite"
    sampled.write_bytes(export.read_bytes())
    frames = 1_000
    with closing(sqlite3.connect(sampled)) as connection:
        connection.execute("CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER, symbol INTEGER, stackDepth INTEGER)")
        connection.executemany("INSERT INTO SAMPLING_CALLCHAINS VALUES (?, 1, 0)", ((row,) for row in range(frames)))
        connection.commit()
    enough = reader.FIXED_BYTES + rows_bytes(sampled) + reader.FRAME_BYTES * frames
    assert "max-memory" not in kinds(Analysis(sampled, max_memory=enough))
    assert "max-memory" in kinds(Analysis(sampled, max_memory=enough - 1))
    with pytest.raises(SelectionError, match="would take about"):
        _ = Analysis(sampled, max_memory=reader.FIXED_BYTES + reader.FRAME_BYTES * frames).trace


def test_counters_take_room_whatever_part_is_read(export: Path, tmp_path: Path) -> None:
    sampled = tmp_path / "sampled.sqlite"
    sampled.write_bytes(export.read_bytes())
    samples = 1_000
    with closing(sqlite3.connect(sampled)) as connection:
        connection.execute(
            "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)"
        )
        connection.executemany("INSERT INTO GPU_METRICS VALUES (?, 1, 0, 50)", ((row,) for row in range(samples)))
        connection.commit()
    enough = reader.FIXED_BYTES + rows_bytes(sampled) + reader.COUNTER_BYTES * samples
    assert "max-memory" not in kinds(Analysis(sampled, max_memory=enough))
    assert "max-memory" in kinds(Analysis(sampled, max_memory=enough - 1))


def kinds(analysis: Analysis) -> set[str]:
    return {warning.code for warning in analysis.trace.warnings}


def test_a_window_that_does_not_fit_is_refused_with_one_that_does(export: Path) -> None:
    with pytest.raises(SelectionError) as refused:
        _ = Analysis(export, window="0:1000", max_memory=half(export)).trace
    window = refused.value.next_step.partition("--window ")[2].split(" ")[0]
    part = Analysis(export, window=window, max_memory=half(export))
    assert part.devices
    assert part.devices[0].window.start_ns >= int(window.removesuffix("ms:")) * 1_000_000
    with pytest.raises(SelectionError, match="are allowed"):
        _ = Analysis(export, max_memory=reader.FIXED_BYTES).trace


def test_sizes_are_read_as_people_write_them(export: Path) -> None:
    for text, code in (("4G", 0), ("500 MB", 0), ("1.5GiB", 0), ("many", 2), ("-1", 2)):
        assert CliRunner().invoke(cli, ["analyze", str(export), "-q", "--max-memory", text]).exit_code == code, text


def test_samples_of_a_view_are_taken_as_even(export: Path, tmp_path: Path) -> None:
    path = tmp_path / "view.sqlite"
    path.write_bytes(export.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME RENAME TO kept")
        connection.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS SELECT * FROM kept")
    part = Analysis(path, max_memory=half(export))
    assert 0 < len(part.trace.api) < len(Analysis(path).trace.api)
    assert np.all(np.diff(part.trace.operations.start_ns) >= 0)


def test_a_damaged_number_of_a_row_is_no_number_of_rows(export: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.sqlite"
    shutil.copyfile(export, path)
    alter(path, *(f"UPDATE NVTX_EVENTS SET _rowid_ = {number} WHERE _rowid_ = {at}" for at, number in ODD_NUMBERS))
    most = reader.FIXED_BYTES + rows_bytes(export)
    assert Analysis(path, max_memory=most).report.regions == Analysis(export).report.regions
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET start = ?1 WHERE _rowid_ = 2", (-(1 << 63),))
    with pytest.raises(SelectionError, match="would take about"):
        Analysis(path, max_memory=reader.FIXED_BYTES + 1).report  # noqa: B018
