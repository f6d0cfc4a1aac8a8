"""boundby against HolisticTraceAnalysis (HTA): compute, other work, idle time and overlap of each trace.

    python -m benchmarks.hta FILE.json.gz... --python OTHER/bin/python

``--python`` names an interpreter with HolisticTraceAnalysis (PyPI) installed. HTA is asked for nanoseconds
(HTA_DISABLE_NS_ROUNDING) and for the last step, which it leaves out otherwise. Both count from the first operation to
the end of the last one; overlap is the share of communication during which a computation runs.

A second table has what AMD's TraceLens would say of communication. It is on no package index: its rule
(TreePerf/gpu_event_analyser.py, util.py) is applied here to the events as they stand in the file. Communication is a
kernel with rccl, nccl or cross_device_reduce in its name; exposed is what no other kernel and no memset covers. With
``--only-tracelens`` no ``--python`` is needed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from boundby.api import Analysis
from boundby.attribution.segments import Segments
from boundby.model.causes import Cause
from boundby.model.intervals import IntervalSet, subtract, union

_HTA = """
import sys, os, shutil, tempfile, json, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
copy = os.path.join(folder, "rank0.json" + (".gz" if sys.argv[1].endswith("gz") else ""))
shutil.copy(sys.argv[1], copy)
found = TraceAnalysis(trace_files={0: copy}, trace_dir=folder, include_last_profiler_step=True)
row = found.get_temporal_breakdown(visualize=False).to_dict("records")[0]
try:
    overlap = float(found.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0])
except Exception:
    overlap = float("nan")
print("RESULT " + json.dumps([row["compute_time(us)"], row["non_compute_time(us)"], row["idle_time(us)"], overlap]))
"""


class Breakdown(NamedTuple):
    """Microseconds; overlap in per cent, NaN without communication."""

    compute: float
    other: float
    idle: float
    overlap: float


def of_hta(python: str, file: Path) -> Breakdown | str:
    """What HTA says, or the last line of what it fails with."""
    surroundings = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
    shown = subprocess.run(
        [python, "-c", _HTA, str(file)], capture_output=True, text=True, env=surroundings, check=False
    )
    told = [line for line in shown.stdout.splitlines() if line.startswith("RESULT ")]
    if not told:
        return (shown.stderr.strip().splitlines() or ["nothing"])[-1]
    return Breakdown(*json.loads(told[0].removeprefix("RESULT ")))


def of_boundby(file: Path) -> Breakdown | None:
    """The account of the device with most work, without idle time before its first operation and after its last one."""
    timeline = Analysis(str(file)).timeline
    if not timeline.devices:
        return None
    device = max(timeline.devices, key=lambda one: one.busy.total)
    table = device.operations.table
    compute, comm, copy = (
        _total_ns(device.segments, cause) for cause in (Cause.GPU_COMPUTE, Cause.GPU_COMM, Cause.GPU_COPY)
    )
    rows = np.flatnonzero(table.is_communication)
    communication_ns = union(table.start_ns[rows], table.end_ns[rows]).total
    span_ns = int(table.end_ns.max() - table.start_ns.min())
    overlap = 100 * (1 - comm / communication_ns) if communication_ns else float("nan")
    return Breakdown(compute / 1e3, (comm + copy) / 1e3, (span_ns - compute - comm - copy) / 1e3, overlap)


class Exposed(NamedTuple):
    """Microseconds of communication, of that without work beside it, of copies alone, and idle."""

    communication: float
    exposed: float
    copies: float
    idle: float


def by_rule_of_tracelens(file: Path) -> Exposed:
    """TraceLens's rule on the events of a file, of all devices in it together."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as text:
        events = [event for event in json.load(text)["traceEvents"] if event.get("ph") == "X"]
    kinds = [[event for event in events if _kind_of(event) == kind] for kind in range(3)]
    first = min(event["ts"] for kind in kinds for event in kind)
    busy, comm, copy = (_union(kind, first) for kind in kinds)
    alone = subtract(comm, busy)
    copies_alone = subtract(subtract(copy, busy), comm)
    span = max(int(one.end.max()) for one in (busy, comm, copy) if len(one.end))
    idle = span - busy.total - alone.total - copies_alone.total
    return Exposed(*(number / 1e3 for number in (comm.total, alone.total, copies_alone.total, idle)))


_OF_TRACELENS = re.compile("rccl|nccl|cross_device_reduce", re.IGNORECASE)


def _kind_of(event: dict[str, Any]) -> int:
    """0: computation, 1: communication, 2: a copy, -1: none of the device's."""
    kind = event.get("cat")
    if kind == "kernel":
        return int(_OF_TRACELENS.search(event["name"]) is not None)
    return {"gpu_memset": 0, "gpu_memcpy": 2}.get(str(kind), -1)


def _union(events: list[dict[str, Any]], first: float) -> IntervalSet:
    start = np.array([round((event["ts"] - first) * 1e3) for event in events], np.int64)
    return union(start, start + np.array([round(event["dur"] * 1e3) for event in events], np.int64))


def exposed_by_boundby(file: Path) -> Exposed | None:
    """The same of the device with most work. Its copies hold sets of memory, too."""
    analysis, ours = Analysis(str(file)), of_boundby(file)
    if ours is None:
        return None
    report = max(analysis.devices, key=lambda one: one.busy_ns)
    told = report.communication
    communication, exposed = (0, 0) if told is None else (told.total_ns, told.exposed_ns)
    return Exposed(communication / 1e3, exposed / 1e3, report.time["gpu_copy"] / 1e3, ours.idle)


def _total_ns(pieces: Segments, cause: Cause) -> int:
    return int(pieces.length_ns[pieces.cause == cause].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python")
    parser.add_argument("--only-tracelens", action="store_true")
    asked = parser.parse_args()
    if not asked.only_tracelens:
        _beside_hta(asked.files, asked.python or parser.error("--python names an interpreter with HTA"))
    print("| trace | communication (us): TraceLens's rule, boundby | exposed | copies alone | idle |")
    print("| --- | --- | --- | --- | --- |")
    for file in asked.files:
        found = exposed_by_boundby(file)
        if found is not None:
            cells = (f"{a:,.1f}, {b:,.1f}" for a, b in zip(by_rule_of_tracelens(file), found, strict=True))
            print(f"| {file.name} | {' | '.join(cells)} |", flush=True)


def _beside_hta(files: list[Path], python: str) -> None:
    print("| trace | compute (us): HTA, boundby | other work | idle | overlap (%) |")
    print("| --- | --- | --- | --- | --- |")
    for file in files:
        ours, theirs = of_boundby(file), of_hta(python, file)
        if ours is None or isinstance(theirs, str):
            print(
                f"| {file.name} | HTA: {theirs if isinstance(theirs, str) else 'an account'}; boundby: {ours} | | | |"
            )
            continue
        cells = (f"{a:,.1f}, {b:,.1f}" for a, b in zip(theirs, ours, strict=True))
        print(f"| {file.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
