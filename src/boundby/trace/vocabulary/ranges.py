"""What the names of NVTX ranges and domains say: numbered ones fold into one, libraries annotate themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from boundby.model.expressions import expression

# PyTorch's emit_nvtx and nsys --pytorch append these to operator names: ", seq = 893, op_id = 7, sizes = [[...]]".
_OPERATOR_DETAIL = expression(r",?\s*\b(?:seq|op_id|stashed seq|sizes|input_op_ids|ScopeHandle)\s*[=:].*$")
# A number that stands by itself: after a separator or a letter at the end of a word, never inside an identifier
# such as conv2d, float16, resnet50_v2 or layer1 (module names keep their numbers: they are different modules).
_COUNTER = expression(r"(?<=[\s_#\[(:=\-/])\d+(?=$|[\s_\])}:,;/\-])|^\d+$")
_STEP_WORD = expression(
    r"(?<![A-Za-z])(iter|iteration|step|batch|epoch|frame|request|chunk|microbatch|sample|token|run|rep|trial|warmup)"
    r"\d+(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_DIGIT = expression(r"\d")
_DOTTED_MODULE = expression(r"^[A-Za-z_]\w*(?:\.\w+)+$")


def fold_name(name: str) -> str:
    """The name that all instances of a numbered range share.

    ``aten::addmm, seq = 893, op_id = 7`` -> ``aten::addmm``; ``step 12`` -> ``step *``; ``layer1`` and the dotted
    module path ``layers.3.attention`` stay, since they name different things.
    """
    folded = _OPERATOR_DETAIL.sub("", name) if "=" in name or ":" in name else name
    if not _DIGIT.search(folded):
        return folded or name
    if _DOTTED_MODULE.match(folded):
        return folded
    return _STEP_WORD.sub(r"\1*", _COUNTER.sub("*", folded)) or name


# A number at the end of a word; names are told by regular expressions that ask for one and not for which.
_NUMBER = expression(r"[0-9]+(?![A-Za-z0-9])")
# The same, but none that is part of a word: `c10::` stays.
_LONE_NUMBER = expression(r"(?<![A-Za-z0-9_])[0-9]+(?![A-Za-z0-9_])")
_ANY_NUMBER = "0"
Told = TypeVar("Told")


def fold_names(names: Sequence[str]) -> list[str]:
    """``fold_name`` of each. Of a million names most differ in their numbers only: these are looked at once."""
    shapes = without_numbers(names)
    folded = {shape: fold_name(shape) for shape in set(shapes)}
    known = {shape: name for shape, name in folded.items() if _ANY_NUMBER not in name}  # none of its numbers is left
    return [known[shape] if shape in known else fold_name(name) for name, shape in zip(names, shapes, strict=True)]


def told_without_numbers(names: Sequence[str], tells: Callable[[str], Told]) -> list[Told]:
    """What ``tells`` says of each name, where it does not ask which number stands at the end of a word."""
    shapes = without_numbers(names)
    told = {shape: tells(shape) for shape in set(shapes)}
    return [told[shape] for shape in shapes]


def without_numbers(names: Sequence[str], number: re.Pattern[str] = _NUMBER) -> list[str]:
    """The names with one and the same number at the end of their words."""
    text = "\n".join(names)
    if text.isascii() and text.count("\n") == len(names) - 1:
        return number.sub(_ANY_NUMBER, text).split("\n")
    return [number.sub(_ANY_NUMBER, name) if name.isascii() else name for name in names]


def but_for_lone_numbers(names: Sequence[str]) -> list[str]:
    """The distinct names, in order, where those that differ in numbers which are words of their own count as one."""
    return list(dict.fromkeys(without_numbers(names, _LONE_NUMBER)))


#: How the ranges that PyTorch's autograd engine opens around each node of the backward pass begin.
BACKWARD = "autograd::engine::evaluate_function: "

# Domains of libraries that annotate themselves: their ranges are neither the user's regions nor operators.
_LIBRARY_DOMAIN = expression(
    r"^(?:nccl|nvshmem|cub|cccl|thrust|cublas|cublaslt|cudnn|cusparse|cusolver|cufft|curand|nvjpeg|tensorrt|"
    r"dali|cudf|libcudf|raft|libkvikio|rmm|librmm|ucx|mpi|openmpi|nvcomp)\b",
    re.IGNORECASE,
)


def is_library(domain: str) -> bool:
    """True for the domain of a library that annotates itself."""
    return bool(_LIBRARY_DOMAIN.match(domain))
