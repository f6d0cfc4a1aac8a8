"""Which line of a stack a finding is of."""

from __future__ import annotations

import pytest

from boundby.evidence.code_lines import own_line
from boundby.results.report import CodeLine

TORCH = CodeLine("/usr/lib/python3/site-packages/torch/nn/modules/linear.py", 124, "forward")
LAYER = CodeLine("/usr/lib/python3/site-packages/transformers/models/qwen2/modeling_qwen2.py", 56, "forward")
OWN = CodeLine("/home/user/app/run.py", 28, "run_on_input")
PROFILED = CodeLine("/home/user/app/profile.py", 7, "run_torch_profiler")
MAIN = CodeLine("/home/user/app/run.py", 90, "main")


@pytest.mark.parametrize(
    ("stack", "around", "line"),
    [
        ((TORCH, LAYER, OWN, MAIN), None, OWN),
        ((TORCH, LAYER, OWN, MAIN), OWN, LAYER),  # a call of the whole model tells none of its parts from another
        ((TORCH, OWN, MAIN), OWN, OWN),  # no library is inside
        ((TORCH, LAYER, OWN, MAIN), MAIN, OWN),
        ((TORCH, PROFILED, MAIN), None, PROFILED),  # where nothing else is the user's
        ((TORCH, PROFILED, OWN, MAIN), None, OWN),
        ((TORCH,), None, None),
    ],
)
def test_the_line_is_the_innermost_of_the_user(
    stack: tuple[CodeLine, ...], around: CodeLine | None, line: CodeLine | None
) -> None:
    assert own_line(stack, around) == line
