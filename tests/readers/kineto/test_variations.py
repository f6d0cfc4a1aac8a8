"""One program in every way in which versions, vendors and tools write it: the answer stays the same."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boundby
from tests.readers.kineto.trace import PID, TID, Kineto

Event = dict[str, Any]
Change = Callable[[list[Event], Event], Any]


def program() -> Kineto:
    """Three steps of three kernels, a copy back and a wait; the host works in an operator."""
    made = Kineto(schemaVersion=1)
    for step in range(3):
        begin, first = 10_000 * step, 10 * step + 1
        made.event("user_annotation", f"ProfilerStep#{step + 1}", begin, 9_500)
        made.event("cpu_op", "aten::mm", begin + 50, 4_000, args={"External id": first, "Sequence number": step})
        for call in range(3):
            made.launch(begin + 100 + 1_000 * call, first + call)
            made.kernel(begin + 150 + 1_000 * call, 500, first + call)
        made.launch(begin + 4_100, first + 4, "cudaMemcpyAsync", 30)
        told = {"device": 0, "stream": 7, "correlation": first + 4, "bytes": 4_096}
        name = "Memcpy DtoH (Device -> Pinned)"
        made.event("gpu_memcpy", name, begin + 4_120, 300, pid=0, tid=7, args=told)
        made.launch(begin + 4_140, first + 5, "cudaStreamSynchronize", 300)
    return made


def answer(path: Path) -> Any:
    """What may not depend on how it was written."""
    report = boundby.analyze(path)
    device = report.devices[0]
    copies = {direction: (one.count, one.bytes) for direction, one in device.memcpy.items()}
    steps = [region.instances for region in report.regions if region.name.startswith("ProfilerStep")]
    return (
        device.window_ns,
        dict(device.time),
        device.verdict.bound,
        device.kernels.count,
        device.sync.count,
        copies,
        steps,
    )


def each(**changes: Any) -> Change:
    """A change of every event: what a field becomes, by its old value (None: it is not there)."""

    def change(events: list[Event], _: Event) -> None:
        for event in events:
            for field, make in changes.items():
                value = make(event.get(field))
                if value is not None:
                    event[field] = value

    return change


def arguments(**changes: Any) -> Change:
    def change(events: list[Event], _: Event) -> None:
        for event in events:
            event["args"] = {
                key: changes[key](value) if key in changes else value for key, value in event["args"].items()
            }

    return change


def renamed(**names: str) -> Change:
    """Other categories (and, where a name is a call's, other calls)."""
    return each(cat=lambda old: names.get(old), name=lambda old: names.get(old))


def more(*added: Event) -> Change:
    def change(events: list[Event], _: Event) -> None:
        events += [{"pid": PID, "tid": TID, "ts": 5_000, "args": {}, **event} for event in added]

    return change


def at_top(**told: Any) -> Change:
    return lambda _, top: top.update(told)


def out_of_order(events: list[Event], _: Event) -> None:
    random.Random(1).shuffle(events)


def driver_too(events: list[Event], _: Event) -> None:
    """Runtime calls with the driver's twin inside, as where a module is loaded by Triton."""
    launches = [event for event in events if event["name"] == "cudaLaunchKernel"]
    events += [{**event, "cat": "cuda_driver", "name": "cuLaunchKernel", "dur": event["dur"] - 1} for event in launches]


def twins(events: list[Event], _: Event) -> None:
    """Projections of annotations onto the device, and flows from calls to their work."""
    for event in [*events]:
        if event["cat"] == "user_annotation":
            events.append({**event, "cat": "gpu_user_annotation", "pid": 0, "tid": 7})
        if event["cat"] == "cuda_runtime":
            for phase in "sf":
                flow = {"ph": phase, "cat": "ac2g", "name": "ac2g", "id": event["args"]["correlation"], "bp": "e"}
                events.append({**flow, "pid": PID, "tid": TID, "ts": event["ts"]})


HIP = {"cudaLaunchKernel": "hipExtModuleLaunchKernel", "cudaMemcpyAsync": "hipMemcpyAsync"}
XPU = {"cudaLaunchKernel": "urEnqueueKernelLaunch", "cudaMemcpyAsync": "urEnqueueUSMMemcpy"}
VARIATIONS: dict[str, Change] = {
    "events out of order": out_of_order,
    "times before 0": each(ts=lambda old: old - 1e6),
    "times since the machine was started": each(ts=lambda old: old + 2e12),
    "a base of 0": at_top(baseTimeNanoseconds=0),
    "the base as text": at_top(baseTimeNanoseconds="1711964646000000000", displayTimeUnit="ns"),
    "ids as texts": each(pid=str, tid=lambda old: f"thread {old}"),
    "ids of signed 32 bits": each(tid=lambda old: -1234 if old == TID else old),
    "arguments as texts": arguments(correlation=str, stream=str, device=str, bytes=str),
    "arguments as floats": arguments(correlation=float, stream=float, device=float, bytes=float),
    "nested arguments": arguments(**{"External id": lambda old: {"id": [old, {"of": [1, 2]}]}}),
    "categories of 2021": renamed(
        kernel="Kernel", gpu_memcpy="Memcpy", cuda_runtime="Runtime", cpu_op="Operator", user_annotation="Operator"
    ),
    "calls by the driver": renamed(cuda_runtime="cuda_driver", cudaLaunchKernel="cuLaunchKernelEx"),
    "the driver's calls inside the runtime's": driver_too,
    "HIP": renamed(**HIP, cudaStreamSynchronize="hipStreamSynchronize"),
    "HIP, as rocprofiler names copies": renamed(
        **HIP, cudaStreamSynchronize="hipStreamSynchronize", **{"Memcpy DtoH (Device -> Pinned)": "CopyDeviceToHost"}
    ),
    "XPU": renamed(
        **XPU,
        cudaStreamSynchronize="urQueueFinish",
        cuda_runtime="xpu_runtime",
        **{"Memcpy DtoH (Device -> Pinned)": "Memcpy D2M(Device -> Host)"},
    ),
    "another vendor's runtime": renamed(cuda_runtime="privateuse1_runtime"),
    "projections and flows": twins,
    "the profiler's own marks": more(
        {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "dur": 1e6,
        },
        {
            "ph": "i",
            "s": "g",
            "name": "Iteration Start: PyTorch Profiler",
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
        },
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": ""},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
        {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 5_000_000}},
        {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "args": {"GPU Utilization": 0.1}},
        {"ph": "b", "cat": "async", "name": "request", "id": "0x1"},
    ),
    "frames and operators that never ended": more(
        {"ph": "X", "cat": "python_function", "name": "train.py(3): main"},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "dur": None},
        {"ph": "B", "cat": "cpu_op", "name": "aten::add"},
    ),
    "settings": at_top(with_stack=1, record_shapes=1, trace_id="A1", roctracer_version=4.1, distributedInfo={}),
    "no properties of devices": at_top(deviceProperties=[]),
    "odd properties of devices": at_top(deviceProperties=[{"id": "0"}, None, {"name": 3}], distributedInfo=[1]),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return answer(program().write(tmp_path_factory.mktemp("plain") / "trace.json"))


@pytest.mark.parametrize("name", VARIATIONS)
def test_the_answer_does_not_depend_on_how_it_is_written(name: str, plain: Any, tmp_path: Path) -> None:
    made = program()
    VARIATIONS[name](made.events, made.top)
    assert answer(made.write(tmp_path / "trace.json")) == plain


def test_several_members_of_gzip_are_one_text(plain: Any, tmp_path: Path) -> None:
    text = json.dumps({**program().top, "traceEvents": program().events}, indent=1).encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"".join(gzip.compress(text[place : place + 700]) for place in range(0, len(text), 700)))
    assert answer(path) == plain
