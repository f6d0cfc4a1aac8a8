"""Inputs and results of a function, whatever holds them: tensors are known by what they can do, not by their type.

A *tensor* is anything with ``device`` and ``shape``; a *module* anything with ``parameters`` and ``modules``. So
nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from boundby.measure.results import MeasureError


def is_module(value: object) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "parameters", None)) and hasattr(value, "modules")


def is_tensor(value: object) -> bool:
    if isinstance(value, type | np.ndarray | np.generic) or is_module(value):
        return False
    return hasattr(value, "device") and hasattr(value, "shape")


def device_of(tensor: Any) -> str:
    """``"cpu"``, ``"cuda:0"``."""
    return str(tensor.device)


def leaves(value: object) -> Iterator[Any]:
    """What tuples, lists and mappings hold, at any depth; anything else is a leaf."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with ``change`` applied to each leaf."""
    if isinstance(value, Mapping):
        items = {key: mapped(item, change) for key, item in value.items()}
        return items if type(value) is dict else _rebuilt(value, items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(item, change) for item in value)
    return change(value)


def _rebuilt(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of another kind (a tokenizer's batch): a copy of it with the new items."""
    other: Any = copy.copy(value)
    try:
        other.update(items)
    except (AttributeError, TypeError):
        return items
    return other


def copied(value: Any) -> Any:
    """A copy that shares no memory: ``clone`` for tensors, ``deepcopy`` for the rest."""
    return mapped(value, _copied_leaf)


def _copied_leaf(leaf: Any) -> Any:
    if not is_tensor(leaf):
        return copy.deepcopy(leaf)
    fresh = leaf.detach().clone() if hasattr(leaf, "detach") else leaf.clone()
    return fresh.requires_grad_() if getattr(leaf, "requires_grad", False) else fresh


def moved(value: Any, device: str) -> Any:
    """On ``device``; modules are copied, so that the one given stays where it is."""

    def move(leaf: Any) -> Any:
        if is_module(leaf):
            return copy.deepcopy(leaf).to(device)
        return leaf.to(device) if is_tensor(leaf) else leaf

    return mapped(value, move)


def modules_of(function: object) -> list[Any]:
    """The modules that a call of ``function`` is known to use: itself, what it is bound to, closes over, or names."""
    modules: list[Any] = []
    for value in _reach(function):
        if is_module(value) and not any(value is other for other in modules):
            modules.append(value)
    return modules


def tensors_of(function: object) -> list[Any]:
    """The tensors that ``function`` closes over, is bound to by ``functools.partial``, or names."""
    return [value for value in _reach(function) if is_tensor(value)]


def _reach(function: object, depth: int = 3) -> Iterator[Any]:
    yield function
    if depth == 0 or is_module(function):
        return
    if isinstance(function, functools.partial):
        yield from (*leaves(function.args), *leaves(function.keywords))
        yield from _reach(function.func, depth - 1)
        return
    bound = getattr(function, "__self__", None)
    if bound is not None and not isinstance(bound, type):
        yield bound
    inner = getattr(function, "__wrapped__", None)
    if callable(inner):
        yield from _reach(inner, depth - 1)
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    if code is not None:
        names = getattr(function, "__globals__", {})
        for held in (*_enclosed(function), *(names[name] for name in code.co_names if name in names)):
            yield from _held(held, depth)


def _enclosed(function: object) -> Iterator[Any]:
    """What a closure holds."""
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # not assigned yet
            yield cell.cell_contents


def _held(value: Any, depth: int) -> Iterator[Any]:
    """What a name refers to: tensors and modules; functions are followed."""
    if is_module(value) or is_tensor(value):
        yield value
    elif isinstance(value, tuple | list | dict):
        for leaf in leaves(value):
            if is_module(leaf) or is_tensor(leaf):
                yield leaf
    elif hasattr(value, "__code__"):
        yield from _reach(value, depth - 1)


def batch_size(inputs: object) -> int | None:
    """The length of the first dimension that tensors and arrays in ``inputs`` begin with; None if there is none."""
    return next((int(leaf.shape[0]) for leaf in leaves(inputs) if _has_batch(leaf)), None)


def resized(inputs: Any, size: int) -> Any:
    """``inputs`` with ``size`` instead of the batch dimension, by repeating (or leaving out) samples.

    Every tensor or array whose first dimension is the batch size changes; the rest stays.
    """
    batch = batch_size(inputs)
    if batch is None or batch == 0:
        return inputs
    rows = np.arange(size) % batch

    def resize(leaf: Any) -> Any:
        if not _has_batch(leaf) or int(leaf.shape[0]) != batch:
            return leaf
        grown = leaf[rows]
        return grown.detach() if hasattr(grown, "detach") else grown

    return mapped(inputs, resize)


def maker(inputs: Sequence[Any], make_inputs: Callable[[int], Any] | None) -> Callable[[int], tuple[Any, ...]]:
    """What makes the inputs of a size: ``make_inputs``, else the inputs at hand, resized. Raises MeasureError: neither
    can."""
    if make_inputs is None and batch_size(inputs) is None:
        raise MeasureError(
            "No input has a first dimension that could grow.",
            "Give inputs whose first dimension is the batch, or make_inputs, a function from a size to inputs.",
        )
    make = make_inputs or functools.partial(resized, inputs)
    return lambda size: as_inputs(make(size))


def as_inputs(made: Any) -> tuple[Any, ...]:
    """What a function from a size gave: several inputs, or a single one."""
    return made if isinstance(made, tuple) else (made,)


def _has_batch(leaf: object) -> bool:
    return (is_tensor(leaf) or isinstance(leaf, np.ndarray)) and len(getattr(leaf, "shape", ())) > 0


def largest_difference(a: object, b: object, rtol: float, atol: float) -> tuple[bool, float] | None:
    """(equal within |a - b| <= atol + rtol |a| everywhere, the largest |a - b|) of two results' numbers.

    None where they hold no numbers that could be compared. NaN equals NaN; another shape is not equal.
    """
    pairs_a, pairs_b = [_numbers(leaf) for leaf in leaves(a)], [_numbers(leaf) for leaf in leaves(b)]
    if len(pairs_a) != len(pairs_b):
        return False, float("inf")
    equal, largest, compared = True, 0.0, False
    for left, right in zip(pairs_a, pairs_b, strict=True):
        if left is None or right is None:
            continue
        compared = True
        if left.shape != right.shape:
            return False, float("inf")
        equal = equal and bool(np.allclose(right, left, rtol=rtol, atol=atol, equal_nan=True))
        unlike = ~((left == right) | (np.isnan(left) & np.isnan(right)))
        apart = np.abs(left[unlike] - right[unlike])
        if apart.size:
            worst = float(np.max(apart))
            largest = max(largest, worst) if worst == worst else float("inf")
    return (equal, largest) if compared else None


def _numbers(leaf: Any) -> Any:
    if is_tensor(leaf):
        leaf = leaf.detach() if hasattr(leaf, "detach") else leaf
        leaf = leaf.to("cpu")
        leaf = leaf.double() if hasattr(leaf, "double") and not getattr(leaf, "is_complex", bool)() else leaf
    elif not isinstance(leaf, np.ndarray | np.generic | int | float | complex):
        return None
    try:
        array = np.asarray(leaf)
    except (TypeError, ValueError, RuntimeError):
        return None
    return (
        array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) if array.dtype.kind in "biufc" else None
    )
