"""Two runs set side by side, and limits held against a run: what ``boundby compare`` and ``boundby check`` do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from boundby import api as pipeline
from boundby.compare import between, budget, gate
from boundby.model.errors import InputError, SelectionError
from boundby.render import json as report_json
from boundby.results.comparison import Comparison
from boundby.results.gate import GateResult
from boundby.results.report import Report

Source = str | PathLike[str] | Report
Progress = Callable[[str, float | None], None]
#: ``--fail-on`` in a word.
SHORTHANDS = {"regression": "regression > 5 %", "new-findings": "findings.new.high > 0"}


def load(source: Source, *, progress: Progress | None = None, **options: Any) -> Report:
    """A report, however it comes: analysed already, saved as JSON, or anything that ``analyze`` takes.

    ``options`` are those of ``analyze``. Raises UserError; SelectionError where a saved result would need them.
    """
    if isinstance(source, Report):
        return source
    path = Path(source)
    if path.suffix.lower() != ".json":
        return pipeline.analyze(path, progress=progress, **options)
    chosen = sorted(name for name, value in options.items() if value not in (None, (), [], "gpu", 0, True, False))
    if chosen:
        flag = chosen[0].replace("_", "-")
        raise SelectionError(f"{path} is a saved result: {flag} cannot be changed any more.", "Give the report itself.")
    return _saved(path)


def _saved(path: Path) -> Report:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.", "Check the name.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is no JSON.", "Write one with: boundby analyze REPORT --format json -o x.json"
        ) from error
    if isinstance(data, list):
        if len(data) != 1:
            raise InputError(f"{path} holds {len(data)} results.", "Give a file with one.")
        data = data[0]
    if isinstance(data, dict) and data.get("kind") == "comparison":
        raise InputError(f"{path} is a comparison, not a result.", "Give the reports that it compares.")
    return report_json.from_dict(data)


def compare_runs(
    before: Source, after: Source, *, steps: str | None = None, progress: Progress | None = None, **options: Any
) -> Comparison:
    """What changed between two runs: reports, folders of runs, results saved as JSON, or ``Report`` objects.

    ``steps``: a glob of the region that is the program's step. ``options`` are those of ``analyze``, for both. Raises
    UserError like ``analyze``.
    """
    return between.compare(
        load(before, progress=progress, **options), load(after, progress=progress, **options), steps=steps
    )


def limits(
    *, budget_file: str | PathLike[str] | None = None, texts: Sequence[str] = (), fail_on: Sequence[str] = ()
) -> budget.Budget:
    """All limits of a check in one budget. ``fail_on``: conditions that must not hold. Raises LimitError."""
    found = budget.read(Path(budget_file)) if budget_file is not None else budget.Budget(())
    added = [gate.parse(text) for text in texts]
    added += [gate.parse(SHORTHANDS.get(text, text), fails=True) for text in fail_on]
    return budget.Budget((*found.limits, *added), found.steps)


def check(
    source: Source,
    *texts: str,
    budget_file: str | PathLike[str] | None = None,
    steps: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> GateResult:
    """Whether a run keeps limits such as ``step.time < 12 ms``, given here or in a budget file.

    ``options`` are those of ``analyze``. Raises UserError, of which LimitError for a limit that says nothing.
    """
    chosen = limits(budget_file=budget_file, texts=texts)
    return gate.check(chosen.limits, load(source, progress=progress, **options), steps=steps or chosen.steps)


def hold(chosen: budget.Budget, comparison: Comparison, after: Report, *, steps: str | None = None) -> GateResult:
    """Hold limits against a comparison and its later report."""
    return gate.check(chosen.limits, after, comparison, steps=steps or chosen.steps)
