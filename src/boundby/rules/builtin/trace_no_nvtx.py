"""No NVTX ranges: times cannot be given to parts of the program."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Rule

_PYTHON = (
    "Annotate steps and their parts: boundby profile --torch-ops does it for torch programs, boundby.annotate by hand"
)
_OTHER = "Annotate steps and their parts with nvtxRangePush and nvtxRangePop (NVTX 3: one header, no library)"


def check(context: RuleContext) -> Iterator[Match]:
    trace = context.trace
    if trace.captured.nvtx:
        return
    lost = next((warning.message for warning in trace.warnings if warning.code == "nvtx-incompatible"), None)
    found = sum(1 for region in context.regions if region.path)
    if lost:
        title = "the program's NVTX ranges were lost"
    elif found:
        places = "the one region here was found by repetition and has no name"
        if found > 1:
            places = f"the {found} regions here were found by repetition and have no names"
        title = f"no NVTX ranges: {places}"
    else:
        title = "no NVTX ranges: nothing says which part of the program takes the time"
    advice = lost or (_PYTHON if context.may_be_torch else _OTHER)
    yield Match(None, title, {"ranges": 0, "regions_found": found}, None, (advice,), severity="note")


RULE = Rule(
    id="trace-no-nvtx",
    title="No NVTX ranges: times cannot be told of parts of the program",
    group="trace",
    check=check,
    needs=("kernels",),
)
