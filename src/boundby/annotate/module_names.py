"""Which modules of a model get a range, and what it is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def named_ranges(model: Any, depth: int | None) -> Iterator[tuple[Any, str]]:
    """Modules below ``model`` with the names of their ranges, down to ``depth`` levels (None: all).

    A range has the module's own name, since the ranges around it give the rest of the path. Two kinds of modules
    need more: children of what is never called itself (ModuleList, ModuleDict) bring its name along, and children
    that are only numbered bring their parent's (``layers.3``): a bare number would fold into ``*`` with all others.
    """
    seen = {id(model)}

    def below(parent: Any, parent_name: str, carried: str, level: int) -> Iterator[tuple[Any, str]]:
        if depth is not None and level > depth:
            return
        for key, child in parent.named_children():
            if id(child) in seen or is_scripted(child):
                continue
            seen.add(id(child))
            if carried:
                name = f"{carried}.{key}"
            elif key.isdigit():
                name = f"{parent_name}.{key}"
            else:
                name = key
            if is_called(child):
                yield child, name
                inner = _compiled(child)
                seen.add(id(inner))
                yield from below(inner, name, "", level + 1)
            else:
                yield from below(child, parent_name, name, level)

    inner = _compiled(model)
    seen.add(id(inner))
    return below(inner, type(inner).__name__, "", 1)


def _compiled(module: Any) -> Any:
    """The module in the shell that torch.compile makes, or the module itself."""
    return getattr(module, "_orig_mod", module)


def is_called(module: Any) -> bool:
    """Does it have a forward of its own? ModuleList and ModuleDict only hold others."""
    torch: Any = sys.modules["torch"]
    return "forward" in vars(module) or type(module).forward is not torch.nn.Module.forward


def is_scripted(module: Any) -> bool:
    """Is it compiled by TorchScript? Such modules take no hooks, and neither do those inside."""
    torch: Any = sys.modules["torch"]
    return isinstance(module, torch.jit.ScriptModule)


def is_module(model: Any) -> bool:
    """Is this a torch module? Without torch there is none."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)
