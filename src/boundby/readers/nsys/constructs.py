"""What compilers and libraries record about themselves: constructs of OpenACC and OpenMP, calls of cuDNN and cuBLAS.

Each becomes a range of a domain of its own: a construct of OpenACC is named by its place in the source, what it does
and the variable (``heat.c:51 enter data (u)``). Regions, waits, launches and copies inside it are then found like those
of any range. Sources: the schema that nsys documents for its SQLite exports, and CUPTI's CUpti_OpenAccEventKind.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.model.arrays import Int32Array, Int64Array, factorize, joined, unique
from boundby.readers.nsys.database import MISSING, Database
from boundby.readers.nsys.identity import Indexes
from boundby.trace.stacks import file_name
from boundby.trace.tables import Construct, Ranges

Raw = dict[str, Int64Array]

OPENACC, OPENMP = "OpenACC", "OpenMP"
_ACC, _MP = "CUPTI_ACTIVITY_KIND_OPENACC_", "OPENMP_EVENT_KIND_"
#: The domain of each table's ranges. OpenMP's tables of instants (locks made, tasks switched) hold no intervals.
DOMAINS = {
    **dict.fromkeys((f"{_ACC}DATA", f"{_ACC}LAUNCH", f"{_ACC}OTHER"), OPENACC),
    **dict.fromkeys(
        (
            *(f"{_MP}PARALLEL", f"{_MP}WORKSHARE", f"{_MP}TASK", f"{_MP}MASTER", f"{_MP}REDUCTION"),
            *(f"{_MP}SYNC_REGION", f"{_MP}SYNC_REGION_WAIT", f"{_MP}MUTEX_WAIT", f"{_MP}CRITICAL_SECTION"),
        ),
        OPENMP,
    ),
    "CUDNN_EVENTS": "cuDNN",
    "CUBLAS_EVENTS": "cuBLAS",
}
COLUMNS = ("end", "nameId", "eventKind", "srcFile", "lineNo", "varName")
_ACC_KINDS = {
    1: "device init",
    4: "launch",
    5: "upload",
    6: "download",
    7: "wait",
    8: "implicit wait",
    9: "compute construct",
    10: "update",
    11: "enter data",
    12: "exit data",
}
_NO_NAMES = ("", "<Unknown>")
_LAST_NS = np.iinfo(np.int64).max


def read(database: Database, since_ns: int | None = None) -> Raw:
    """The raw columns of all constructs that take time (and end at ``since_ns`` or later), and of each the ``table``
    that it stands in, a place in DOMAINS."""
    parts = []
    for number, table in enumerate(DOMAINS):
        raw = database.columns(table, ("start", "globalTid", *COLUMNS))
        end_ns = np.where(raw["end"] == MISSING, _LAST_NS, raw["end"])
        kept = (end_ns > raw["start"]) & (end_ns >= (MISSING if since_ns is None else since_ns))
        part = {column: values[kept] for column, values in raw.items()}
        parts.append(part | {"table": np.full(len(part["start"]), number, np.int64)})
    return {column: joined([part[column] for part in parts]) for column in parts[0]}


def with_constructs(
    ranges: Ranges, domains: tuple[str, ...], raw: Raw, indexes: Indexes
) -> tuple[Ranges, tuple[str, ...], dict[int, Construct]]:
    """Ranges and the names of their domains, with those of the constructs; and what is told of constructs by name."""
    if len(raw["start"]) == 0:
        return ranges, domains, {}
    (name, known), of_table = _names(raw, indexes), tuple(DOMAINS.values())
    every = tuple(sorted({*domains, *(of_table[table] for table in unique(raw["table"]).tolist())}))
    place = {text: number for number, text in enumerate(every)}
    moved = np.array([place[text] for text in domains], np.int32)
    together = replace(ranges, domain=moved[ranges.domain]).and_more(
        {
            "start_ns": raw["start"],
            "end_ns": indexes.ends(raw["end"]),
            "thread": indexes.identities.threads(raw["globalTid"]),
            "name": name,
            "domain": np.array([place.get(text, 0) for text in of_table], np.int32)[raw["table"]],
            "is_start_end": np.zeros(len(name), bool),
            "is_open": raw["end"] == MISSING,
        }
    )
    return together.sorted(indexes.pool.names()), every, known


def _names(raw: Raw, indexes: Indexes) -> tuple[Int32Array, dict[int, Construct]]:
    """The index of each construct's name, and the constructs of OpenACC by these."""
    kinds, which = factorize(*(raw[column] for column in ("table", *COLUMNS[1:])))
    texts, of_table = indexes.database.texts, tuple(DOMAINS.values())
    names: list[int] = []
    known: dict[int, Construct] = {}

    def text(number: int) -> str:
        found = texts.get(number, "")
        return "" if found in _NO_NAMES else found

    for table, name, kind, file, line, variable in kinds.tolist():
        what = text(name) or "(unnamed)"
        if of_table[table] == OPENACC:
            construct = Construct(file_name(text(file)), line, _ACC_KINDS.get(kind, what), text(variable))
            names.append(indexes.pool.add(str(construct)))
            known[names[-1]] = construct
        else:
            names.append(indexes.pool.add(what))
    return np.array(names, np.int32)[which], known
