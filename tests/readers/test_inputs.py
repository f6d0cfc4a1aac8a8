"""One table says how files are called that can be analysed."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundby.capture.folder import find_in_folder
from boundby.cli.analyze import analyze
from boundby.cli.main import main
from boundby.jobs.gather import find_reports
from boundby.model.inputs import by_suffix, input_kind, named
from boundby.results.write import looks_like_report

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("suffix", [suffix for suffix, _ in by_suffix()])
def test_a_name_of_each_kind_is_a_report_and_no_command(suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([f"nothere{suffix}"]) == 2
    assert f"nothere{suffix} does not exist" in capfd.readouterr().err


@pytest.mark.parametrize("suffix", [suffix for suffix, _ in by_suffix(sought=True)])
def test_folders_and_jobs_find_each_kind_and_none_is_overwritten(suffix: str, tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}{suffix}").write_bytes(b'{"traceEvents": []}')
    found = [path for _, path in find_reports([tmp_path])[1]]
    assert [path.name for path in found] == [f"rank0{suffix}", f"rank1{suffix}"]
    (tmp_path / f"rank1{suffix}").unlink()
    assert find_in_folder(tmp_path) == found[0]
    kind = input_kind(found[0])
    assert kind is not None
    assert looks_like_report(found[0]) == kind.is_nsys  # JSON may be a result, which is written anew
    assert input_kind(found[0].name.upper()) == kind


def test_reports_may_be_given_by_whole_and_by_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [Path("one.sqlite"), tmp_path / "two.sqlite"]
    assert [name for name, _ in find_reports(given)[1]] == ["one.sqlite", "two.sqlite"]


def test_what_needs_no_nsys_is_preferred(tmp_path: Path) -> None:
    for suffix, _ in by_suffix(sought=True):
        (tmp_path / f"one{suffix}").write_bytes(b"x")
    assert [path.name for _, path in find_reports([tmp_path])[1]] == ["one.sqlite"]


@pytest.mark.parametrize("place", ["README.md", "docs/pytorch-profiler.md", "boundby analyze --help"])
def test_people_are_told_of_every_suffix_of_pytorch_traces(place: str) -> None:
    text = (analyze.help or "") if place.startswith("boundby") else (ROOT / place).read_text(encoding="utf-8")
    assert [suffix for suffix in named("pytorch").split(", ") if suffix not in text] == []
