"""Every real trace: invariants, the separately computed account, the known traps, and nothing of it changed."""

from __future__ import annotations

import itertools
import json

import pytest

import boundby
from boundby.api import Analysis
from boundby.model.errors import InputError
from boundby.results.report import DeviceReport, Report
from tests.support.invariants import check_invariants
from tests.support.traces import ABSENT, analysis_of, trace_names, trace_path

UNREADABLE = "oddities/partial_export.sqlite"
#: Eight hundred streams take ten seconds to replay: once is enough.
SLOW = "pair_ngp"
READABLE = [name for name in trace_names() if name != UNREADABLE] or [ABSENT]


def report_of(name: str) -> Report:
    return analysis_of(name).report


def device(name: str, number: int = 0) -> DeviceReport:
    return next(device for device in report_of(name).devices if device.id == number)


def share(report: DeviceReport, *causes: str) -> float:
    return sum(report.time[cause] for cause in causes) / report.window_ns


@pytest.mark.parametrize("name", READABLE)
def test_invariants(name: str) -> None:
    check_invariants(report_of(name))


@pytest.mark.parametrize(
    ("name", "window"),
    list(zip([name for name in READABLE if not name.startswith(SLOW)], itertools.cycle(["all", "20%", "middle"]))),
)
def test_invariants_in_other_windows(name: str, window: str) -> None:
    """Each trace in one of them, in turns: each window is looked at in ten."""
    whole = report_of(name)
    if window != "all":
        if not whole.devices:
            pytest.skip("no device to take a part of")
        first = whole.devices[0]
        low, length = first.window.start_ns, first.window_ns
        low, high = (low, low + length // 5) if window == "20%" else (low + length // 3, low + length // 2)
        window = f"{low}ns:{high}ns"
    check_invariants(Analysis(analysis_of(name).trace, window=window).report)


@pytest.mark.parametrize("name", READABLE)
def test_the_separate_reading_agrees(name: str) -> None:
    expected = json.loads(trace_path(name).parent.joinpath("expected.json").read_text()) if "/" not in name else {}
    for number, figures in expected.get("traces", {}).get(name, {}).items():
        found = _from_first_to_last_operation(name, int(number))
        assert found.window_ns == figures["window_ns"]
        assert {cause: found.time[cause] for cause in figures["exact"]} == figures["exact"]


def _from_first_to_last_operation(name: str, number: int) -> DeviceReport:
    """What the separate reading is of: where the window holds the head of the first step or the tail of the last one, a
    window without them."""
    found, timeline = device(name, number), analysis_of(name).timeline
    (own,) = [one for one in timeline.devices if timeline.trace.gpus[one.index].id == number]
    low, high = int(own.operations.table.start_ns.min()), int(own.operations.table.end_ns.max())
    if (own.low_ns, own.high_ns) == (low, high):
        return found
    report = Analysis(
        analysis_of(name).trace, window=f"{low - own.shift.shift_ns}ns:{high - own.shift.shift_ns}ns"
    ).report
    return next(one for one in report.devices if one.id == number)


def test_a_partial_export_is_refused() -> None:
    with pytest.raises(InputError, match="half-written"):
        boundby.analyze(trace_path(UNREADABLE))


def test_a_graph_is_not_an_idle_gpu() -> None:
    found = device("transformer_2_7b_cuda_graphs.sqlite")
    assert found.gpu_utilization > 0.999
    assert found.kernels.total_ns < 100_000
    assert found.graphs is not None
    assert found.graphs.total_ns > 7.8e9
    assert found.verdict.bound == "gpu_compute"


def test_a_skewed_clock_is_corrected_and_said() -> None:
    report = report_of("pytorch_ddp_rank_clock_skew.sqlite")
    assert next(warning.code for warning in report.trace.warnings) == "clock-skew"
    found = report.devices[0]
    # Causality bounds the shift from below (launch before start) and above (copy's end before its sync's end).
    assert 156_292_255 <= found.clock_shift_ns <= 156_304_983
    assert found.launch_latency is not None
    assert found.launch_latency.median_ns > 0
    assert found.verdict.confidence == "medium"
    assert (found.window.start_ns, found.window.end_ns) == (-75508, -75508 + found.window_ns)


def test_one_program_at_three_stages() -> None:
    before, after, final = (device(f"openmp_heat_{stage}.sqlite") for stage in ("before", "after", "final"))
    assert before.verdict.bound == "gpu_copy"
    assert share(before, "gpu_copy") == pytest.approx(0.958, abs=0.001)
    assert after.verdict.bound == "gpu_compute"
    assert final.verdict.bound == "gpu_copy"
    assert share(final, "gpu_copy") > share(final, "gpu_compute")
    # What removing the copies would save was then measured: 27.35 s became 1.43 s, of which 0.34 s are copies.
    assert before.verdict.saving_ns is not None
    left = before.window_ns - before.verdict.saving_ns
    assert left == pytest.approx(after.window_ns - after.time["gpu_copy"], rel=0.1)


def test_four_devices_have_their_own_accounts() -> None:
    report = report_of("openacc_mpi_4_processes_4_gpus.sqlite")
    assert [found.id for found in report.devices] == [0, 1, 2, 3]
    assert len({found.processes for found in report.devices}) == 4
    assert len({found.window_ns for found in report.devices}) == 4


def test_who_waits_for_whose_messages_is_told() -> None:
    titles = [item.title for item in report_of("openacc_mpi_4_processes_4_gpus.sqlite").findings]
    assert any("rank 0 waits until other ranks take its messages" in title for title in titles)
    assert any("the host (in 3 ranks) waits for messages of rank 0" in title for title in titles)


def test_what_is_mostly_start_up_sends_to_a_longer_run() -> None:
    found = device("jit_cpp_no_nvtx.sqlite")
    first = found.first_responses[0]
    assert [phase.bound for phase in found.phases] == ["cpu", "init"]
    assert first.id == "cpu.start-once"
    assert first.title == "Record a longer run: this one is mostly start-up"
    assert first.code.startswith("boundby profile -- ")


def test_the_host_is_explained_while_the_gpu_idles() -> None:
    report = report_of("pytorch_a100_all_cpu_tables.sqlite")
    found = report.devices[0]
    assert found.verdict.bound == "host_blocked"
    assert found.time["unattributed"] == 0
    loading = next(region for region in report.regions if region.path == ("Epoch *", "Train", "Data loading"))
    assert loading.verdict.bound == "host_blocked"
    assert loading.instances == 60
    assert next(iter(loading.blocked_on)) == "poll"
    # Autograd runs on a thread of its own; its ranges lie inside the range that called backward().
    backward = [
        region for region in report.regions if region.path[:4] == ("Epoch *", "Train", "Batch *", "Backward pass")
    ]
    assert any("ConvolutionBackward0" in region.path[-1] for region in backward)


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("rapids_cudf_old_schema.sqlite", ["GROUPBY_AGG", "JOIN", "from_arrow"]),
        ("transformer_forward_2026_2.sqlite", ["computing softmax", "computing attention scores"]),
    ],
)
def test_the_oldest_and_the_newest_schema_read_alike(name: str, paths: list[str]) -> None:
    report = report_of(name)
    assert {region.path[0] for region in report.regions if region.path} >= set(paths)
    assert report.trace.captured.kernels
    assert report.trace.captured.cuda_api
    assert report.devices[0].time["unattributed"] == 0
    assert [gpu.used for gpu in report.trace.gpus].count(True) == 1


def test_module_loading_is_init_and_not_launching() -> None:
    found = device("transformer_forward_2026_2.sqlite")
    assert share(found, "init") == pytest.approx(0.364, abs=0.005)
    assert share(found, "profiler") < 0.01
