"""What servers call their steps, and their layers."""

from __future__ import annotations

import pytest

from boundby.trace.vocabulary.range_names import Shapes, fold_name, is_step, kind_of_attention, serving_step

AMD = "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)"
AMD_DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"


@pytest.mark.parametrize(
    ("name", "kind", "requests", "tokens", "label"),
    [
        ("execute_context_0(0)_generation_32(32)", "decode", 32, 32, "decode, 17-32 requests"),
        ("execute_context_3(1536)_generation_0(0)", "prefill", 3, 1536, "prefill, 1025-2048 tokens"),
        ("execute_context_2(600)_generation_8(8)", "mixed", 10, 608, "mixed, 513-1024 tokens"),
        (AMD, "mixed", 46, 8192, "mixed, 4097-8192 tokens"),
        (AMD_DECODE, "decode", 32, 32, "decode, 17-32 requests"),
        ("step[DECODE bs=1]", "decode", 1, 1, "decode, 1 request"),
        ("step[DECODE bs=33]", "decode", 33, 33, "decode, 33-64 requests"),
        ("step[EXTEND bs=15 toks=15360]", "prefill", 15, 15360, "prefill, 8193-16384 tokens"),
        ("step[TARGET_VERIFY bs=4]", "decode", 4, None, "decode, 3-4 requests"),
        ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", "decode", 8, 8, "decode, 5-8 requests"),
        ("[Executor] _forward_step 13: 2 ctx reqs, 8 gen reqs", "mixed", 10, None, "mixed, 9-16 requests"),
        ("[Executor] _forward_step 14: 1 ctx reqs, 0 gen reqs", "prefill", 1, None, "prefill, 1 request"),
    ],
)
def test_a_step_is_its_kind_and_its_size(name: str, kind: str, requests: int, tokens: int | None, label: str) -> None:
    step = serving_step(name)
    assert step is not None
    assert (step.kind, step.requests, step.tokens) == (kind, requests, tokens)
    assert fold_name(name) == label
    assert is_step(name) or name.startswith("[Executor]")
    assert is_step(label)


@pytest.mark.parametrize(
    "name", ["step[IDLE bs=0]", "step[DECODE bs=0]", "execute_context_0(0)_generation_0(0)", "step 12", "execute_plan"]
)
def test_what_serves_nobody_is_no_step_of_a_server(name: str) -> None:
    assert serving_step(name) is None


def test_each_size_is_told_though_names_differ_in_numbers_only() -> None:
    names = [f"step[DECODE bs={size}]" for size in (0, 1, 2, 30, 32, 33)]
    which, labels = Shapes.of(names).folded()
    assert [labels[number] for number in which.tolist()] == [
        "step[DECODE bs=0]",
        "decode, 1 request",
        "decode, 2 requests",
        "decode, 17-32 requests",
        "decode, 17-32 requests",
        "decode, 33-64 requests",
    ]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>", "decode"),
        ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>", "decode"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<>", "prefill"),
        ("_fwd_kernel_extend_attention", "prefill"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", None),  # training, too
        ("kernel_unified_attention_2d", None),
    ],
)
def test_attention_tells_the_kind_where_it_serves_one(kernel: str, kind: str | None) -> None:
    assert kind_of_attention(kernel) == kind


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("{'Module': 'model.layers.12.mlp', 'Inputs': [[32, 4096]]}", "model.layers.*.mlp"),
        ('{"Module": "model.layers.3.self_attn.q_proj", "TrainableParams": {}}', "model.layers.*.self_attn.q_proj"),
        ("{'Module': 'lm_head'}", "lm_head"),
    ],
)
def test_a_layers_range_is_its_module(name: str, label: str) -> None:
    assert fold_name(name) == label
