"""boundby says what a GPU program is bound by, where, why, and what to change.

>>> import boundby
>>> report = boundby.analyze("report.nsys-rep")      # doctest: +SKIP
>>> report.devices[0].verdict.bound                   # doctest: +SKIP
'sync'

Heavy packages load when they are first needed, so that ``import boundby`` and ``boundby --help`` are quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from boundby.__about__ import __version__
from boundby.model.errors import InputError, OutputError, SelectionError, ToolError, UserError

if TYPE_CHECKING:
    from boundby.api import Analysis, analyze, check, compare_runs, examine, serving, what_if
    from boundby.experiment.live import prove
    from boundby.integrations.notebook import load_ipython_extension
    from boundby.integrations.torch_profiler import profiling, trace_handler
    from boundby.options import AnalysisOptions
    from boundby.render import figures
    from boundby.results.report import Report

__all__ = [
    "Analysis",
    "AnalysisOptions",
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
    "load_ipython_extension",
    "profiling",
    "prove",
    "serving",
    "trace_handler",
    "what_if",
]

#: name -> the module that has it.
_LAZY = {
    **dict.fromkeys(("Analysis", "analyze", "check", "compare_runs", "examine", "serving", "what_if"), "boundby.api"),
    "AnalysisOptions": "boundby.options",
    "Report": "boundby.results.report",
    "prove": "boundby.experiment.live",
    "load_ipython_extension": "boundby.integrations.notebook",
    **dict.fromkeys(("profiling", "trace_handler"), "boundby.integrations.torch_profiler"),
}


def __getattr__(name: str) -> Any:
    if name == "figures":
        return importlib.import_module("boundby.render.figures")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'boundby' has no attribute {name!r}")
