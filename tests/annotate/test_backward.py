"""annotate_module, backward: the ranges nest as the calls did, whatever the model does to its tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from boundby.annotate import annotate_module, modules, nvtx_range, ranges
from boundby.annotate.backends import Label
from boundby.annotate.modules import ForwardCall, Names
from tests.annotate.recording import Recorder

pytest.importorskip("torch", reason="annotate_module is for torch, which is not installed")

import torch
from torch import nn

from tests.annotate import torch_models as models


def annotated(model: Any, recorder: Recorder) -> Callable[[Any], Any]:
    """The model with ranges; the forward's are not looked at."""
    annotate_module(model)

    def call(x: Any) -> Any:
        result = model(x)
        assert recorder.here == ""
        recorder.paths.clear()
        return result

    return call


def test_backward_nests_as_the_calls_did(recorder: Recorder) -> None:
    annotated(models.Net(), recorder)(models.sample()).sum().backward()
    assert recorder.paths == models.NET_BACKWARD


def test_gradients_stay_the_same(recorder: Recorder) -> None:
    plain, marked = models.Net(), models.Net()
    marked.load_state_dict(plain.state_dict())
    inputs = [models.sample().requires_grad_() for _ in range(2)]
    annotate_module(marked)
    plain(inputs[0]).square().sum().backward()
    marked(inputs[1]).square().sum().backward()
    assert torch.equal(inputs[0].grad, inputs[1].grad)
    for one, other in zip(plain.parameters(), marked.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert not inputs[1]._backward_hooks  # a leaf outlives the pass: hooks on it would pile up
    assert recorder.counts["backward"] == 1


def test_an_input_with_a_gradient_ends_the_range_before_what_follows(recorder: Recorder) -> None:
    seen: list[str] = []
    x = models.sample().requires_grad_() * 2
    x.register_hook(lambda _: seen.append(recorder.here))
    first, model = nn.Linear(8, 8), nn.Linear(8, 8)
    call = annotated(model, recorder)
    between = first(x) * 3
    between.register_hook(lambda _: seen.append(recorder.here))
    call(between).sum().backward()
    assert recorder.paths == ["backward"]
    assert seen == ["backward", ""]  # hooks of one tensor come in the order they were made: ours was later


def test_passes_over_one_graph_each_have_their_ranges(recorder: Recorder) -> None:
    result = annotated(models.Net(), recorder)(models.sample()).sum()
    result.backward(retain_graph=True)
    result.backward()
    assert recorder.paths == models.NET_BACKWARD * 2


def test_two_calls_before_one_backward_are_two(recorder: Recorder) -> None:
    model = models.Net()
    call = annotated(model, recorder)
    (call(models.sample()) + call(models.sample())).sum().backward()
    assert recorder.paths == models.NET_BACKWARD * 2


def test_gradients_of_gradients(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    x = models.sample().requires_grad_() + 0
    call = annotated(model, recorder)
    (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    assert recorder.counts["backward"] >= 1
    assert recorder.here == ""


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_show_what_is_computed_again(recorder: Recorder, *, reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = models.Block(), models.Block(), models.Block()

        def forward(self, x: Any) -> Any:
            return self.c(checkpoint(self.b, self.a(x), use_reentrant=reentrant))

    model = Model()
    annotate_module(model, depth=1)
    model(models.sample()).sum().backward()
    inside = "backward" if reentrant else "backward/b"
    again = [f"{inside}/recompute", f"{inside}/recompute/b"]
    b = [*again, "backward/b"] if reentrant else ["backward/b", *again]
    assert recorder.paths == [
        "forward",
        "forward/a",
        "forward/b",
        "forward/c",
        "backward",
        "backward/c",
        *b,
        "backward/a",
    ]


def test_an_error_in_backward_leaves_no_range_behind(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(8, 8), models.FailsBackward(), nn.Linear(8, 8))
    call = annotated(model, recorder)
    for _ in range(2):
        result = call(models.sample()).sum()
        with pytest.raises(ValueError, match="no gradient"):
            result.backward()
        assert recorder.paths == ["backward", "backward/Sequential.2", "backward/Sequential.1"]
        assert recorder.here == ""
        assert ranges.depth() == 0


def test_an_error_in_a_checkpoint_leaves_no_range_behind(recorder: Recorder) -> None:
    from torch.utils.checkpoint import checkpoint

    fails = models.Fails()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.fails, self.after = nn.Linear(8, 8), fails, nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.after(checkpoint(self.fails, self.before(x), use_reentrant=True))

    model = Model()
    call = annotated(model, recorder)
    result = call(models.sample()).sum()
    fails.error = ValueError("again")
    with pytest.raises(ValueError, match="again"):
        result.backward()
    assert "backward/recompute/fails/child" in recorder.paths
    assert recorder.here == ""


def test_a_pass_inside_a_users_range(recorder: Recorder) -> None:
    result = annotated(nn.Linear(8, 8), recorder)(models.sample())
    with nvtx_range("train"):
        result.sum().backward()
        assert recorder.here == "train"
    assert recorder.paths == ["train", "train/backward"]


@dataclass
class Output:
    """As the models of some libraries return."""

    scores: Any
    extra: dict[str, Any]


class Structured(nn.Module):
    """Takes keywords, gives tensors in a dataclass, a dictionary and a list, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.boxes = nn.Linear(8, 2), nn.Linear(8, 4)

    def forward(self, *, x: Any, scale: float) -> Output:
        return Output(self.scores(x) * scale, {"boxes": [self.boxes(x)], "scale": scale})


def test_tensors_are_found_in_structures(recorder: Recorder) -> None:
    first, model = nn.Linear(8, 8), Structured()
    annotate_module(model)
    output = model(x=first(models.sample()), scale=2.0)
    recorder.paths.clear()
    (output.scores.sum() + output.extra["boxes"][0].sum()).backward()
    assert recorder.counts == {"backward": 1, "backward/boxes": 1, "backward/scores": 1}


def test_frozen_parts_and_unused_outputs(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    model[0].requires_grad_(False)
    annotated(model, recorder)(models.sample()).sum().backward()
    assert recorder.paths == ["backward", "backward/Sequential.2", "backward/Sequential.1"]
    recorder.paths.clear()
    unused = Structured()
    annotate_module(unused)
    output = unused(x=models.sample(), scale=1.0)
    recorder.paths.clear()
    output.scores.sum().backward()
    assert recorder.paths == ["backward", "backward/scores"]


def test_function_transforms_pass_through(recorder: Recorder) -> None:
    model = models.Net()
    annotate_module(model)
    torch.func.grad(lambda x: model(x).sum())(models.sample())
    torch.func.vmap(model)(models.sample()[None])
    assert recorder.counts["forward"] == 2
    assert recorder.here == ""


def test_a_pass_that_ends_on_another_thread_is_closed_when_its_own_one_works_again(recorder: Recorder) -> None:
    """As with several GPUs: each has a thread, and the last one to finish ends the pass for all."""
    marker = recorder.marker(Label("backward"))
    thread = modules._OpenPasses()
    begun = modules._Pass(1, thread.passes)
    thread.passes.append(begun)
    end = modules._End(begun)
    begun.enter(ForwardCall(Names(marker, marker), None, None))
    other = threading.Thread(target=end)
    other.start()
    other.join()
    assert recorder.here == "backward"
    assert thread.current(2) is None
    assert recorder.here == ""
