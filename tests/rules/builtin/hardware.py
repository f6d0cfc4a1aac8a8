"""What a simulated program does not have of itself: a GPU with so many multiprocessors, kernels of a given shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from boundby.trace.facts import GpuInfo
from boundby.trace.tables import GpuFacts, LaunchShapes, Trace
from tests.rules.builtin.harness import Source

A100 = GpuFacts(108, (8, 0), 64, 65_536, 167_936)
UNKNOWN = GpuFacts()
P100 = GpuFacts(56, (6, 0), 64, 65_536, 65_536)
PLENTY = (4_000, 256)
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}Functor<float>, std::array<char *, 2>>(int)"
)
REDUCE_MAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>>>(T3)"
REDUCE_SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float>>>(T3)"
EXP = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase &)>(int)"


def elementwise(what: str) -> str:
    """The name of PyTorch's kernel for an elementwise operation."""
    return ELEMENTWISE.format(what)


def on_gpu(
    source: Source,
    facts: GpuFacts = A100,
    shapes: Mapping[str, tuple[int, int]] | None = None,
    name: str = "NVIDIA A100-SXM4-80GB",
) -> Source:
    """The source on a GPU of this kind. ``shapes``: blocks and threads of kernels by name; others have plenty."""
    told = {**(shapes or {})}

    def change(trace: Trace) -> Trace:
        trace = source.change(trace) if source.change else trace
        kinds = [PLENTY, *told.values()]
        columns = np.array([(blocks, threads, 32, 0) for blocks, threads in kinds], np.int64).T
        row_of_name = np.zeros(len(trace.names) + 1, np.int32)
        for number, kernel in enumerate(told):
            row_of_name[[at for at, text in enumerate(trace.names) if text == kernel]] = number + 1
        table = trace.operations
        shape = np.where(table.kind == 0, row_of_name[table.name], -1).astype(np.int32)
        return replace(
            trace,
            operations=replace(table, shape=shape),
            shapes=LaunchShapes(*columns),
            gpus=tuple(GpuInfo(gpu.id, name, gpu.used) for gpu in trace.gpus),
            gpu_facts=(facts,) * len(trace.gpus),
        )

    return source.changed(change)
