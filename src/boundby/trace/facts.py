"""What a trace says of itself: the GPUs, what was captured, what lowers certainty."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TraceWarning:
    """Something about the trace that lowers certainty. ``code`` is a stable slug with a docs anchor."""

    code: str
    message: str


@dataclass(frozen=True)
class GpuInfo:
    """One GPU that the report lists. ``id`` is the device id used in the account."""

    id: int
    name: str
    used: bool = True


@dataclass(frozen=True)
class Captured:
    """Which kinds of data the report holds."""

    kernels: bool = False
    cuda_api: bool = False
    memcpy: bool = False
    sync: bool = False
    nvtx: bool = False
    osrt: bool = False
    cpu_scheduling: bool = False
    cpu_samples: bool = False
    gpu_metrics: bool = False
    cuda_graphs: bool = False
    backtraces: bool = False  # of samples, CUDA calls or OS calls
    python_stacks: bool = False
