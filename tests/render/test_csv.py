from __future__ import annotations

import csv
import io

import pytest

from boundby.model.causes import CAUSE_KEYS
from boundby.render import store
from boundby.results.flat_tables import columns
from tests.support import reports


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_one_row_per_region_and_one_column_per_cause() -> None:
    report = reports.sample()
    table = read(store.csv_of(report))
    assert [row["path"] for row in table] == ["/".join(region.path) for region in report.regions]
    for row, region in zip(table, report.regions, strict=True):
        assert {key: int(row[f"{key}_ns"]) for key in CAUSE_KEYS} == region.time
        assert {key: int(row[f"exclusive_{key}_ns"]) for key in CAUSE_KEYS} == region.time_exclusive
    assert table[1]["bound"] == "sync"
    assert table[7]["projected_total_ns"] == ""  # not captured is empty, not zero


@pytest.mark.parametrize("name", sorted(reports.ALL))
def test_every_line_has_every_column(name: str) -> None:
    text = store.csv_of(reports.ALL[name]())
    text.encode("utf-8")
    assert {len(line) for line in csv.reader(io.StringIO(text))} == {len(columns("regions"))}
    assert "\r" not in text


def test_no_cell_is_a_formula() -> None:
    for row in read(store.csv_of(reports.hostile())):
        for name, value in row.items():
            if columns("regions")[name] is str:
                assert not value.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert "'=1+1" in store.csv_of(reports.hostile())


@pytest.mark.parametrize(("table", "name"), [("kernels", "gemm"), ("calls", "cudaLaunchKernel")])
def test_kernels_and_calls_are_tables_of_their_own(table: str, name: str) -> None:
    found = read(store.csv_of(reports.with_tops(), table))
    assert [tuple(row.values()) for row in found] == [("", "", name, "3", "3000"), ("step", "", name, "3", "3000")]
