"""Damaged copies of simulated programs: nothing wrong is said with confidence (``python -m benchmarks.damage``)."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks import damage
from benchmarks.simulated.full_export import Export
from benchmarks.simulated.generate import generate
from msgspec.structs import replace

from boundby.api import Analysis
from boundby.correlation.correlate import correlate, restored
from boundby.correlation.cpu_evidence import gather_evidence
from tests.support.training import US

COPIES = 10


def test_a_damaged_trace_never_leads_to_a_confident_error() -> None:
    outcomes = list(damage.run(COPIES, 2, sorted(damage.DAMAGES), None))
    count = Counter(item.answer for item in outcomes)
    assert not [item for item in outcomes if item.answer == "confident"]
    assert count["agrees"] > COPIES / 2
    assert all(item.why_not for item in outcomes if item.answer == "abstains" and item.truth != "unknown")


def test_graphs_recorded_as_a_whole_are_bound_by_the_same_as_node_by_node() -> None:
    outcomes = list(damage.run(3, 1, ["graph-rows"], None))
    assert [item.answer for item in outcomes] == ["agrees"] * 3
    assert all(item.source.startswith("nodes") for item in outcomes)


def test_the_table_has_a_row_for_each_kind() -> None:
    outcomes = [damage.Outcome("a", "window-cut", 1, 0.01), damage.Outcome("b", "calls-end", 2, 0.5, "confident")]
    rows = damage.table(outcomes).splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["calls-end", "window-cut", "all"]
    assert rows[-1].split()[1:] == ["2", "1", "0", "0", "1", "0", "1", "100.0%"]


def test_context_switches_that_are_missing_leave_nothing_sure() -> None:
    """Copies of which a verdict was once wrong and sure: nearly all context switches are gone."""
    with tempfile.TemporaryDirectory() as folder:
        sources = damage.Sources(None, Path(folder), 40)
        for program, seed in ((15, 1), (15, 2), (28, 1), (28, 2)):
            known = sources.get(f"simulated {program}")
            assert known is not None
            copy = damage.DAMAGES["switches-thinned"](known[0], random.Random(seed), 0.97)
            assert copy is not None
            found = damage.compare(damage.Outcome("", "", seed, 0.9), known[1], damage.answers(copy.trace))
            assert found.answer != "confident"


def test_of_a_whole_trace_no_context_switch_is_missing(tmp_path: Path) -> None:
    """Threads that wait again as soon as they have come back, and threads at each step's capture of a graph."""
    for seed, features in (
        (88100156, ("clock_drift",)),
        (88100168, ("graph_capture",)),
        (61200041, ("short_streams",)),
    ):
        trace = Analysis(generate(seed, features).export().write(tmp_path / f"{seed}.sqlite", "2023")).trace
        threads = sorted(set(trace.api.thread.tolist()))
        assert threads
        assert not any(gather_evidence(trace, thread).is_thinned for thread in threads)


def test_waits_without_their_call_are_put_back_from_their_own_row() -> None:
    """The account is what it was; a wait after all calls on record is the profiler's own and stays away."""
    with tempfile.TemporaryDirectory() as folder:
        sources = damage.Sources(None, Path(folder), 40)
        known = sources.get("simulated 14")
        assert known is not None
        trace = known[0]
        copy = damage.syncs_orphaned(trace, random.Random(3), 0.5)
        assert copy is not None
        again = restored(copy.trace, correlate(copy.trace))
        last = int(trace.api.correlation.max())
        lost = len(trace.api) - len(copy.trace.api)
        assert lost > 5
        assert len(again.api) >= len(trace.api) - int(last not in copy.trace.api.correlation)
        assert set(again.api.correlation.tolist()) <= set(trace.api.correlation.tolist())
        assert [warning.code for warning in again.warnings if warning not in trace.warnings] == ["waits-restored"]
        assert restored(trace, correlate(trace)) is trace
        found = damage.compare(damage.Outcome("", "", 3, 0.5), known[1], damage.answers(copy.trace))
        assert found.answer == "agrees"
        assert not found.wrong_figures


def test_a_copy_that_held_the_host_may_have_done_so_where_its_call_is_missing(tmp_path: Path) -> None:
    """5 ms of a copy whose like hold the host, and nothing of its call: no host work is made of it."""
    export = Export()
    main = export.thread()
    for step in range(40):
        at = step * 10_000 * US
        call = export.api(main, at, at + 5_000 * US, "cudaMemcpy_v3020")
        export.memcpy(call, at + 10 * US, at + 4_995 * US)
        launch = export.api(main, at + 5_010 * US, at + 5_015 * US, "cudaLaunchKernel_v7000")
        export.kernel(launch, at + 5_020 * US, at + 9_990 * US)
    trace = Analysis(export.write(tmp_path / "x.sqlite")).trace
    losses = Analysis(replace(trace, api=trace.api.take(np.arange(len(trace.api)) < 70))).timeline.losses
    assert losses.calls_lost_fraction == (0.0,)  # of the time that has calls nothing is missing
    assert losses.dark[0].end.tolist() == [trace.span_ns[1]]
    for gone in (20, 2, 0):  # the last: before the device's first idle time
        timeline = Analysis(replace(trace, api=trace.api.take(np.arange(len(trace.api)) != gone))).timeline
        assert timeline.devices[0].withheld.unsure_ns >= 4_900 * US


@pytest.mark.parametrize(("gone", "bound", "least_us"), [((10,), "cpu", 0), ((10, 3), "unknown", 30_000)])
def test_a_lost_call_may_have_filled_the_longest_stretch_that_lacks_a_number(
    tmp_path: Path, gone: tuple[int, ...], bound: str, least_us: int
) -> None:
    """Nothing is left of a call without an operation: where numbers are left out everywhere, and no call is known to be
    lost, the host's time is its own."""
    analysis = _with_a_long_call(tmp_path, 3, gone)
    assert analysis.report.devices[0].verdict.bound == bound
    assert analysis.timeline.devices[0].withheld.unsure_ns >= least_us * US


def test_where_hardly_a_number_is_left_out_one_that_is_may_have_been_a_long_call(tmp_path: Path) -> None:
    verdict = _with_a_long_call(tmp_path, 1, (10,)).report.devices[0].verdict
    assert verdict.bound == "unknown"
    assert "numbers" in (verdict.why_not or "")


def _with_a_long_call(folder: Path, numbers: int, gone: tuple[int, ...]) -> Analysis:
    """Forty steps of a launch and its kernel, whose calls take so many numbers each; before the eleventh an allocation
    of 30 ms; without some calls."""
    export = Export()
    main = export.thread()
    for step in range(40):
        at = step * 1_000 * US + (step >= 10) * 30_000 * US
        if step == 10:
            export.api(main, at - 29_900 * US, at - 100 * US, "cudaMalloc_v3020")
        launch = export.api(main, at, at + 5 * US, "cudaLaunchKernel_v7000")
        export.kernel(launch, at + 10 * US, at + 990 * US)
    trace = Analysis(export.write(folder / "x.sqlite")).trace
    api, operations = trace.api, trace.operations
    api = replace(api, correlation=api.correlation * numbers).take(~np.isin(np.arange(len(api)), gone))
    return Analysis(
        replace(trace, api=api, operations=replace(operations, correlation=operations.correlation * numbers))
    )
