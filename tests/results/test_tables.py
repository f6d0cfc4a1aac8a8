from __future__ import annotations

import sys

import pandas as pd
import pytest

from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import UserError
from boundby.results.tables import columns
from tests.support import reports


def test_regions() -> None:
    report = reports.sample()
    frame = report.regions_frame()
    assert len(frame) == len(report.regions)
    assert frame["exclusive_ns"].sum() == report.devices[0].window_ns
    assert list(frame.loc[frame["bound"] == "sync", "path"]) == ["", "step", "step/loss"]
    assert frame["gpu_compute_ns"].dtype == "int64"
    assert frame["gpu_utilization"].dtype == "float64"
    assert pd.isna(frame["saving_ns"].iloc[-1])


def test_devices() -> None:
    frame = reports.two_devices().devices_frame()
    assert list(frame["bound"]) == ["sync", "gpu_comm"]
    causes = frame[[f"{key}_ns" for key in CAUSE_KEYS]].sum(axis=1)
    assert (causes == frame["window_ns"]).all()


def test_findings_are_rows() -> None:
    frame = reports.sample().findings_frame()
    assert list(frame["rule"]) == ["sync-operator", "trace-graph-level"]
    assert frame["saving_high_ns"][0] == 1_300_000_000
    assert pd.isna(frame["saving_high_ns"][1])


def test_empty_frames_have_their_columns() -> None:
    assert list(reports.empty().regions_frame().columns) == list(columns("regions"))
    frame = reports.empty().devices_frame()
    assert list(frame.columns) == list(columns("devices"))
    assert frame["busy_ns"].sum() == 0


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install 'boundby\[frames\]'"):
        reports.sample().regions_frame()
