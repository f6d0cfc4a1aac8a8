"""A real program, recorded by a real nsys and by PyTorch's profiler at once: the host's account is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundby
from boundby.capture.nsys import Nsys
from boundby.results.report import RegionReport, Report
from tests.support.nsys import capture

pytest.importorskip("torch")
pytestmark = pytest.mark.nsys

PROGRAM = Path(__file__).parent / "programs" / "both.py"
#: The annotations open and close one after the other, with Python between them, on a machine that others use.
APART = 0.1


def parts(report: Report) -> dict[str, RegionReport]:
    """The parts of the program, by name; profilers add ranges of their own inside and around them."""
    return {region.name: region for region in report.regions if region.name in ("step", "load", "compute")}


def test_both_accounts_agree(nsys: Nsys, tmp_path: Path) -> None:
    text = tmp_path / "trace.json"
    report = capture(nsys, tmp_path, str(PROGRAM), str(text))
    by_nsys, by_torch = (parts(boundby.analyze(path)) for path in (report, text))
    assert by_nsys.keys() == by_torch.keys() == {"step", "load", "compute"}
    for name, one in by_nsys.items():
        other = by_torch[name]
        assert one.instances == other.instances == 5
        assert one.total_ns == pytest.approx(other.total_ns, rel=APART)
    # Asleep in time.sleep: an OS call to the one, a Python function to the other.
    asleep = [of["load"].time["host_blocked"] / of["load"].total_ns for of in (by_nsys, by_torch)]
    computing = [of["compute"].time["cpu"] / of["compute"].total_ns for of in (by_nsys, by_torch)]
    assert min(asleep) > 0.9
    assert min(computing) > 1 - APART, "operators and frames show the thread at work"
    comparison = boundby.compare_runs(report, text)
    matched = {change.before.name for change in comparison.regions if change.before and change.after}
    assert matched >= {"step", "load", "compute"}
