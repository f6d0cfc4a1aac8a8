"""What people see: tables, figures, the state of the GPU."""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from boundby.measure import MeasureError, device, shown
from boundby.measure.results import DeviceState
from tests.measure import made


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("kind", made.every())
def test_no_line_is_wider_than_asked_for(kind: str, width: int) -> None:
    text = shown.render(made.every()[kind], width=width)
    assert text.isascii()
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert text.endswith("\n")


def test_a_latency_says_what_matters() -> None:
    text = shown.render(made.latency())
    for part in (
        "(median)",
        "Model GPU (cuda:0), CUDA events on the current stream, inference mode",
        "96 % interval",
        "order statistics",
        "standard deviation",
        "p99",
        "100 of 10 calls each; percentiles are those of such blocks",
        "first call",
        "52 calls, until times had settled",
        "250 of 400 W, 61 C, SM clock 1410 of 1980 MHz, not throttled (NVML)",
        "throttled: software power cap",
        "one call, no warm-up",
        "no synchronisation",
        "! host-sync:",
    ):
        assert part in " ".join(text.split()), part


def test_on_the_cpu_nothing_is_said_of_gpus() -> None:
    text = shown.render(made.latency(device="cpu"))
    assert "wall clock is the right one" in text
    body = text.split("NOTE")[0]
    assert "GPU" not in body
    assert "synchronisation" not in body


def test_methods_stand_side_by_side() -> None:
    text = shown.render(made.every()["methods"])
    for method in ("naive", "synchronised", "event"):
        assert any(line.startswith(method) for line in text.splitlines())
    assert "0.100" in text


def test_names_obey_nobody() -> None:
    text = shown.render(made.latency(name="bad\x1b[31m\nname"))
    assert "\x1b" not in text
    assert text.startswith("bad?[31m?name: ")


@pytest.mark.parametrize("kind", made.every())
def test_printing_a_result_shows_its_table(kind: str) -> None:
    result = made.every()[kind]
    assert str(result) == shown.render(result)


def test_colour_on_request() -> None:
    assert "\x1b[" in shown.render(made.latency(), color_system="standard")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (5_919.2, 5_926.0, "5.919-5.926 us"),
        (643.4, 644.4, "643.4-644.4 ns"),
        (12_345_000.0, 12_355_000.0, "12.35-12.36 ms"),
        (1e9, 1e9, "1.000-1.000 s"),
        (590.0, 43_190.0, "0.59-43.19 us"),
    ],
)
def test_ends_of_an_interval_do_not_read_the_same(low: float, high: float, text: str) -> None:
    assert shown.between(low, high) == text


# Figures


@pytest.mark.parametrize(("kind", "suffix"), list(zip(made.every(), itertools.cycle([".png", ".svg"]))))
def test_every_result_has_a_figure(kind: str, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made.every()[kind].figure(tmp_path / f"figure{suffix}")
    data = (tmp_path / f"figure{suffix}").read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert [path.name for path in tmp_path.iterdir()] == [f"figure{suffix}"]


def test_figures_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from boundby.measure import charts

    with pytest.raises(MeasureError, match="No figure can be written"):
        charts.check_name(tmp_path / "figure.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MeasureError, match="need matplotlib"):
        charts.check_name(tmp_path / "figure.png")


# The state of the GPU


def test_a_line_of_nvidia_smi() -> None:
    state = device.parsed("250.12, 400.00, 61, 1410, 1980, 1593, 0x0000000000000004, P2, Disabled\n")
    assert state == DeviceState("nvidia-smi", 250.12, 400.0, 61, 1410, 1980, 1593, ("software power cap",), 2, False)
    state = device.parsed("[N/A], [N/A], 40, 300, [N/A], 405, 0x0000000000000001, P0, [N/A]")
    assert state == DeviceState("nvidia-smi", None, None, 40, 300, None, 405, (), 0)
    assert device.parsed("No devices were found") is None
    assert device.parsed("") is None


def test_reasons() -> None:
    assert device.reasons(None) is None
    assert device.reasons(0) == ()
    assert device.reasons(0x1) == ()  # idle is no throttling
    assert device.reasons(0x48) == ("hardware slowdown", "hardware thermal slowdown")


class _Nvml(types.ModuleType):
    """What of pynvml is used; a consumer card that does not tell its power."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.asked: list[str] = []

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self.asked.append(uuid)
        return uuid

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        raise OSError(handle)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: ARG002, N802
        return 350_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: ARG002, N802
        return 55

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: ARG002, N802
        return {1: 1500, 2: 9000}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:  # noqa: ARG002, N802
        return 2100

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: ARG002, N802
        return 0x20


def test_nvml_is_asked_for_the_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = _Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    state = device.nvml_state("1234-abcd")
    assert fake.asked == ["GPU-1234-abcd"]
    assert state == DeviceState("NVML", None, 350.0, 55, 1500, 2100, 9000, ("software thermal slowdown",))
    assert isinstance(state.sm_clock_mhz, float)  # compared with a margin: clocks vary from one moment to the next


def test_where_nothing_tells_there_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    assert device.nvml_state("1234") is None
