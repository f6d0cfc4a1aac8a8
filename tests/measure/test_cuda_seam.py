"""``CudaDevice`` on a stand-in for torch: that it asks for the right things, in the right order, and puts all back."""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from boundby.measure import DeviceError, MeasureError
from boundby.measure.device import CudaDevice, allocations, was_used_since

LOG: list[str] = []


class _Stream:
    def __init__(self, device: object = None) -> None:
        self.device = device

    def wait_stream(self, other: object) -> None:  # noqa: ARG002
        LOG.append("wait_stream")

    def query(self) -> bool:
        return True


class _Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: _Stream) -> None:
        assert isinstance(stream, _Stream)
        LOG.append("record")

    def elapsed_time(self, other: object) -> float:
        assert isinstance(other, _Event)
        return 1.25

    def synchronize(self) -> None: ...


class _OutOfMemoryError(RuntimeError): ...


class _Graph:
    def replay(self) -> None:
        LOG.append("replay")


@contextlib.contextmanager
def _block(name: str) -> Iterator[None]:
    LOG.append(f"enter {name}")
    yield
    LOG.append(f"leave {name}")


def _synchronize(index: int | None = None) -> None:
    LOG.append(f"synchronize {index}")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    LOG.clear()
    mode = [0]

    def set_mode(value: object) -> None:
        mode[0] = {"warn": 1}.get(str(value), 0)

    made: Any = types.ModuleType("torch")
    made.device = lambda kind, index: f"{kind}:{index}"
    made.version = types.SimpleNamespace(cuda="12.8")
    made.cuda = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 1,
        get_device_name=lambda index: f"GPU {index}",
        get_device_properties=lambda index: types.SimpleNamespace(uuid=f"uuid-{index}"),
        synchronize=_synchronize,
        current_stream=lambda index=None: _Stream(index),
        stream=lambda stream: _block("stream"),  # noqa: ARG005
        graph=lambda graph: _block("graph"),  # noqa: ARG005
        CUDAGraph=_Graph,
        Stream=_Stream,
        Event=_Event,
        OutOfMemoryError=_OutOfMemoryError,
        memory_stats=lambda: {"allocation.all.allocated": len(LOG)},
        memory_allocated=lambda index: 100 + index,
        max_memory_allocated=lambda index: 200 + index,
        reset_peak_memory_stats=lambda index: LOG.append(f"reset {index}"),
        empty_cache=lambda: LOG.append("empty_cache"),
        get_sync_debug_mode=lambda: mode[0],
        set_sync_debug_mode=set_mode,
    )
    made.mode = mode
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_it_is_the_current_gpu_or_the_one_asked_for(torch: Any) -> None:
    assert (CudaDevice.open(None).name, CudaDevice.open(0).label) == ("cuda:1", "GPU 0")
    with pytest.raises(DeviceError, match="no device cuda:2"):
        CudaDevice.open(2)
    torch.cuda.is_available = lambda: False
    with pytest.raises(DeviceError, match="finds no GPU"):
        CudaDevice.open(0)


def test_events_are_recorded_on_the_current_stream(torch: Any) -> None:  # noqa: ARG001
    device = CudaDevice.open(1)
    begin, end = device.mark(), device.mark()
    device.record(begin)
    device.record(end)
    device.synchronize()
    assert LOG == ["record", "record", "synchronize 1"]
    assert device.between_ns(begin, end) == 1_250_000


def test_syncs_are_noted_where_they_are_made_and_everything_is_put_back(torch: Any) -> None:
    device = CudaDevice.open(1)
    originals = (torch.cuda.synchronize, _Event.synchronize)

    def item() -> None:
        assert torch.mode == [1]
        warnings.warn("called a synchronizing CUDA operation (Triggered internally)", UserWarning, stacklevel=2)

    with device.watch_syncs() as sites:
        item()
        warnings.warn("something else", UserWarning, stacklevel=1)
        torch.cuda.synchronize()
        _Event(enable_timing=True).synchronize()
    line = test_syncs_are_noted_where_they_are_made_and_everything_is_put_back.__code__.co_firstlineno
    here = [int(site.rpartition(":")[2]) - line for site in sites]
    assert sorted(here) == [9, 11, 12]
    assert all("test_cuda_seam.py" in site for site in sites)
    assert (torch.cuda.synchronize, _Event.synchronize) == originals
    assert torch.mode == [0]
    assert "synchronize None" in LOG  # it still waits


def test_what_a_function_raises_passes_and_everything_is_put_back(torch: Any) -> None:
    with pytest.raises(ZeroDivisionError), CudaDevice.open(1).watch_syncs():
        _ = 1 / 0
    assert torch.mode == [0]
    assert torch.cuda.synchronize is _synchronize


def test_a_graph_is_captured_after_warm_up_on_a_side_stream(torch: Any) -> None:  # noqa: ARG001
    replay = CudaDevice.open(1).replayable(lambda: LOG.append("call"))
    replay()
    assert LOG == [
        "wait_stream", "enter stream", "call", "call", "call", "leave stream", "wait_stream",
        "enter graph", "call", "leave graph", "replay",
    ]  # fmt: skip


def test_what_cannot_be_captured_gets_a_sentence(torch: Any) -> None:  # noqa: ARG001
    def bad() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    with pytest.raises(MeasureError, match="cannot be captured as a CUDA graph: operation not permitted"):
        CudaDevice.open(1).replayable(bad)


def test_memory(torch: Any) -> None:  # noqa: ARG001
    device = CudaDevice.open(1)
    assert (device.memory_in_use_bytes(), device.peak_memory_bytes()) == (101, 201)
    device.release_memory()
    assert LOG == ["empty_cache"]
    assert device.is_out_of_memory(_OutOfMemoryError("CUDA out of memory"))
    assert device.is_out_of_memory(RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"))
    assert not device.is_out_of_memory(RuntimeError("shape"))
    assert not device.is_out_of_memory(ValueError("out of memory"))


def test_the_state_is_asked_for_by_uuid(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("boundby.measure.device.nvml_state", lambda uuid: asked.append(uuid))
    CudaDevice.open(1).state()
    assert asked == ["uuid-1"]
    torch.cuda.get_device_properties = lambda index: types.SimpleNamespace()  # noqa: ARG005
    assert CudaDevice.open(1).state() is None


def test_whether_the_gpu_was_used(torch: Any) -> None:
    before = allocations()
    assert not was_used_since(before)
    LOG.append("an allocation")
    assert was_used_since(before)
    torch.cuda.is_initialized = lambda: False
    assert not was_used_since(before)
