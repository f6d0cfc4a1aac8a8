"""Is a limit that the whole report breaks ever kept by a damaged copy of it? Every quantity by every kind of damage.

    python -m benchmarks.gate [--traces FOLDER] [--copies 3]

Of each source (those of sample_reports, and real traces up to `MOST_OPERATIONS` operations) copies lose records in
each way of `benchmarks.damage` and by whole tables. Each quantity is held against half of its value in the whole
report: that is broken there, so no copy may keep it. Exits with 1 where one does.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from benchmarks import damage
from boundby.api import Analysis
from boundby.compare import gate
from boundby.compare.quantities import QUANTITIES
from boundby.model.errors import UserError
from boundby.opening import open_trace
from boundby.results.report import Report
from boundby.trace.tables import OpKind, Trace

_SAMPLES = Path(__file__).parents[1] / "sample_reports"
MOST_OPERATIONS = 6_000
#: These change what was run, or are right about a part of it: of a process that is gone from every table a report
#: says as little as one of which it was no part.
_NO_LOSS = {"window-cut", "clock-shifted", "one-time", "graph-rows", "process-lost"}
#: Less than this part of the window is not held: it is no figure of any page, and no finding.
LEAST_SHARE = 0.001
_TABLES = ("operations", "api", "ranges", "os_calls", "schedule")
_CAPTURED = {"schedule": "cpu_scheduling", "os_calls": "osrt", "ranges": "nvtx"}
Damaged = Callable[[Trace, random.Random], Trace | None]


def _without(name: str) -> Damaged:
    def empty(trace: Trace, _chance: random.Random) -> Trace | None:
        table = getattr(trace, name)
        if not len(table):
            return None
        captured = trace.captured
        if name == "api":
            captured = replace(captured, cuda_api=False)
        if name == "operations":
            captured = replace(captured, kernels=False, memcpy=False, cuda_graphs=False)
        if name in _CAPTURED:  # as a reader tells them, of which no row is there
            captured = replace(captured, **{_CAPTURED[name]: False})
        return replace(trace, captured=captured, **{name: table.take(np.zeros(len(table), bool))})

    return empty


def _by(name: str) -> Damaged:
    def lose(trace: Trace, chance: random.Random) -> Trace | None:
        copy = damage.DAMAGES[name](trace, chance, chance.choice((0.3, 0.6, 0.95)))
        if copy is None:
            return None
        # A set of no byte leaves no record either: where sets alone are gone, that is all that calls can tell.
        work, left = (np.count_nonzero(one.operations.kind != OpKind.MEMSET) for one in (trace, copy.trace))
        return None if work == left and len(copy.trace.operations) < len(trace.operations) else copy.trace

    return lose


DAMAGES: dict[str, Damaged] = {
    **{f"without-{name}": _without(name) for name in _TABLES},
    **{name: _by(name) for name in damage.DAMAGES if name not in _NO_LOSS},
}


def broken_limits(report: Report) -> Iterator[str]:
    """Limits that this report breaks: each quantity at half of what it is."""
    steps, window_ns = gate.step_of(report), max((device.window_ns for device in report.devices), default=0)
    for name, quantity in QUANTITIES.items():
        if quantity.needs_two or quantity.of_whole is None:
            continue
        least = {"ns": LEAST_SHARE * window_ns, "fraction": LEAST_SHARE}.get(quantity.unit, 0)
        values = [value for value in quantity.of_whole(report, steps).values() if value]
        if values and (value := max(values) / 2) > least / 2:
            unit = {"ns": " ns"}.get(quantity.unit, "")
            yield f"{name} <= {value:.6f}{unit}"


def kept(limits: Sequence[str], report: Report) -> list[str]:
    """Those of these that the report keeps."""
    found = []
    for text in limits:
        try:
            (result,) = gate.check([gate.parse(text)], report).limits
        except UserError:
            continue  # it cannot be held, and is not kept
        if result.kept:
            found.append(f"{text}: {result.message}")
    return found


def sources(folder: Path | None) -> list[Path]:
    real = sorted(folder.glob("*.sqlite")) if folder else []
    return [*sorted(_SAMPLES.glob("*.sqlite")), *real]


def run(paths: Sequence[Path], copies: int) -> Iterator[tuple[str, str, list[str], int]]:
    """Of each copy: source, damage, limits that it keeps, and how many were held."""
    for path in paths:
        try:
            trace = open_trace(path, None, lambda _stage, _part: None)
            # No call starts a migration of managed memory: nothing else tells that there was one.
            table = trace.operations
            trace = replace(trace, operations=table.take(table.kind != OpKind.MIGRATION))
            if not 20 <= len(trace.operations) <= MOST_OPERATIONS:
                continue
            limits = list(broken_limits(Analysis(trace).report))
        except UserError:
            continue
        for name, lose in DAMAGES.items():
            for number in range(1 if name.startswith("without-") else copies):
                copy = lose(trace, random.Random(f"{path.stem} {name} {number}"))
                if copy is None:
                    continue
                try:
                    report = Analysis(copy).report
                except UserError:
                    continue  # nothing is said
                yield path.stem, name, kept(limits, report), len(limits)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=os.environ.get("BOUNDBY_TRACES"))
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--most", type=int, default=None, help="So many sources.")
    chosen = parser.parse_args(arguments)
    green, held = Counter[str](), 0
    for source, name, wrongly, count in run(sources(chosen.traces)[: chosen.most], chosen.copies):
        held += count
        for text in wrongly:
            green[name] += 1
            print(f"{source}, {name}: {text}", flush=True)
    print(f"{held:,} limits held, {sum(green.values()):,} wrongly kept {dict(green)}")
    return int(bool(green))


if __name__ == "__main__":
    sys.exit(main())
