"""Small traces of the PyTorch profiler, built event by event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PID, TID = 100, 101


class Kineto:
    """Collects events; times are microseconds."""

    def __init__(self, **top: Any) -> None:
        self.top = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}], **top}
        self.events: list[dict[str, Any]] = []

    def event(self, category: str, name: str, start: float, length: float, **more: Any) -> dict[str, Any]:
        """Any interval of a host thread; what is given replaces fields."""
        made = {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": TID, "ts": start, "dur": length}
        self.events.append({**made, "args": {}, **more})
        return self.events[-1]

    def launch(self, start: float, correlation: int, name: str = "cudaLaunchKernel", length: float = 5) -> None:
        self.event("cuda_runtime", name, start, length, args={"correlation": correlation})

    def kernel(self, start: float, length: float, correlation: int, name: str = "gemm", **arguments: Any) -> None:
        told = {
            "device": 0,
            "stream": 7,
            "correlation": correlation,
            "grid": [8, 2, 1],
            "block": [128, 1, 1],
            **arguments,
        }
        self.event("kernel", name, start, length, pid=0, tid=7, args=told)

    def text(self) -> str:
        return json.dumps({**self.top, "traceEvents": self.events})

    def write(self, path: Path) -> Path:
        path.write_text(self.text(), encoding="utf-8")
        return path
