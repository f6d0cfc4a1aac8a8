"""boundby says what a GPU program is bound by, where, why, and what to change.

>>> import boundby
>>> report = boundby.analyze("report.nsys-rep")      # doctest: +SKIP
>>> report.devices[0].verdict.bound                   # doctest: +SKIP
'sync'

Heavy packages load when they are first needed, so that ``import boundby`` and ``boundby --help`` are quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boundby.__about__ import __version__
from boundby.model.errors import InputError, OutputError, SelectionError, ToolError, UserError

if TYPE_CHECKING:
    from boundby.api import analyze, examine, what_if
    from boundby.comparing import check, compare_runs
    from boundby.render import figures
    from boundby.results.report import Report

__all__ = [
    "InputError",
    "OutputError",
    "Report",
    "SelectionError",
    "ToolError",
    "UserError",
    "__version__",
    "analyze",
    "check",
    "compare_runs",
    "examine",
    "figures",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name in ("analyze", "examine", "what_if"):
        from boundby import api as pipeline

        return getattr(pipeline, name)
    if name in ("check", "compare_runs"):
        from boundby import comparing

        return getattr(comparing, name)
    if name == "figures":
        import importlib

        return importlib.import_module("boundby.render.figures")
    if name == "Report":
        from boundby.results.report import Report

        return Report
    raise AttributeError(f"module 'boundby' has no attribute {name!r}")
