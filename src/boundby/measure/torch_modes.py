"""What torch, where it is loaded, is asked for besides CUDA: modes, gradients, torch.compile's counters."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from boundby.measure import values
from boundby.measure.results import MeasureError, Mistake, TargetError

INFERENCE, TRAINING = "inference", "training"
MODES = (INFERENCE, TRAINING)


def loaded() -> Any | None:
    """torch, if the program has imported it."""
    return sys.modules.get("torch")


def compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process: a recompilation makes one more."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo is not None else 0


@contextlib.contextmanager
def entered(mode: str | None, modules: Sequence[Any]) -> Iterator[None]:
    """Run a block in inference mode (``eval()``, no gradients) or training mode (``train()``, gradients); put back
    every module's own mode and gradients afterwards. ``None``: everything stays as it is."""
    if mode is None:
        yield
        return
    if mode not in MODES:
        raise MeasureError(f"There is no mode {mode!r}.", f"Choose one of {', '.join(MODES)}, or none.")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise MeasureError(f"The mode {mode} needs PyTorch, which is not installed.", "Leave out the mode.") from None
    parts = [part for module in modules for part in module.modules()]
    were = [(part, part.training) for part in parts]
    gradients = [(weight, weight.grad) for module in modules for weight in module.parameters()]
    try:
        for module in modules:
            module.train(mode == TRAINING)
        with torch.inference_mode() if mode == INFERENCE else torch.enable_grad():
            yield
    finally:
        for part, was in were:
            part.training = was
        for weight, gradient in gradients:
            weight.grad = gradient


def training_call(module: Any) -> Callable[..., object]:
    """Forward through ``module``, then backward from the sum of the results that require gradients."""

    def forward_and_backward(*inputs: Any) -> object:
        results = [leaf for leaf in values.leaves(_opened(module(*inputs))) if getattr(leaf, "requires_grad", False)]
        if not results:
            raise TargetError(
                "No result of the module requires gradients, so it cannot be timed in training.",
                "Time it in inference mode, or give a function that does the whole step.",
            )
        sum(result.sum() for result in results).backward()
        return results

    return forward_and_backward


def _opened(result: Any) -> Any:
    """Results that are objects with fields (a dataclass of outputs) as a mapping of them."""
    fields = getattr(result, "__dataclass_fields__", None)
    return {name: getattr(result, name) for name in fields} if fields and not isinstance(result, type) else result


def drop_gradients(modules: Sequence[Any]) -> Callable[[], None]:
    """Sets every parameter's gradient to None, as ``zero_grad`` does before each step."""
    weights = [weight for module in modules for weight in module.parameters()]

    def drop() -> None:
        for weight in weights:
            weight.grad = None

    return drop


@contextlib.contextmanager
def watch_backward() -> Iterator[list[str]]:
    """A block in which calls of torch.autograd are noted."""
    torch = loaded()
    seen: list[str] = []
    if torch is None:
        yield seen
        return
    autograd: Any = torch.autograd
    with contextlib.ExitStack() as undo:
        for name in ("backward", "grad"):
            original = getattr(autograd, name)
            undo.callback(setattr, autograd, name, original)
            setattr(autograd, name, _noting(original, name, seen))
        yield seen


def _noting(original: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    def noted(*arguments: Any, **options: Any) -> Any:
        seen.append(name)
        return original(*arguments, **options)

    return noted


def gradient_mistake(result: object, backward: Sequence[str], mode: str | None) -> Mistake | None:
    """Gradient mode on by accident: a result that carries its graph, with nobody who goes back through it."""
    if mode is not None or backward:
        return None
    if not any(getattr(leaf, "grad_fn", None) is not None for leaf in values.leaves(_opened(result))):
        return None
    return Mistake(
        "gradient-mode",
        "Gradient mode is on: the result keeps its graph, and nothing goes backward through it.",
        "For inference use mode='inference' (--mode inference); for training time the whole step.",
    )
