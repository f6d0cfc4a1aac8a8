"""Laws that every prediction obeys, on simulated programs and on real traces: see benchmarks/laws.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.laws import broken

import boundby
from boundby.correlation.clock import estimate_shift
from boundby.simulate.export import to_export
from boundby.simulate.generate import generate
from tests.support.traces import analysis_of, trace_names, trace_path

# Eight hundred streams: minutes of replay; and one that cannot be read.
LEFT_OUT = ("pair_ngp_many_streams", "oddities/partial_export")


@pytest.mark.parametrize("seed", range(900_000, 900_012))
def test_on_simulated_programs(seed: int, tmp_path: Path) -> None:
    analysis = boundby.examine(to_export(generate(seed).run()).write(tmp_path / "made.sqlite", "2023"))
    assert list(broken(analysis)) == []


@pytest.mark.parametrize("name", [name for name in trace_names() if not name.startswith(LEFT_OUT)])
def test_on_real_traces(name: str) -> None:
    analysis = analysis_of(name)
    if analysis.timeline.devices and len(analysis.timeline.calls):
        assert list(broken(analysis)) == []


def test_faster_kernels_of_a_program_with_a_helper_thread() -> None:
    """A real pair: kernels 4.22 times as fast took it from 37.4 s to 9.02 s."""
    analysis = boundby.examine(trace_path("pair_dali_fp32.sqlite"))
    [answer] = analysis.predict("kernels=4.22")
    assert answer.predicted_ns == pytest.approx(9.02e9, rel=0.05)
    assert analysis.report.devices[0].verdict.bound == "gpu_compute"


def test_a_clock_that_is_ahead_is_put_back() -> None:
    launch = np.arange(100, dtype=np.int64) * 1_000_000
    start, late = launch + 5_000 + 3_000_000, np.full(10, 3_000_000 - 2_000, np.int64)
    assert -3_003_000 <= estimate_shift(start, launch, late).shift_ns <= -2_990_000
    assert estimate_shift(start, launch, late[:2]).shift_ns == 0  # too few to tell
    # Never so far that an operation would start before its launch.
    assert estimate_shift(launch + 5_000, launch, late).shift_ns == -3_000
