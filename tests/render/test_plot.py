"""Figures: every kind from every trace, text that is only text, and nothing of matplotlib's global state touched."""

from __future__ import annotations

import builtins
import io
import json
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace

import boundby
from boundby.attribution.timeline import build_timeline
from boundby.attribution.windows import parse_window
from boundby.cli.main import main
from boundby.cli.plot import SIZES
from boundby.model.causes import BOUND_LABEL, CAUSE_KEYS, HATCH
from boundby.model.errors import UserError
from boundby.plot_data import build_plot_data
from boundby.render import figures
from boundby.render.figures.style import fitting, time_unit, width_in
from boundby.render.formats import FIGURES, FIGURES_OF_A_REPORT
from boundby.results.plot_data import PlotData
from boundby.results.report import Report
from tests.support import reports
from tests.support.headlines import headline
from tests.support.program import Program
from tests.support.traces import REPOSITORY, analysis_of, trace_names

pytest.importorskip("matplotlib")

SAMPLE = REPOSITORY / "sample_reports" / "simulated_sync.sqlite"
STARTS = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "svg": b"<?xml"}


@dataclass(frozen=True)
class Examined:
    report: Report
    plot_data: PlotData


def saved(figure: Any, format_name: str = "png", dpi: int = 60) -> bytes:
    file = io.BytesIO()
    figures.save(figure, file, format_name, dpi=dpi)
    return file.getvalue()


def drawn(draw: Any, found: Any, look: figures.Look) -> tuple[bytes, str]:
    """The figure as PNG, or why there is none."""
    try:
        return saved(draw(found, look)), ""
    except UserError as error:
        return b"", error.message


def texts(figure: Any) -> str:
    """Every text of a figure."""
    from matplotlib.text import Text

    return "\n".join(found.get_text() for found in figure.findobj(Text))


def test_the_command_line_offers_what_there_is() -> None:
    assert tuple(figures.KINDS) == tuple(kind.name for kind in FIGURES)
    assert tuple(figures.LOOKS) == SIZES
    assert set(HATCH) < set(CAUSE_KEYS)


@pytest.mark.parametrize("name", trace_names())
def test_every_kind_draws_real_traces_or_says_why_not(name: str) -> None:
    """Each trace one kind, in turns."""
    found = analysis_of(name)
    kind = tuple(figures.KINDS)[trace_names().index(name) % len(figures.KINDS)]
    try:
        _ = found.report
    except UserError:
        pytest.skip("not a report")
    data, reason = drawn(figures.KINDS[kind], found, figures.COLUMN)
    assert data.startswith(STARTS["png"]) or reason.startswith("There is nothing to draw")
    assert data or kind not in ("account", "timeline")


@pytest.mark.parametrize("made", reports.ALL.values(), ids=reports.ALL)
@pytest.mark.parametrize("kind", FIGURES_OF_A_REPORT)
def test_reports_of_every_shape(made: Any, kind: str) -> None:
    """Each in one of the looks, in turns: every kind meets every look, and every report does."""
    report, looks = made(), list(figures.LOOKS.values())
    turn = list(reports.ALL.values()).index(made) + FIGURES_OF_A_REPORT.index(kind)
    look = looks[turn % len(looks)]
    data, reason = drawn(figures.KINDS[kind], report, look)
    assert data or "nothing to draw" in reason
    if kind == "account":
        assert bool(data) == bool(report.devices or report.threads)


@pytest.mark.parametrize("format_name", STARTS)
def test_the_same_figure_gives_the_same_bytes(format_name: str) -> None:
    first, second = (saved(figures.account(reports.sample()), format_name) for _ in range(2))
    assert first == second
    assert first.startswith(STARTS[format_name])
    if format_name == "svg":
        assert ElementTree.fromstring(first).tag.endswith("svg")


def test_an_account_says_every_share() -> None:
    shown = texts(figures.account(reports.sample()))
    assert headline("sync") in shown
    assert "s  sync  24 %, 1.31 s" in shown
    assert "C 58 %" in shown


def test_regions_are_a_tree_with_their_verdicts() -> None:
    shown = texts(figures.regions(reports.sample()))
    assert "\N{NO-BREAK SPACE}" * 3 + "loss" in shown
    assert "sync, 38 %" in shown
    assert "overlapped, 3.10 s on the host" in shown


def test_what_if_says_now_then_and_what_comes_next() -> None:
    shown = texts(figures.what_if(reports.sample()))
    assert f"5.43 s, {BOUND_LABEL['sync']}" in shown
    assert "4.12 s (-24 %), then bound by launch overhead" in shown


def test_many_devices_are_dots() -> None:
    base = reports.many_devices(8)
    items = tuple(replace(item, device=n) for n in range(8) for item in reports.sample().what_if)
    shown = texts(figures.what_if(replace(base, what_if=items)))
    assert "a dot for each of 8 GPUs" in shown


def test_gaps_are_told_with_call_and_cause() -> None:
    found = boundby.examine(SAMPLE)
    shown = texts(figures.gaps(found))
    assert "cudaStreamSynchronize" in shown or "cudaMemcpyAsync" in shown
    assert "1.4k gaps take 49 % of the window" in shown


def test_hostile_names_are_text_and_nothing_warns() -> None:
    program = Program(threads=2)
    nasty = ["$\\frac{1}{0$", "\udc80", "\x00", "", "漢字の名前", "x" * 5_000, "<b>&", "a\nb"]
    for number in range(32):
        name = nasty[number % len(nasty)]
        call = program.api(1_000 * number, 1_000 * number + 20, name)
        program.kernel(1_000 * number + 30, 1_000 * number + 500, call, name=name)
        program.push(1_000 * number, 1_000 * number + 900, name)
    timeline = build_timeline(program.trace(), parse_window("gpu"))
    base = reports.hostile()
    found = Examined(base, build_plot_data(timeline))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, draw in figures.KINDS.items():
            assert kind == "roofline" or saved(draw(found))  # no sizes of inputs, nothing to draw


def test_four_kinds_of_need_for_data_each_in_one_sentence() -> None:
    for kind in ("timeline", "gaps", "instances"):
        with pytest.raises(UserError, match="needs more than a Report") as caught:
            figures.KINDS[kind](reports.sample())
        assert "examine" in caught.value.next_step


def test_the_global_state_is_left_alone() -> None:
    code = (
        "import sys, boundby; found = boundby.examine(sys.argv[1])\n"
        "import matplotlib; before = matplotlib.rcParams.copy()\n"
        "for kind, draw in boundby.figures.KINDS.items(): kind == 'roofline' or draw(found)\n"
        "assert matplotlib.rcParams.copy() == before; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(SAMPLE)], check=True)


def test_figures_need_matplotlib_only_when_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match="matplotlib") as caught:
        figures.account(reports.sample())
    assert "pip install matplotlib" in caught.value.next_step


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_command_writes_each_format(suffix: str, tmp_path: Path) -> None:
    output = tmp_path / f"figure.{suffix}"
    assert main(["plot", str(SAMPLE), "--kind", "regions", "-o", str(output), "--size", "column", "--no-title"]) == 0
    assert output.read_bytes().startswith(STARTS[suffix])
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_the_command_draws_a_saved_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "result.json"
    result.write_text(json.dumps(reports.sample().to_dict()))
    assert main(["plot", str(result), "-o", str(tmp_path / "a.png"), "--dpi", "60"]) == 0
    assert main(["plot", str(result), "--kind", "timeline", "-o", str(tmp_path / "b.png")]) == 2
    assert "Give the report that it was made from" in capfd.readouterr().err


@pytest.mark.parametrize("output", ["figure", "figure.jpg", "missing/figure.png"])
def test_the_command_refuses_before_the_work(output: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "no such report.sqlite", "-o", str(tmp_path / output)]) == 2
    assert "no such report" not in capfd.readouterr().err


def test_a_name_is_cut_to_the_width_it_has() -> None:
    look = figures.PAPER
    assert fitting("short", look, 3.0) == "short"
    cut = fitting("a_name_that_is_far_too_long_" * 4, look, 1.0)
    assert "…" in cut
    assert 0.7 < width_in(cut, look) <= 1.0


@pytest.mark.parametrize(("longest", "unit"), [(1, "ns"), (1_999, "ns"), (2_000, "µs"), (5e6, "ms"), (3e9, "s")])
def test_axes_have_a_unit_that_suits(longest: float, unit: str) -> None:
    assert time_unit(longest)[1] == unit


def test_utilization_that_is_not_known_is_drawn_as_nothing() -> None:
    program = Program()
    program.kernel(30, 1_000, program.api(0, 20, "cudaLaunchKernel"))
    plot_data = build_plot_data(build_timeline(program.trace(), parse_window("gpu")))
    assert plot_data.lanes[0].cpu_utilization is None or np.isnan(plot_data.lanes[0].cpu_utilization).any()
    assert saved(figures.timeline(Examined(reports.sample(), plot_data)))
