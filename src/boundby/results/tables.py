"""A report as flat tables, for CSV, pandas and SQLite: one dict a row, the same columns in the same order always.

Columns follow the annotations of the results: parts of a field are columns that begin with its name, paths are joined
with ``/``, lists have none. Times keep their nanoseconds; ``None`` means "not captured".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from boundby.model.causes import CAUSE_KEYS
from boundby.model.errors import UserError
from boundby.results.codec import BY_CAUSE, Column, Flat, Member, members, valid
from boundby.results.report import DeviceReport, Finding, RegionReport, Report, ThreadReport

if TYPE_CHECKING:
    import pandas as pd

Scalar = str | int | float | None
Row = dict[str, Scalar]
Getter = Callable[[Any], Any]

_KINDS: Mapping[str, type[Any]] = {
    "devices": DeviceReport,
    "threads": ThreadReport,
    "regions": RegionReport,
    "findings": Finding,
}


def columns(table: str) -> Mapping[str, type]:
    """Column -> type, in order, of ``devices``, ``threads``, ``regions`` or ``findings``. Every column may hold None
    where the trace lacks the data."""
    numbered: dict[str, type] = {"rank": int} if table == "findings" else {}
    return numbered | {name: kind for name, kind, _ in _columns(_KINDS[table])}


def rows(report: Report, table: str) -> list[Row]:
    """One row per device, thread, region (the root included) or finding (in rank order), with ``columns(table)``."""
    getters = _columns(_KINDS[table])
    found = []
    for rank, item in enumerate(getattr(report, table), 1):
        row: Row = {"rank": rank} if table == "findings" else {}
        for name, _, get in getters:
            value = get(item)
            row[name] = valid(value) if isinstance(value, str) else value
        found.append(row)
    return found


def frame(report: Report, table: str) -> pd.DataFrame:
    """``rows`` as a pandas frame. pandas is imported only here, when asked for."""
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError(
            "A frame needs pandas, which is not installed.", "Run: pip install 'boundby[frames]'"
        ) from error
    found = rows(report, table)
    series = {}
    for name, kind in columns(table).items():
        values = [row[name] for row in found]
        if kind is float:  # not captured: NaN
            series[name] = pd.Series(values, dtype="float64")
        elif kind is int:  # a nullable type only where something is missing: plain integers plot and sum everywhere
            series[name] = pd.Series(values, dtype="Int64" if None in values else "int64")
        else:
            series[name] = pd.Series(values, dtype="object")
    result: pd.DataFrame = pd.DataFrame(series, columns=list(columns(table)))
    return result


def _columns(kind: type[Any]) -> tuple[tuple[str, type, Getter], ...]:
    """Name, type and getter of each column."""
    shown = [member for member in members(kind) if member.is_column]
    for member in [member for member in shown if (mark := member.kind.mark(Column)) and mark.after]:
        shown.remove(member)
        mark = member.kind.mark(Column)
        names = [other.name for other in shown]
        shown.insert(names.index(mark.after) + 1 if mark else 0, member)
    return tuple(column for member in shown for column in _of(member))


def _of(member: Member) -> Iterator[tuple[str, type, Getter]]:
    """The columns of one field: itself, or its parts."""
    kind, mark, name = member.kind, member.kind.mark(Column) or Column(), member.name

    def get(item: Any) -> Any:
        return getattr(item, name)

    head = "" if kind.mark(Flat) else name if mark.name is None else mark.name
    if kind.is_dataclass:
        for inner, its_type, its_get in _columns(kind.bare):
            yield _joined(head, inner), its_type, _through(get, its_get)
    elif BY_CAUSE in kind.marks:
        for key in CAUSE_KEYS:
            yield _joined(head, f"{key}_ns"), int, _through(get, functools.partial(_time, key))
    elif mark.joined is not None:
        yield head, str, _through(get, mark.joined.join)
    elif kind.bare in (str, int, float, bool):
        yield head, kind.bare, get


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
