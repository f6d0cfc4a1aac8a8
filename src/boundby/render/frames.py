"""Report -> pandas frames. pandas is imported only here, when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from boundby.model.errors import UserError
from boundby.render import rows
from boundby.results.report import Report

if TYPE_CHECKING:
    import pandas as pd


def regions_frame(report: Report) -> pd.DataFrame:
    """One row per region, the root (path ``""``) included; times in nanoseconds, one column per cause."""
    return _frame(rows.regions(report), rows.REGION_COLUMNS)


def devices_frame(report: Report) -> pd.DataFrame:
    """One row per device; times in nanoseconds, one column per cause."""
    return _frame(rows.devices(report), rows.DEVICE_COLUMNS)


def findings_frame(report: Report) -> pd.DataFrame:
    """One row per finding, in rank order; savings in nanoseconds."""
    return _frame(rows.findings(report), rows.FINDING_COLUMNS)


def _frame(table: list[rows.Row], columns: Mapping[str, type]) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError(
            "A frame needs pandas, which is not installed.", "Run: pip install 'boundby[frames]'"
        ) from error
    series = {}
    for name, kind in columns.items():
        values = [row[name] for row in table]
        if kind is float:  # not captured: NaN
            series[name] = pd.Series(values, dtype="float64")
        elif kind is int:  # a nullable type only where something is missing: plain integers plot and sum everywhere
            series[name] = pd.Series(values, dtype="Int64" if None in values else "int64")
        else:
            series[name] = pd.Series(values, dtype="object")
    frame: pd.DataFrame = pd.DataFrame(series, columns=list(columns))
    return frame
