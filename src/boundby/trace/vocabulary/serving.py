"""What servers of language models call their steps: kind, requests and tokens of vLLM's, SGLang's and TensorRT-LLM's
ranges; and the module that a layer's range names."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from boundby.model.expressions import expression

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

# Kernels of attention that serve one kind of step alone: those of training, and of both kinds, tell nothing.
_DECODES = expression(
    r"paged_attention|batch_?decode|mla_decode|decode_attention|flash_fwd_split_?kv|unified_attention_3d", re.IGNORECASE
)
_PREFILLS = expression(r"batch_?prefill|prefill_attention|context_attention_fwd|extend_attention", re.IGNORECASE)


class ServingStep(NamedTuple):
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
    if found := _VLLM.match(name):
        context, prompt, generating, generated = map(int, found.groups())
        return _step(context, generating, prompt * (context > 0) + generated, "vLLM")
    if found := _SGLANG.match(name):
        mode, requests = found[1], int(found[2])
        if mode not in _SGLANG_KINDS or not requests:
            return None
        kind = _SGLANG_KINDS[mode]
        tokens = int(found[3]) if found[3] else requests if mode in _ONE_EACH else None
        return ServingStep(kind, requests, tokens, requests if kind == "decode" else 0, "SGLang")
    if found := _TENSORRT.match(name):
        context, generating = int(found[1]), int(found[2])
        return _step(context, generating, None if context else generating, "TensorRT-LLM")
    return None


def _step(
    context: int, generating: int, tokens: int | None, engine: Literal["vLLM", "TensorRT-LLM"]
) -> ServingStep | None:
    if not context + generating:
        return None
    kind: Kind = "mixed" if context and generating else "prefill" if context else "decode"
    return ServingStep(kind, context + generating, tokens, generating, engine)


def folded(name: str) -> str | None:
    """The name that all steps of one kind and size share, or all layers of one place; None: it names neither. Of steps
    without requests each has its own."""
    if name.startswith(_BEGINS) and (_VLLM.match(name) or _SGLANG.match(name) or _TENSORRT.match(name)):
        step = serving_step(name)
        return name if step is None else step.label
    if name.startswith("{") and (found := _MODULE.match(name)):
        return _NUMBERED.sub("*", found[1])
    return None


def is_label(name: str) -> bool:
    """Whether this is what steps of a server fold into."""
    return _LABEL.match(name) is not None


def kind_of_attention(kernel: str) -> Kind | None:
    """The kind of step that a kernel of attention serves, by its name; None: either, or it is none."""
    if _DECODES.search(kernel):
        return "decode"
    return "prefill" if _PREFILLS.search(kernel) else None


__all__ = ["Kind", "ServingStep", "folded", "is_label", "kind_of_attention", "serving_step"]
