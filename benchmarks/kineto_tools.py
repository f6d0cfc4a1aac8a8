"""CPU time and memory of boundby against other readers of PyTorch profiler traces, each in a process of its own.

    python -m benchmarks.kineto_tools FILE.json.gz... --python OTHER/bin/python

``--python`` names an interpreter with HolisticTraceAnalysis and TraceLens (PyPI) installed; boundby runs in this one.
All of boundby's work counts: reading, account, verdicts, replay, findings, the JSON report. HTA reads the trace and
breaks down idle time; TraceLens makes its performance report. ``read`` is the reader alone beside gunzip and orjson.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_BOUNDBY = "import sys, boundby; boundby.analyze(sys.argv[1])"
_READ = "import sys; from boundby.readers import read_trace; read_trace(sys.argv[1])"
_ORJSON = "import sys, gzip, orjson; orjson.loads(gzip.open(sys.argv[1]).read())"
_HTA = """
import sys, os, shutil, tempfile
from hta.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
shutil.copy(sys.argv[1], os.path.join(folder, "rank0.json.gz"))
analysis = TraceAnalysis(trace_files={0: os.path.join(folder, "rank0.json.gz")}, trace_dir=folder)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
"""
_TRACELENS = """
import sys
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
generate_perf_report_pytorch(profile_json_path=sys.argv[1], output_csvs_dir=sys.argv[2])
"""


def cost(python: str, code: str, file: Path) -> tuple[float, float] | None:
    """CPU seconds and peak memory (MB) of a process; None where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        shown = subprocess.Popen(
            [python, "-c", code, str(file), folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(shown.pid, 0)
    return None if status else (used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> int:
    """Read the command line, measure, show a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", required=True, help="an interpreter with HTA, TraceLens and orjson")
    arguments = parser.parse_args()
    tools = (
        ("boundby", sys.executable, _BOUNDBY),
        ("read", sys.executable, _READ),
        ("gunzip + orjson", arguments.python, _ORJSON),
        ("HTA", arguments.python, _HTA),
        ("TraceLens", arguments.python, _TRACELENS),
    )
    print("file".ljust(40), *(name.rjust(22) for name, _, _ in tools))
    for file in arguments.files:
        found = [cost(python, code, file) for _, python, code in tools]
        cells = ["failed" if one is None else f"{one[0]:.2f} s {one[1]:.0f} MB" for one in found]
        print(file.name[:40].ljust(40), *(cell.rjust(22) for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
