"""What an operator of PyTorch has to do at least, by its name and the sizes of its inputs: floating-point operations,
and bytes that must be read or written once.

A multiplication with an addition counts as two operations. Bytes are those of inputs and outputs, each once: caches can
save nothing of that, and kernels that read twice move more. What is not told (the stride of a convolution without its
values) gives no figure, never a guess.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from boundby.model.late import expression

Sizes = tuple[int, ...]
_BYTES_OF = {
    **dict.fromkeys(("double", "long int", "long", "c10::complex<float>"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short int", "short"), 2),
    **dict.fromkeys(("bool", "unsigned char", "signed char", "char"), 1),
}
_PRECISION_OF = {"c10::Half": "fp16", "c10::BFloat16": "bf16", "float": "fp32"}
_MOST_WORK = 1 << 60


class LeastWork(Struct, frozen=True):
    """What one call has to do. ``is_matmul``: its operations are those of matrix products, convolutions or attention,
    which tensor cores do. ``precision``: of its inputs ("" where it is not told). ``bytes`` None: not told."""

    flops: int
    bytes: int | None
    is_matmul: bool
    precision: str


class _Call(Struct, frozen=True):
    """Inputs by place: sizes of tensors (of a list of tensors, of each), their types, values of what is none."""

    sizes: tuple[tuple[Sizes, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]

    def tensor(self, place: int) -> Sizes:
        """Raises IndexError where there is no tensor."""
        return self.sizes[place][0]

    def numbers(self, place: int) -> list[int]:
        """Raises IndexError where the value is not told."""
        listed = [int(number) for number in re.findall(r"-?\d+", self.values[place])]
        if not listed:
            raise IndexError(place)
        return listed

    def is_true(self, place: int) -> bool:
        if not self.values[place]:
            raise IndexError(place)
        return self.values[place] == "True"

    def type_at(self, place: int) -> str:
        return self.types[place] if place < len(self.types) else ""

    def bytes_at(self, place: int) -> int | None:
        """Of one element of an input."""
        kind = self.type_at(place)
        return 1 if "Float8" in kind else _BYTES_OF.get(kind)

    def precision_at(self, place: int) -> str:
        kind = self.type_at(place)
        return "fp8" if "Float8" in kind else _PRECISION_OF.get(kind, "")


def _product(sizes: Sizes) -> int:
    return math.prod(sizes)


def _matmul(first: int, second: int) -> Callable[[_Call], tuple[int, int]]:
    """(..., m, k) times (..., k, n): operations, and elements of inputs and output."""

    def work(call: _Call) -> tuple[int, int]:
        left, other = call.tensor(first), call.tensor(second)
        batch, rows, inner, columns = _product(left[:-2]), left[-2], left[-1], other[-1]
        return 2 * batch * rows * inner * columns, batch * (rows * inner + inner * columns + rows * columns)

    return work


def _linear(call: _Call) -> tuple[int, int]:
    sizes, weight = call.tensor(0), call.tensor(1)
    rows, inner, columns = _product(sizes[:-1]), sizes[-1], weight[0]
    return 2 * rows * inner * columns, rows * inner + inner * columns + rows * columns


def _matrix_vector(matrix: int) -> Callable[[_Call], tuple[int, int]]:
    def work(call: _Call) -> tuple[int, int]:
        rows, columns = call.tensor(matrix)
        return 2 * rows * columns, rows * columns + rows + columns

    return work


def _convolution(
    padding: int, stride: int, dilation: int, transposed: int | None
) -> Callable[[_Call], tuple[int, int]]:
    """(N, C, ...) with weights (O, C / groups, ...). The arguments: places of its values."""

    def work(call: _Call) -> tuple[int, int]:
        image, weight = call.tensor(0), call.tensor(1)
        if transposed is not None and call.is_true(transposed):  # every input element meets every weight of its group
            flops = 2 * _product(image) * _product(weight[1:])
            return flops, _product(image) + _product(weight)
        spatial = len(image) - 2
        pads, strides, dilations = (
            (values * spatial)[:spatial] for values in map(call.numbers, (padding, stride, dilation))
        )
        outside = [
            (size + 2 * pad - spread * (kernel - 1) - 1) // step + 1
            for size, kernel, pad, step, spread in zip(image[2:], weight[2:], pads, strides, dilations, strict=True)
        ]
        output = image[0] * weight[0] * _product(tuple(outside))
        return 2 * output * _product(weight[1:]), _product(image) + _product(weight) + output

    return work


def _convolution_backward(call: _Call) -> tuple[int, int]:
    """The gradients of input and weight that were asked for take as much as the forward pass each."""
    gradient, image, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    wanted = re.findall(r"True|False|1|0", call.values[10])[:2]
    if len(wanted) < 2 or call.is_true(7):
        raise IndexError(10)
    asked = sum(flag in ("True", "1") for flag in wanted)
    flops = 2 * _product(gradient) * _product(weight[1:]) * asked
    return flops, _product(gradient) + (_product(image) + _product(weight)) * (1 + asked) // 2


def _attention(heads_at: int, causal: int, first: int = 0, factor: int = 4) -> Callable[[_Call], tuple[int, int]]:
    """Queries, keys, values of (batch, heads, length, width), or (batch, length, heads, width) where ``heads_at`` is 2.
    A causal mask leaves half of the products. ``factor``: operations for each pair and element, 10 in backward."""
    along = 3 - heads_at

    def work(call: _Call) -> tuple[int, int]:
        query, key, value = (call.tensor(first + offset) for offset in range(3))
        if len(query) != 4:
            raise IndexError(first)  # sequences of different lengths, packed
        pairs = query[0] * query[heads_at] * query[along] * key[along]
        flops = factor * pairs * (query[3] + value[3]) // 2
        if call.is_true(causal):
            flops //= 2
        moved = _product(query) + _product(key) + _product(value) + _product(query[:3]) * value[3]
        return flops, moved * (1 if factor == 4 else 2)

    return work


_MATMULS: dict[str, Callable[[_Call], tuple[int, int]]] = {
    "aten::mm": _matmul(0, 1),
    "aten::bmm": _matmul(0, 1),
    "aten::addmm": _matmul(1, 2),
    "aten::addmm_": _matmul(1, 2),
    "aten::_addmm_activation": _matmul(1, 2),
    "aten::baddbmm": _matmul(1, 2),
    "aten::_scaled_mm": _matmul(0, 1),
    "aten::_int_mm": _matmul(0, 1),
    "aten::linear": _linear,
    "aten::mv": _matrix_vector(0),
    "aten::addmv": _matrix_vector(1),
    "aten::addmv_": _matrix_vector(1),
    "aten::convolution": _convolution(4, 3, 5, 6),
    "aten::_convolution": _convolution(4, 3, 5, 6),
    "aten::cudnn_convolution": _convolution(2, 3, 4, None),
    "aten::miopen_convolution": _convolution(3, 4, 5, None),
    "aten::mkldnn_convolution": _convolution(3, 4, 5, None),
    "aten::conv2d": _convolution(4, 3, 5, None),
    "aten::convolution_backward": _convolution_backward,
    "aten::_flash_attention_forward": _attention(2, 8),
    "aten::_scaled_dot_product_flash_attention": _attention(1, 4),
    "aten::_scaled_dot_product_cudnn_attention": _attention(1, 6),
    "aten::_scaled_dot_product_efficient_attention": _attention(1, 6),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, 11, 1, 10),
    "aten::_flash_attention_backward": _attention(2, 11, 1, 10),
}
# One operation for each element of the output; inputs that are no tensors, and outputs in place, are told by the sizes.
_ELEMENTWISE = expression(
    r"^aten::(?:add|sub|rsub|mul|div|neg|abs|exp|log|sqrt|rsqrt|pow|sin|cos|tanh|sigmoid|relu|gelu|silu|leaky_relu|elu"
    r"|clamp|clamp_min|clamp_max|maximum|minimum|where|masked_fill|addcmul|addcdiv|lerp|eq|ne|lt|gt|le|ge|bitwise_\w+"
    r"|logical_\w+|threshold_backward|gelu_backward|silu_backward|sigmoid_backward|tanh_backward|native_dropout"
    r"|reciprocal|square|erf|floor|remainder)_?$"
)
_REDUCES = expression(r"^aten::(?:sum|mean|max|min|amax|amin|prod|argmax)$")
_READS = expression(  # and write as much
    r"^aten::(?:_softmax|_log_softmax|native_layer_norm|native_group_norm|var_mean|cudnn_batch_norm|native_batch_norm"
    r"|_fused_rms_norm)$"
)
_FOREACH = expression(r"^aten::_foreach_\w+_$|^aten::_fused_(?:adam|adamw|sgd)_+$")
_COPIES = expression(r"^aten::copy_$|^triton_(?:poi|red|per|for)_fused")


@lru_cache(maxsize=1 << 16)
def work_of(name: str, sizes: str, types: str, values: str) -> LeastWork | None:
    """What one call of an operator has to do; None where its name or its inputs do not tell. The texts are JSON lists
    of one place per input, as the PyTorch profiler writes them ("" where they are not told)."""
    try:
        call = _read(sizes, types, values)
        light = _MATMULS[name](call) if name in _MATMULS else _light_work(name, call)
    except (IndexError, ValueError, TypeError, KeyError, ZeroDivisionError, OverflowError):
        return None
    if light is None:
        return None
    flops, moved = light
    index = next((position for position, tensors in enumerate(call.sizes) if tensors and tensors[0]), 0)
    each = call.bytes_at(index) if name in _MATMULS else 1
    moved_bytes = None if each is None else moved * each
    if not 0 <= flops < _MOST_WORK or not 0 <= (moved_bytes or 0) < _MOST_WORK:
        return None
    return LeastWork(flops, moved_bytes, name in _MATMULS, call.precision_at(index))


def _tensors_of(call: _Call) -> list[tuple[int, int | None]]:
    """How many elements each has, and how many bytes each of these."""
    return [
        (_product(size), call.bytes_at(index))
        for index, of_place in enumerate(call.sizes)
        for size in of_place
        if size or (index < len(call.types) and call.types[index] in _BYTES_OF)
    ]


def _takes_lists(name: str) -> bool:
    """Whether tensors come in lists, of which a trace does not tell all sizes."""
    return name == "aten::cat" or _FOREACH.match(name) is not None


def _writes_into_one(name: str, tensors: Sequence[object]) -> bool:
    """Whether the result goes into one of the tensors that are read."""
    return name.endswith("_") and len(tensors) > 1


def _light_work(name: str, call: _Call) -> tuple[int, int] | None:
    """Operations and bytes of what moves data once."""
    tensors = _tensors_of(call)
    has_unknown = any(size is None for _, size in tensors)
    if not tensors or (has_unknown and not _takes_lists(name)):
        return None
    if name in ("aten::fill_", "aten::zero_"):
        return 0, tensors[0][0] * (tensors[0][1] or 0)
    largest, each = max(tensors, key=lambda item: item[0])
    moved = sum(count * (size or 4) for count, size in tensors)
    if _ELEMENTWISE.match(name):
        return largest, moved if _writes_into_one(name, tensors) else moved + largest * (each or 0)
    kinds = (
        (_COPIES, (0, moved)),  # of a copy the first is written, the second read
        (_FOREACH, (largest, moved)),
        (_REDUCES, (largest, moved)),
        (_READS, (largest, 2 * moved)),
    )
    return next((work for pattern, work in kinds if pattern.match(name)), None)


def _read(sizes: str, types: str, values: str) -> _Call:
    kinds = json.loads(types) if types else []
    plain = json.loads(values) if values else []
    read = [_tensors(entry) for entry in json.loads(sizes)]
    return _Call(tuple(read), tuple(map(str, kinds)), tuple(map(str, plain)))


def _tensors(value: Any) -> tuple[Sizes, ...]:
    """One tensor's sizes, or those of each in a list of tensors."""
    if not isinstance(value, list):
        return ()
    if value and all(isinstance(size, list) for size in value):
        return tuple(_sizes(size) for size in value)
    return (_sizes(value),)


def _sizes(value: list[Any]) -> Sizes:
    whole = tuple(int(number) for number in value)
    if any(not 0 <= number < _MOST_WORK for number in whole):
        raise ValueError(value)
    return whole
