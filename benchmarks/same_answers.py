"""Are the answers the same before and after a change? JSON of every input, written by two versions and compared.

    python -m benchmarks.same_answers inputs FOLDER                  # seeded simulated programs, as exports
    PYTHONPATH=old/src python -m benchmarks.same_answers write FOLDER OLD
    python -m benchmarks.same_answers write FOLDER NEW
    python -m benchmarks.same_answers compare OLD NEW

Written are the results of ``analyze``, ``what-if``, ``job`` and ``compare`` of all real traces (``BOUNDBY_TRACES``,
else ``../shared/traces``), of sample_reports and of the simulated programs. Only commands and files are used, so this
script runs with any version of the package.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAIRS = (
    "openmp_heat_before openmp_heat_after",
    "pair_lm_fp32 pair_lm_bf16",
    "input_before input_after",
    "pair_one_thread pair_256_threads",
    "pair_pageable pair_pinned",
    "pair_chunks_of_1000 pair_chunks_of_50000",
    "pair_fixed_window_before pair_fixed_window_after",
    "pair_ngp_many_streams_slow pair_ngp_many_streams_fast",
)
PROGRAMS, SEED = 60, 7_000_000
#: Floating point numbers are the same within this: the order of a sum may change their last digits.
ROUNDING = 1e-9
#: A result's file name, the arguments that make it, and the folder that takes it.
Job = tuple[str, list[str], str]
#: Jobs that a process does before another takes its place.
A_PROCESS = 20
#: Differences shown of one file.
MOST_SHOWN = 12


def traces() -> Path:
    """Where the real traces lie."""
    return Path(os.environ.get("BOUNDBY_TRACES") or ROOT.parent / "shared/traces").resolve()


def make_inputs(folder: Path, programs: int, seed: int) -> None:
    """Write simulated programs, every pattern and random ones, as exports of all schema generations."""
    import random

    from benchmarks.simulated.counterfactual import Case
    from benchmarks.simulated.generate import generate
    from boundby.simulate.machine import Machine
    from boundby.simulate.nsys_export import to_export
    from boundby.simulate.patterns import PATTERNS

    folder.mkdir(parents=True, exist_ok=True)
    machine = Machine(host_jitter=0.05, device_jitter=0.01)
    cases = [
        Case(name, known.make(random.Random(0), 20), machine, 0, known.healthy) for name, known in PATTERNS.items()
    ]
    cases += [generate(seed + number) for number in range(programs)]
    for number, case in enumerate(cases):
        schema = ("2023", "2026", "2022", "2019")[number % 4]
        to_export(case.run()).write(folder / f"{number:04d}-{schema}.sqlite", schema)


def runs(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Each result's file name and the arguments that make it."""
    real = sorted([*traces().rglob("*.sqlite"), *traces().rglob("*.json.gz")])
    jobs = sorted(traces().rglob("job_*/"))
    samples = sorted(path.relative_to(ROOT) for path in (ROOT / "sample_reports").glob("*.sqlite"))
    simulated = sorted(folder.resolve().glob("*.sqlite"))
    for path in (*real, *samples, *simulated):
        yield f"{path.stem}.analyze.json", ["analyze", str(path), "--format", "json", "--all"]
    for path in (*real, *samples, *simulated[:12]):
        yield f"{path.stem}.what-if.json", ["what-if", str(path), "--format", "json"]
    for path in (*real, *samples):
        yield f"{path.stem}.terminal.txt", ["analyze", str(path), "--quiet"]
        yield f"{path.stem}.full.txt", ["analyze", str(path), "--quiet", "--format", "markdown", "--all"]
    for path in jobs:
        yield f"{path.stem}.job.json", ["job", str(path), "--format", "json"]
        yield f"{path.stem}.job.txt", ["job", str(path)]
    known = {path.stem: str(path) for path in (*real, *samples)}
    for pair in PAIRS:
        before, after = pair.split()
        if before in known and after in known:
            arguments = ["compare", known[before], known[after], "--format", "json"]
            yield f"{before}-{after}.compare.json", arguments
            yield f"{before}-{after}.compare.txt", arguments[:3]


def write_one(job: Job) -> str:
    """Run one command in this process; its output and exit code become a file."""
    from boundby.cli.main import main

    name, arguments, folder = job
    os.chdir(ROOT)  # reports of the repository are named the same in every checkout
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    text = out.getvalue() if code == 0 else json.dumps({"exit_code": code, "stderr": err.getvalue()})
    Path(folder, name).write_text(text, encoding="utf-8")
    return name


def write(inputs: Path, results: Path, only: str, workers: int) -> int:
    """Write every result whose name holds ``only``. The number of commands whose process died; their results say so."""
    results.mkdir(parents=True, exist_ok=True)
    jobs = [(name, arguments, str(results.resolve())) for name, arguments in runs(inputs) if only in name]
    died = 0
    for number, (job, is_written) in enumerate(in_processes(jobs, workers), 1):
        if not is_written:
            died += 1
            Path(results, job[0]).write_text(json.dumps({"died": True}), encoding="utf-8")
            print(f"\nthe process of {job[0]} died: boundby {shlex.join(job[1])}", file=sys.stderr)
        print(f"\r{number} of {len(jobs)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return died


def in_processes(
    jobs: Sequence[Job], workers: int, work: Callable[[Job], object] = write_one
) -> Iterator[tuple[Job, bool]]:
    """Each job, and whether its process lived. A process that dies takes its pool with it: what that did not finish is
    done again, one at a time, so that it is known which job it was."""
    for first in range(0, len(jobs), workers * A_PROCESS):
        alone: list[Job] = []
        with ProcessPoolExecutor(workers) as pool:
            futures = {pool.submit(work, job): job for job in jobs[first : first + workers * A_PROCESS]}
            for future in as_completed(futures):
                if isinstance(future.exception(), BrokenProcessPool):
                    alone.append(futures[future])
                else:
                    future.result()
                    yield futures[future], True
        for job in alone:
            lived = False
            with ProcessPoolExecutor(1) as pool, contextlib.suppress(BrokenProcessPool):
                pool.submit(work, job).result()
                lived = True
            yield job, lived


def differences(old: Any, new: Any, place: str = "") -> Iterator[tuple[str, str, str]]:
    """(place, old, new) of everything that differs between two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in new:
                yield f"{place}.{key}", _short(old[key]), "absent"
            elif key not in old:
                yield f"{place}.{key}", "absent", _short(new[key])
            else:
                yield from differences(old[key], new[key], f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{place}[]", f"{len(old)} items", f"{len(new)} items"
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, f"{place}[{number}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=ROUNDING):
            yield place, _short(old), _short(new)
    elif old != new or type(old) is not type(new):
        yield place, _short(old), _short(new)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 90 else text[:87] + "..."


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else text.splitlines()


def compare(old: Path, new: Path, only: str) -> int:
    """Print what differs, file by file, and a count by key; the number of files that differ."""
    differing, keys, total = 0, Counter[str](), 0
    for path in sorted(old.iterdir()):
        if only not in path.name:
            continue
        total += 1
        other = new / path.name
        found = list(differences(_read(path), _read(other))) if other.exists() else [("", "a file", "absent")]
        if not found:
            continue
        differing += 1
        print(f"{path.name}: {len(found)} differences")
        for place, one, two in found[:MOST_SHOWN]:
            print(f"  {place}\n    - {one}\n    + {two}")
        keys.update(place.rsplit(".", 1)[-1].split("[")[0] for place, _, _ in found)
    print(f"{total - differing} of {total} files the same")
    for key, count in keys.most_common():
        print(f"  {count:6d}  {key}")
    return differing


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    inputs = commands.add_parser("inputs")
    inputs.add_argument("folder", type=Path)
    inputs.add_argument("--programs", type=int, default=PROGRAMS)
    inputs.add_argument("--seed", type=int, default=SEED)
    writing = commands.add_parser("write")
    writing.add_argument("inputs", type=Path)
    writing.add_argument("results", type=Path)
    writing.add_argument("--only", default="", help="part of the results' names")
    writing.add_argument("--workers", type=int, default=2)
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--only", default="")
    given = parser.parse_args(arguments)
    if given.command == "inputs":
        make_inputs(given.folder, given.programs, given.seed)
        return 0
    if given.command == "write":
        return 1 if write(given.inputs, given.results, given.only, given.workers) else 0
    return 1 if compare(given.old, given.new, given.only) else 0


if __name__ == "__main__":
    sys.exit(main())
