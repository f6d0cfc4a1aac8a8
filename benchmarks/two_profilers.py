"""One program, two profilers: random simulated programs written as an nsys export and as PyTorch profiler JSON.

    python -m benchmarks.two_profilers --programs 1000
    python -m benchmarks.two_profilers --programs 1000 --whole

The export holds what JSON can hold, and then verdicts must be the same, and accounts to the format's resolution. With
``--whole`` it also holds what JSON cannot: OS calls and context switches (who woke whom), and how streams relate to the
null stream; what that changes is counted, and named by cause.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from boundby.api import Analysis
from boundby.model.records import dataclass
from boundby.results.report import Report
from boundby.simulate.engine import Run, simulate
from boundby.simulate.export import Capture, to_export
from boundby.simulate.generate import generate
from boundby.simulate.kineto import to_kineto
from boundby.simulate.script import realise

#: Accounts that differ by less than this share of the window are the same: an instant at a border has two neighbours.
SAME = 0.001


@dataclass(frozen=True)
class Pair:
    """One program in both reports. ``moved``: the share of the window by cause, JSON's minus the export's."""

    seed: int
    bounds: tuple[tuple[str, str], ...]
    moved: dict[str, float]

    @property
    def is_same_verdict(self) -> bool:
        return all(one == other for one, other in self.bounds)

    @property
    def is_same_account(self) -> bool:
        return all(abs(share) <= SAME for share in self.moved.values())


def run_of(seed: int) -> Run | None:
    """A random program of one process (JSON holds one), run; None: it has more, or nothing of it is on a device."""
    case = generate(seed)
    if len(case.program.processes) > 1:
        return None
    run = simulate(realise(case.program, case.machine))
    return run if run.operations else None


def compare(seed: int, run: Run, folder: Path, *, whole: bool) -> Pair:
    """Write both, analyse both. ``whole`` False: the export holds no more than JSON can."""
    export, text = folder / f"{seed}.sqlite", folder / f"{seed}.json"
    rows = to_export(run, Capture(graph_nodes=True, osrt=whole, sched=whole))
    if not whole:
        rows.rows.pop("TARGET_INFO_CUDA_STREAM", None)
    rows.write(export, "2023")
    text.write_text(json.dumps(to_kineto(run, with_sleeps=whole)))
    one, other = (Analysis(path).report for path in (export, text))
    export.unlink()
    text.unlink()
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
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    pairs: list[Pair] = []
    seed = arguments.seed
    with tempfile.TemporaryDirectory() as folder:
        while len(pairs) < arguments.programs:
            run = run_of(seed)
            if run is not None:
                pairs.append(compare(seed, run, Path(folder), whole=arguments.whole))
                if not pairs[-1].is_same_verdict or not pairs[-1].is_same_account:
                    large = {cause: round(share, 4) for cause, share in pairs[-1].moved.items() if abs(share) > SAME}
                    print(f"seed {seed}: {pairs[-1].bounds} {large}", flush=True)
            seed += 1
    verdicts, accounts = (
        sum(pair.is_same_verdict for pair in pairs),
        sum(pair.is_same_account for pair in pairs),
    )
    print(f"{len(pairs):,} programs: {verdicts:,} same verdicts, {accounts:,} same accounts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
