"""``annotate_optimizer``: a range around every step of a torch optimizer."""

from __future__ import annotations

import types
from typing import Any

from boundby.annotate.ranges import decorate, nvtx_range


class OptimizerRanges:
    """The ranges of one optimizer. ``remove()``, or leaving it as a context manager, ends them."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self._optimizer = optimizer
        self._marked: nvtx_range | None = nvtx_range(name)
        self._before = optimizer.__dict__.get("step")
        # torch's own step hooks are not called when a step raises. And it has to stay a bound method: learning rate
        # schedulers wrap ``step.__func__``.
        original = optimizer.step
        marked_step = decorate(original, self._marked)

        def step(_optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            return (original if self._marked is None else marked_step)(*args, **kwargs)

        step.__dict__.update(getattr(original, "__dict__", {}))
        self._step = types.MethodType(step, optimizer)
        optimizer.step = self._step

    def remove(self) -> None:
        """Mark no more steps."""
        self._marked = None
        # Something else may have wrapped the step since: then ours stays in between and does nothing.
        if self._optimizer.__dict__.get("step") is self._step:
            if self._before is None:
                del self._optimizer.step
            else:
                self._optimizer.step = self._before

    def __enter__(self) -> OptimizerRanges:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def annotate_optimizer(optimizer: Any, name: str = "optimizer") -> OptimizerRanges:
    """Mark every ``optimizer.step()`` with a range, closure included, also when it raises."""
    if not callable(getattr(optimizer, "step", None)):
        raise TypeError(f"annotate_optimizer needs a torch optimizer, with a step(), and not {optimizer!r}.")
    return OptimizerRanges(optimizer, name)
