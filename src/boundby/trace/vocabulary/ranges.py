"""What the names of NVTX ranges and domains say: numbered ones fold into one, libraries annotate themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from boundby.model.arrays import Int32Array
from boundby.model.expressions import expression
from boundby.trace.vocabulary import serving

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
# A number, or the star that it folded into, after a word for a step; and the steps of vLLM and SGLang.
_STEP = expression(
    r"(?:step|iter|iteration|batch)[\s_#:=\-]*(?:\d+|\*)$"
    r"|^execute_\S*context_\d.*generation_\d|^step\[",
    re.IGNORECASE,
)
#: Ranges in which a program fetches its next batch (PyTorch's own range among them).
INPUT_NAME = expression(
    r"data.?load|dataset|\bload(er|ing)?\b|__next__|\bdata\b|\binputs?\b|\bfetch|next.?batch|get.?batch|load.?batch"
    r"|batch.?load|prefetch|dali",
    re.IGNORECASE,
)
#: Threads that make batches for the one that launches: of NVIDIA's DALI, of PyTorch's loader, decoders.
FEEDER_NAME = expression(r"^\[DALI\]|^pt_(?:pin_mem|data_worker)|^dec(?:ode|oding)|decod(?:er|ing)", re.IGNORECASE)
_DIGIT = expression(r"\d")
_DOTTED_MODULE = expression(r"^[A-Za-z_]\w*(?:\.\w+)+$")
# A line of a source file: another line is another place, not another instance.
_SOURCE_LINE = expression(r"^[^\s:]+\.[A-Za-z]\w{0,3}:\d+\b")


def fold_name(name: str) -> str:
    """The name that all instances of a numbered range share.

    ``aten::addmm, seq = 893, op_id = 7`` -> ``aten::addmm``; ``step 12`` -> ``step *``; ``layer1`` and the dotted
    module path ``layers.3.attention`` stay, since they name different things. Steps of servers fold by kind and size:
    ``step[DECODE bs=30]`` -> ``decode, 17-32 requests``.
    """
    served = serving.folded(name)
    if served is not None:
        return served
    folded = _OPERATOR_DETAIL.sub("", name) if "=" in name or ":" in name else name
    if not _DIGIT.search(folded):
        return folded or name
    if _DOTTED_MODULE.match(folded) or _SOURCE_LINE.match(folded):
        return folded
    return _STEP_WORD.sub(r"\1*", _COUNTER.sub("*", folded)) or name


def is_step(name: str) -> bool:
    """True if a range's name (folded or not) says that it is a step of the program: ``ProfilerStep#6``, ``step *``."""
    return _STEP.search(name) is not None or serving.is_label(name)


# A number at the end of a word; names are told by regular expressions that ask for one and not for which.
_NUMBER = expression(r"[0-9]+(?![A-Za-z0-9])")
# The same, but none that is part of a word: `c10::` stays.
_LONE_NUMBER = expression(r"(?<![A-Za-z0-9_])[0-9]+(?![A-Za-z0-9_])")
_ANY_NUMBER = "0"
Told = TypeVar("Told")


class Shapes(NamedTuple):
    """Names, and what they are but for the numbers at the ends of their words: of a million names most differ in these
    only, and what does not ask for them is asked once of each shape."""

    names: Sequence[str]
    of_name: Int32Array  # which shape each name has
    distinct: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> Shapes:
        """The shapes of names, in order of first sight."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(shape, len(known)) for shape in without_numbers(names)] if names else []
        return cls(names, np.array(numbers, np.int32), tuple(known))

    def of_shapes(self, which: Sequence[int]) -> list[str]:
        """The names that have these shapes."""
        wanted = np.zeros(len(self.distinct), bool)
        wanted[list(which)] = True
        return [self.names[number] for number in np.flatnonzero(wanted[self.of_name]).tolist()] if which else []

    def told(self, tells: Callable[[str], Told]) -> list[Told]:
        """What ``tells`` says of each name, where it does not ask which number stands at the end of a word."""
        told = [tells(shape) for shape in self.distinct]
        return [told[shape] for shape in self.of_name.tolist()]

    def folded(self) -> tuple[Int32Array, list[str]]:
        """Which folded name (`fold_name`) each name has, and all of these, ascending."""
        of_shape = [fold_name(shape) for shape in self.distinct]
        by_name = [_ANY_NUMBER in name for name in of_shape]  # a number is left, which may be another
        folded = {
            number: fold_name(self.names[number])
            for number in np.flatnonzero(np.array(by_name, bool)[self.of_name] if by_name else []).tolist()
        }
        labels = sorted({*folded.values(), *(name for name, left in zip(of_shape, by_name, strict=True) if not left)})
        place = {label: number for number, label in enumerate(labels)}
        of_name = np.array([place.get(name, 0) for name in of_shape], np.int32)[self.of_name]
        of_name[list(folded)] = [place[label] for label in folded.values()]
        return of_name, labels

    def but_for_lone_numbers(self) -> list[str]:
        """The distinct names where those that differ in numbers which are words of their own count as one."""
        are_lone = [len(_NUMBER.findall(shape)) == len(_LONE_NUMBER.findall(shape)) for shape in self.distinct]
        lone = [shape for shape, is_lone in zip(self.distinct, are_lone, strict=True) if is_lone]
        others = self.of_shapes([number for number, is_lone in enumerate(are_lone) if not is_lone])
        return list(dict.fromkeys([*lone, *without_numbers(others, _LONE_NUMBER)]))


def fold_names(names: Sequence[str]) -> list[str]:
    """``fold_name`` of each."""
    which, labels = Shapes.of(names).folded()
    return [labels[number] for number in which.tolist()]


def without_numbers(names: Sequence[str], number: re.Pattern[str] = _NUMBER) -> list[str]:
    """The names with one and the same number at the end of their words."""
    text = "\n".join(names)
    if text.isascii() and text.count("\n") == len(names) - 1:
        return number.sub(_ANY_NUMBER, text).split("\n")
    return [number.sub(_ANY_NUMBER, name) if name.isascii() else name for name in names]


#: How the ranges that PyTorch's autograd engine opens around each node of the backward pass begin.
BACKWARD = "autograd::engine::evaluate_function: "

# Domains of libraries, and of compilers' directives, that annotate themselves: their ranges are neither the user's
# regions nor operators.
_LIBRARY_DOMAIN = expression(
    r"^(?:nccl|nvshmem|cub|cccl|thrust|cublas|cublaslt|cudnn|cusparse|cusolver|cufft|curand|nvjpeg|tensorrt|"
    r"dali|cudf|libcudf|raft|libkvikio|rmm|librmm|ucx|mpi|openmpi|nvcomp|openacc|openmp)\b",
    re.IGNORECASE,
)


def is_library(domain: str) -> bool:
    """True for the domain of a library that annotates itself."""
    return bool(_LIBRARY_DOMAIN.match(domain))
