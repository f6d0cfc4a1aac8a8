"""boundby's side of the comparison: each trace read and analysed once, unfolded, in NVIDIA's terms."""

from __future__ import annotations

import functools
import re
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

import boundby
from boundby.attribution import regions
from boundby.attribution.timeline import Timeline
from boundby.readers.nsys import host_tables
from boundby.replay.counterfactuals import Counterfactuals
from boundby.results.report import Report
from boundby.rules.builtin import builtin
from boundby.trace.tables import Trace
from boundby.trace.vocabulary.os import MPI_DOMAIN
from tests.support.traces import analysis_of, tables_of, traces_folder

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Analysis:
    """One trace: as read (device times as recorded), its timeline, and the report a user gets, but for what is replayed
    and for findings, of which NVIDIA's reports say nothing."""

    trace: Trace
    timeline: Timeline
    report: Report

    def pid(self, thread: int) -> int:
        return self.trace.threads[thread].pid

    def tid(self, thread: int) -> int:
        return self.trace.threads[thread].tid

    @property
    def call_thread(self) -> npt.NDArray[np.int64]:
        """Per operation: the thread of its launching call; -1 where there is none."""
        calls = self.timeline.calls
        known = calls.of_operation >= 0
        if len(calls) == 0:
            return np.full(len(known), -1, np.int64)
        return np.where(known, calls.thread[np.maximum(calls.of_operation, 0)], -1)

    def range_name(self, row: int) -> str:
        """A range's name as nsys prints it: with its domain, if that is not the default one."""
        ranges = self.trace.ranges
        return full_name(self.trace.domains[ranges.domain[row]], self.trace.names[ranges.name[row]])


@functools.lru_cache(maxsize=2)  # tests of one trace follow one another
def analysis(path: Path) -> Analysis:
    """Read and analyse one trace; the result is shared."""
    folder, source = traces_folder(), None
    if folder is not None and path.is_relative_to(folder):
        source = _as_annotated(analysis_of(path.relative_to(folder).as_posix()).trace, path)
    rules = tuple(rule.id for rule in builtin())
    found = boundby.Analysis(source or path, fold=False, find_regions=False, disable=rules)
    found.replayed = Counterfactuals()
    with mock.patch.object(regions, "MOST_REGIONS", 1 << 30):  # names that do not fold make more of them
        return Analysis(found.trace, found.timeline, found.report)


def _as_annotated(trace: Trace, path: Path) -> Trace:
    """Without the ranges that stand for calls of MPI and for constructs: they are in no report about NVTX."""
    tables = tables_of(path)
    others = {domain for table, domain in host_tables.CONSTRUCT_DOMAINS.items() if table in tables}
    others |= {MPI_DOMAIN} if any(table.startswith("MPI_") for table in tables) else set()
    own = np.array([domain not in others for domain in trace.domains], bool)
    return trace if own.all() else replace(trace, ranges=trace.ranges.take(own[trace.ranges.domain]))


def full_name(domain: str, name: str) -> str:
    """``domain:name``, as nsys writes it. Named difference: a domain whose creation is not on record has a number here,
    and no name there."""
    return f"{domain}:{name}" if domain and not re.fullmatch(r"domain \d+", domain) else name


def call_name(name: str) -> str:
    """An API call's name as NVIDIA prints it: without a suffix of ``_v`` and four digits."""
    return name[:-6] if name[-6:-4] == "_v" else name


@dataclass(frozen=True)
class Sum:
    """What NVIDIA's summaries say of a group of durations. Medians have one decimal there."""

    count: int
    total_ns: int
    median_ns: float
    least_ns: int
    longest_ns: int


def summarize(items: Iterable[tuple[Key, int]]) -> dict[Key, Sum]:
    """Durations by key, summed up."""
    groups: dict[Key, list[int]] = defaultdict(list)
    for key, duration in items:
        groups[key].append(duration)
    return {
        key: Sum(len(times), sum(times), round(statistics.median(times), 1), min(times), max(times))
        for key, times in groups.items()
    }


def sum_of(row: Mapping[str, str], count: str) -> Sum:
    """The same from a row of NVIDIA's; ``count`` names its column of counts."""
    return Sum(
        int(row[count]),
        int(row["Total Time (ns)"]),
        float(row["Med (ns)"]),
        int(row["Min (ns)"]),
        int(row["Max (ns)"]),
    )


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query on the trace itself, without boundby."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
