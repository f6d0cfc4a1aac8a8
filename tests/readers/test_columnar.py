"""Exports that are folders of Arrow or Parquet files: the same report as of the SQLite export, or one sentence."""

from __future__ import annotations

import importlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import boundby
from boundby.capture.nsys import Nsys
from boundby.jobs.gather import find_reports
from boundby.model.errors import InputError, ToolError
from boundby.readers.nsys import columnar
from boundby.results import saved
from tests.support.traces import REPOSITORY, trace_path

pa = pytest.importorskip("pyarrow")
parquet = importlib.import_module("pyarrow.parquet")
SAMPLE = REPOSITORY / "sample_reports" / "simulated_sync.sqlite"
_TYPES = {"INTEGER": pa.int64(), "TEXT": pa.string(), "REAL": pa.float64()}


def write_arrow(table: Any, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


WRITERS: dict[str, Callable[[Any, Path], None]] = {"arrow": write_arrow, "parquet": parquet.write_table}


def as_folder(export: Path, folder: Path, kind: str) -> Path:
    """The tables of an SQLite export as ``nsys export --type arrowdir`` or ``parquetdir`` writes them."""
    folder.mkdir()
    with closing(sqlite3.connect(f"{export.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = [(name, _TYPES[type_]) for _, name, type_, *_ in database.execute(f"PRAGMA table_info({table})")]
            values = list(zip(*database.execute(f"SELECT * FROM {table}"), strict=True)) or [()] * len(columns)
            arrays = {name: pa.array(column, type_) for (name, type_), column in zip(columns, values, strict=True)}
            WRITERS[kind](pa.table(arrays), folder / f"{table}.{kind}")
    return folder


def told(path: Path) -> dict[str, Any]:
    """The report as JSON, less what the export is called."""
    report = boundby.analyze(path)
    found: dict[str, Any] = json.loads(saved.render(report).replace(str(path), "EXPORT"))
    del found["trace"]["source"]
    return found


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", [None, "cpp_vector_add.sqlite", "oddities/tiny_old.sqlite"])
def test_the_report_is_that_of_the_sqlite_export(name: str | None, kind: str, tmp_path: Path) -> None:
    export = trace_path(name) if name else SAMPLE
    folder = as_folder(export, tmp_path / "export", kind)
    assert told(folder) == told(export)
    assert boundby.analyze(folder).trace.source == f"nsys-{kind}"


@pytest.mark.parametrize("kind", ["arrowdir", "parquetdir"])
def test_a_real_export_is_read(nsys: Nsys, nvtx_report: Path, kind: str, tmp_path: Path) -> None:
    report = shutil.copy(nvtx_report, tmp_path / "report.nsys-rep")
    for type_, name in (("sqlite", "report.sqlite"), (kind, "folder")):
        command = [str(nsys.path), "export", "--type", type_, "--output", name, str(report)]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        if made.returncode and kind in made.stderr:
            pytest.skip(f"nsys {nsys.release} knows no {kind}")
    kept = {path.stem for path in (tmp_path / "folder").iterdir()}
    with closing(sqlite3.connect(tmp_path / "report.sqlite")) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in kept:  # some nsys leave META_DATA_CAPTURE out of their folders
                database.execute(f"DROP TABLE {table}")
        database.commit()
    assert told(tmp_path / "folder") == told(tmp_path / "report.sqlite")


def test_a_job_takes_a_folder_for_a_rank(tmp_path: Path) -> None:
    for rank in range(2):
        as_folder(SAMPLE, tmp_path / f"rank{rank}", "arrow")
    assert [name for name, _ in find_reports([tmp_path])[1]] == ["rank0", "rank1"]


@pytest.mark.parametrize("kind", WRITERS)
def test_damage_is_one_sentence(kind: str, tmp_path: Path) -> None:
    folder = as_folder(SAMPLE, tmp_path / "export", kind)
    kernels = folder / f"CUPTI_ACTIVITY_KIND_KERNEL.{kind}"
    whole = kernels.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"no columns"):
        kernels.write_bytes(damaged)
        with pytest.raises(InputError, match=f"is damaged: its file CUPTI_ACTIVITY_KIND_KERNEL.{kind} cannot be read"):
            boundby.analyze(folder)
    rows = pa.table({"start": ["a"], "end": ["b"]})
    WRITERS[kind](rows, kernels)
    with pytest.raises(InputError, match="not a number where one belongs"):
        boundby.analyze(folder)


def test_without_pyarrow_the_next_step_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = as_folder(SAMPLE, tmp_path / "export", "parquet")

    def none(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(columnar, "importlib", type("Nothing", (), {"import_module": staticmethod(none)}))
    with pytest.raises(ToolError, match="needs pyarrow"):
        boundby.analyze(folder)
    boundby.analyze(as_folder(SAMPLE, tmp_path / "streams", "arrow"))
