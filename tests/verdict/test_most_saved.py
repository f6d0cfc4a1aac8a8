"""What stands under MAX: no less than what-if gives for the region, nor than any part of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.counterfactual import Case

from boundby.api import Analysis
from boundby.claims import laws
from boundby.model.causes import SCENARIO_OF_CAUSE
from boundby.results.report import Saving, Verdict
from boundby.simulate.instructions import MS, US, Copy, Instruction, Launch, Loop, Range, Sync, Work, program
from boundby.simulate.machine import Machine
from boundby.simulate.nsys_export import write_export
from tests.support.traces import analysis_of, traces_folder


def copies(memory: str) -> list[Copy]:
    return [Copy(8 << 20, "HtoD", memory)] * 3  # type: ignore[arg-type]


BODIES: dict[str, list[Instruction]] = {
    "pageable copies": [Range("load", [*copies("pageable"), Work(MS)]), Launch("k", 2 * MS)],
    "waits": [Range("outer", [Range("inner", [Launch("a", MS), Sync(), Work(2 * MS)]), Launch("b", MS), Sync()])],
    "launches": [Range("outer", [Range("inner", [Launch("a", 4 * US)] * 40), Sync(), Work(300 * US)])],
}


@pytest.mark.parametrize("name", BODIES)
def test_most_is_what_a_scenario_gives(name: str, tmp_path: Path) -> None:
    run = Case("read", program(Loop(6, [Range("step {i}", BODIES[name])])), Machine(), 1).run()
    write_export(run, tmp_path / "run.sqlite", "2023")
    analysis = Analysis(tmp_path / "run.sqlite")
    regions = {region.path: region for region in analysis.report.regions}
    (device,) = analysis.report.devices
    assert regions[()].most_saved_ns is not None
    assert device.max_saving_ns is not None
    assert regions[()].most_saved_ns >= device.max_saving_ns
    for path, region in regions.items():
        if region.most_saved_ns is None or not path:
            continue
        bounds = region.verdict.mixed_of or (region.verdict.bound,)
        asked = [one for bound in bounds for one in analysis.predict(SCENARIO_OF_CAUSE[bound], "/".join(path))]
        most = max(one.baseline_ns - one.predicted_ns for one in asked)
        assert region.most_saved_ns >= most - max(0.003 * device.window_ns, 2), path


@pytest.mark.parametrize("name", ["rapids_cudf_old_schema.sqlite", "concurrent_streams_2022_1.sqlite"])
def test_no_part_saves_more(name: str) -> None:
    regions = {region.path: region for region in analysis_of(name).report.regions}
    for path, region in regions.items():
        if path and region.most_saved_ns is not None:
            above = regions[path[:-1]].most_saved_ns
            assert above is not None
            assert above >= region.most_saved_ns


def test_a_verdict_of_a_region_says_no_more_than_the_region_saves() -> None:
    savings = (Saving("gpu_compute", 5 * MS), Saving("sync", 1 * MS))
    verdict = Verdict("gpu_compute", "high", saving_ns=5 * MS, savings=savings, saving_range_ns=(MS, 6 * MS))
    narrowed = laws._narrowed(verdict, 2 * MS)
    assert [one.saving_ns for one in narrowed.savings] == [2 * MS, 1 * MS]
    assert (narrowed.saving_ns, narrowed.saving_range_ns) == (2 * MS, (MS, 2 * MS))
    assert laws._narrowed(verdict, None) is verdict


def test_who_shares_a_gpu_gives_back_no_more_than_the_change_makes_of_the_pace() -> None:
    """Host code that takes 1 % of the time saved up to 18 %: all that another process has of the GPU."""
    if traces_folder() is None:
        pytest.skip("no real traces to test on")
    (item,) = [one for one in analysis_of("pair_lm_fp32.sqlite").report.what_if if one.scenario == "cpu_free"]
    assert item.saving_ns[1] < 0.1 * item.baseline_ns
