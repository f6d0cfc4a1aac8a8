"""A run as the JSON that PyTorch's profiler would write of it, marked as simulated.

What that format cannot hold is not there: OS runtime calls and context switches, domains of ranges, how streams relate
to the null stream, graphs traced as a whole. With stacks, what a thread does between its calls stands there as Python
functions: work of its own, and the function of C in which it sleeps.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from boundby.__about__ import __version__
from boundby.simulate.machine import CALLS, Do, Run
from boundby.simulate.nsys_export import (
    COPY_KINDS,
    GPU_FACTS,
    GPU_NAME,
    MEMORY_KINDS,
    Capture,
    Row,
    new_file,
    to_export,
)
from boundby.trace.tables import NO_STREAM

SLEEP_FRAME, AWAIT_FRAME = "<built-in function {}>", "<built-in method wait of threading.Condition object at 0x7f3a>"
WORK_FRAME, BASE_FRAME = "program.py({}): work", "program.py(1): <module>"
_DIRECTION = {code: name for name, code in COPY_KINDS.items()}
_MEMORY = {code: name.capitalize() for name, code in MEMORY_KINDS.items()}
_NOT_IN_THE_FORMAT = Capture(osrt=False, sched=False, graph_nodes=True)


def write_kineto(run: Run, path: Path, *, with_stack: bool = True, process: int = 0) -> Path:
    """Write one process of a run, whole or not at all and over nothing that is there; compressed if its name ends in
    .gz. Raises OutputError."""
    text = json.dumps(to_kineto(run, with_stack=with_stack, process=process), indent=1).encode()
    with new_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def to_kineto(run: Run, *, with_stack: bool = True, process: int = 0) -> dict[str, Any]:
    """The whole file, as JSON's values. Times are microseconds with nanosecond decimals."""
    export = to_export(run, _NOT_IN_THE_FORMAT)
    pids = sorted({row["globalPid"] for row in export.rows.get("PROCESSES", [])})  # type: ignore[type-var]
    pid = int(str(pids[process])) >> 24 & 0xFFFFFF if pids else 0
    events: list[dict[str, Any]] = []
    for table, rows in export.rows.items():
        for row in rows:
            events += _events(table, row, export.rows)
    if with_stack:
        events += _frames(run, process)
    own = [event for event in events if event.pop("of", pid) == pid]
    devices = sorted({event["args"]["device"] for event in own if "device" in event.get("args", {})})
    properties = {
        "name": GPU_NAME,
        "numSms": GPU_FACTS["smCount"],
        "computeMajor": GPU_FACTS["computeMajor"],
        "computeMinor": GPU_FACTS["computeMinor"],
        "warpSize": 32,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerMultiprocessor": GPU_FACTS["maxRegistersPerSm"],
        "sharedMemPerMultiprocessor": GPU_FACTS["maxShmemPerSm"],
    }
    return {
        "schemaVersion": 1,
        "simulated": f"by boundby {__version__}: {run.script.program.name}",
        "deviceProperties": [{"id": number, **properties} for number in devices],
        "with_stack": int(with_stack),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": own,
    }


def _events(table: str, row: Row, rows: dict[str, list[Row]]) -> list[dict[str, Any]]:
    """The events that a row of an export becomes; ``of``: the process that it belongs to."""
    value: dict[str, Any] = dict(row)
    if table == "NVTX_EVENTS":
        return _ranges(value)
    if table == "CUPTI_ACTIVITY_KIND_RUNTIME":
        name = str(value["nameId"]).rsplit("_v", 1)[0]
        category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        return [_on_host(category, value, name, {"correlation": value["correlationId"]})]
    if table == "CUPTI_ACTIVITY_KIND_KERNEL":
        shape = {"grid": [value["gridX"], 1, 1], "block": [value["blockX"], 1, 1]}
        shape["registers per thread"] = value.get("registersPerThread", 32)
        if value.get("graphNodeId"):
            shape["graph node id"] = value["graphNodeId"]
        return [_on_device("kernel", value, str(value["demangledName"]), shape)]
    if table == "CUPTI_ACTIVITY_KIND_MEMCPY":
        ends = f"{_MEMORY[value['srcKind']]} -> {_MEMORY[value['dstKind']]}"
        name = f"Memcpy {_DIRECTION[value['copyKind']]} ({ends})"
        return [_on_device("gpu_memcpy", value, name, {"bytes": value["bytes"]})]
    if table == "CUPTI_ACTIVITY_KIND_MEMSET":
        return [_on_device("gpu_memset", value, "Memset (Device)", {"bytes": value["bytes"]})]
    if table == "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION":
        return [_sync(value, rows)]
    return []


def _ranges(value: dict[str, Any]) -> list[dict[str, Any]]:
    """A range that has ended: an operator by its number, else one of the program's own."""
    if value.get("eventType") != 59 or value.get("end") is None:
        return []
    name, _, sequence = str(value["text"] or value["textId"]).partition(", seq = ")
    operator = {"Sequence number": int(sequence)} if sequence else {}
    return [_on_host("cpu_op" if sequence else "user_annotation", value, name, operator)]


def _sync(value: dict[str, Any], rows: dict[str, list[Row]]) -> dict[str, Any]:
    """A wait of the host or of a stream; of the latter also which record it waits for."""
    stream = -1 if value["streamId"] == NO_STREAM else value["streamId"]
    kind = ("Event Sync", "Stream Sync", "Context Sync", "Stream Wait Event")[value["syncType"]]
    arguments: dict[str, Any] = {"cuda_sync_kind": kind, "stream": stream}
    event = value.get("eventId", NO_STREAM)
    if event not in (None, NO_STREAM):
        made = [
            row
            for row in rows.get("CUPTI_ACTIVITY_KIND_CUDA_EVENT", [])
            if row["eventId"] == event
            and row["globalPid"] == value["globalPid"]
            and int(str(row["correlationId"])) < value["correlationId"]
        ]
        arguments["wait_on_cuda_event_id"] = event
        if made:
            last = max(made, key=lambda row: int(str(row["correlationId"])))
            arguments |= {
                "wait_on_stream": last["streamId"],
                "wait_on_cuda_event_record_corr_id": last["correlationId"],
            }
    return _on_device("cuda_sync", value, kind, arguments)


def _on_host(category: str, row: dict[str, Any], name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    pid, tid = row["globalTid"] >> 24 & 0xFFFFFF, row["globalTid"] & 0xFFFFFF
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return {**event, **_times(row["start"], row["end"]), "args": arguments, "of": pid}


def _on_device(category: str, row: dict[str, Any], name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    arguments_told = {
        "device": row["deviceId"],
        "stream": row["streamId"],
        "correlation": row["correlationId"],
        **arguments,
    }
    event = {"ph": "X", "cat": category, "name": name, "pid": row["deviceId"], "tid": row["streamId"]}
    return {
        **event,
        **_times(row["start"], row["end"]),
        "args": arguments_told,
        "of": row["globalPid"] >> 24 & 0xFFFFFF,
    }


def _frames(run: Run, process: int) -> list[dict[str, Any]]:
    """Each thread's Python functions: one around all, and one for each step that is no call."""
    pid = 1000 * (process + 1)
    events = []
    for at, thread in enumerate(run.script.threads):
        if thread.process != process or not thread.traced:
            continue
        starts, ends = run.start_ns[at], run.end_ns[at]
        if not len(ends):
            continue
        frames = [(BASE_FRAME, starts[0], max(ends))]
        for number, (step, start, end) in enumerate(zip(thread.steps, starts, ends, strict=False)):
            if step.do not in CALLS and end > start:
                frame = {Do.SLEEP: SLEEP_FRAME.format(step.text), Do.AWAIT: AWAIT_FRAME}
                name = frame.get(step.do, WORK_FRAME.format(number + 2))
                frames.append((name, start, end))
        event = {"ph": "X", "cat": "python_function", "pid": pid, "tid": pid + thread.number}
        events += [{**event, "name": name, **_times(low, high), "args": {}, "of": pid} for name, low, high in frames]
    return events


def _times(start: int, end: int) -> dict[str, float]:
    return {"ts": start / 1000, "dur": (end - start) / 1000}
