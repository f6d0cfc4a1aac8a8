"""No NVTX ranges: times cannot be given to parts of the program."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence.context import RuleContext
from boundby.evidence.waits import is_python
from boundby.rules.rule import Match, Remedy, Rule

_PYTHON = (
    "Annotate steps and their parts: boundby profile --torch-ops does it for torch programs, boundby.annotate by hand"
)
_OTHER = "Annotate steps and their parts with nvtxRangePush and nvtxRangePop (NVTX 3: one header, no library)"


def check(context: RuleContext) -> Iterator[Match]:
    trace = context.timeline.trace
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
    advice = lost or (_PYTHON if is_python(context) else _OTHER)
    yield Match(None, title, {"ranges": 0, "regions_found": found}, None, (advice,), severity="note")


RULE = Rule(
    id="trace-no-nvtx",
    title="No NVTX ranges: times cannot be told of parts of the program",
    group="trace",
    picture="""
    NVTX
    host   launch launch launch sync launch launch launch sync
    GPU      [k][k][k]           [k][k][k]        which is forward, loss, backward?
    """,
    meaning="""
NVTX ranges say which part of a program runs. Without any there is one verdict for the whole window, and
findings can name calls and kernels, but no place in the code. Where the launch sequence repeats, boundby finds
iterations by itself; they have no names.
""",
    remedies=(
        Remedy(
            "Let boundby annotate a torch program as it runs.",
            "boundby profile --torch-ops -- python train.py",
            "bash",
        ),
        Remedy(
            "Or annotate by hand.",
            """
            from boundby.annotate import nvtx_range

            for step, batch in enumerate(loader):
                with nvtx_range(f"step {step}"):
                    with nvtx_range("forward"):
                        loss = model(batch)
            """,
            caution="a range costs about 1 us: annotate what takes 50 us and more.",
        ),
    ),
    disproof="""
`nsys stats --report nvtx_sum` on the same report: if it lists ranges, the report holds them and boundby failed
to read them.
""",
    check=check,
    needs=("kernels",),
    see_also=("trace-incomplete",),
)
