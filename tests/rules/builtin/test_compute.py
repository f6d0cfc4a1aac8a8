"""Compute-bound programs get an answer: precision, shared and slow devices, versions of a kernel, last words."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from boundby.model.scale import HALF
from boundby.results.report import Finding
from boundby.simulate.instructions import MS, US, Copy, Launch, Loop, Record, Sync, WaitEvent, program
from boundby.trace.tables import Trace
from tests.rules.builtin.case_shared_gpu import hot, shared
from tests.rules.builtin.case_unfused_attention import PRODUCT, SOFTMAX, layers, one_softmax_kernel, written_out
from tests.rules.builtin.hardware import on_gpu
from tests.rules.builtin.harness import Source, findings

FMHA = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)"
FMHA_BF16 = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<bf16>::Params)"


def of(source: Source, rule: str) -> list[Finding]:
    return [item for item in findings(source) if item.rule == rule]


def _with(kernel: str, ns: int = 2 * MS) -> Source:
    return on_gpu(Source(program(Loop(20, [Launch(kernel, ns), Launch("other", 300 * US)]), Sync())))


def test_attention_in_fp32_is_told_with_measured_savings() -> None:
    (found,) = of(_with(FMHA), "tensor-cores")
    assert "attention kernels compute in FP32" in found.title
    assert found.saving_ns is not None
    assert found.saving_ns[0] >= 20 * MS  # of 40 ms, at 2.5 times
    assert found.saving_ns[1] <= 38 * MS
    assert not of(_with(FMHA_BF16), "tensor-cores")


def test_products_are_told_by_their_instruction() -> None:
    assert of(_with("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_ffma_aligna4"), "tensor-cores")
    assert not of(_with("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tensor16x8x16"), "tensor-cores")


def test_tf32_gains_no_more_than_the_ratio_of_its_peak_to_that_of_fp32() -> None:
    (found,) = of(_with("ampere_sgemm_128x64_tn"), "tensor-cores")
    assert found.evidence["assumed_speed_up"] == [2.5, 8.0]  # 156 to 19.5 TFLOPS


def test_a_shared_gpu_is_told_by_its_slices() -> None:
    (found,) = of(shared(), "shared-gpu")
    assert "another process or context had GPU 0 for" in found.title
    assert found.evidence["common_lengths_ns"]
    assert found.saving_ns is not None
    assert found.saving_ns[0] == 0


def test_a_lower_clock_slows_all_kinds() -> None:
    (found,) = of(hot(), "shared-gpu")
    assert "lower clocks" in found.title
    assert found.evidence["slower_by"] == 1.3


def test_one_kernel_whose_work_grows_is_no_clock() -> None:
    def grows(trace: Trace) -> Trace:
        table = trace.operations
        name = trace.names.index("part_7")
        extra = np.where(table.name == name, np.arange(len(table)) * 2_000, 0)
        ended = np.cumsum(extra)
        return replace(
            trace, operations=replace(table, start_ns=table.start_ns + ended - extra, end_ns=table.end_ns + ended)
        )

    step = [Launch(f"part_{number}", (100 + 20 * number) * US) for number in range(8)]
    assert not of(Source(program(Loop(60, step), Sync())).changed(grows), "shared-gpu")


def test_instantiations_are_kernels_of_their_own() -> None:
    names = [f"void mine::stencil<{number}, float>(float *)" for number in (1, 2, 3)]
    even = [Launch(name, 1 * MS) for name in names]
    (found,) = of(Source(program(Loop(20, even), Sync())), "hot-kernel")
    assert "3 versions together" in found.title
    uneven = [Launch(names[0], 5 * MS), *even[1:]]
    (found,) = of(Source(program(Loop(20, uneven), Sync())), "hot-kernel")
    assert "versions" not in found.title
    assert found.evidence["name"] == names[0]
    assert found.instances == 20


def test_few_long_launches_are_enough() -> None:
    (found,) = of(Source(program(Launch("solve", 400 * MS), Launch("solve", 400 * MS), Sync())), "hot-kernel")
    assert found.severity == "medium"  # most of the window, and nothing tells what limits it


def test_the_last_word_is_for_who_said_nothing() -> None:
    pageable = [Launch("part", 1 * MS), Copy(20_000_000, "HtoD", memory="pageable")]
    rules = {item.rule for item in findings(Source(program(Loop(20, pageable), Sync())))}
    assert "copy-exposed" not in rules
    assert rules & {"pageable-copy", "copy-overlap"}


def test_one_copy_that_takes_all_of_the_time_is_told_alone() -> None:
    small = [part for _ in range(6) for part in (Copy(32_768, "DtoH"), Launch("part", 20 * US))]
    (found,) = of(Source(program(Copy(20_000_000_000, "DtoD", "device"), *small, Sync())), "copy-exposed")
    assert found.title.startswith("1 copy on the device of 20.0 GB takes ")


def test_causal_attention_is_advised_where_a_mask_is_seen() -> None:
    (masked,) = of(written_out(), "unfused-attention")
    (open_to_all,) = of(one_softmax_kernel(), "unfused-attention")
    assert "attn_mask=mask" in masked.code  # a mask alone does not tell that it is causal
    assert "is_causal=True" in masked.advice[1]
    assert not [line for line in open_to_all.advice if "is_causal" in line]


def test_the_kernels_of_softmax_are_named_where_it_has_several() -> None:
    (one,) = of(one_softmax_kernel(), "unfused-attention")
    other = SOFTMAX.replace("cunn_SoftMaxForward", "softmax_warp_forward")
    (two,) = of(
        layers(Launch(SOFTMAX, 80 * US), Launch(PRODUCT, 300 * US), Launch(other, 80 * US)), "unfused-attention"
    )
    assert "(softmax: " not in one.title
    assert "(softmax: 80 in cunn_SoftMaxForward, 80 in softmax_warp_forward)" in two.title


def _copies_on_their_own_stream(run_ns: int) -> Source:
    """Of chunks that all travel on one stream while kernels run on another; the link is never free."""
    chunk = [Copy(4_000_000, "HtoD", stream=1), Record("chunk", stream=1), WaitEvent("chunk"), Launch("add", run_ns)]
    return Source(program(Loop(20, chunk), Sync()))


def test_a_full_link_has_no_room_for_overlap() -> None:
    (found,) = of(_copies_on_their_own_stream(10 * US), "copy-exposed")
    assert found.remedy == "gpu_copy.half-the-bytes"
    assert "; the link is full for 99 % of the window" in found.title
    assert found.saving_ns is not None
    assert found.saving_ns[1] <= HALF * found.evidence["total_ns"]  # type: ignore[operator]


def test_what_overlap_saves_is_kernels_beside_no_copy() -> None:
    beside, alone = Launch("add", 100 * US), Launch("last", 2 * MS)
    chunk = [Copy(4_000_000, "HtoD", stream=1), Record("chunk", stream=1), WaitEvent("chunk"), beside]
    (found,) = of(Source(program(Loop(20, chunk), alone, Sync())), "copy-exposed")
    assert found.remedy == "gpu_copy.overlap-copies"
    assert found.saving_ns is not None
    assert found.saving_ns[1] <= 2.4 * MS
