"""Kernels' names, as cuBLAS, cuDNN, CUTLASS, PyTorch and compilers spell them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boundby.trace.vocabulary.kernel_names import (
    _KINDS,
    _WORDS,
    KernelKind,
    is_library_kernel,
    kernel_label,
    kind_of_kernel,
)

AT = "void at::native::"
XMMA = "void xmma_cudnn::gemm::"
TF32 = "Kernel_traits<xmma_cudnn::Ampere_hmma_tf32_traits<unsigned int, float>>"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", KernelKind.MATMUL_FP32),
        ("volta_scudnn_128x64_relu_interior_nn_v1", KernelKind.MATMUL_FP32),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)", KernelKind.MATMUL_FP32),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>(int)", KernelKind.MATMUL_FP32),
        ("ampere_sgemm_32x32_sliced1x4_tn", KernelKind.MATMUL_FP32),
        ("volta_s884gemm_fp16_64x64_ldg8_f2f_nn", KernelKind.MATMUL_TENSOR),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", KernelKind.MATMUL_TENSOR),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn", KernelKind.MATMUL_TENSOR),
        ("volta_h884gemm_64x64_ldg8_nn", KernelKind.MATMUL_TENSOR),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256_MI16x16x1_SN", KernelKind.MATMUL_TENSOR),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SE", KernelKind.MATMUL_TENSOR),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", KernelKind.MATMUL),
        ("attn_fwd.kd", KernelKind.ATTENTION),
        ("turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1", KernelKind.MATMUL_TENSOR),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", KernelKind.MATMUL_TENSOR),
        (
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(T1::Params)",
            KernelKind.MATMUL_TF32,
        ),
        (
            "void cutlass_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_256x64_16x4>(T1)",
            KernelKind.MATMUL_TF32,
        ),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16", KernelKind.MATMUL_TF32),
        # FP32 by its types, but nothing says on which cores.
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8", KernelKind.MATMUL_FP32),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(T13)", KernelKind.MATMUL),
        ("my_gemm", KernelKind.MATMUL),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(Flash_fwd_params)", KernelKind.ATTENTION),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", KernelKind.ATTENTION_FP32),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", KernelKind.ATTENTION),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma_aligna4", KernelKind.MATMUL_FP32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_tensor16x8x8", KernelKind.MATMUL_TF32),
        ("sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x128x8_ffma_aligna4", KernelKind.MATMUL_FP32),
        (f"{AT}(anonymous namespace)::softmax_warp_forward<float, float, float, 7, false>(float*)", KernelKind.SOFTMAX),
        (f"{AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", KernelKind.ELEMENTWISE),
        (f"{AT}unrolled_elementwise_kernel<at::native::copy_device_to_device>(int)", KernelKind.ELEMENTWISE),
        (
            f"{AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T3)",
            KernelKind.REDUCTION,
        ),
        (f"{AT}index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>(int)", KernelKind.OTHER),
        (f"{AT}(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>>(T1)", KernelKind.MULTI_TENSOR),
        (f"{AT}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", KernelKind.NORM),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::p)", KernelKind.LAYOUT),
        (f"{XMMA}kernel<xmma_cudnn::implicit_gemm::fprop_indexed::{TF32}>(T1::Params)", KernelKind.MATMUL_TF32),
        (f"{XMMA}split_k_kernel<xmma_cudnn::implicit_gemm::wgrad_indexed::{TF32}>(T1::Params)", KernelKind.MATMUL),
        (f"{XMMA}kernel_helper_stage_3<xmma_cudnn::strided_dgrad_indexed::{TF32}>(T1::Params)", KernelKind.MATMUL),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int)", KernelKind.MATMUL_FP32),
        ("void cudnn::detail::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5>(int, int)", KernelKind.MATMUL_FP32),
        ("triton_poi_fused_add_mul_relu_0", KernelKind.FUSED),
        ("nvkernel_solve_F1L210_2", KernelKind.OTHER),
        ("probe_hash_table", KernelKind.OTHER),
    ],
)
def test_the_name_tells_the_kind(name: str, kind: KernelKind) -> None:
    assert kind_of_kernel(name) == kind


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        (
            f"{AT}vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float>>, std::array<char *, 2>>(int, T2, T3)",
            "vectorized_elementwise_kernel (Mul)",
        ),
        (
            f"{AT}vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &)"
            "::[lambda() (instance 2)]>(int)",
            "vectorized_elementwise_kernel (GeluBackward)",
        ),
        (
            f"{AT}vectorized_elementwise_kernel<4, at::native::launch_clamp_scalar(at::TensorIteratorBase &)>(int)",
            "vectorized_elementwise_kernel (clamp_scalar)",
        ),
        (
            "void cutlass::Kernel<cutlass_80_tensorop_s1688f16gemm_64x64>(T1::Params)",
            "Kernel (cutlass_80_tensorop_s1688f16gemm_64x64)",
        ),
        ("test2(double *, unsigned long long)", "test2"),
        (
            "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__merge_sort::MergeAgent<int*>>(int)",
            "_kernel_agent (MergeAgent)",
        ),
        (
            "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
            "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16 const*, int)",
            "fused_add_rms_norm_kernel",
        ),
        ("graph (recorded as a whole)", "graph"),
        ("Lazy Function Loading", "Lazy Function Loading"),
        ("", ""),
    ],
)
def test_labels_are_short(name: str, label: str) -> None:
    assert kernel_label(name) == label


def test_a_kernel_that_takes_a_librarys_type_is_the_users() -> None:
    assert not is_library_kernel("update(thrust::device_ptr<float>, cub::CountingInputIterator<int>)")
    assert not is_library_kernel("(anonymous namespace)::update(at::Tensor, int (*)(float))")
    assert is_library_kernel("void at::native::vectorized_elementwise_kernel<4>(int, float (*)(float))")
    assert is_library_kernel("(anonymous namespace)::cub::scan(int)")


def test_long_labels_are_cut() -> None:
    assert len(kernel_label("k" * 200)) == 60


@pytest.mark.parametrize("pattern", [pattern for _, pattern in _KINDS], ids=lambda pattern: pattern.pattern[:20])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_a_pattern_fits_holds_a_word(pattern: re.Pattern[str], data: st.DataObject) -> None:
    name = data.draw(
        st.from_regex(re.compile(pattern.pattern, pattern.flags), alphabet=st.characters(max_codepoint=127))
    )
    assert any(word in name.lower() for word in _WORDS)
