"""Which frame of Python speaks of the program: not the profiler's, not boundby's, nor the line that started them."""

from __future__ import annotations

import numpy as np
import pytest

from boundby.trace.stacks import FrameStacks, is_user_python
from boundby.trace.vocabulary.python import Frame, library_of, read_frame

PROFILER = "torch/profiler/profiler.py(1227): step"


def stacks(*frames: tuple[str, int, int]) -> FrameStacks:
    """Frames of one thread: name, start, end."""
    names, start, end = zip(*frames, strict=True)
    count = len(frames)
    times = [np.array(values, np.int64) for values in (start, end)]
    return FrameStacks(times[0], times[1], np.zeros(count, np.int32), np.arange(count, dtype=np.int32), names)


def test_a_frame_that_was_open_when_the_recording_began_has_no_line() -> None:
    told = stacks(
        ("train.py(50): main", 0, 1000),
        ("train.py(31): epoch", 1, 999),
        (PROFILER, 2, 100),
        ("train.py(7): loss", 200, 300),
    )
    assert told.at(0, 250) == [
        Frame("loss", "train.py", 7),
        Frame("epoch", "train.py", 0),
        Frame("main", "train.py", 0),
    ]
    assert told.at(0, 500)[0].label == "epoch (train.py)"
    assert told.at(0, 500)[0].distance == 0


def test_a_recording_that_was_begun_elsewhere_leaves_lines_as_they_are() -> None:
    told = stacks(("train.py(50): main", 0, 1000), ("train.py(7): loss", 2, 100), (PROFILER, 200, 300))
    assert told.at(0, 500) == [Frame("main", "train.py", 50)]


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        (("torch/autograd/graph.py(979): _engine_run_backward",), "backward pass"),
        (("torch/optim/adam.py(248): step",), "optimizer step"),
        (("torch/autograd/graph.py(979): _engine_run_backward", "train.py(9): my_hook"), "my_hook"),
        (("torch/nn/functional.py(12): relu",), "step"),
    ],
)
def test_what_torch_works_off_by_itself_bears_that_name(inside: tuple[str, ...], told: str) -> None:
    frames = [("train.py(3): step", 0, 1000), *((name, 1 + n, 900 - n) for n, name in enumerate(inside))]
    frame = stacks(*frames).of_rows(0, np.array([len(frames) - 1]))[0]
    assert (frame.function, frame.file) == (told, "train.py")


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("vllm/model_executor/models/gpt_oss.py", "vllm"),
        ("/sgl-workspace/sglang/python/sglang/srt/model_executor/cuda_graph_runner.py", "sglang"),
        ("/usr/lib/python3.11/site-packages/fairseq/trainer.py", "fairseq"),
        ("train.py", ""),
        ("torch/nn/modules/module.py", ""),
        ("/usr/local/lib/python3.10/dist-packages/torch/nn/modules/module.py", ""),
    ],
)
def test_a_library_of_models_or_servers_is_named(file: str, library: str) -> None:
    assert library_of(file) == library


@pytest.mark.parametrize("room", ["annotate/ranges.py", "capture/launcher/program/torch_ranges.py"])
def test_boundby_is_no_code_of_the_user(room: str) -> None:
    for file in (f"/home/me/src/boundby/{room}", f"boundby/{room}"):
        assert not is_user_python(file)
        assert read_frame(f"{file}(12): push").distance == 2
    assert is_user_python("/home/me/src/boundby/workloads/sync.py")
