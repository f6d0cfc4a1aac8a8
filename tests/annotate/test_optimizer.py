"""annotate_optimizer: every step is a range, and schedulers and copies work as before."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

from boundby.annotate import annotate_optimizer, nvtx_range
from tests.annotate.recording import Recorder


class Plain:
    """Something with a step, without torch."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return closure() if closure is not None else None


def test_every_step_is_a_range_with_its_closure_inside(recorder: Recorder) -> None:
    @nvtx_range("closure")
    def closure() -> int:
        return 3

    optimizer = Plain()
    with annotate_optimizer(optimizer):
        optimizer.step()
        assert optimizer.step(closure=closure) == 3
    optimizer.step()
    assert optimizer.steps == 3
    assert "step" not in vars(optimizer)
    assert recorder.paths == ["optimizer", "optimizer", "optimizer/closure"]


def test_a_step_that_raises_closes_its_range(recorder: Recorder) -> None:
    optimizer = Plain()
    annotate_optimizer(optimizer, name="adam")
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 // 0)
    assert recorder.paths == ["adam"]


def test_it_may_be_removed_under_another_wrapper(recorder: Recorder) -> None:
    optimizer = Plain()
    ranges = annotate_optimizer(optimizer)
    inner: Any = optimizer.step
    optimizer.step = functools.partial(inner)  # type: ignore[method-assign]
    ranges.remove()
    optimizer.step()
    assert optimizer.steps == 1
    assert recorder.paths == []


def test_what_has_no_step_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a torch optimizer"):
        annotate_optimizer(3)


@pytest.mark.parametrize("scheduler_first", [False, True])
def test_torch_optimizers_with_schedulers(recorder: Recorder, *, scheduler_first: bool) -> None:
    torch = pytest.importorskip("torch", reason="tests a torch optimizer, and torch is not installed")
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    if scheduler_first:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    ranges = annotate_optimizer(optimizer)
    if not scheduler_first:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()  # warns, which fails the test, if it has not seen the optimizer's step
    assert weight.tolist() == [0.5, 0.5]
    assert recorder.paths == ["optimizer"]
    copy.deepcopy(optimizer).step()
    ranges.remove()
    optimizer.step()
    assert recorder.paths == ["optimizer"]
