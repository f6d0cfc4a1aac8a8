"""One call of a module: what its ranges are called, and inside which other call it happened."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from boundby.annotate.backends import Marker

#: Containers in containers are searched for tensors this deep.
NESTING_SEARCHED = 4


@dataclass(frozen=True)
class Names:
    """The markers of a module: the same name forward and backward, but for the outermost."""

    forward: Marker
    backward: Marker


class Call:
    """A module's forward, and later its backward. ``parent`` is None for the outermost: ``forward``, ``recompute``."""

    __slots__ = ("grad_inputs", "module", "names", "parent")

    def __init__(self, names: Names, parent: Call | None, module: Any) -> None:
        self.names = names
        self.parent = parent
        self.module: int | None = id(module) if module is not None else None
        self.grad_inputs = 0


def differentiable_tensors(tensor_type: Any, value: Any, depth: int = NESTING_SEARCHED) -> list[Any]:
    """Tensors in a module's arguments or results that gradients flow through; parameters and other leaves are not.

    (A leaf lives longer than one pass: hooks on it would pile up.)
    """
    if isinstance(value, tensor_type):
        return [value] if value.requires_grad and value.grad_fn is not None else []
    if isinstance(value, (tuple, list)):
        items: Any = value
    elif isinstance(value, dict):
        items = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, part.name, None) for part in dataclasses.fields(value)]
    else:
        return []
    if not items or depth == 0:
        return []
    return [found for item in items for found in differentiable_tensors(tensor_type, item, depth - 1)]
