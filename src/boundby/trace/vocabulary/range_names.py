"""What names of NVTX ranges and domains say: numbered ones fold, libraries annotate themselves, servers name steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct

from boundby.model.arrays import Int32Array
from boundby.model.late import expression

# What servers of language models call their steps: kind, requests and tokens of vLLM's, SGLang's and TensorRT-LLM's
# ranges; and the module that a layer's range names.

Kind = Literal["prefill", "decode", "mixed"]

# vLLM: execute_context_3(1536)_generation_20(20). On AMD: execute_8192_context_9(sq8155sk...)_generation_37(sq37sk...),
# where sq is how many tokens are asked for.
_VLLM = expression(r"^execute_(?:\d+_)?context_(\d+)\((?:sq)?(\d+)[^)]*\)_generation_(\d+)\((?:sq)?(\d+)[^)]*\)")
_SGLANG = expression(r"^step\[(\w+) bs=(\d+)(?: toks=(\d+))?[^\]]*\]")
_TENSORRT = expression(r"^\[Executor\] _forward_step \d+: (\d+) ctx reqs?, (\d+) gen reqs?")
_SGLANG_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("EXTEND", "PREFILL", "SPLIT_PREFILL"), "prefill"),
    **dict.fromkeys(("DECODE", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"), "decode"),
    "MIXED": "mixed",
}
#: How many tokens a step of each of SGLang's modes makes for each request, where its name does not say.
_ONE_EACH = ("DECODE",)
_BEGINS = ("execute_", "step[", "[Executor] _forward_step")
# Layerwise ranges: {'Module': 'model.layers.12.mlp', ...} or the same as JSON.
_MODULE = expression(r"""^\{.*?['"][Mm]odule['"]\s*:\s*['"]([^'"]+)['"]""")
_NUMBERED = expression(r"(?<=\.)\d+(?=\.|$)")
_LABEL = expression(r"^(?:prefill|decode|mixed), (?:\d+-)?\d+ (?:requests?|tokens?)$")
_FOUND = expression(r"^(prefill|decode|mixed|server) step(?: \(graph [A-Z]+\))?$")

# Kernels of attention that serve one kind of step alone: those of training, and of both kinds, tell nothing.
_DECODES = expression(
    r"paged_attention|batch_?decode|mla_decode|decode_attention|flash_fwd_split_?kv|unified_attention_3d", re.IGNORECASE
)
_PREFILLS = expression(r"batch_?prefill|prefill_attention|context_attention_fwd|extend_attention", re.IGNORECASE)


_DIVIDES_KEYS = expression(r"flash_fwd_split_?kv", re.IGNORECASE)
# In which dimension of their grid kernels that decode count sequences: vLLM's csrc/attention/paged_attention_v1.cu and
# _v2.cu have grid(num_heads, num_seqs, ...), csrc/rocm/attention.cu has grid(num_seqs, max_num_partitions, ...).
_SEQUENCES = ((expression(r"paged_attention_v[12]_kernel"), 1), (expression(r"paged_attention_ll4mi_QKV"), 0))


class ServingStep(Struct, frozen=True):
    """A step of a server, as its name tells it. ``tokens``: that it works on, prompts' and one or more of each request
    that generates; ``generating``: requests that generate. None: the name does not say."""

    kind: Kind
    requests: int
    tokens: int | None
    generating: int
    engine: Literal["vLLM", "SGLang", "TensorRT-LLM"]

    @property
    def label(self) -> str:
        """What steps of one kind and about one size are called: sizes up to the next power of two are one."""
        size, what = (self.requests, "request") if self.kind == "decode" or not self.tokens else (self.tokens, "token")
        high = 1 << (size - 1).bit_length()
        low = high // 2 + 1
        span = f"{low}-{high}" if low < high else str(high)
        return f"{self.kind}, {span} {what}{'s' if high > 1 else ''}"


def serving_step(name: str) -> ServingStep | None:
    """What a range's name says of a server's step; None: it names none, or one without requests."""
    if not name.startswith(_BEGINS):
        return None
    if match := _VLLM.match(name):
        context, prompt, generating, generated = map(int, match.groups())
        return _step(context, generating, prompt * (context > 0) + generated, "vLLM")
    if match := _SGLANG.match(name):
        mode, requests = match[1], int(match[2])
        if mode not in _SGLANG_KINDS or not requests:
            return None
        kind = _SGLANG_KINDS[mode]
        tokens = int(match[3]) if match[3] else requests if mode in _ONE_EACH else None
        return ServingStep(kind, requests, tokens, requests if kind == "decode" else 0, "SGLang")
    if match := _TENSORRT.match(name):
        context, generating = int(match[1]), int(match[2])
        return _step(context, generating, None if context else generating, "TensorRT-LLM")
    return None


def _step(
    context: int, generating: int, tokens: int | None, engine: Literal["vLLM", "TensorRT-LLM"]
) -> ServingStep | None:
    if not context + generating:
        return None
    kind: Kind = "mixed" if context and generating else "prefill" if context else "decode"
    return ServingStep(kind, context + generating, tokens, generating, engine)


def folded_step(name: str) -> str | None:
    """The name that all steps of one kind and size share, or all layers of one place; None: it names neither. Of steps
    without requests each has its own."""
    if name.startswith(_BEGINS) and (_VLLM.match(name) or _SGLANG.match(name) or _TENSORRT.match(name)):
        step = serving_step(name)
        return name if step is None else step.label
    if name.startswith("{") and (match := _MODULE.match(name)):
        return _NUMBERED.sub("*", match[1])
    return None


def without_layer(name: str) -> str:
    """The name that all layers of one place share: ``layers.3.mlp`` -> ``layers.*.mlp``; any other as it is."""
    return _NUMBERED.sub("*", name) if _DOTTED_MODULE.match(name) else name


def is_label(name: str) -> bool:
    """Whether this is what steps of a server fold into, or what found ones are called."""
    return _LABEL.match(name) is not None or is_found_step(name)


def is_found_step(name: str) -> bool:
    """Whether a step of a server that was found is called so."""
    return _FOUND.match(name) is not None


def found_step(kind: Kind | None, graph: int | None) -> str:
    """What a step of a server is called that the program does not name: by its kind, and by the graph that it launches
    (None: no one, or there is one only)."""
    letters = ""
    while graph is not None and graph >= 0:
        letters, graph = chr(ord("A") + graph % 26) + letters, graph // 26 - 1
    return f"{kind or 'server'} step" + (f" (graph {letters})" if letters else "")


def kind_of_found_step(name: str) -> Kind | None:
    """The kind of a step that was found; None: it is of unknown kind, or no such step."""
    kinds: dict[str, Kind] = {"prefill": "prefill", "decode": "decode", "mixed": "mixed"}
    match = _FOUND.match(name)
    return None if match is None else kinds.get(match[1])


def kind_of_attention(kernel: str) -> Kind | None:
    """The kind of step that a kernel of attention serves, by its name; None: either, or it is none."""
    if _DECODES.search(kernel):
        return "decode"
    return "prefill" if _PREFILLS.search(kernel) else None


def is_told_by_grid(kernel: str) -> bool:
    """Whether this kernel of attention decodes only where the first dimension of its grid, blocks of queries, is 1:
    FlashAttention 2 divides the keys of long prompts, too, where sequences and heads are few."""
    return _DIVIDES_KEYS.search(kernel) is not None


def dimension_of_sequences(kernel: str) -> int | None:
    """In which dimension of its grid this kernel of attention counts the sequences that it decodes; None: in none."""
    return next((dimension for pattern, dimension in _SEQUENCES if pattern.search(kernel)), None)


# PyTorch's emit_nvtx and nsys --pytorch append these to operator names: ", seq = 893, op_id = 7, sizes = [[...]]".
_OPERATOR_DETAIL = expression(r",?\s*\b(?:seq|op_id|stashed seq|sizes|input_op_ids|ScopeHandle)\s*[=:].*$")
# A number that stands by itself: after a separator or a letter at the end of a word, never inside an identifier
# such as conv2d, float16, resnet50_v2 or layer1 (module names keep their numbers: they are different modules).
_COUNTER = expression(r"(?<=[\s_#\[(:=\-/])\d+(?=$|[\s_\])}:,;/\-])|^\d+$")
_STEP_WORDS = (
    r"(?<![A-Za-z])(iter|iteration|step|batch|epoch|frame|request|chunk|microbatch|sample|token|run|rep|trial|warmup)"
)
_STEP_WORD = expression(rf"{_STEP_WORDS}\d+(?![A-Za-z0-9])", re.IGNORECASE)
# The star that a number has folded into.
_STAR = expression(rf"(?:^|[\s_#\[(:=\-/.]|{_STEP_WORDS})\*(?=$|[\s_\])}}:,;/\-.])", re.IGNORECASE)
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
    served = folded_step(name)
    if served is not None:
        return served
    folded = _OPERATOR_DETAIL.sub("", name) if "=" in name or ":" in name else name
    if not _DIGIT.search(folded):
        return folded or name
    if _DOTTED_MODULE.match(folded) or _SOURCE_LINE.match(folded):
        return folded
    return _STEP_WORD.sub(r"\1*", _COUNTER.sub("*", folded)) or name


def is_folded(name: str) -> bool:
    """Whether a star in a range's name stands for any number."""
    return _STAR.search(name) is not None


def is_step(name: str) -> bool:
    """True if a range's name (folded or not) says that it is a step of the program: ``ProfilerStep#6``, ``step *``."""
    return _STEP.search(name) is not None or is_label(name)


# Rounds of which each needs the result of the one before: parts of a model, steps in time.
_IN_TURN = expression(
    r"layer|block|feature|stage|encoder|decoder|module|level|step|iter|epoch|batch|token|decode|stack|time|turn|rep"
    r"|(?<![a-z])(?:h|t|run|trial)(?![a-z])",
    re.IGNORECASE,
)


def is_item(name: str) -> bool:
    """True if a folded name is numbered, and does not say that it needs the one before: ``item *``, ``crop *``."""
    return "*" in name and not is_label(name) and _IN_TURN.search(name) is None


# A number at the end of a word; names are told by regular expressions that ask for one and not for which.
_NUMBER = expression(r"[0-9]+(?![A-Za-z0-9])")
# The same, but none that is part of a word: `c10::` stays.
_LONE_NUMBER = expression(r"(?<![A-Za-z0-9_])[0-9]+(?![A-Za-z0-9_])")
_ANY_NUMBER = "0"
Told = TypeVar("Told")


class Shapes(Struct, frozen=True):
    """Names, and what they are but for the numbers at the ends of their words: of a million names most differ in these
    only, and what does not ask for them is asked once of each shape."""

    names: Sequence[str]
    of_name: Int32Array  # which shape each name has
    distinct: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> Shapes:
        """The shapes of names, in order of first sight."""
        number_of: dict[str, int] = {}
        numbers = [number_of.setdefault(shape, len(number_of)) for shape in without_numbers(names)] if names else []
        return cls(names, np.array(numbers, np.int32), tuple(number_of))

    def of_shapes(self, which: Sequence[int]) -> list[str]:
        """The names that have these shapes."""
        wanted = np.zeros(len(self.distinct), bool)
        wanted[list(which)] = True
        return [self.names[number] for number in np.flatnonzero(wanted[self.of_name]).tolist()] if which else []

    def told(self, tells: Callable[[str], Told]) -> list[Told]:
        """What ``tells`` says of each name, where it does not ask which number stands at the end of a word."""
        answers = [tells(shape) for shape in self.distinct]
        return [answers[shape] for shape in self.of_name.tolist()]

    def folded(self) -> tuple[Int32Array, list[str]]:
        """Which folded name (`fold_name`) each name has, and all of these, ascending."""
        of_shape = [fold_name(shape) for shape in self.distinct]
        by_name = [_ANY_NUMBER in name for name in of_shape]  # a number is left, which may be another
        folded = {
            number: fold_name(self.names[number])
            for number in np.flatnonzero(np.array(by_name, bool)[self.of_name] if by_name else []).tolist()
        }
        labels = sorted({*folded.values(), *(name for name, left in zip(of_shape, by_name, strict=True) if not left)})
        index_of = {label: number for number, label in enumerate(labels)}
        of_name = np.array([index_of.get(name, 0) for name in of_shape], np.int32)[self.of_name]
        of_name[list(folded)] = [index_of[label] for label in folded.values()]
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


#: The range that ``boundby.annotate.steps`` opens around its active iterations, and its domain.
STEPS_RANGE, OWN_DOMAIN = "boundby.capture", "boundby"
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


_OPERATOR = expression(
    r"^(?:struct |class )?(?:aten|prims?|_?c10d?(?:_functional)?|nccl|torch\w*|quantized|fbgemm|xformers\w*"
    # aten::nonzero, torch::autograd::AccumulateGrad
    r"|flash_attn\w*|vllm|symm_mem|inductor|onednn|mkldnn\w*)::[A-Za-z_][\w.:]*$"
    r"|^autograd::engine::evaluate_function:"
    r"|^[A-Za-z_]\w*Backward\d*$"
)
# Other namespaces (custom operators) count where the trace shows that operators are annotated; a C++ program may well
# name its own ranges so.
_ANY_NAMESPACE = expression(r"^[a-z_]\w*(?:::[A-Za-z_][\w.]*)+$")


def is_operator(name: str) -> bool:
    """True for the name of an operator range, folded or not."""
    return bool(_OPERATOR.match(fold_name(name)))


def operator_names(texts: Sequence[str], known: Collection[str]) -> tuple[tuple[str, ...], list[int]]:
    """The folded names of operators among these texts, ascending, and which of them each text is (-1: none).
    ``known``: names of ranges that the trace says are operators'."""
    folded = fold_names(texts)
    distinct = set(folded)
    annotated = any(name.startswith("aten::") for name in distinct)
    folded_names = {fold_name(name) for name in known}
    names = tuple(
        sorted(
            name
            for name in distinct
            if _OPERATOR.match(name) or (annotated and _ANY_NAMESPACE.match(name)) or name in folded_names
        )
    )
    index = {name: number for number, name in enumerate(names)}
    return names, [index.get(name, -1) for name in folded]
