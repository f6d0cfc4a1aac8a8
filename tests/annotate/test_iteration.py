"""steps and annotate_loader: a range for each iteration, the capture range around the active ones."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import types
from collections.abc import Iterator

import pytest

from boundby.annotate import annotate_loader, backends, nvtx_range, steps
from tests.annotate.recording import Recorder


def test_each_iteration_is_a_step(recorder: Recorder) -> None:
    for item in steps("abc"):
        assert recorder.here == f"step {'abc'.index(item)}"
        with nvtx_range("body"):
            pass
    assert recorder.paths == ["step 0", "step 0/body", "step 1", "step 1/body", "step 2", "step 2/body"]
    assert recorder.ended == ["boundby.capture"]


@pytest.mark.parametrize(
    ("warmup", "active", "captured"),
    [(0, None, range(6)), (2, None, range(2, 6)), (2, 3, range(2, 5)), (0, 1, range(1)), (1, 0, ()), (9, 1, ())],
)
def test_the_capture_range_is_open_for_the_active_steps_only(
    recorder: Recorder, warmup: int, active: int | None, captured: range
) -> None:
    open_at = [number for number in steps(range(6), warmup=warmup, active=active, name="batch") if recorder.started]
    assert open_at == list(captured)
    assert len(recorder.ended) == bool(open_at)
    wanted = [f"{'warmup' if number < warmup else 'batch'} {number}" for number in range(6)]
    assert recorder.paths == wanted
    capture = [label for label in recorder.labels if label.name == "boundby.capture"]
    assert [label.domain for label in capture] == ["boundby"] * bool(open_at)


def test_waiting_for_data_is_part_of_the_step_before(recorder: Recorder) -> None:
    loader = annotate_loader([1, 2])
    assert list(steps(loader)) == [1, 2]
    assert recorder.paths == ["data start", "data", "step 0", "step 0/data", "step 1", "step 1/data"]


def test_no_items_make_no_steps(recorder: Recorder) -> None:
    assert list(steps([])) == []
    assert recorder.paths == []
    assert recorder.ended == []


def test_leaving_the_loop_closes_step_and_capture(recorder: Recorder) -> None:
    for _ in steps(range(5)):
        break
    assert recorder.here == ""
    assert recorder.ended == ["boundby.capture"]


def test_an_error_in_the_body_leaves_no_step_behind(recorder: Recorder) -> None:
    @nvtx_range("epoch")
    def epoch() -> None:
        for _ in steps(range(5)):
            raise ValueError

    with pytest.raises(ValueError):
        epoch()
    assert recorder.here == ""


def test_an_error_in_the_data_closes_the_step(recorder: Recorder) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError

    with pytest.raises(ValueError):
        list(steps(broken()))
    assert recorder.paths == ["step 0"]


def test_a_step_that_is_dropped_late_closes_no_range_of_others(recorder: Recorder) -> None:
    running = steps(range(5))
    next(running)
    with nvtx_range("handler"):
        running.close()
        assert recorder.here == "step 0/handler"
    assert recorder.here == ""
    with nvtx_range("next"):
        assert recorder.here == "next"


def test_a_step_that_another_thread_drops_closes_on_its_own(recorder: Recorder) -> None:
    running = [steps(range(5))]
    next(running[0])

    def drop() -> None:
        running.clear()
        gc.collect()

    dropper = threading.Thread(target=drop)
    dropper.start()
    dropper.join()
    assert recorder.here == "step 0"
    with nvtx_range("next"):
        assert recorder.here == "next"


def test_names_are_not_made_without_end(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "MARKERS_KEPT", 2)
    list(steps(range(4)))
    assert recorder.paths == ["step 0", "step 1", "step *", "step *"]


def test_numbers_of_steps_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        steps([], warmup=-1)
    with pytest.raises(ValueError, match="0 or more"):
        steps([], active=-1)


class Loader:
    """As torch's DataLoader: iterable, sized, with attributes."""

    batch_size = 4

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


def test_a_loader_stays_what_it_was(recorder: Recorder) -> None:
    loader = annotate_loader(Loader(), name="input")
    assert (len(loader), loader.batch_size) == (3, 4)
    assert list(loader) == list(loader) == [0, 1, 2]
    assert recorder.counts == {"input start": 2, "input": 8}
    assert list(copy.deepcopy(loader)) == list(pickle.loads(pickle.dumps(loader))) == [0, 1, 2]
    with pytest.raises(AttributeError):
        loader.unknown  # noqa: B018
    with pytest.raises(TypeError):
        len(annotate_loader(iter([])))


def test_a_loader_that_raises_closes_its_range(recorder: Recorder) -> None:
    with pytest.raises(ZeroDivisionError):
        list(annotate_loader(1 // number for number in (1, 0)))
    assert recorder.counts == {"data start": 1, "data": 2}


def test_cuda_is_told_when_the_active_steps_begin_and_end(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    cudart = types.SimpleNamespace(
        cudaProfilerStart=lambda: told.append("start"), cudaProfilerStop=lambda: told.append("stop")
    )
    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        synchronize=lambda: told.append("wait"),
        cudart=lambda: cudart,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    told.extend(str(number) for number in steps(range(4), warmup=1, active=2))
    assert told == ["0", "wait", "start", "1", "2", "wait", "stop", "3"]
    assert recorder.ended == ["boundby.capture"]


def test_without_a_backend_the_loop_is_as_before() -> None:
    with backends.using(backends.NoBackend()):
        assert list(steps(annotate_loader([1, 2]), warmup=1)) == [1, 2]
