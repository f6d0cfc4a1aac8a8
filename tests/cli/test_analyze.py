from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from boundby.model.errors import InputError
from boundby.options import AnalysisOptions
from boundby.results import saved
from boundby.results.report import Report
from tests.cli.conftest import Ran, StandIn
from tests.support import reports
from tests.support.headlines import headline, stressed

Boundby = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("analysis")


def test_the_terminal_view_is_the_default(boundby: Boundby, analysis: StandIn, report: Path) -> None:
    ran = boundby("analyze", report)
    assert ran.code == 0
    assert ran.err == ""
    assert headline("sync") in ran.out
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) == 100  # not a terminal: a fixed width
    assert analysis.calls[0][1] == AnalysisOptions()


def test_options_reach_the_analysis(boundby: Boundby, analysis: StandIn, report: Path) -> None:
    options = "--window 1:2 --skip-first 3 --region step* --device 0 --device 1 --process 42 --min-share 5"
    more = "--no-fold --nsys /x/nsys --keep-export --quiet --all --disable sync-call --disable sync-operator --no-find"
    assert boundby("analyze", report, *options.split(), *more.split()).code == 0
    assert analysis.calls[0][1] == AnalysisOptions(
        window="1:2",
        skip_first=3,
        region="step*",
        devices=(0, 1),
        processes=(42,),
        min_share=0.05,
        fold=False,
        find_regions=False,
        nsys=Path("/x/nsys"),
        keep_export=True,
        disable=("sync-call", "sync-operator"),
        show_all=True,
    )


def test_regions_below_one_percent_are_hidden_unless_asked_for(boundby: Boundby, report: Path) -> None:
    assert "zero_grad" not in boundby("analyze", report).out
    assert "zero_grad" in boundby("analyze", report, "--min-share", "0").out


def test_json_is_all_there_is_on_stdout(boundby: Boundby, report: Path) -> None:
    ran = boundby("analyze", report, "--format", "json")
    assert ran.err == ""
    back = saved.from_dict(json.loads(ran.out), Report)
    assert back.regions == reports.sample().regions


def test_json_of_several_is_an_array(boundby: Boundby, report: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    other.touch()
    ran = boundby("analyze", report, other, "--format", "json")
    assert [item["trace"]["path"] for item in json.loads(ran.out)] == [str(report), str(other)]


def test_csv_and_markdown(boundby: Boundby, report: Path) -> None:
    table = list(csv.DictReader(io.StringIO(boundby("analyze", report, "--format", "csv").out)))
    assert table[1]["path"] == "step"
    assert f"### {headline('sync')}" in boundby("analyze", report, "--format", "markdown").out


@pytest.mark.parametrize(
    ("name", "start"), [("a.json", "{"), ("a.md", "**`python"), ("a.csv", "path,"), ("a.txt", "python train.py")]
)
def test_the_suffix_of_the_output_says_the_format(
    boundby: Boundby, report: Path, tmp_path: Path, name: str, start: str
) -> None:
    for _ in range(2):  # users run again
        ran = boundby("analyze", report, "-o", tmp_path / name)
        assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_format_outweighs_the_suffix_and_a_dash_is_stdout(boundby: Boundby, report: Path, tmp_path: Path) -> None:
    boundby("analyze", report, "-o", tmp_path / "a.txt", "--format", "json")
    json.loads((tmp_path / "a.txt").read_text(encoding="utf-8"))
    json.loads(boundby("analyze", report, "-o", "-", "--format", "json").out)


def test_a_name_that_asks_for_another_format_is_told(boundby: Boundby, report: Path, tmp_path: Path) -> None:
    ran = boundby("analyze", report, "--format", "markdown", "-o", tmp_path / "x.json")
    assert ran.code == 0
    assert "will hold markdown, as --format asks, not json" in ran.err
    assert boundby("analyze", report, "--format", "json", "-o", tmp_path / "y.json").err == ""


def test_an_output_that_cannot_be_written_is_known_before_the_hard_work(
    boundby: Boundby, analysis: StandIn, report: Path, tmp_path: Path
) -> None:
    for target in (tmp_path / "no" / "a.json", report, tmp_path / "a.xyz"):
        ran = boundby("analyze", report, "-o", target)
        assert ran.code == 2
        assert ran.err.startswith("boundby: ")
    assert boundby("analyze", report, "--save", tmp_path / "no" / "x.db").code == 2
    assert analysis.calls == []
    assert report.read_bytes().endswith(b"a report")


def test_several_reports_need_a_folder(boundby: Boundby, report: Path, tmp_path: Path) -> None:
    assert "not a folder" in boundby("analyze", report, report, "-o", tmp_path / "x.json").err
    assert "one report" in boundby("analyze", report, report, "--format", "csv").err
    folder = tmp_path / "results"
    folder.mkdir()
    assert boundby("analyze", report, report, "-o", folder, "--format", "csv").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["train-2.csv", "train.csv"]


def test_one_bad_report_does_not_keep_the_others(
    boundby: Boundby, analysis: StandIn, report: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.touch()
    analysis.answers["bad.sqlite"] = InputError("bad.sqlite is empty.", "Export it again.")
    ran = boundby("analyze", bad, report, tmp_path / "missing", "--format", "json")
    assert ran.code == 2
    assert [item["trace"]["path"] for item in json.loads(ran.out)] == [str(report)]
    assert ran.err.splitlines() == [
        "boundby: bad.sqlite is empty.",
        "  Export it again.",
        f"boundby: {tmp_path / 'missing'} does not exist.",
        "  Check the name.",
    ]


def test_a_bug_outweighs_a_bad_report(boundby: Boundby, analysis: StandIn, report: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.sqlite"
    odd.touch()
    analysis.answers["odd.sqlite"] = ZeroDivisionError("oops")
    ran = boundby("analyze", odd, tmp_path / "missing", report)
    assert ran.code == 70
    assert "This is a bug in boundby (ZeroDivisionError: oops)." in ran.err
    assert stressed("sync") in ran.out


def test_save_adds_to_a_database(boundby: Boundby, report: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for _ in range(2):
        ran = boundby("analyze", report, "--save", path, "--format", "json")
        assert ran.code == 0
        json.loads(ran.out)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM reports").fetchone() == (2,)


def test_colour_and_width(boundby: Boundby, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in boundby("analyze", report, "--color").out
    monkeypatch.chdir(report.parent)
    assert max(map(len, boundby("analyze", report.name, "--width", "60").out.splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "77")
    assert max(map(len, boundby("analyze", report.name).out.splitlines())) <= 77
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in boundby("analyze", report).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in boundby("analyze", report).out
    assert "\x1b[" in boundby("analyze", report, "--color").out


def test_hostile_names_reach_no_terminal(boundby: Boundby, analysis: StandIn, report: Path) -> None:
    analysis.answers["train.sqlite"] = reports.hostile
    for name in ("terminal", "markdown", "csv"):
        out = boundby("analyze", report, "--format", name).out
        assert "\x1b" not in out
        assert "\x07" not in out
    json.loads(boundby("analyze", report, "--format", "json").out)


def test_two_outputs_are_refused_before_one_is_silently_left_out(
    boundby: Boundby, report: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.html"
    ran = boundby("analyze", report, "-o", one, "-o", other)
    assert ran.code == 2
    assert "-o takes one path, and was given 2" in ran.err
    assert not one.exists()
    assert not other.exists()
