"""CPU time and memory of boundby against other readers of PyTorch profiler traces, each in a process of its own.

    python -m benchmarks.kineto_tools FILE.json.gz... --python OTHER/bin/python
    python -m benchmarks.kineto_tools FILE.json.gz --python OTHER/bin/python --megabytes 1000

``--python`` names an interpreter with HolisticTraceAnalysis (PyPI) installed, and with AMD's TraceLens where that can
be had (it is not on PyPI, where another project has its name); boundby runs in this one. ``boundby`` is all of its
work: reading, account, verdicts, replay, findings, the report. ``account`` is what ``HTA`` does: it reads the trace and
breaks time down, by region besides. TraceLens makes its performance report. ``read`` is the reader alone, beside gunzip
and orjson. Every program has run once before, so that its bytecode is there, as after an installation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_BOUNDBY = "import sys, boundby; boundby.analyze(sys.argv[1])"
_ACCOUNT = "import sys; from boundby.api import Analysis; Analysis(sys.argv[1]).stats"
_READ = "import sys; from boundby.readers import read_trace; read_trace(sys.argv[1])"
_ORJSON = """
import sys, gzip, orjson
orjson.loads((gzip.open if sys.argv[1].endswith("gz") else open)(sys.argv[1], "rb").read())
"""
_HTA = """
import sys, os, shutil, tempfile
from hta.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
copy = os.path.join(folder, "rank0.json" + (".gz" if sys.argv[1].endswith("gz") else ""))
shutil.copy(sys.argv[1], copy)
analysis = TraceAnalysis(trace_files={0: copy}, trace_dir=folder)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
"""
_TRACELENS = """
import sys
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
generate_perf_report_pytorch(profile_json_path=sys.argv[1], output_csvs_dir=sys.argv[2])
"""


def cost(python: str, code: str, file: Path, bytecode: str) -> tuple[float, float] | None:
    """CPU seconds and peak memory (MB) of a process; None where it failed."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        shown = subprocess.Popen(
            [python, "-c", code, str(file), folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**surroundings, "PYTHONPYCACHEPREFIX": bytecode},
        )
        _, status, used = os.wait4(shown.pid, 0)
    return None if status else (used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def repeated(file: Path, folder: Path, megabytes: int) -> Path:
    """A trace of this size in text, not compressed: the events of a file again and again, each time later, with
    correlation ids and step numbers of their own."""
    with gzip.open(file) as packed:
        trace = json.load(packed)
    events = [event for event in trace["traceEvents"] if "ts" in event and "dur" in event]
    first = min(event["ts"] for event in events)
    length = max(event["ts"] + event["dur"] for event in events) - first
    calls = 1 + max(int(event.get("args", {}).get("correlation", 0)) for event in events)
    target = folder / f"{file.name.partition('.')[0]}_{megabytes}.json"
    with target.open("w") as out:
        out.write(json.dumps({key: value for key, value in trace.items() if key != "traceEvents"})[:-1])
        out.write(', "traceEvents": [\n')
        turn = 0
        while out.tell() < megabytes * 1_000_000:
            for event in events:
                made = {**event, "ts": event["ts"] + turn * length}
                arguments = event.get("args", {})
                if "correlation" in arguments:
                    made["args"] = {**arguments, "correlation": int(arguments["correlation"]) + turn * calls}
                if event["name"].startswith("ProfilerStep#"):
                    made["name"] = f"ProfilerStep#{int(event['name'][13:]) + 1_000 * turn}"
                out.write(json.dumps(made) + ",\n")
            turn += 1
        out.write(json.dumps({**events[0], "ph": "i"}) + "]}")
    return target


def main() -> int:
    """Read the command line, measure, show a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", required=True, help="an interpreter with HTA, TraceLens and orjson")
    parser.add_argument("--megabytes", type=int, help="repeat the events of each file up to this size of text")
    arguments = parser.parse_args()
    tools = (
        ("boundby", sys.executable, _BOUNDBY),
        ("account", sys.executable, _ACCOUNT),
        ("read", sys.executable, _READ),
        ("gunzip + orjson", arguments.python, _ORJSON),
        ("HTA", arguments.python, _HTA),
        ("TraceLens", arguments.python, _TRACELENS),
    )
    print("file".ljust(40), *(name.rjust(22) for name, _, _ in tools))
    with tempfile.TemporaryDirectory() as bytecode:
        for _, python, code in tools:
            cost(python, code, arguments.files[0], bytecode)
        for name in arguments.files:
            file = repeated(name, Path(bytecode), arguments.megabytes) if arguments.megabytes else name
            found = [cost(python, code, file, bytecode) for _, python, code in tools]
            cells = ["failed" if one is None else f"{one[0]:.2f} s {one[1]:.0f} MB" for one in found]
            print(file.name[:40].ljust(40), *(cell.rjust(22) for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
