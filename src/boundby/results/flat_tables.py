"""A report as flat tables, for CSV, pandas and SQLite: one dict a row, the same columns in the same order always.

Columns follow the annotations of the results: parts of a field are columns that begin with its name, paths are joined
with ``/``, lists have none. Times keep their nanoseconds; ``None`` means "not captured".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import UserError
from boundby.model.scale import HALF
from boundby.model.units import MS
from boundby.results.report import (
    CollectiveSize,
    Counters,
    DeviceReport,
    Finding,
    OperatorShape,
    RegionReport,
    Report,
    StepBreakdown,
    ThreadReport,
)
from boundby.results.saved import BY_CAUSE, ColumnMark, Flat, Getter, Member, members, to_plain, valid

if TYPE_CHECKING:
    import pandas as pd

Scalar = str | int | float | None
Row = dict[str, Scalar]

_KINDS: Mapping[str, type[Any]] = {
    "devices": DeviceReport,
    "threads": ThreadReport,
    "regions": RegionReport,
    "findings": Finding,
    "operators": OperatorShape,
    "collectives": CollectiveSize,
    "steps": StepBreakdown,
}
#: Of each region (the root holds the total) the names with most time, and the columns of a row of them.
_SUMS: Mapping[str, Getter] = {"kernels": attrgetter("kernels.top"), "calls": attrgetter("api.top")}
_OF_SUMS: Mapping[str, type] = {"path": str, "domain": str, "name": str, "count": int, "total_ns": int}

#: Of each device, one row for its window, its busy and its idle time, and each of its kernels with most time.
_COUNTERS = "counters"
_OF_COUNTERS: Mapping[str, type] = {"device": int, "name": str, "total_ns": int} | {
    name: int if name == "sampled_ns" else float for name in Counters.__struct_fields__
}


def columns(table: str) -> Mapping[str, type]:
    """Column -> type, in order, of ``devices``, ``threads``, ``regions``, ``findings``, ``operators``,
    ``collectives``, ``steps``, ``kernels``, ``calls`` or ``counters``. Every column may hold None where the trace
    lacks the data."""
    if table in _SUMS:
        return _OF_SUMS
    if table == _COUNTERS:
        return _OF_COUNTERS
    numbered: dict[str, type] = {"rank": int} if table == "findings" else {}
    return numbered | {column.name: column.kind for column in columns_of(_KINDS[table])}


def rows(report: Report, table: str) -> list[Row]:
    """One row per device, thread, region (the root included), finding (in rank order), shape of an operator, size of a
    collective, or name of a kernel or call in a region, with ``columns(table)``."""
    if table in _SUMS:
        return [
            {
                "path": valid("/".join(region.path)),
                "domain": valid(region.domain),
                **to_plain(entry),
                "name": valid(entry.name),
            }
            for region in report.regions
            for entry in _SUMS[table](region)
        ]
    if table == _COUNTERS:
        return [row for device in report.devices for row in _counted(device)]
    shown = columns_of(_KINDS[table])
    flat = []
    for rank, item in enumerate(getattr(report, table), 1):
        row: Row = {"rank": rank} if table == "findings" else {}
        for column in shown:
            value = column.get(item)
            row[column.name] = valid(value) if isinstance(value, str) else value
        flat.append(row)
    return flat


def _counted(device: DeviceReport) -> Iterator[Row]:
    """The rows of one device's counters."""
    counters = device.counters
    if counters is None:
        return
    named = (("(window)", counters.window), ("(busy)", counters.busy), ("(idle)", counters.idle))
    parts: list[tuple[str, int | None, Counters]] = [
        (name, None, counters_of) for name, counters_of in named if counters_of is not None
    ]
    parts += [(valid(row.name), row.total_ns, row.counters) for row in counters.kernels]
    for name, total_ns, counters_of in parts:
        values = {item: getattr(counters_of, item) for item in Counters.__struct_fields__}
        yield {"device": device.id, "name": name, "total_ns": total_ns, **values}


def frame(report: Report, table: str) -> pd.DataFrame:
    """``rows`` as a pandas frame. pandas is imported only here, when asked for."""
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("A frame needs pandas, which is not installed.", "Run: pip install pandas") from error
    table_rows = rows(report, table)
    series = {}
    for name, kind in columns(table).items():
        values = [row[name] for row in table_rows]
        if kind is float:  # not captured: NaN
            series[name] = pd.Series(values, dtype="float64")
        elif kind is int:  # a nullable type only where something is missing: plain integers plot and sum everywhere
            series[name] = pd.Series(values, dtype="Int64" if None in values else "int64")
        else:
            series[name] = pd.Series(values, dtype="object")
    result: pd.DataFrame = pd.DataFrame(series, columns=list(columns(table)))
    return result


class TableColumn(Struct, frozen=True):
    """One column: its name, the type of its values, and what gets a value out of an item."""

    name: str
    kind: type
    get: Getter


def columns_of(kind: Any) -> tuple[TableColumn, ...]:
    """The columns that the annotations of a dataclass give."""
    shown = [member for member in members(kind) if member.is_column]
    for member in tuple(shown):
        mark = member.kind.mark(ColumnMark)
        if mark is not None and mark.after:
            shown.remove(member)
            shown.insert([other.name for other in shown].index(mark.after) + 1, member)
    return tuple(column for member in shown for column in _of(member))


def _of(member: Member) -> Iterator[TableColumn]:
    """The columns of one field: itself, or its parts."""
    kind, mark, get = member.kind, member.kind.mark(ColumnMark) or ColumnMark(), attrgetter(member.name)
    head = "" if kind.mark(Flat) else member.name if mark.name is None else mark.name
    if kind.is_dataclass:
        for inner in columns_of(kind.bare):
            yield TableColumn(_joined(head, inner.name), inner.kind, _through(get, inner.get))
    elif BY_CAUSE in kind.marks:
        for key in CAUSE_KEYS:
            yield TableColumn(_joined(head, f"{key}_ns"), int, _through(get, functools.partial(_time, key)))
    elif mark.joined is not None:
        yield TableColumn(head, str, _through(get, mark.joined.join))
    elif kind.bare in (str, int, float, bool):
        yield TableColumn(head, kind.bare, get)


def _joined(head: str, name: str) -> str:
    return f"{head}_{name}" if head else name


def _through(outer: Getter, inner: Getter) -> Getter:
    """``inner`` of ``outer``, None where there is no such part."""

    def get(item: Any) -> Any:
        part = outer(item)
        return None if part is None else inner(part)

    return get


def _time(key: str, time: Mapping[str, int]) -> int:
    return time.get(key, 0)


# A report as a flat dict of floats, for trackers: ``wandb.log(report.metrics())``.

#: A region that fills so much of the time is the program's step, if it repeats.
_STEP_SHARE = HALF


def flat(report: Report, prefix: str) -> dict[str, float]:
    """Names that stay the same from run to run. What was not recorded is left out, since zero would be a figure."""
    gpus, items = report.devices, report.findings
    numbers = {f"time/{cause}": fraction for cause, fraction in _shares([part.time for part in gpus or report.threads])}
    if gpus:
        window_ns = sum(gpu.window_ns for gpu in gpus)
        numbers["window_ms"] = window_ns / len(gpus) / MS
        numbers["gpu_utilization"] = sum(gpu.busy_ns for gpu in gpus) / window_ns if window_ns else 0.0
        savings = [(gpu.verdict.saving_ns, gpu.window_ns) for gpu in gpus]
        savings_known = [(saving, ns) for saving, ns in savings if saving is not None]
        if savings_known:
            numbers["bound_saving"] = sum(saving for saving, _ in savings_known) / (
                sum(ns for _, ns in savings_known) or 1
            )
    if (step_ns := _step_ns(report)) is not None:
        numbers["step_ms"] = step_ns / MS
    numbers["findings"] = float(len(items))
    numbers["findings_high"] = float(sum(item.severity == "high" for item in items))
    if len(gpus) > 1:
        numbers |= {f"gpu{gpu.id}/utilization": gpu.gpu_utilization for gpu in gpus}
    return {f"{prefix}{name}": float(value) for name, value in numbers.items()}


def _shares(times: Sequence[Mapping[str, int]]) -> list[tuple[str, float]]:
    """Every cause's fraction of all time."""
    total = sum(sum(time.values()) for time in times)
    return [(cause, sum(time[cause] for time in times) / total) for cause in CAUSE_KEYS] if total else []


def _step_ns(report: Report) -> float | None:
    """The median step: of the steady ones, else of the outermost region that repeats and fills the time."""
    steady = [gpu.steady.step_ns for gpu in report.devices if gpu.steady is not None and gpu.steady.step_ns]
    if steady:
        return max(steady)

    def is_step(region: RegionReport) -> bool:
        return len(region.path) == 1 and region.instances > 1 and region.share >= _STEP_SHARE

    step = next((region for region in report.regions if is_step(region)), None)
    return None if step is None else (step.projected or step.host).median_ns
