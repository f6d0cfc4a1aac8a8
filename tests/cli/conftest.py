"""The command line with a stand-in for the analysis, so that these tests are of the command line alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boundby.cli.main import main
from boundby.model.errors import InputError
from boundby.results.report import Report
from tests.support import reports


@dataclass
class Ran:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str


@dataclass
class Analysis:
    """Answers for ``boundby.api.analyze`` (and ``examine``) by file name, and how it was called."""

    answers: dict[str, Callable[[], Report] | Exception] = field(default_factory=dict)
    calls: list[tuple[Path, Mapping[str, Any]]] = field(default_factory=list)

    def __call__(self, path: str | Path, **options: Any) -> Report:
        path = Path(path)
        self.calls.append((path, options))
        if not path.exists():
            raise InputError(f"{path} does not exist.", "Check the name.")
        answer = self.answers.get(path.name, reports.sample)
        if isinstance(answer, Exception):
            raise answer
        report = answer()
        return replace(report, trace=replace(report.trace, path=str(path)))


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> Analysis:
    made = Analysis()

    def examine(path: str | Path, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(report=made(path, **options))

    monkeypatch.setattr("boundby.api.analyze", made)
    monkeypatch.setattr("boundby.api.examine", examine)
    return made


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
