"""Where a program of torch on the CPU would wait for a GPU, if its tensors were there.

torch itself marks operators whose result the host must read before it can go on: their output's shape, or a value,
depends on data. A mode sees every operator as it is dispatched, those inside others too; another one sees what never
becomes an operator on the CPU (``.cpu()``, ``.tolist()``).

What is told is of tensors that would be on the GPU: those that the watched function is given or makes there. Tensors
that it makes without naming a device, or brought to the host, are on the host on a GPU too. On the CPU ``.to("cpu")``
cannot be told from ``.to(device)``, nor a copy to the device from one that is none: neither is noted.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from boundby.measure.values import is_tensor, leaves
from boundby.trace.vocabulary.python import Frame

#: What becomes no operator on the CPU and waits on a GPU.
_READS = ("cpu", "tolist")
#: Checks every value on the CPU only: on a GPU it reads the largest one, where it is not told the number of classes.
_CHECKED_HERE = "one_hot"
#: Optimizers count their steps in tensors on the host.
_OPTIMIZERS = "torch.optim."


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """A block in which each operator that would wait for a GPU is noted: file and line."""
    sites: list[str] = []
    torch: Any = sys.modules.get("torch")
    may_compile = "torch._dynamo" in sys.modules  # what was called compiled with modes around it stays eager for ever
    stance: Any = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if torch is None or (may_compile and stance is None):
        yield sites
        return
    with contextlib.ExitStack() as modes:
        if may_compile:
            modes.enter_context(stance("force_eager"))
        for mode in _modes(torch, sites):
            modes.enter_context(mode)
        yield sites


def _are_here(here: Any, args: Any, named: Any) -> bool:
    """Whether all that is given would be on the host."""
    given = [leaf for leaf in leaves((args, named)) if is_tensor(leaf)]
    return all(tensor in here for tensor in given) and (bool(given) or named.get("device") is None)


def _placed(here: Any, name: str, result: Any, *, is_here: bool) -> Any:
    """The result, noted as on the host where it would be."""
    if name == "cpu" and not is_here:
        result = result.view_as(result)  # the same tensor would be both here and there
    if name == "cpu" or (is_here and name not in ("to", "cuda")):
        here.update((leaf, True) for leaf in leaves(result) if is_tensor(leaf))
    elif is_here and is_tensor(result):
        here.pop(result, None)
    return result


def _modes(torch: Any, sites: list[str]) -> Iterator[Any]:
    dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
    overrides: Any = importlib.import_module("torch.overrides")
    reading = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    weak: Any = importlib.import_module("torch.utils.weak")
    here = weak.WeakTensorKeyDictionary()  # tensors that would be on the host anyway
    quiet = [False]

    def note() -> None:
        if not quiet[0] and (site := _site()):
            sites.append(site)

    class WatchedOperators(dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if (reading.intersection(func.tags) and _reads(func, args)) or _writes_by_mask(func, args):
                note()
            return func(*args, **(kwargs or {}))

    class WatchedCalls(overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            name = getattr(func, "__name__", "")
            is_here = _are_here(here, args, named)
            before, quiet[0] = quiet[0], is_here
            try:
                if name in _READS or (name == _CHECKED_HERE and _classes(args, named) < 0):
                    note()
                quiet[0] = is_here or name == _CHECKED_HERE
                result = func(*args, **named)
            finally:
                quiet[0] = before
            return _placed(here, name, result, is_here=is_here)

    yield WatchedOperators()
    yield WatchedCalls()


def _classes(args: tuple[Any, ...], named: dict[str, Any]) -> int:
    return int(args[1] if len(args) > 1 else named.get("num_classes", -1))


def _reads(func: Any, args: tuple[Any, ...]) -> bool:
    """An index waits for a mask only: its size is how many elements are true."""
    return not str(func).startswith("aten.index.") or _masks(args[1])


def _writes_by_mask(func: Any, args: tuple[Any, ...]) -> bool:
    """``x[mask] = values``; of a single value it is masked_fill, which knows its size."""
    if "index_put" not in str(func) or not _masks(args[1]):
        return False
    return bool(args[2].numel() != 1 or (len(args) > 3 and args[3]))


def _masks(indices: Any) -> bool:
    return any(index is not None and str(index.dtype) in ("torch.bool", "torch.uint8") for index in indices)


def _site() -> str | None:
    """The innermost line of the program itself; None for what an optimizer reads of itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_OPTIMIZERS):
            return None
        code = frame.f_code
        if Frame(code.co_name, code.co_filename, frame.f_lineno).distance == 0:
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None
