"""pytest fixtures: limits on a GPU program in a project's own tests.

pytest loads this module in every run, so it imports nothing of boundby before a fixture is called.

    def test_the_step_is_fast(boundby_check):
        boundby_check("report.nsys-rep", "step.time < 12 ms", "sync.per_step <= 2")

    def test_training_keeps_the_gpu_busy(boundby_profile):
        run = boundby_profile("train.py", "--steps", "20")
        run.check("gpu_utilization > 80 %")

    def test_the_loader_is_no_limit(boundby_prove):
        boundby_prove(step, loader=loader, input=(0.0, 0.5))
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

if TYPE_CHECKING:
    from boundby.api import Source
    from boundby.results.comparison import GateResult
    from boundby.results.proof import Proof
    from boundby.results.report import Report


class ProfiledRun(Struct, frozen=True):
    """A run that ``boundby_profile`` recorded: its folder and its report."""

    folder: Path
    report: Report

    def check(self, *limits: str, budget: str | PathLike[str] | None = None, steps: str | None = None) -> GateResult:
        """Fail the test if the run breaks a limit."""
        return _check(self.report, *limits, budget=budget, steps=steps)


@pytest.fixture(scope="session")
def boundby_check() -> Callable[..., GateResult]:
    """``boundby_check(report, *limits, budget=None, steps=None, **options of analyze)``: fail if a limit is broken.

    ``report`` is a file, a run's folder, a saved result or a ``boundby.Report``.
    """
    return _check


@pytest.fixture
def boundby_profile(tmp_path: Path) -> Callable[..., ProfiledRun]:
    """``boundby_profile("train.py", *arguments, nsys=None, **options of analyze)``: record it, and analyse the record.

    A ``.py`` file runs under this Python; anything else is a command. The test is skipped where there is no nsys, and
    fails if the program does.
    """
    runs: list[Path] = []

    def profile(*command: str | PathLike[str], nsys: str | PathLike[str] | None = None, **options: Any) -> ProfiledRun:
        folder = tmp_path / f"boundby-{len(runs) + 1}"
        runs.append(folder)
        return _profile([fspath(word) for word in command], folder, nsys, options)

    return profile


@pytest.fixture
def boundby_prove() -> Callable[..., Proof]:
    """``boundby_prove(step, loader=None, steps=None, host=None, input=None, device=None)``: what a part is worth.

    ``host=(0.5, 1.0)`` says that a millisecond saved there saves 0.5 to 1 ms of a step. The test fails if the
    experiment shows otherwise: where its whole interval lies outside. Too noisy a machine shows nothing, and fails no
    test.
    """
    return _prove


def _prove(step: Callable[..., object], *, loader: Any = None, steps: int | None = None, **limits: Any) -> Proof:
    from boundby.document.proof_document import document
    from boundby.experiment.live import prove
    from boundby.model.errors import UserError
    from boundby.render import to_terminal

    try:
        proof = prove(step, loader=loader, steps=steps)
    except UserError as error:
        pytest.fail(f"boundby: {error}", pytrace=False)
    worth = {part.part: part.saved_per_ns for part in proof.parts}
    unknown = limits.keys() - worth.keys()
    if unknown:
        raise TypeError(f"boundby_prove: the step has no part {', '.join(sorted(unknown))}, but {', '.join(worth)}")
    broken = [part for part, (low, high) in limits.items() if worth[part].high < low or worth[part].low > high]
    if broken:
        screen = to_terminal.render(document(proof))
        pytest.fail(f"boundby: not worth what was asserted: {', '.join(broken)}\n{screen}", pytrace=False)
    return proof


def _check(
    source: Source, *limits: str, budget: str | PathLike[str] | None = None, steps: str | None = None, **options: Any
) -> GateResult:
    from boundby import api
    from boundby.document.comparison_document import gate_document
    from boundby.model.errors import UserError
    from boundby.render import to_terminal

    if not limits and budget is None:
        raise TypeError("boundby_check needs a limit, such as 'step.time < 12 ms', or budget=FILE")
    try:
        result = api.check(source, *limits, budget_file=budget, steps=steps, **options)
    except UserError as error:
        pytest.fail(f"boundby: {error}", pytrace=False)
    if not result.passed:
        pytest.fail(to_terminal.render(gate_document(result)), pytrace=False)
    return result


def _profile(
    command: list[str], folder: Path, nsys: str | PathLike[str] | None, options: dict[str, Any]
) -> ProfiledRun:
    from boundby import api
    from boundby.capture.flags import CaptureOptions
    from boundby.capture.nsys import find_nsys
    from boundby.capture.recording import Request, complete, record
    from boundby.model.errors import ToolError, UserError

    if not command:
        raise TypeError("boundby_profile needs a program")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    chosen = Path(nsys) if nsys is not None else None
    try:
        find_nsys(chosen)
    except ToolError as error:
        pytest.skip(f"boundby: {error}")
    try:
        recording = record(Request(tuple(command), CaptureOptions(), folder=folder, nsys=chosen), say=lambda _: None)
        if recording.exit_code:
            pytest.fail(f"boundby: {' '.join(command)} failed with exit code {recording.exit_code}", pytrace=False)
        complete(recording)
        return ProfiledRun(folder, api.analyze(folder, **options))
    except UserError as error:
        pytest.fail(f"boundby: {error}", pytrace=False)
