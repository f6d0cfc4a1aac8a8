"""No NVTX ranges: times cannot be given to parts of the program."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Rule, note

_PYTHON = "Annotate steps and their parts: boundby.annotate, or nvtx.annotate of the package nvtx"
_JULIA = "Annotate steps and their parts: NVTX.@annotate of NVTX.jl"
_TORCH = (
    "Annotate steps and their parts: boundby profile --torch-ops does it for torch programs, boundby.annotate by hand"
)
_OTHER = "Annotate steps and their parts with nvtxRangePush and nvtxRangePop (NVTX 3: one header, no library)"


def _check(context: RuleContext) -> Iterator[Match]:
    if context.trace.captured.nvtx:
        return
    lost = next((warning.message for warning in context.trace.warnings if warning.code == "nvtx-incompatible"), None)
    regions = sum(1 for region in context.regions if region.path)
    if lost:
        title = "the program's NVTX ranges were lost"
    elif regions == 1:
        title = "no NVTX ranges: the one region here was found by repetition and has no name"
    elif regions:
        title = f"no NVTX ranges: the {regions} regions here were found by repetition and have no names"
    else:
        title = "no NVTX ranges: nothing says which part of the program takes the time"
    yield note(
        title,
        {"ranges": 0, "regions_found": regions},
        lost or (context.program.pick(_OTHER, torch=_TORCH, python=_PYTHON, julia=_JULIA)),
    )


RULE = Rule(
    id="trace-no-nvtx",
    title="No NVTX ranges: time cannot be given to parts of the program",
    group="trace",
    check=_check,
    needs=("kernels",),
)
