"""Write large synthetic exports and measure what an analysis of them costs, beside SQLite's own pass over them.

    python -m benchmarks.large --kernels 100000 1000000 3000000
    python -m benchmarks.large --kernels 1000000 --beside --nsys NSYS --nsys-ai NSYS_AI

The exports are simulated (``benchmarks.large_export``): launches, waits, ranges and OS calls of a training loop in the
schema of nsys 2023.4. Everything runs in a process of its own; seconds are CPU seconds of it and its children,
on all cores; files are in the page cache. The pass is the sqlite3 shell's sum over the columns that boundby reads.
``--beside`` also times NVIDIA's two NVTX reports (``nsys stats``) and ``nsys-ai diagnose`` on the same file.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.large_export import write_large

COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid graphNodeId demangledName "
    "shortName gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType globalTid textId domainId",
    "OSRT_API": "start end globalTid nameId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "streamId eventId correlationId globalPid deviceId",
}
#: What runs in the measured process: the steps of an analysis one after the other, CPU seconds and memory after each.
_STEPS = """
import json, os, resource, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command line has it
from boundby.api import Analysis
from boundby.model import stage
stage.own_process()
steps, before = {"start": time.process_time()}, time.process_time()
analysis = Analysis(sys.argv[1])
for step in ("trace", "timeline", "stats", "predictor", "replayed", "devices", "regions", "report", "plot_data"):
    getattr(analysis, step)
    now = time.process_time()
    steps[step], before = now - before, now
print(json.dumps({"steps": steps, "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


class Run(NamedTuple):
    """A command that has run."""

    cpu_s: float
    output: str


def run(*command: str | Path) -> Run:
    """CPU seconds of a command and its children, and what it printed. Raises CalledProcessError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout)


def sqlite_pass(path: Path) -> float:
    """CPU seconds of the sqlite3 shell summing up every column that is read."""
    sums = [
        f"SELECT {', '.join(f'total({c})' for c in names.split())} FROM {table};" for table, names in COLUMNS.items()
    ]
    return run("sqlite3", "-readonly", path, " ".join(sums)).cpu_s


def measure(path: Path) -> dict[str, object]:
    """What an analysis of a file costs, step by step, with the pass beside it."""
    pass_s = sqlite_pass(path)
    ran = run(sys.executable, "-c", _STEPS, path)
    told = json.loads(ran.output)
    return {
        "file_mb": round(path.stat().st_size / 1e6),
        "sqlite_pass_s": round(pass_s, 2),
        "analysis_s": round(ran.cpu_s, 2),
        "over_pass": round(ran.cpu_s / pass_s, 1),
        "peak_mb": round(told["peak_kib"] * 1024 / 1e6),
        "steps_s": {step: round(seconds, 2) for step, seconds in told["steps"].items()},
    }


def beside(path: Path, nsys: str | None, nsys_ai: str | None) -> dict[str, float]:
    """CPU seconds of other tools on the same file, and of ``boundby analyze``."""
    found = {"boundby analyze": run(sys.executable, "-m", "boundby.cli.main", "analyze", "--quiet", path).cpu_s}
    with tempfile.TemporaryDirectory() as folder:  # they write beside their input
        copy = Path(shutil.copy(path, folder))
        if nsys:
            reports = ("--report", "nvtx_gpu_proj_sum", "--report", "nvtx_kern_sum")
            found["nsys stats, two NVTX reports"] = run(nsys, "stats", *reports, "--format", "csv", copy).cpu_s
        if nsys_ai:
            found["nsys-ai diagnose"] = run(nsys_ai, "diagnose", copy).cpu_s
    return {tool: round(seconds, 2) for tool, seconds in found.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--keep", type=Path, help="a folder to write the exports to, and to find them in")
    parser.add_argument("--beside", action="store_true", help="time other tools, too")
    parser.add_argument("--nsys", default=shutil.which("nsys"))
    parser.add_argument("--nsys-ai", default=shutil.which("nsys-ai"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kernels in arguments.kernels:
            path = (arguments.keep or Path(folder)) / f"k{kernels}.sqlite"
            if not path.exists():
                write_large(path, kernels)
            found = {"kernels": kernels, **measure(path)}
            if arguments.beside:
                found["beside_s"] = beside(path, arguments.nsys, arguments.nsys_ai)
            print(json.dumps(found, indent=2), flush=True)


if __name__ == "__main__":
    main()
