"""The programs in ``examples`` run, and say what their texts promise."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from boundby.cli.main import main

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("briefly")
FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in listed for path in FOLDER.glob("*.py"))


def test_a_vision_model(capsys: pytest.CaptureFixture[str]) -> None:
    one, many = example("vision_model").main(budget_s=0.2, max_batch=2)
    assert one.median_ns > 0
    assert many.best.size in (1, 2)
    assert "as many images a second" in capsys.readouterr().out


def test_three_timings_and_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    result = example("three_timings").main(passes=10)
    assert [stage.name for stage in result.stages] == ["detect", "choose on the host", "classify"]
    out = capsys.readouterr().out
    assert out.count("us a call") == 3
    assert "one pass at the median" in out


def test_cpu_or_gpu() -> None:
    result = example("cpu_or_gpu").main(sizes=(16, 256), budget_s=20.0)
    assert [point.size for point in result.points] == [16, 256]


def test_a_training_sweep(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program = example("training_sweep")
    monkeypatch.setattr(program, "STEPS", 3)
    by_width, by_length = program.main(sizes=(4,), steps=(3, 40), budget_s=20.0)
    assert [point.size for point in by_width.points] == [4]
    little, more = (point.cpu_quality for point in by_length.points)
    assert little < more <= 1.0
    assert "ACCURACY" in capsys.readouterr().out


def test_the_loss_is_the_same_in_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    told = example("segmentation_loss").main(budget_s=0.05)
    assert [waits for _, _, waits, _ in told] == [9, 8, 6, 0]
    assert all(value == pytest.approx(told[0][1], rel=1e-5) for _, value, _, _ in told)
    assert "times as fast" in capsys.readouterr().out


def test_mistakes_by_size_by_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{FOLDER / 'three_timings.py'}:products"
    sizes = ["--size", "16", "--size", "32"]
    assert main(["measure", target, "--method", "all", *sizes, "--budget", "0.05", "-q"]) == 0
    out = capsys.readouterr().out
    assert "WHAT MISTAKES WOULD HAVE SAID" in out
    assert "no warm-up: " in out
    assert main(["measure", target, *sizes, "-q"]) == 2  # sizes go with all methods


def test_a_pipeline_in_three_ways_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, saved = f"{FOLDER / 'three_timings.py'}:pipeline", tmp_path / "a.json"
    assert main(["measure", "stages", target, "--ways", "--passes", "8", "-q"]) == 0
    assert "A: " in capsys.readouterr().out
    assert main(["measure", "stages", target, "--passes", "8", "-q", "-o", str(saved)]) == 0
    capsys.readouterr()
    assert main(["measure", "stages", "--compare", str(saved), target, "--passes", "8", "-q"]) == 0
    assert "B against A: " in capsys.readouterr().out
    assert main(["measure", "compare", str(saved), str(saved), "-q"]) == 0
    assert main(["measure", "stages", target, "--ways", "--synchronise", "-q"]) == 2


def test_the_copies_of_a_training_are_its_data() -> None:
    program = example("training_sweep")
    train, inputs = program.widths(4, "cpu")
    assert [len(part) for part in inputs] == [program.POINTS, program.POINTS]
    assert 0 <= program.accuracy(train(*inputs)) <= 1


def test_a_pipeline_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    target, saved, drawn = f"{FOLDER / 'three_timings.py'}:pipeline", tmp_path / "p.json", tmp_path / "p.svg"
    arguments = ["measure", "stages", target, "--passes", "8", "-q", "-o", str(saved), "--figure", str(drawn)]
    assert main(arguments) == 0
    assert "choose on the host" in capsys.readouterr().out
    assert json.loads(saved.read_text())["kind"] == "stages"
    assert "one pass, at the median" in drawn.read_text() or drawn.stat().st_size > 5_000
    assert main(["measure", "stages", f"{FOLDER / 'three_timings.py'}:by_hand", "-q"]) == 2
