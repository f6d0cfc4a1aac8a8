"""One capture, exported by nsys versions years apart, gives one report.

Only what an older exporter does not write differs: before 2023 the command, before 2024 the profiler's messages, and
which tables an export holds beside those that are read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import boundby
from boundby.capture.export import export_sqlite
from boundby.capture.nsys import Nsys
from boundby.results.report import Report
from tests.oracle.nsys_reports import NsysReports
from tests.oracle.ours import analysis
from tests.oracle.test_host import check_os_calls
from tests.oracle.test_ranges import check_ranges
from tests.support.nsys import OLDER, capture, fetched_nsys

pytestmark = pytest.mark.nsys
MIDDLE = "2023.4.4"  # the oldest here that also samples and watches the scheduler


@pytest.fixture(scope="module", params=[OLDER, MIDDLE])
def captured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Nsys, Path]:
    """A capture, and the nsys that made it."""
    tool = fetched_nsys(request.param)
    return tool, capture(tool, tmp_path_factory.mktemp("versions"), "cpu_steps.py", "4")


def test_the_exporting_version_changes_nothing(captured: tuple[Nsys, Path], nsys: Nsys, tmp_path: Path) -> None:
    maker, path = captured
    reports = {}
    for tool in (maker, fetched_nsys(MIDDLE), nsys):
        if tool.release not in reports and tool.version_tuple >= maker.version_tuple:
            exported = export_sqlite(path, tmp_path / f"{tool.release}.sqlite", tool)
            reports[tool.release] = boundby.analyze(exported, fold=False)
    if len(reports) < 2:
        pytest.skip(f"only nsys {maker.release} is here, so there is nothing to compare")
    for release, report in reports.items():
        assert (report.trace.exported_by or "").startswith(release)
    assert len({report.trace.command for report in reports.values()} - {None}) == 1
    first, *others = (_without_versions(report) for report in reports.values())
    assert {("step",), ("step", "compute", "half"), ("store",)} <= {region.path for region in first.regions}
    assert [thread.verdict.bound for thread in first.threads]
    command = next(report.trace.command for report in reports.values() if report.trace.command)
    for other in others:
        for part in ("threads", "regions"):
            assert _text(getattr(other, part), command) == _text(getattr(first, part), command)
        assert _text(other, command) == _text(first, command)


def test_a_fresh_capture_agrees_with_nvidia(nvidia: NsysReports, nsys: Nsys, nvtx_report: Path, tmp_path: Path) -> None:
    exported = export_sqlite(nvtx_report, tmp_path / "fresh.sqlite", nsys)
    assert len(analysis(exported).trace.ranges)
    check_ranges(nvidia, exported)
    check_os_calls(nvidia, exported)


def _text(part: object, command: str) -> str:
    """All of it; advice calls the program PROGRAM where the exporter did not write its command."""
    return repr(part).replace(command, "PROGRAM")


def _without_versions(report: Report) -> Report:
    about = replace(
        report.trace,
        path="",
        nsys_version=None,
        exported_by=None,
        schema_version=None,
        command=None,
        warnings=(),
        not_recorded={},
        not_read=(),
    )
    return replace(report, trace=about)
