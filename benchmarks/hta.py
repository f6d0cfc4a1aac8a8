"""boundby against HolisticTraceAnalysis (HTA): compute, other work, idle time and overlap of each trace.

    python -m benchmarks.hta FILE.json.gz... --python OTHER/bin/python

``--python`` names an interpreter with HolisticTraceAnalysis (PyPI) installed. HTA is asked for nanoseconds
(HTA_DISABLE_NS_ROUNDING) and for the last step, which it leaves out otherwise. Both count from the first operation to
the end of the last one; overlap is the share of communication during which a computation runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boundby.api import Analysis
from boundby.attribution.segments import Segments
from boundby.model.causes import Cause
from boundby.model.intervals import union

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


def _total_ns(pieces: Segments, cause: Cause) -> int:
    return int(pieces.length_ns[pieces.cause == cause].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", required=True)
    asked = parser.parse_args()
    print("| trace | compute (us): HTA, boundby | other work | idle | overlap (%) |")
    print("| --- | --- | --- | --- | --- |")
    for file in asked.files:
        ours, theirs = of_boundby(file), of_hta(asked.python, file)
        if ours is None or isinstance(theirs, str):
            print(
                f"| {file.name} | HTA: {theirs if isinstance(theirs, str) else 'an account'}; boundby: {ours} | | | |"
            )
            continue
        cells = (f"{a:,.1f}, {b:,.1f}" for a, b in zip(theirs, ours, strict=True))
        print(f"| {file.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
