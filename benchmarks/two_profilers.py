"""One program, two profilers: random simulated programs written as an nsys export and as PyTorch profiler JSON.

    python -m benchmarks.two_profilers --programs 1000

The export holds all that nsys records, OS calls and context switches among it; JSON has Python functions in their
place. Verdicts must be the same, and accounts to the format's resolution. Where one is not, what JSON cannot hold is
taken from the export, one fact at a time: the fact without which both agree explains it, and is named. What none
explains is an error of boundby: the command fails.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.simulated.generate import generate
from boundby.api import Analysis
from boundby.results.report import Report
from boundby.simulate.kineto import to_kineto
from boundby.simulate.machine import Run, realise, simulate
from boundby.simulate.nsys_export import Capture, to_export
from boundby.trace.tables import Intervals, Schedule, StreamPoints, Streams, Trace

#: Accounts that differ by less than this share of the window are the same: an instant at a border has two neighbours.
SAME = 0.001


#: What an export holds and JSON does not, in words: tables without it.
ABSENT: dict[str, dict[str, Any]] = {
    "how streams relate to the null stream": {"streams": Streams.empty()},
    "context switches": {"schedule": Schedule.empty()},
    "context switches and short OS calls": {"schedule": Schedule.empty(), "os_calls": Intervals.empty()},
    "records of events that nothing waits for": {"stream_points": StreamPoints.empty()},
}
#: Named where none of these is enough, and all that tells of sleeping threads, as JSON has it, is.
BY_FRAMES = "who sleeps and runs, told by Python functions and not by OS calls and context switches"


class Pair(Struct, frozen=True):
    """One program in both reports. ``moved``: the share of the window by cause, JSON's minus the export's.
    ``because``: the fact that JSON does not hold, where verdict or account differ; "" where nothing explains it."""

    seed: int
    bounds: tuple[tuple[str, str], ...]
    moved: dict[str, float]
    because: str = ""

    @property
    def is_same_verdict(self) -> bool:
        return all(one == other for one, other in self.bounds)

    @property
    def is_same_account(self) -> bool:
        return all(abs(share) <= SAME for share in self.moved.values())

    @property
    def is_same(self) -> bool:
        return self.is_same_verdict and self.is_same_account


def run_of(seed: int) -> Run | None:
    """A random program of one process (JSON holds one), run; None: it has more, or nothing of it is on a device."""
    case = generate(seed)
    if len(case.program.processes) > 1:
        return None
    run = simulate(realise(case.program, case.machine))
    return run if run.operations else None


def compare(seed: int, run: Run, folder: Path) -> Pair:
    """Write both, analyse both, and name what makes a difference."""
    export, text = folder / f"{seed}.sqlite", folder / f"{seed}.json"
    to_export(run, Capture(graph_nodes=True)).write(export, "2023")
    text.write_text(json.dumps(to_kineto(run)))
    one, other = Analysis(export), Analysis(text)
    pair = _pair(seed, one.report, other.report)
    if not pair.is_same:
        traces = {name: replace(one.trace, **tables) for name, tables in ABSENT.items()}
        traces[BY_FRAMES] = _told_by_frames(one.trace, other.trace)
        agree = (name for name, trace in traces.items() if _pair(seed, Analysis(trace).report, other.report).is_same)
        pair = replace(pair, because=next(agree, ""))
    export.unlink()
    text.unlink()
    return pair


def _told_by_frames(export: Trace, text: Trace) -> Trace:
    """The export with what JSON has in the place of OS calls and context switches."""
    places = {(thread.pid, thread.tid): number for number, thread in enumerate(export.threads)}
    frames = text.python_frames
    thread = [places[text.threads[number].pid, text.threads[number].tid] for number in frames.thread.tolist()]
    moved = replace(frames, thread=np.array(thread, np.int32), name=frames.name + np.int32(len(export.names)))
    names = (*export.names, *text.names)
    return replace(
        export,
        source=text.source,
        captured=text.captured,
        names=names,
        python_frames=moved.sorted(names),
        os_calls=Intervals.empty(),
        schedule=Schedule.empty(),
        streams=Streams.empty(),
    )


def _pair(seed: int, one: Report, other: Report) -> Pair:
    bounds = tuple((a.verdict.bound, b.verdict.bound) for a, b in zip(one.devices, other.devices, strict=True))
    return Pair(seed, bounds, _moved(one, other))


def _moved(one: Report, other: Report) -> dict[str, float]:
    window = sum(device.window_ns for device in one.devices)
    total: Counter[str] = Counter()
    for sign, report in ((-1, one), (1, other)):
        for device in report.devices:
            for cause, time_ns in device.time.items():
                total[cause] += sign * time_ns
    return {cause: time_ns / window for cause, time_ns in total.items() if time_ns}


def main() -> int:
    """Read the command line, compare, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    pairs: list[Pair] = []
    seed = arguments.seed
    with tempfile.TemporaryDirectory() as folder:
        while len(pairs) < arguments.programs:
            run = run_of(seed)
            if run is not None:
                pairs.append(compare(seed, run, Path(folder)))
                if not (pair := pairs[-1]).is_same:
                    large = {cause: round(share, 4) for cause, share in pair.moved.items() if abs(share) > SAME}
                    print(f"seed {seed}: {pair.bounds} {large}: {pair.because or 'NOT EXPLAINED'}", flush=True)
            seed += 1
    verdicts, accounts = sum(pair.is_same_verdict for pair in pairs), sum(pair.is_same_account for pair in pairs)
    print(f"{len(pairs):,} programs: {verdicts:,} same verdicts, {accounts:,} same accounts")
    why = Counter(pair.because or "not explained" for pair in pairs if not pair.is_same)
    for name, count in why.most_common():
        print(f"  {count:,} differ: {name}")
    return int("not explained" in why)


if __name__ == "__main__":
    raise SystemExit(main())
