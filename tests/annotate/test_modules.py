"""annotate_module, forward: every call is a range named by its module, and none is left open."""

from __future__ import annotations

import copy
import io
import threading

import pytest

from boundby.annotate import annotate_module, backends, nvtx_range
from boundby.annotate.ranges import depth as open_depth
from tests.annotate.recording import Recorder

pytest.importorskip("torch", reason="annotate_module is for torch, which is not installed")

import torch
from torch import nn

from tests.annotate import torch_models as models


def test_nesting_gives_the_path(recorder: Recorder) -> None:
    model = models.Net()
    annotate_module(model)
    model(models.sample())
    assert recorder.paths == models.NET_FORWARD


def test_depth_counts_levels_below_the_model(recorder: Recorder) -> None:
    model = models.Net()
    for depth in (0, 1, 2):
        with annotate_module(model, depth=depth), torch.no_grad():
            model(models.sample())
        assert set(recorder.paths) == {path for path in models.NET_FORWARD if path.count("/") <= depth}
        recorder.paths.clear()


def test_a_prefix_tells_models_apart(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    annotate_module(model, prefix="critic ")
    model(models.sample()).sum().backward()
    assert recorder.paths == [
        "critic forward",
        "critic forward/Sequential.0",
        "critic backward",
        "critic backward/Sequential.0",
    ]


def test_a_module_called_by_itself_is_in_forward_too(recorder: Recorder) -> None:
    model = models.Net()
    annotate_module(model)
    model.layers[1].attention(models.sample()).sum().backward()
    assert recorder.paths == [
        "forward",
        "forward/attention",
        "forward/attention/query",
        "forward/attention/output",
        "backward",
        "backward/attention",
        "backward/attention/output",
        "backward/attention/query",
    ]


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_an_error_in_forward_leaves_no_range_behind(recorder: Recorder, error: BaseException) -> None:
    model = nn.Sequential(models.Fails(), nn.Linear(8, 8))
    annotate_module(model)
    model[0].error = error
    with pytest.raises(type(error)), nvtx_range("step"):
        model(models.sample())
    assert recorder.here == ""
    with pytest.raises(type(error)):
        model(models.sample())
    model[0].error = None
    recorder.paths.clear()
    model(models.sample())  # what Ctrl-C cut off passed torch's hooks: the next call closes it
    assert recorder.paths == [
        "forward",
        "forward/Sequential.0",
        "forward/Sequential.0/child",
        "forward/Sequential.1",
    ]


def test_a_model_that_calls_itself_stays_open(recorder: Recorder) -> None:
    class Tree(nn.Module):
        def forward(self, depth: int) -> int:
            return 1 + (self(depth - 1) if depth else 0)

    model = Tree()
    annotate_module(model)
    assert model(2) == 3
    assert recorder.paths == ["forward", "forward/forward", "forward/forward/forward"]


def test_removed_ranges_are_gone_also_from_copies(recorder: Recorder) -> None:
    model = models.Net()
    ranges = annotate_module(model)
    twin = copy.deepcopy(model)
    twin(models.sample())
    assert recorder.paths == models.NET_FORWARD
    ranges.remove()
    recorder.paths.clear()
    model(models.sample()).sum().backward()
    twin(models.sample())
    assert recorder.paths == []
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_removing_while_the_model_runs_closes_what_is_open(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    ranges = annotate_module(model)
    model[0].register_forward_hook(lambda *_: ranges.remove())
    model(models.sample())
    assert recorder.here == ""


def test_a_pickled_model_comes_back_without_ranges(recorder: Recorder) -> None:
    model = models.Net()
    annotate_module(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.load(file, weights_only=False)(models.sample()).sum().backward()
    assert recorder.paths == []


def test_a_shared_module_is_a_range_wherever_it_is_called(recorder: Recorder) -> None:
    shared = nn.Linear(8, 8)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    annotate_module(model)
    model(models.sample())
    assert recorder.counts == {"forward": 1, "forward/Sequential.0": 2, "forward/Sequential.1": 1}


def test_threads_do_not_mix(recorder: Recorder) -> None:
    model = models.Net()
    annotate_module(model)

    def work() -> None:
        for _ in range(5):
            model(models.sample()).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.counts == dict.fromkeys(models.NET_FORWARD + models.NET_BACKWARD, 15)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_without_gradients_there_is_only_forward(recorder: Recorder, mode: str) -> None:
    model = models.Net()
    annotate_module(model)
    with getattr(torch, mode)():
        model(models.sample())
    assert recorder.paths == models.NET_FORWARD


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, while it compiles
def test_a_compiled_module_is_one_range(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(8, 8), torch.compile(models.Block(), backend="eager", fullgraph=True))
    annotate_module(model)
    model(models.sample())
    assert recorder.paths == ["forward", "forward/Sequential.0", "forward/Sequential.1"]
    recorder.paths.clear()
    compiled = torch.compile(models.Net(), backend="eager", fullgraph=True)
    annotate_module(compiled)
    compiled(models.sample()).sum().backward()
    assert recorder.paths == ["forward", "backward"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compiling_an_annotated_model_works(recorder: Recorder) -> None:
    model = models.Net()
    annotate_module(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(models.sample()), models_output_without_ranges(model))
    assert recorder.paths == []


def models_output_without_ranges(model: object) -> object:
    """What the model gives when nothing is recorded."""
    plain = copy.deepcopy(model)
    for module in plain.modules():  # type: ignore[attr-defined]
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return plain(models.sample())  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_left_out(recorder: Recorder) -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    model = nn.Sequential(nn.Linear(8, 8), scripted)
    annotate_module(model)
    model(models.sample())
    assert recorder.paths == ["forward", "forward/Sequential.0"]
    with pytest.raises(TypeError, match="TorchScript"):
        annotate_module(scripted)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a torch module"):
        annotate_module(print)
    with pytest.raises(ValueError, match="0 or more"):
        annotate_module(nn.Linear(1, 1), depth=-1)


def test_without_a_backend_no_hook_is_put_in() -> None:
    model = models.Net()
    with backends.using(backends.NoBackend()):
        ranges = annotate_module(model)
        model(models.sample()).sum().backward()
        ranges.remove()
    assert not any(module._forward_hooks for module in model.modules())
    assert open_depth() == 0
