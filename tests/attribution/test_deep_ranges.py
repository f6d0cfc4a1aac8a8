"""Ranges nested without end, or of names without end: recursion folds, depth and count are bounded, sums stay exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.shapes import STEP_NS, Export, deep

from boundby.api import Analysis
from boundby.attribution import regions, timeline
from boundby.attribution.regions import MOST_DEPTH, MOST_RECURSION
from boundby.results.report import Report
from tests.support.invariants import check_invariants


def analysed(export: Export, path: Path) -> Report:
    export.write(path)
    report = Analysis(path).report
    check_invariants(report)
    return report


def nested(*names: str) -> Export:
    """Ranges in each other, outermost first, with a kernel in each."""
    export = Export()
    for level, name in enumerate(names):
        export.range(level * STEP_NS, (2 * len(names) - level) * STEP_NS, name)
        export.launch(level * STEP_NS + 100)
    return export


def paths(report: Report) -> set[str]:
    return {"/".join(region.path) for region in report.regions if region.path}


def warnings(report: Report) -> list[str]:
    return [item.message for item in report.trace.warnings if item.code in ("deep-ranges", "many-regions")]


@pytest.mark.parametrize("period", [1, 2, 3])
def test_recursion_folds(period: int, tmp_path: Path) -> None:
    names = [chr(ord("a") + level % period) for level in range(600)]
    report = analysed(nested(*names), tmp_path / "a.sqlite")
    kept = MOST_RECURSION * period
    assert paths(report) == {"/".join(names[:level]) for level in range(1, kept + 1)}
    (warning,) = warnings(report)
    assert warning.startswith(f"{600 - kept} of 600 NVTX ranges lie")
    deepest = next(region for region in report.regions if len(region.path) == kept)
    assert deepest.kernels.count == 600 - kept + 1


def test_work_below_recursion_keeps_its_name(tmp_path: Path) -> None:
    report = analysed(nested("visit", "visit", "visit", "visit", "visit", "leaf"), tmp_path / "a.sqlite")
    assert paths(report) == {"visit", "visit/visit", "visit/visit/visit", "visit/visit/visit/leaf"}


def test_depth_is_bounded(tmp_path: Path) -> None:
    report = analysed(deep(500), tmp_path / "a.sqlite")
    assert len(paths(report)) == MOST_DEPTH
    assert warnings(report)[0].startswith(f"{500 - MOST_DEPTH} of 500 NVTX ranges lie more than {MOST_DEPTH} deep")


def test_usual_depths_are_left_alone(tmp_path: Path) -> None:
    report = analysed(nested("step", "model", "block", "block", "block", "linear"), tmp_path / "a.sqlite")
    assert len(paths(report)) == 6
    assert not warnings(report)


def test_paths_are_counted_and_the_longest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are no numbers: of 60 requests each, which hold a part, and of the loop around them."""
    for module in (regions, timeline):
        monkeypatch.setattr(module, "MOST_REGIONS", 30)
    export = Export()
    export.range(0, 61 * STEP_NS, "serve")
    words = ["".join(chr(ord("a") + number // 5**place % 5) for place in range(3)) for number in range(60)]
    for number, word in enumerate(words):
        at = number * STEP_NS
        export.range(at, at + 7_000 + number, f"request-{word}")
        export.range(at, at + 3_000, f"part-{word}")
        export.launch(at + 100)
    report = analysed(export, tmp_path / "a.sqlite")
    assert paths(report) == {"serve", *(f"serve/request-{word}" for word in words[-28:])}
    (warning,) = warnings(report)
    assert warning.startswith("92 of 121 NVTX ranges are none of the 30 paths that take longest")
    assert report.regions[0].kernels.count == 60
