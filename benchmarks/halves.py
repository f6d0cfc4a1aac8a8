"""Are parts of a trace bound by what the whole is? Halves and the time after the first steps of every report.

    python -m benchmarks.halves FOLDER [--only PART]

Each half of each device's window is analyzed with `--window`, as people would, and so is the trace without its first
step. A part agrees if its bound is the whole's, or one of those that it calls alike; if not, the report of the whole
must say that the program changes (its phases), or one of the two must say that the trace cannot tell or be of low
confidence. What is left is unexplained.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from boundby.api import Analysis
from boundby.model.errors import UserError
from boundby.opening import open_trace
from boundby.results.report import DeviceReport, Verdict
from boundby.trace.tables import Trace


def parts(trace: Trace, device: DeviceReport) -> Iterator[tuple[str, Analysis]]:
    """The halves of a device's window, and the trace without its first step, as far as they hold anything."""
    low, high = device.window.start_ns, device.window.end_ns
    middle = (low + high) // 2
    for name, first, last in (("first half", low, middle), ("second half", middle, high)):
        yield name, Analysis(trace, window=f"{first}ns:{last}ns")
    yield "after the first step", Analysis(trace, skip_first=1)


def _names(verdict: Verdict) -> set[str]:
    return {verdict.bound, *(verdict.mixed_of or ())}


def _said(verdict: Verdict) -> str:
    return f"{'+'.join(verdict.mixed_of) if verdict.mixed_of else verdict.bound} ({verdict.confidence})"


def judged(whole: DeviceReport, part: DeviceReport) -> str:
    """How a part's verdict stands to that of the whole."""
    one, other = whole.verdict, part.verdict
    if _names(one) & _names(other):
        return "the same"
    if whole.phases:
        return "the program changes, as the report says"
    if "unknown" in (one.bound, other.bound) or "low" in (one.confidence, other.confidence):
        return "cannot be told, as one of them says"
    return "unexplained"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of the reports' names")
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for path in sorted(path for path in given.folder.rglob("*") if path.name.endswith((".sqlite", ".json.gz"))):
        if given.only not in path.name:
            continue
        try:
            trace = open_trace(path, None, lambda _stage, _part: None)
            whole = Analysis(trace)
            devices = {device.id: device for device in whole.devices}
        except UserError as error:
            print(f"{path.name}: {error.message}")
            continue
        for number, device in devices.items():
            if not whole.timeline.devices:
                continue
            for name, analysis in parts(trace, device):
                try:
                    found = {other.id: other for other in analysis.devices}.get(number)
                except UserError:
                    continue  # no work in it, or no steps
                if found is None:
                    continue
                answer = judged(device, found)
                counts[answer] += 1
                if answer != "the same":
                    phases = ", ".join(f"{phase.bound} ({phase.confidence})" for phase in device.phases)
                    said = f"{_said(found.verdict)}, the whole {_said(device.verdict)}"
                    print(f"{path.name}, GPU {number}, {name}: {said}; {answer} {phases}", flush=True)
    for answer, count in counts.most_common():
        print(f"{count:5} {answer}")
    return 1 if counts["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
