"""Measure how long code takes, and say what the usual mistakes would have said.

>>> import boundby.measure
>>> result = boundby.measure.latency(sorted, [3, 1, 2], budget_s=0.3)
>>> result.median_ns > 0 and result.device == "cpu"
True

``latency`` times one call, ``methods`` by every method side by side; ``waits`` says where a call waits, or on the CPU
would wait, for the GPU; ``stages`` and
``pipeline`` time a pipeline without stalling it;
``throughput`` finds the best batch size; ``devices`` holds CPU against GPU; ``compare`` says whether two latencies
differ. Results are plain data: ``save`` and ``load`` keep them. torch is used where the program has imported it, and
never imported for a function that does not need it.
"""

from __future__ import annotations

from boundby.measure.comparisons import compare, compare_in_turns
from boundby.measure.latencies import latency, methods, methods_by_size, waits
from boundby.measure.results import (
    BatchPoint,
    DeviceError,
    Devices,
    DeviceState,
    Interval,
    Latency,
    LatencyComparison,
    MeasureError,
    Methods,
    MethodsBySize,
    MethodsPoint,
    Mistake,
    SizeChange,
    SizePoint,
    SizesComparison,
    StageChange,
    StagesComparison,
    StagesResult,
    StageTimes,
    TargetError,
    Throughput,
    load,
    save,
)
from boundby.measure.stage_times import Stages, pipeline, pipeline_ways, stages
from boundby.measure.sweeps import devices, throughput
from boundby.measure.target import Options

__all__ = [
    "BatchPoint",
    "DeviceError",
    "DeviceState",
    "Devices",
    "Interval",
    "Latency",
    "LatencyComparison",
    "MeasureError",
    "Methods",
    "MethodsBySize",
    "MethodsPoint",
    "Mistake",
    "Options",
    "SizeChange",
    "SizePoint",
    "SizesComparison",
    "StageChange",
    "StageTimes",
    "Stages",
    "StagesComparison",
    "StagesResult",
    "TargetError",
    "Throughput",
    "compare",
    "compare_in_turns",
    "devices",
    "latency",
    "load",
    "methods",
    "methods_by_size",
    "pipeline",
    "pipeline_ways",
    "save",
    "stages",
    "throughput",
    "waits",
]
