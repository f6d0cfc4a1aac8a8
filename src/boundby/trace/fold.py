"""Numbered range names fold into one: ``iteration_12`` -> ``iteration_*``."""

from __future__ import annotations

import re
from collections.abc import Iterable

# PyTorch's emit_nvtx and nsys --pytorch append these to operator names: ", seq = 893, op_id = 7, sizes = [[...]]".
_OPERATOR_DETAIL = re.compile(r",?\s*\b(?:seq|op_id|stashed seq|sizes|input_op_ids|ScopeHandle)\s*[=:].*$")
# A number that stands by itself: after a separator or a letter at the end of a word, never inside an identifier
# such as conv2d, float16, resnet50_v2 or layer1 (module names keep their numbers: they are different modules).
_COUNTER = re.compile(r"(?<=[\s_#\[(:=\-/])\d+(?=$|[\s_\])}:,;/\-])|^\d+$")
_STEP_WORD = re.compile(
    r"(?<![A-Za-z])(iter|iteration|step|batch|epoch|frame|request|chunk|microbatch|sample|token|run|rep|trial|warmup)"
    r"\d+(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_DOTTED_MODULE = re.compile(r"^[A-Za-z_]\w*(?:\.\w+)+$")


def fold_name(name: str) -> str:
    """The name that all instances of a numbered range share.

    ``aten::addmm, seq = 893, op_id = 7`` -> ``aten::addmm``; ``step 12`` -> ``step *``; ``layer1`` and the dotted
    module path ``layers.3.attention`` stay, since they name different things.
    """
    folded = _OPERATOR_DETAIL.sub("", name)
    if _DOTTED_MODULE.match(folded):
        return folded
    return _STEP_WORD.sub(r"\1*", _COUNTER.sub("*", folded)) or name


def fold_names(names: Iterable[str]) -> list[str]:
    """``fold_name`` of every name."""
    return [fold_name(name) for name in names]
