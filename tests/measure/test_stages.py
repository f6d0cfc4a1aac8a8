"""``stages`` on the device model, where every time is known."""

from __future__ import annotations

import re
import time

import pytest

from boundby.measure import MeasureError, Stages, StagesResult, TargetError, pipeline_ways, stages
from boundby.measure import pipeline as run_pipeline
from boundby.measure.results import StageTimes
from tests.measure.device_model import ModelDevice


def pipeline(device: ModelDevice, *, synchronise: bool = False, passes: int = 20, wait: bool = False) -> StagesResult:
    """A model (20 us of host, 5 ms of device), host work (3 ms), a second model (20 us, 2 ms)."""
    record = stages(device=device, synchronise=synchronise)
    for _ in range(passes):
        with record("model1"):
            device.launch(5_000_000, 20_000)
        with record("host"):
            if wait:
                device.item()
            device.work(3_000_000)
        with record("model2"):
            device.launch(2_000_000, 20_000)
    return record.result()


def by_name(result: StagesResult) -> dict[str, StageTimes]:
    return {stage.name: stage for stage in result.stages}


def test_each_stage_has_its_device_and_host_time() -> None:
    result = pipeline(ModelDevice())
    found = by_name(result)
    assert list(found) == ["model1", "host", "model2"]
    assert result.passes == 20
    assert found["model1"].device_ns is not None
    assert found["model2"].device_ns is not None
    assert found["model1"].device_ns[5] == pytest.approx(5_000_000, rel=0.02)
    assert found["model2"].device_ns[5] == pytest.approx(2_000_000, rel=0.02)
    assert found["model1"].host_ns[5] < 30_000
    assert found["host"].host_ns[5] == pytest.approx(3_000_000, rel=0.01)


def test_nothing_waits_for_the_device_before_the_result() -> None:
    device = ModelDevice()
    record = stages(device=device)
    for _ in range(10):
        with record("model"):
            device.launch(5_000_000)
    assert device.synchronised == 1  # before the first stage: it starts from an idle device
    assert device.host_ns < 1_000_000
    record.result()
    assert device.synchronised == 2


def test_end_to_end_is_until_the_last_work_is_done() -> None:
    result = pipeline(ModelDevice())
    assert result.end_to_end_ns == pytest.approx(20 * 7_000_000, rel=0.03)  # device bound: the host works behind it


@pytest.mark.parametrize("wait", [False, True])
def test_what_synchronisation_would_have_cost_is_what_it_does_cost(wait: bool) -> None:
    loose = pipeline(ModelDevice(), wait=wait)
    tight = pipeline(ModelDevice(), wait=wait, synchronise=True)
    assert tight.synchronised
    assert tight.synchronised_estimate_ns is None
    estimate = loose.synchronised_estimate_ns
    assert estimate is not None
    low, high = estimate
    assert tight.end_to_end_ns == pytest.approx(20 * 10_000_000, rel=0.03)
    assert low * 0.97 <= tight.end_to_end_ns <= high * 1.03
    if wait:
        assert low == pytest.approx(tight.end_to_end_ns, rel=0.02)
    else:
        assert high == pytest.approx(tight.end_to_end_ns, rel=0.02)


def test_stages_nest() -> None:
    device = ModelDevice()
    record = stages(device=device)
    with record("step"):
        with record("forward"):
            device.launch(1_000_000)
        with record("backward"):
            device.launch(2_000_000)
    result = record.result()
    found = by_name(result)
    assert set(found) == {"step", "step/forward", "step/backward"}
    assert found["step"].device_ns is not None
    assert found["step"].device_ns[0] == pytest.approx(3_000_000, rel=0.02)
    assert result.synchronised_estimate_ns is not None
    assert result.synchronised_estimate_ns[1] < 3_200_000  # the inner ones are not counted again


def test_a_stage_that_raises_is_closed() -> None:
    device = ModelDevice()
    record = stages(device=device)
    with pytest.raises(ZeroDivisionError), record("bad"):
        _ = 1 / 0
    assert record.result().passes == 1


def test_on_the_cpu_it_is_the_wall_clock() -> None:
    record = stages(device="cpu")
    for _ in range(3):
        with record("sleep"):
            time.sleep(0.002)
        with record("add"):
            sum(range(100))
    result = record.result()
    found = by_name(result)
    assert result.device == "cpu"
    assert found["sleep"].device_ns is None
    assert min(found["sleep"].host_ns) >= 2_000_000
    assert result.synchronised_estimate_ns is None
    assert result.end_to_end_ns >= 6_000_000


def test_without_a_gpu_nobody_has_to_say_so() -> None:
    record = stages()
    with record("work"):
        pass
    assert record.result().device == "cpu"


def test_too_early() -> None:
    record = stages(device="cpu")
    with pytest.raises(MeasureError, match="No stage"):
        record.result()
    with record("open"), pytest.raises(MeasureError, match="still open"):
        record.result()


def test_slow_first_passes_are_warm_up_and_left_out() -> None:
    device = ModelDevice()

    def run(*, warmup: bool) -> StagesResult:
        record = stages(device=device)
        for number in range(20):
            with record("model"):
                device.launch(50_000_000 if number < 2 else 5_000_000, 20_000)
            with record("host"):
                device.work(1_000_000)
        return record.result(warmup=warmup)

    kept, every = run(warmup=True), run(warmup=False)
    assert (kept.warmup_passes, kept.passes) == (2, 18)
    assert (every.warmup_passes, every.passes) == (0, 20)
    assert max(by_name(kept)["model"].device_ns or ()) < 6_000_000
    assert kept.end_to_end_ns < every.end_to_end_ns
    assert set(by_name(kept)["model"].begin_ns) == {0}
    assert by_name(kept)["host"].begin_ns[0] == pytest.approx(20_000, rel=0.2)
    assert kept.end_to_end_ns == pytest.approx(18 * 5_000_000, rel=0.05)
    assert "after 2 passes of warm-up" in " ".join(str(kept).split())


def test_the_three_ways_stand_side_by_side() -> None:
    device = ModelDevice()

    def one(stage: Stages) -> None:
        with stage("model"):
            device.launch(5_000_000, 20_000)
        with stage("host"):
            device.work(3_000_000)

    ways = pipeline_ways(one, passes=20, device=device)
    naive, right, waiting = (
        by_name(ways.a)["model"].host_ns[5],
        (by_name(ways.a)["model"].device_ns or ())[5],
        by_name(ways.b)["model"].host_ns[5],
    )
    assert naive < 30_000
    assert right == pytest.approx(5_000_000, rel=0.02)
    assert waiting == pytest.approx(right, rel=0.02)
    assert ways.b.pass_ns == pytest.approx(8_000_000, rel=0.02)  # and host and device take turns
    assert "A HOST is the wall clock without waiting" in " ".join(str(ways).split())


@pytest.mark.parametrize(
    ("wait", "told"), [(False, "The GPU sets the pace: the host is 5.4 passes ahead"), (True, "overlap within a pass")]
)
def test_it_says_who_waits_for_whom(wait: bool, told: str) -> None:
    shown = str(pipeline(ModelDevice(), wait=wait))
    assert told in " ".join(shown.split())
    lanes = dict(re.findall(r"^(host|GPU) +([.\d]{40})(?:  |$)", shown, re.MULTILINE))
    assert lanes["host"].startswith("2222")
    assert lanes["GPU"].index("1") < lanes["GPU"].index("3")


def test_a_pipeline_that_the_host_binds_says_so() -> None:
    device = ModelDevice()
    record = stages(device=device)
    for _ in range(20):
        with record("host"):
            device.work(5_000_000)
        with record("model"):
            device.launch(100_000)
    assert "The host sets the pace" in str(record.result())


def test_a_pipeline_gets_the_recorder() -> None:
    device = ModelDevice()

    def one(stage: Stages, ns: int) -> None:
        with stage("only"):
            device.launch(ns)

    result = run_pipeline(one, 1_000_000, passes=9, device=device)
    assert (result.passes, by_name(result)["only"].begin_ns) == (9, (0,) * 9)
    with pytest.raises(TargetError, match="The pipeline raises TypeError"):
        run_pipeline(lambda: None, device=device)
