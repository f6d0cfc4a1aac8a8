"""The rules on tensor cores: products and convolutions that leave them, or half of their speed, unused, and the
conversions of layout around them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from string import Template

import numpy as np

from boundby.attribution.host_state import LAUNCH_LIMIT_NS
from boundby.evidence.context import CannotCheckError, RuleContext
from boundby.evidence.device_work import device_work
from boundby.evidence.kernels import is_training
from boundby.model.causes import Cause
from boundby.model.gpus import find_gpu
from boundby.model.late import expression
from boundby.model.scale import HALF, NOTABLE
from boundby.model.units import counted, duration, percent
from boundby.rules.builtin._operations import KernelSet
from boundby.rules.rule import Match, Rule, Threshold
from boundby.trace.tables import OperatorArguments
from boundby.trace.vocabulary.kernel_names import MATMULS, KernelKind

Capability = tuple[int, int]

# Compute capabilities and names of GPUs without tensor cores: before Volta, and the GTX 16 series (7.5 without them).
_FIRST_WITH_TENSOR_CORES = (7, 0)
_FIRST_WITH_TF32 = (8, 0)
_NO_TENSOR_CORES = expression(r"GTX 1[06]|\bMX\d{3}|TITAN X|Quadro [PMK]\d|T[456]00\b|T1000\b|T1200\b", re.IGNORECASE)

# How many times as fast kernels were in pairs of profiles of one program before and after, on an A100 (peaks: FP32
# 19.5, TF32 156, BF16 312 TFLOPS): sums of the durations of the same number of kernels. See docs/findings.md.
#   FP32 attention (CUTLASS, memory efficient) -> BF16 (FlashAttention): 31,560 -> 4,608 ms, 6.8 times
#   TF32 products -> BF16: 2,698 -> 1,225 ms, 2.2 times
#   FP32 products -> BF16: 4,784 -> 176 ms, 27 times; the GPU was shared before, others gained 2.2 times: 12 times
# The least is what programs with smaller products see (TF32, shapes that fit badly), for GPUs of data centres; GeForce
# GPUs have 2 times the peak in BF16 and none in TF32. Ratios of peaks bound the most.
_SPEED_UP: dict[Capability, tuple[float, float]] = {
    (7, 0): (2.0, 6.0),
    (7, 2): (2.0, 4.0),
    (7, 5): (1.5, 4.0),
    (8, 0): (2.5, 12.0),
    (8, 6): (1.3, 2.5),
    (8, 7): (1.5, 3.0),
    (8, 9): (1.3, 2.5),
    (9, 0): (3.0, 12.0),
    (10, 0): (3.0, 12.0),
    (12, 0): (1.3, 2.5),
}
# Attention also reads and writes half the bytes; on its measured 6.8 times others gain less (short sequences).
_ATTENTION_MOST = 8.0
# A GPU that is not listed; and cuDNN runs some engines where shapes or layout fit no better one.
_OTHER_SPEED_UP = (1.2, 3.0)
_FALLBACK_ENGINE = expression(r"convolve|float_engine")
# Here TF32 has no higher a peak rate than FP32: only 16 bits gain.
_TF32_GAINS_LITTLE = ((8, 6), (8, 9), (12, 0))
# TF32 was switched on if the products that use it take this part of the time of all.
_TF32_IS_ON = NOTABLE


def _tensor_cores(context: RuleContext) -> Iterator[Match]:
    work, trace = device_work(context), context.trace
    for kind in (KernelKind.MATMUL_FP32, KernelKind.ATTENTION_FP32, KernelKind.MATMUL_TF32):
        rows = work.kernels_of([kind])
        kernels = KernelSet(context, rows[work.duration_ns[rows] >= LAUNCH_LIMIT_NS])
        if kernels.share < NOTABLE or kernels.exposed_ns < context.least_ns:
            continue
        device = int(np.bincount(context.operations.device[kernels.rows]).argmax())
        capability = trace.gpu_facts[device].capability if trace.gpu_facts else (0, 0)
        gpu = trace.gpus[device].name
        if capability == (0, 0):
            raise CannotCheckError(f"the trace does not give the compute capability of {gpu}")
        if capability < _FIRST_WITH_TENSOR_CORES or _NO_TENSOR_CORES.search(gpu):
            continue
        if kind == KernelKind.MATMUL_TF32:
            yield _from_tf32(kernels, gpu)
        elif kind == KernelKind.ATTENTION_FP32:
            yield _attention(kernels, gpu, capability)
        else:
            yield _from_fp32(kernels, gpu, capability)


def _from_fp32(kernels: KernelSet, gpu: str, capability: Capability) -> Match:
    context, work = kernels.context, device_work(kernels.context)
    is_fallback = context.names_where(context.operations.name[kernels.rows], _FALLBACK_ENGINE.search)
    fallback = kernels.rows[is_fallback[context.operations.name[kernels.rows]]]
    mostly_fallback = int(work.duration_ns[fallback].sum()) > kernels.total_ns // 2
    products, tf32 = work.kernels_of(MATMULS), work.kernels_of([KernelKind.MATMUL_TF32])
    tf32_is_on = int(work.duration_ns[tf32].sum()) >= _TF32_IS_ON * int(work.duration_ns[products].sum())
    precision = _precision(capability, tf32_is_on=tf32_is_on)
    least, most = _OTHER_SPEED_UP if mostly_fallback else _SPEED_UP.get(capability, _OTHER_SPEED_UP)
    speed_up = (least, max(least, min(most, _ratio_of_peaks(gpu, precision))))
    return kernels.match(
        f"{counted(len(kernels), 'FP32 matrix kernel', 'FP32 matrix kernels')} ({percent(kernels.share)} of kernel "
        f"time) {'leaves' if len(kernels) == 1 else 'leave'} the tensor cores unused",
        kernels.evidence(
            gpu=gpu,
            compute_capability=f"{capability[0]}.{capability[1]}",
            assumed_speed_up=list(speed_up),
            tf32_kernels_in_trace=len(tf32),
        ),
        kernels.saving_by_speed(*speed_up),
        context.program.pick(
            (
                "Let the library use the tensor cores: cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), or data "
                "and cublasGemmEx in 16 bits (cuDNN: CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION)",
            ),
            torch=_advice(context, kernels.named(1)[0].split(":")[0], capability, tf32_is_on=tf32_is_on),
            jax=('jax.config.update("jax_default_matmul_precision", "tensorfloat32"), or parameters in bfloat16',),
            python=("Hold the arrays in 16 bits, or let the library's products run in TF32 (CUPY_TF32=1 in CuPy)",),
        ),
        cost_ns=kernels.total_ns,
    ).advising(code=context.program.pick("", torch=_code(context, precision)))


def _attention(kernels: KernelSet, gpu: str, capability: Capability) -> Match:
    """Fused attention in FP32: FlashAttention takes 16 bits only, TF32 switches do not reach these kernels."""
    least, most = _SPEED_UP.get(capability, _OTHER_SPEED_UP)
    most = min(most, _ATTENTION_MOST)
    half = "float16" if capability < _FIRST_WITH_TF32 else "bfloat16"
    return kernels.match(
        f"{counted(len(kernels), 'fused attention kernel computes', 'fused attention kernels compute')} in FP32 "
        f"({percent(kernels.share)} of kernel time, {duration(kernels.total_ns)}): in 16 bits faster ones take over",
        kernels.evidence(gpu=gpu, assumed_speed_up=[least, most]),
        kernels.saving_by_speed(least, most),
        kernels.context.program.pick(
            ("Query, key and value in 16 bits: fused attention then runs on the tensor cores (FlashAttention, cuDNN)",),
            torch=(
                f'with torch.autocast("cuda", dtype=torch.{half}): {_around(kernels.context)}, or q, k, v in {half}: '
                "scaled_dot_product_attention then takes FlashAttention or cuDNN's kernel",
                "Measured in a pair of profiles on an A100: 6.8 times as fast. TF32 (set_float32_matmul_precision) "
                "does not reach these kernels",
            ),
            jax=("jax.nn.dot_product_attention on bfloat16 arrays takes cuDNN's fused kernel",),
        ),
        cost_ns=kernels.total_ns,
    ).advising(
        code=kernels.context.program.pick("", torch=_autocast(kernels.context, half), jax=_JAX_HALF, cpp=_CPP_HALF)
    )


# The same in code.
_JAX_HALF = "x = x.astype(jax.numpy.bfloat16)"
_CPP_HALF = (
    "cublasGemmEx(handle, opA, opB, m, n, k, &alpha, A, CUDA_R_16BF, lda, B, CUDA_R_16BF, ldb, &beta, C, CUDA_R_16BF, "
    "ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);"
)


# FP16 loses small gradients unless the loss is scaled: these lines take the place of loss.backward() and the step.
_SCALED = Template(
    'scaler = torch.amp.GradScaler("cuda")  # once, before the loop\n'
    "$mixed\n"
    "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
)


def _autocast(context: RuleContext, half: str) -> str:
    """For a forward pass and, of a program that trains, its loss."""
    loss = "  # and the loss, where there is one" if is_training(context) else ""
    return f'with torch.autocast("cuda", dtype=torch.{half}):\n    y = model(x){loss}'


def _around(context: RuleContext) -> str:
    return "around forward and loss" if is_training(context) else "around the forward pass"


def _precision(capability: Capability, *, tf32_is_on: bool) -> str:
    """In what FP32 products are to run: the least change that takes them to the tensor cores."""
    if capability < _FIRST_WITH_TF32:
        return "fp16"
    return "bf16" if tf32_is_on or capability in _TF32_GAINS_LITTLE else "tf32"


def _ratio_of_peaks(gpu: str, precision: str) -> float:
    """How many times as fast as in FP32 a product can be at most; infinity where the device's peaks are not known."""
    row = find_gpu(gpu)
    peak = row and row.tflops(precision)
    return round(peak / row.fp32_tflops, 1) if row and peak else math.inf


def _code(context: RuleContext, precision: str) -> str:
    """What takes FP32 products to the tensor cores."""
    if precision == "fp16":
        mixed = _autocast(context, "float16")
        return _SCALED.substitute(mixed=mixed) if is_training(context) else mixed
    if precision == "bf16":
        return _autocast(context, "bfloat16")
    return 'torch.set_float32_matmul_precision("high")'


def _advice(context: RuleContext, kernel: str, capability: Capability, *, tf32_is_on: bool) -> tuple[str, ...]:
    if capability < _FIRST_WITH_TF32:
        scaler = ' with torch.amp.GradScaler("cuda")' if is_training(context) else ""
        return (
            f"Run the model in mixed precision, so that {kernel} becomes an FP16 kernel: "
            f'torch.autocast("cuda", dtype=torch.float16){scaler}',
            "This GPU has no TF32 and no fast BF16: FP16 is the way to its tensor cores",
        )
    autocast = f'with torch.autocast("cuda", dtype=torch.bfloat16): {_around(context)}'
    if tf32_is_on:
        return (
            f"{autocast}. TF32 is allowed already (other kernels run in it), but {kernel} does not use it, because of "
            "its shape, layout or dtype",
            "Make channel and feature counts multiples of 8 and use channels_last, so that a tensor-core kernel fits",
        )
    if capability in _TF32_GAINS_LITTLE:
        return (
            f"{autocast}: {kernel} becomes a BF16 kernel on tensor cores",
            'torch.set_float32_matmul_precision("high") (TF32) is one line, but gains little on this GPU: TF32 has no '
            "higher a peak rate than FP32 here",
        )
    return (
        f'torch.set_float32_matmul_precision("high") lets {kernel} run in TF32: one line, for all FP32 matmuls '
        "(convolutions: torch.backends.cudnn.allow_tf32 = True)",
        f"Faster still: {autocast}",
    )


def _from_tf32(kernels: KernelSet, gpu: str) -> Match:
    context = kernels.context
    least, most = (TENSOR_CORES.threshold(context, name) for name in ("bf16_least", "bf16_most"))
    return kernels.match(
        f"{counted(len(kernels), 'TF32 matrix kernel', 'TF32 matrix kernels')} ({percent(kernels.share)} of kernel "
        f"time, {duration(kernels.total_ns)}) {'runs' if len(kernels) == 1 else 'run'} at half the tensor cores' BF16 "
        "rate",
        kernels.evidence(gpu=gpu, assumed_speed_up=[least, most]),
        kernels.saving_by_speed(least, most),
        (
            *context.program.pick(
                ("Data in 16 bits (BF16, FP16) halve the bytes and double the peak rate of these kernels",),
                torch=(
                    f'with torch.autocast("cuda", dtype=torch.bfloat16): {_around(context)} halves the bytes and '
                    "doubles the peak rate of these kernels",
                    "Convolutions: model.to(memory_format=torch.channels_last) as well, or cuDNN converts layouts "
                    "around them",
                ),
            ),
        ),
        cost_ns=kernels.total_ns,
    ).advising(code=context.program.pick("", torch=_autocast(context, "bfloat16"), jax=_JAX_HALF, cpp=_CPP_HALF))


TENSOR_CORES = Rule(
    id="tensor-cores",
    title="Matrix kernels do not use the tensor cores, or not fully",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_tensor_cores,
    needs=("kernels",),
    thresholds=(
        Threshold("bf16_least", 1.2, "times", "Products limited by memory still read half the bytes."),
        Threshold("bf16_most", 2.2, "times", "Twice the peak rate and half the bytes; measured in a pair on an A100."),
    ),
)


_CONVOLUTION = expression(r"^aten::(?:cudnn_|miopen_)?convolution(?:_overrideable)?$")
_IMAGES = 4  # batch, channels, height, width


def _planar_share(context: RuleContext) -> float | None:
    """Of the convolutions whose input's strides are told, those that get NCHW; None: of none they are."""
    trace = context.trace
    rows = np.flatnonzero(context.named(trace.ranges.name, _CONVOLUTION.match) & (trace.ranges.arguments >= 0))
    layouts = [_is_planar(trace.arguments[number]) for number in trace.ranges.arguments[rows].tolist()]
    decided = [is_planar for is_planar in layouts if is_planar is not None]
    return sum(decided) / len(decided) if decided else None


def _is_planar(arguments: OperatorArguments) -> bool | None:
    """Whether the first input is a batch of images whose channels lie in planes; None: it is none, or not told."""
    try:
        sizes, strides = (json.loads(text)[0] for text in (arguments.sizes, arguments.strides))
    except (ValueError, LookupError, TypeError):
        return None
    if not (isinstance(sizes, list) and isinstance(strides, list) and len(sizes) == len(strides) == _IMAGES):
        return None
    return None if sizes[1] == 1 else bool(strides[1] != 1)


def _layout_conversion(context: RuleContext) -> Iterator[Match]:
    kernels = KernelSet(context, device_work(context).kernels_of([KernelKind.LAYOUT]))
    if kernels.exposed_ns < context.least_ns:
        return
    ways = "between NCHW and NHWC"
    planar = _planar_share(context)
    planar_share = f"; {percent(planar)} of the convolutions get NCHW inputs, by their strides" if planar else ""
    yield kernels.match(
        f"{counted(len(kernels), f'conversion {ways} takes', f'conversions {ways} take')} "
        f"{duration(kernels.total_ns)}, {percent(kernels.share)} of kernel time{planar_share}",
        kernels.evidence(convolutions_with_nchw_inputs_fraction=planar),
        kernels.saving_without(Cause.GPU_COMPUTE, HALF),
        (
            context.program.pick(
                "Give cuDNN its tensors in NHWC (CUDNN_TENSOR_NHWC), as its tensor-core kernels read them",
                torch="model = model.to(memory_format=torch.channels_last) and batch = batch.to(memory_format="
                "torch.channels_last) (3D: torch.channels_last_3d), so that cuDNN's NHWC kernels need no conversion",
            ),
            "Look for operations that fall back to NCHW between the convolutions (view, flatten, custom kernels)",
        ),
    )


LAYOUT_CONVERSION = Rule(
    id="layout-conversion",
    title="Convolutions convert their data's layout",
    group="gpu_compute",
    cause=Cause.GPU_COMPUTE,
    check=_layout_conversion,
    needs=("kernels",),
)
