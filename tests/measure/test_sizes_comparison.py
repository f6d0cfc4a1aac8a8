"""Two results over sizes against each other: throughput, CPU against GPU, mistakes by size."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from boundby.cli.main import main
from boundby.measure import MeasureError, compare, load
from boundby.measure.results import DeviceState, SizesComparison
from tests.measure import made


def test_batches_differ_where_their_intervals_do_not_meet() -> None:
    found = compare(made.throughput(), made.faster())
    assert isinstance(found, SizesComparison)
    first, *rest = found.changes
    assert (first.ratio, first.differs) == (1.0, False)
    assert all(change.ratio == pytest.approx(0.5) for change in rest)
    assert all(change.differs is True for change in rest)
    text = str(found)
    assert "samples/s at batch size 64 instead of" in text
    assert "(+100 %)" in text
    assert text.count("no difference shown") == 1


def test_cpu_and_gpu_are_each_compared() -> None:
    slower = tuple(replace(point, gpu_ns=(point.gpu_ns or 0) * 2) for point in made.devices().points)
    found = compare(made.devices(), replace(made.devices(), points=slower, break_even=5.2))
    ratios = {change.what: change.ratio for change in found.changes}
    assert ratios == {"CPU": 1.0, "GPU": 2.0, "GPU with copies": 1.0}
    assert all(change.differs is None for change in found.changes)  # of before intervals were kept
    assert "the GPU pays from size 5 on, and from size 3 on in A" in str(found)
    assert "no interval on record" in str(found)


def test_the_state_of_the_gpu_counts() -> None:
    before, after = (
        DeviceState("NVML", sm_clock_mhz=clock, throttling=held) for clock, held in ((1980.0, ()), (1400.0, ("heat",)))
    )
    a, b = replace(made.throughput(), after=before), replace(made.throughput(), after=after)
    found = compare(a, b)
    assert {mistake.code for mistake in found.mistakes} == {"not-alike"}
    said = " ".join(mistake.message for mistake in found.mistakes)
    assert "SM clocks" in said
    assert "throttling" in said
    assert "B: GPU after" in str(found)


def test_what_cannot_be_compared() -> None:
    with pytest.raises(MeasureError, match="cannot be compared"):
        compare(made.throughput(), made.devices())
    other = replace(made.throughput(), points=(replace(made.throughput().points[0], size=7),))
    with pytest.raises(MeasureError, match="no size in common"):
        compare(made.throughput(), other)


def test_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.throughput().save(tmp_path / "a.json")
    made.faster().save(tmp_path / "b.json")
    command = ["measure", "throughput", "--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main([*command, "-o", str(tmp_path / "both.json")]) == 0
    assert "B against A" in capsys.readouterr().out
    assert isinstance(load(tmp_path / "both.json"), SizesComparison)
    assert main(["measure", "devices"]) == 2
    assert main(["measure", "compare", *command[-2:]]) == 0
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    assert main(["measure", "throughput", "--compare", str(tmp_path / "bad.json"), "absent.py:model"]) == 2
