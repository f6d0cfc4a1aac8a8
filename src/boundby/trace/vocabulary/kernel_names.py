"""What a kernel computes, told from its name alone; names that are not known tell nothing."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from boundby.model.late import expression
from boundby.model.scale import LABEL


class KernelKind(IntEnum):
    """What a kernel does, as far as its name shows."""

    OTHER = 0
    MATMUL_TENSOR = 1  # matrix products and convolutions on tensor cores, 16 bits or less
    MATMUL_TF32 = 2  # on tensor cores, TF32
    MATMUL_FP32 = 3  # in single precision on the ordinary cores
    MATMUL = 4  # precision or cores not known
    ATTENTION = 5  # fused attention
    SOFTMAX = 6
    ELEMENTWISE = 7
    REDUCTION = 8
    NORM = 9  # fused normalization
    FUSED = 10  # made by a compiler
    MULTI_TENSOR = 11  # one kernel for many tensors: foreach and fused optimizers
    LAYOUT = 12  # cuDNN's conversions between NCHW and NHWC
    ATTENTION_FP32 = 13  # fused attention in single precision, on the ordinary cores


MATMULS = (KernelKind.MATMUL_TENSOR, KernelKind.MATMUL_TF32, KernelKind.MATMUL_FP32, KernelKind.MATMUL)

ATTENTIONS = (KernelKind.ATTENTION, KernelKind.ATTENTION_FP32)

# In this order: the first that fits decides. cuBLAS, cuDNN and CUTLASS spell the instruction in their names: s884,
# s1688, s16816 and h..., hmma, gmma, tensorop run on tensor cores; sgemm, scudnn and simt do not.
_KINDS: tuple[tuple[KernelKind, re.Pattern[str]], ...] = (
    # cuDNN's preparations of a product, and the sum of its parts: whose product it is stands in a type of theirs.
    (KernelKind.MATMUL, expression(r"::kernel_helper_stage_\d|::split_k_kernel<")),
    (KernelKind.LAYOUT, expression(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)),
    (
        KernelKind.ATTENTION_FP32,
        expression(r"fmha_cutlass[FB]_f32|Attention(?:Backward)?Kernel<(?:float|cutlass::arch::Sm\d+, float)\b"),
    ),
    (
        KernelKind.ATTENTION,
        expression(
            r"flash_(?:fwd|bwd|attn|attention)|fmha|Fmha[FB]wd|efficient_attention|attention_kernel|mha_(?:fwd|bwd)|_sdpa_"
            r"|paged_attention|\battn_(?:fwd|bwd)"
        ),
    ),
    (KernelKind.FUSED, expression(r"^triton_|^_?(?:loop|input)_\w*fusion|^fused_computation")),
    (KernelKind.MULTI_TENSOR, expression(r"multi_tensor_apply|fused_adam|FusedAdam")),
    (
        KernelKind.MATMUL_TF32,
        expression(
            r"(?:gemm|conv|cudnn|cutlass|xmma|fprop|[dw]grad)\w*.*tf32|tf32\w*gemm|cutlass_80_tensorop_s1688gemm"
        ),
    ),
    (KernelKind.MATMUL_FP32, expression(r"_ffma_|gemm_f32f32_f32f32|fprop_f32f32_f32f32|[dw]grad_f32f32_f32f32")),
    (
        KernelKind.MATMUL_TENSOR,
        expression(
            r"tensorop|[hiqo]mma_|gmma|tcgen05|_[hsi](?:884|1688|16816|8816|16832|16864)\w*|^nvjet_"
            r"|sm90_xmma|cutlass3x_sm(?:90|100)\w*(?:f16|bf16|e4m3|e5m2)"
            # AMD's Tensile: Cijk_ and the orders of A and B, then the types: half (HHS), bfloat16 (BBS), 8 bits
            r"|^Cijk_[A-Z][a-z]+_[A-Z][a-z]+_(?:H[HSB]|BB|BS|F8|B8|I8)"
        ),
    ),
    (
        KernelKind.MATMUL_FP32,
        expression(
            r"(?:kepler|maxwell|pascal|volta|turing|ampere|hopper)_(?:sgemm|scudnn)_|simt_sgemm|sgemm_largek"
            r"|(?:im|ex)plicit_convolve(?:Nd)?_sgemm|convolveNd_\w*float_engine|[dw]grad\w*_engine<float|gemmSN_\w+_kernel<float|magma_sgemm"
        ),
    ),
    (
        KernelKind.MATMUL,
        expression(
            r"gemm|gemv|^Cijk_|splitKreduce|convolv|[dw]grad|fprop|winograd|conv(?:1d|2d|3d)|depthwise|xmma",
            re.IGNORECASE,
        ),
    ),
    (
        KernelKind.SOFTMAX,
        expression(r"softmax_warp|cunn_SoftMax|softmax_kernel|softmaxForward|scaled_\w*softmax", re.I),
    ),
    (KernelKind.NORM, expression(r"layer_?norm|rms_?norm|batch_?norm|group_?norm|RowwiseMoments|\bbn_[fb]w", re.I)),
    (KernelKind.REDUCTION, expression(r"at::native::reduce_kernel")),
    (KernelKind.ELEMENTWISE, expression(r"at::native::(?:\w+::)?(?:\w*[^x]_)?elementwise_kernel")),
)
#: A name without any of these, in lower case, fits none of the patterns: told ten times as fast as by the patterns.
_WORDS = (
    *("nhwc", "mha", "attention", "flash_", "sdpa", "attn_", "triton_", "fus", "multi_tensor", "tf32", "mma", "ffma"),
    *("gemm", "gemv", "fprop", "grad", "tensorop", "884", "168", "881", "tcgen05", "nvjet_", "cutlass3x", "cijk_"),
    *("scudnn", "conv", "splitkreduce", "winograd", "depthwise", "softmax", "norm", "rowwisemoments", "bn_"),
    *("at::native::", "kernel_helper_stage_", "split_k_kernel"),
)
_FUNCTOR = expression(
    r"(\w+?)(?:Functor|Ops)\b|(\w+?)(?:CUDA)?KernelImpl\b|launch_(\w+_scalar)\b|(\w+?)_kernel(?:_impl|_cuda)\b"
    r"|CUDAFunctor_(\w+)"
)
_PLAIN = expression(r"^(?:void|static|float|int)\s+")
_NO_HINT = frozenset({"Binary", "Unary", "BUnary", "AUnary", "gpu", "elementwise"})
# Kernels that only call what one of their template arguments names.
_WRAPPERS = frozenset({"kernel", "kernel2", "device_kernel", "_kernel_agent", "split_k_kernel"})
_INNER = (
    expression(r"\w*(?:dgrad|wgrad|fprop|tensorop|simt|hmma)\w*"),
    expression(r"\w*gemm\w*|\w+Agent\b"),
)
_MOST_LABEL = LABEL
#: Names of which the answer is kept: more than a trace has, since several rooms ask for each in turn.
_MOST_KEPT = 1 << 17


@lru_cache(maxsize=_MOST_KEPT)
def kind_of_kernel(name: str) -> KernelKind:
    """The kind of a kernel by its demangled name."""
    lower = name.lower()
    if not any(map(lower.__contains__, _WORDS)):
        return KernelKind.OTHER
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), KernelKind.OTHER)


# Kernels that come with libraries, by namespaces and by how cuBLAS, cuDNN, CUTLASS and compilers name theirs.
_LIBRARY_KERNEL = expression(
    r"\bat::|\baten::|\bc10::|\bcub::|\bthrust::|cudnn|cublas|cutlass|cutensor|\bcask|cudf::|\bdali::|nccl|nvshmem|\btvm|"
    r"\bcufft|\b(?:regular|vector|composite)_fft|curand|cusparse|cusolver|magma|tensorrt|flash_(?:fwd|bwd|attn)|fmha|xmma"
    r"|^(?:volta|turing|ampere|hopper|maxwell|pascal|sm\d+|nvjet|s\d+|h\d+)_\w*(?:gemm|cudnn|conv|nvjet|fft|wgrad|dgrad)"
    r"|^nvjet_|^triton_(?:poi|red|per|tem)_|^(?:loop|input)_\w*fusion|gemv2?[NT]|splitKreduce|implicit_convolve|dot_kernel<"
    r"|^Cijk_|ck_tile|apex::|multi_tensor_apply|\braft::|rmm::|\bcupy_|tensorflow::|Eigen::|layer_norm_grad|GammaBetaBackward"
)


class StandardWork(NamedTuple):
    """Work that a library of NVIDIA's has ready, and the call that asks for it."""

    what: str
    library: str
    call: str
    hint: str = ""  # behind what it stands in place of


# By how people call their own kernels for it.
_STANDARD_WORK: tuple[tuple[re.Pattern[str], StandardWork], ...] = tuple(
    (expression(rf"(?:^|_|(?<=[a-z])(?=[A-Z]))(?i:{words})(?:$|_|(?=[A-Z\d])|(?=kernel))"), StandardWork(*work))
    for words, *work in (
        (
            *(r"mat_?mul|matrix_?mul(?:t|tiply|tiplication)?|[sdh]?gemm", "a matrix product", "cuBLAS"),
            "cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &alpha, B, n, A, k, &beta, C, n);",
            "; FP32, row-major: B first",
        ),
        (
            *(r"conv(?:olve|olution)?(?:[123]d)?", "a convolution", "cuDNN"),
            "cudnnConvolutionForward(handle, &alpha, xd, x, wd, w, conv, algo, space, bytes, &beta, yd, y);",
        ),
        (r"fft", "a Fourier transform", "cuFFT", "cufftExecC2C(plan, in, out, CUFFT_FORWARD);"),
        (
            *(r"spmv|spmm", "a product with a sparse matrix", "cuSPARSE"),
            "cusparseSpMV(handle, op, &alpha, A, x, &beta, y, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer);",
        ),
        (r"(?:radix_?)?sort", "a sort", "CUB", "cub::DeviceRadixSort::SortKeys(temp, bytes, in, out, n);"),
        (
            r"(?:prefix_?)?scan|prefix_?sum",
            "a prefix sum",
            "CUB",
            "cub::DeviceScan::ExclusiveSum(temp, bytes, in, out, n);",
        ),
        (
            *(r"histogram", "a histogram", "CUB"),
            "cub::DeviceHistogram::HistogramEven(temp, bytes, in, bins, levels, least, most, n);",
        ),
        (r"reduce|reduction", "a reduction", "CUB", "cub::DeviceReduce::Sum(temp, bytes, in, out, n);"),
    )
)


def standard_work(name: str) -> StandardWork | None:
    """What a kernel of a program's own does that a library has ready; None: its name says none."""
    label = kernel_label(name)
    return next((work for pattern, work in _STANDARD_WORK if pattern.search(label)), None)


# Gradients of scale and bias, and statistics of a batch: one sum over the batch for each feature.
_SUMS_OVER_BATCH = expression(
    r"GammaBeta|PartGradGammaBeta|layer_?norm_grad|batch_?norm\w*(?:backward|reduce|statistics|stats)|\bbn_[fb]w", re.I
)


def sums_over_batch(name: str) -> bool:
    """Whether a kernel sums over the batch for each feature: it has as many blocks as there are features."""
    return bool(_SUMS_OVER_BATCH.search(name))


# A user's kernel may take a library's types.
_PARAMETERS = expression(r"(?<!^)\((?!anonymous namespace)(?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?: \[.*\])?$")


def is_library_kernel(name: str) -> bool:
    """True for a kernel that a library or a compiler brought along: not its user's to rewrite."""
    return bool(_LIBRARY_KERNEL.search(_PARAMETERS.sub("", name)))


def _without_type(plain: str) -> str:
    """A function without what it returns, such as ``std::enable_if<((8)>(0)), void>::type``."""
    begin, open_signs = 0, [""]
    for index, sign in enumerate(plain):
        if sign == "(" and len(open_signs) == 1:
            return plain[begin:]
        if sign in "<(":
            open_signs.append(sign)
        elif (open_signs[-1], sign) in (("<", ">"), ("(", ")")):
            open_signs.pop()
        elif sign == " " and len(open_signs) == 1 and plain[index + 1 : index + 2] != "(":
            begin = index + 1
    return plain  # no function: it takes no arguments


@lru_cache(maxsize=_MOST_KEPT)
def kernel_label(name: str) -> str:
    """A kernel's name as people say it: no return type, no template arguments, no parameters, no namespaces; what an
    elementwise kernel computes in brackets. ``vectorized_elementwise_kernel (Mul)``."""
    plain = _PLAIN.sub("", name).replace("<unnamed>", "unnamed").replace("(anonymous namespace)", "unnamed")
    plain = _without_type(plain)
    base = re.split(r"[<(]", plain, maxsplit=1)[0].rsplit("::", 1)[-1].strip() or plain
    hint = ""
    if base != plain and kind_of_kernel(name) in (KernelKind.ELEMENTWISE, KernelKind.REDUCTION):
        words = [next(filter(None, groups)) for groups in _FUNCTOR.findall(plain)]
        hint = next((word for word in words if word not in _NO_HINT), "")
    elif base.lower() in _WRAPPERS:
        rest = plain[plain.find(base) + len(base) :]
        hint = next((inner[0] for pattern in _INNER if (inner := pattern.search(rest))), "")
    label = f"{base} ({hint})" if hint and hint != base else base
    return label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 3]}..."
