"""Laws that every prediction obeys, on simulated programs and on real traces: see benchmarks/laws.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.laws import broken
from benchmarks.real_pairs import NOISE, Outcome, Pair, document, look, read_pairs
from benchmarks.simulated.generate import generate

import boundby
from boundby.correlation.correlate import estimate_shift
from boundby.simulate.nsys_export import to_export
from tests.support.traces import analysis_of, trace_names, trace_path

PAIRS = read_pairs()
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


@cache
def outcome_of(pair: Pair) -> Outcome:
    [outcome] = look(trace_path(f"{pair.before}.sqlite").parent, [pair])
    return outcome


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.before)
def test_real_pairs(pair: Pair) -> None:
    """What was measured after a change lies near the prediction, or in a narrow range."""
    assert outcome_of(pair).verdict == "hit"


def test_findings_save_what_they_promised() -> None:
    """Of the pairs whose change a finding had told a number for, the measured saving lies in its range for four in
    five, up to what two runs of one program differ by."""
    told = [outcome for outcome in map(outcome_of, PAIRS) if outcome.promised_ns is not None]
    assert len(told) >= 4
    assert sum(outcome.beyond <= NOISE for outcome in told) >= 0.8 * len(told)


def test_the_page_of_real_pairs_is_what_is_measured() -> None:
    outcomes = [outcome_of(pair) for pair in PAIRS]
    page = Path(__file__).parents[2] / "docs" / "real-pairs.md"
    assert page.read_text() == document(outcomes)


def test_a_clock_that_is_ahead_is_put_back() -> None:
    launch = np.arange(100, dtype=np.int64) * 1_000_000
    start, late = launch + 5_000 + 3_000_000, np.full(10, 3_000_000 - 2_000, np.int64)
    assert -3_003_000 <= estimate_shift(start, launch, late).shift_ns <= -2_990_000
    assert estimate_shift(start[:9], launch[:9], late[:2]).shift_ns == 0  # too few to tell
    # One wait is enough where all operations start late; where it shows a part only, the quickest one shows the rest.
    assert estimate_shift(start, launch, late[:1]).shift_ns <= -2_990_000
    assert estimate_shift(start, launch, late[:1] - 2_000_000).shift_ns <= -2_990_000
    # Never so far that an operation would start before its launch.
    assert estimate_shift(launch + 5_000, launch, late).shift_ns == -3_000


def test_who_shares_the_gpu_keeps_no_host_back() -> None:
    """The range of a GPU that others may use, too, begins no lower than the calls that are left."""
    analysis = analysis_of("pair_chunks_of_50000.sqlite")
    calls, names = analysis.timeline.calls, analysis.trace.names
    launches = [row for row, name in enumerate(calls.name) if names[name].startswith("cudaLaunchKernel")]
    left_ns = int(np.sort(calls.end_ns[launches] - calls.start_ns[launches])[:-1].sum())  # the first loads code
    (item,) = [one for one in analysis.report.what_if if one.scenario == "copies_free"]
    assert "shared" in {doubt.kind for doubt in item.uncertainties}
    assert item.low_ns is not None
    assert left_ns <= item.low_ns <= item.predicted_ns
