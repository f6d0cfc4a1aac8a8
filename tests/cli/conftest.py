"""The command line with a stand-in for the analysis, so that these tests are of the command line alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from boundby.cli.main import main
from boundby.model.errors import InputError
from boundby.options import AnalysisOptions
from boundby.results.report import Report
from tests.support import reports


@dataclass
class Ran:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str


@dataclass
class StandIn:
    """Answers for ``boundby.api.examine`` by file name, and how it was called."""

    answers: dict[str, Callable[[], Report] | Exception] = field(default_factory=dict)
    calls: list[tuple[Path, AnalysisOptions]] = field(default_factory=list)

    def __call__(self, path: str | Path, options: AnalysisOptions | None = None, **changes: Any) -> SimpleNamespace:
        changes.pop("progress", None)
        path, options = Path(path), replace(options or AnalysisOptions(), **changes)
        self.calls.append((path, options))
        if not path.exists():
            raise InputError(f"{path} does not exist.", "Check the name.")
        answer = self.answers.get(path.name, reports.sample)
        if isinstance(answer, Exception):
            raise answer
        report = answer()
        report = replace(report, trace=replace(report.trace, path=str(path)))
        return SimpleNamespace(report=report, options=options)


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr("boundby.api.examine", stand_in)
    return stand_in


@pytest.fixture
def boundby(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run ``boundby ARGUMENTS`` in this process, in an environment that says nothing about the terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "COLORTERM", "BOUNDBY_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> Ran:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "train.sqlite"
    path.write_bytes(b"SQLite format 3\0 a report")
    return path
