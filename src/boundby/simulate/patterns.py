"""Small named programs, each a textbook case of one bound or of one way to lay a program out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from msgspec import Struct

from boundby.simulate.instructions import (
    MS,
    US,
    Alloc,
    Await,
    Copy,
    GraphLaunch,
    Init,
    Instruction,
    Launch,
    Loop,
    Node,
    Process,
    Program,
    Range,
    Record,
    Signal,
    Sleep,
    Sync,
    Thread,
    WaitEvent,
    Work,
    item,
    program,
    threads,
)
from boundby.simulate.machine import Machine

#: The machine that they run on: its times jitter.
JITTERY = Machine(host_jitter=0.05, device_jitter=0.01)
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


class Pattern(Struct, frozen=True):
    """A program maker. ``bound``: the verdict it was made for. ``healthy``: nothing in it should be accused."""

    about: str
    bound: str
    make: Callable[[random.Random, int], Program]
    healthy: bool = False


def log_uniform(chance: random.Random, low: float, high: float) -> int:
    """A whole number between the two, each order of magnitude as likely as any other."""
    return round(math.exp(chance.uniform(math.log(low), math.log(high))))


def _compute(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 200 * US, 2 * MS)
    forward = [Work(30 * US), *(Launch(f"gemm_{layer}", size) for layer in range(4))]
    backward = [Work(30 * US), *(Launch(f"gemm_grad_{layer}", size) for layer in range(6))]
    step = Range("step {i}", [Range("forward", forward), Range("backward", backward)])
    return program(Loop(steps, [step]), Sync(), name="compute")


def _comm(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 100 * US, 1 * MS)
    step = Range(
        "step {i}",
        [
            Range("backward", [Work(20 * US), Launch("gemm_grad", size), Launch("gemm_grad", size)]),
            Range("reduce", [Launch(NCCL, 5 * size, comm=True)]),
            Range("optimizer", [Launch("adam", size // 4)]),
        ],
    )
    return program(Loop(steps, [step]), Sync(), name="comm")


def _copy(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 4e6, 100e6)
    compute = size // 50  # half of the copy's time with pinned memory
    step = Range(
        "step {i}",
        [
            Range("load", [Work(20 * US), Copy(size, "HtoD")]),
            Range("forward", [Launch("gemm", compute), Launch("relu", compute // 4)]),
        ],
    )
    return program(Loop(steps, [step]), Sync(), name="copy")


def _api(chance: random.Random, steps: int) -> Program:
    between = log_uniform(chance, 2 * US, 20 * US)
    small = [Launch("vectorized_elementwise", log_uniform(chance, 1.5 * US, 5 * US)), Work(between, 0.2)]
    step = Range("step {i}", [Range("forward", [Loop(40, small)]), Range("optimizer", [Loop(40, small)])])
    return program(Loop(steps, [step]), Sync(), name="api")


def _sync(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 100 * US, 400 * US)
    part = [Launch("gemm", size // 2), Launch("reduce", size // 2), *item(), *_dispatch(size)]
    step = Range("step {i}", [Range("forward", part), Range("loss", part + part)])
    return program(Loop(steps, [step]), name="sync")


def _dispatch(ns: int) -> list[Work | Launch]:
    """Host work of about this length as a framework does it: in short turns between small launches."""
    turns = max(1, round(ns / (50 * US)))
    return [part for _ in range(turns) for part in (Work(ns // turns - 5 * US), Launch("fill", 2 * US))]


def _cpu(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 1 * MS, 10 * MS)
    step = Range(
        "step {i}",
        [Range("augment", [Work(size, 0.1)]), Range("forward", [Loop(5, [Launch("gemm", size // 40), Work(10 * US)])])],
    )
    return program(Loop(steps, [step]), Sync(), name="cpu")


def _blocked(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 1 * MS, 10 * MS)
    step = Range(
        "step {i}",
        [Range("data", [Sleep(size, "read", 0.1)]), Range("forward", [Loop(5, [Launch("gemm", size // 40)])])],
    )
    return program(Loop(steps, [step]), Sync(), name="blocked")


def _init(chance: random.Random, steps: int) -> Program:
    size = log_uniform(chance, 500 * US, 5 * MS)
    step = Range(
        "step {i}",
        [
            Range("allocate", [Alloc(size), Alloc(size // 4, waits=True, call="cudaFree")]),
            Range("forward", [Launch("gemm", size // 8), Launch("relu", size // 20), Work(20 * US)]),
        ],
    )
    return program(Launch("warm_up", 10 * US), Init(2 * size), Loop(steps, [step]), Sync(), name="init")


def _healthy(chance: random.Random, steps: int) -> Program:
    """Kernels one after the other, launched far ahead; input comes through another thread and stream."""
    size = log_uniform(chance, 200 * US, 1 * MS)
    feeder = Loop(
        steps,
        [
            Await("room"),
            Sleep(3 * size, "read", 0.1),
            Work(size, 0.1),
            Copy(1 << 20, "HtoD", stream=1),
            Record("batch", stream=1),
            Signal("batch"),
        ],
    )
    step = Range(
        "step {i}",
        [
            Range("data", [Await("batch"), WaitEvent("batch"), Signal("room")]),
            Range("forward", [Loop(6, [Launch("gemm", size), Work(15 * US)])]),
            Range("backward", [Loop(12, [Launch("gemm_grad", size), Work(15 * US)])]),
        ],
    )
    main = Thread((Signal("room"), Signal("room"), Loop(steps, [step]), Sync()))
    return threads(main, Thread((feeder,), "feeder"), name="healthy")


def _autograd(chance: random.Random, steps: int) -> Program:
    """Launch bound, on two threads that take turns: PyTorch's main thread and its backward thread."""
    kernel = log_uniform(chance, 2 * US, 5 * US)
    ops = Loop(30, [Launch("elementwise", kernel), Work(12 * US, 0.2)])
    step = Range(
        "step {i}",
        [
            Range("forward", [ops]),
            Range("backward", [Signal("backward"), Await("backward done")]),
            Range("optimizer", [ops]),
        ],
    )
    helper = Loop(steps, [Await("backward"), ops, ops, Signal("backward done")])
    main, backward = Thread((Loop(steps, [step]), Sync())), Thread((helper,), "pt_autograd_0", delegate=True)
    return threads(main, backward, name="autograd")


def _feeding(chance: random.Random, steps: int) -> Program:
    """A data thread that decodes more slowly than the device computes."""
    size = log_uniform(chance, 1 * MS, 5 * MS)
    feeder = Loop(steps, [Await("room"), Sleep(size // 10, "read"), Work(size, 0.1), Signal("batch")])
    step = Range(
        "step {i}",
        [
            Range("data", [Await("batch"), Signal("room")]),
            Range("forward", [Copy(1 << 20, "HtoD"), Loop(5, [Launch("gemm", size // 15), Work(20 * US)])]),
        ],
    )
    main = Thread((Signal("room"), Signal("room"), Loop(steps, [step]), Sync()))
    return threads(main, Thread((feeder,), "feeder"), name="feeding")


def _streams(chance: random.Random, steps: int) -> Program:
    """Copies on one stream, kernels on another, communication on a third that does not fit behind the kernels."""
    size = log_uniform(chance, 200 * US, 1 * MS)
    step = Range(
        "step {i}",
        [
            Range("load", [Copy(size * 10, "HtoD", stream=1), Record("loaded", 1), WaitEvent("loaded")]),
            Range("backward", [Launch("gemm_grad", size, share=0.8), Work(20 * US), Record("grads")]),
            Range("reduce", [WaitEvent("grads", 2), Launch(NCCL, 3 * size, 2, comm=True, share=0.2)]),
            Range("forward", [Launch("gemm", size, share=0.8), Record("reduced", 2), WaitEvent("reduced")]),
        ],
    )
    return program(Loop(steps, [step]), Sync(), name="streams")


def _graphs(chance: random.Random, steps: int) -> Program:
    """CUDA graphs of many kernels, one call each, and a value read back now and then."""
    kernel = log_uniform(chance, 5 * US, 50 * US)
    graph = GraphLaunch(tuple(Node(f"fused_{number}", kernel) for number in range(40)))
    step = Range("step {i}", [Range("replay", [graph, graph]), Range("log", [Work(40 * US)])])
    return program(Loop(steps, [step]), item(), Sync(), name="graphs")


def _two_gpus(chance: random.Random, steps: int) -> Program:
    """Two processes, a device each, that reduce their gradients."""
    size = log_uniform(chance, 200 * US, 1 * MS)

    def rank(device: int) -> Process:
        compute = Loop(4, [Launch("gemm", size, device=device), Work(20 * US)])
        reduce = Launch(NCCL, size, device=device, comm=True)
        body = [Range("step {i}", [Range("compute", [compute]), Range("reduce", [reduce])])]
        return Process((Thread((Loop(steps, body), Sync(device=device))),))

    return Program((rank(0), rank(1)), "two_gpus")


PATTERNS: Mapping[str, Pattern] = {
    "compute": Pattern("Long kernels, launched far ahead.", "gpu_compute", _compute),
    "comm": Pattern("Communication after every step.", "gpu_comm", _comm),
    "copy": Pattern("More time in copies than in kernels.", "gpu_copy", _copy),
    "api": Pattern("Many tiny kernels.", "cuda_api", _api),
    "sync": Pattern("Host and device take turns.", "sync", _sync),
    "cpu": Pattern("Long host work before a few kernels.", "cpu", _cpu),
    "blocked": Pattern("Slow files before a few kernels.", "host_blocked", _blocked),
    "init": Pattern("Memory is allocated and freed in every step.", "init", _init),
    "healthy": Pattern("Nothing to fix: a busy GPU, input prefetched.", "gpu_compute", _healthy, healthy=True),
    "autograd": Pattern("Tiny kernels from two threads in turns.", "cuda_api", _autograd),
    "feeding": Pattern("A data thread that decodes too slowly.", "host_blocked", _feeding),
    "streams": Pattern("Copies, kernels and communication on streams of their own.", "gpu_comm", _streams),
    "graphs": Pattern("CUDA graphs.", "gpu_compute", _graphs, healthy=True),
    "two_gpus": Pattern("Two processes with a GPU each.", "gpu_compute", _two_gpus),
}


def _op(name: str, *body: Instruction) -> Range:
    """An operator range as PyTorch's emit_nvtx opens it."""
    return Range(f"{name}, seq = {{i}}", body)


def _read_size() -> list[Instruction]:
    """How an operator learns a size: 8 bytes to pageable memory, then a wait for the stream."""
    return [Copy(8, "DtoH", "pageable"), Sync("stream")]


def _layers(kind: str, count: int, ns: int) -> list[Instruction]:
    return [_op(f"aten::{kind}", Work(12 * US), Launch(f"{kind}_{layer}", ns)) for layer in range(count)]


def _network(loss: list[Instruction], size: int, steps: int, name: str) -> Program:
    step = Range(
        "step {i}",
        [
            Range("forward", _layers("cudnn_convolution", 16, size)),
            Range("loss", loss),
            Range("backward", _layers("convolution_backward", 16, 2 * size)),
            Range("optimizer", [_op("aten::_fused_adam_", Work(40 * US), Launch("fused_adam", size))]),
        ],
    )
    return program(Loop(steps, [step]), Sync(), name=name)


_PREPARE = [part for _ in range(4) for part in (Work(45 * US), Launch("elementwise", 4 * US))]

#: The parts of the loss: as written, each asks for a size and prepares much after the answer; then from arrays of fixed
#: size.
_LOSS: tuple[tuple[list[Instruction], list[Instruction]], ...] = (
    (
        [_op("aten::nonzero", Work(20 * US), Launch("reduce_count", 15 * US), *_read_size()), *(_PREPARE * 8)],
        [_op("aten::cross_entropy_loss", Work(20 * US), Launch("nll_loss2d", 40 * US))],
    ),
    (
        [
            _op("aten::_unique2", Launch("sort", 300 * US), Launch("adjacent_difference", 30 * US), *_read_size()),
            *(_PREPARE * 5),
        ],
        [
            _op("aten::sort", Work(15 * US), Launch("sort", 300 * US)),
            _op("aten::searchsorted", Work(15 * US), Launch("searchsorted", 10 * US)),
        ],
    ),
    (
        [
            _op(
                "aten::index",
                _op("aten::nonzero", Launch("reduce_mask", 100 * US), *_read_size()),
                Launch("gather", 9 * US),
            ),
            *(_PREPARE * 2),
        ],
        [
            _op("aten::where", Work(15 * US), Launch("where", 20 * US)),
            _op("aten::sum", Work(15 * US), Launch("reduce", 15 * US)),
        ],
    ),
)


def _segmentation(name: str, gone: int) -> Callable[[random.Random, int], Program]:
    """Training whose loss has the first ``gone`` of its waits replaced."""
    loss = [part for number, (written, fixed) in enumerate(_LOSS) for part in (fixed if number < gone else written)]

    def make(chance: random.Random, steps: int) -> Program:
        return _network(loss, round(chance.uniform(60, 90)) * US, steps, name)

    return make


def _story(name: str, about: str, bound: str, gone: int) -> tuple[str, Pattern]:
    return name, Pattern(about, bound, _segmentation(name, gone), healthy=gone == len(_LOSS))


STORIES: Mapping[str, Pattern] = dict(
    (
        _story("segmentation_before", "A loss that waits for nonzero, unique and a mask.", "sync", 0),
        _story("segmentation_no_nonzero", "The same loss, which waits for unique and a mask.", "sync", 1),
        _story("segmentation_no_unique", "The same loss, which waits for a mask.", "gpu_compute", 2),
        _story("segmentation_after", "The same loss from arrays of fixed size.", "gpu_compute", 3),
    )
)

EVERY: Mapping[str, Pattern] = {**PATTERNS, **STORIES}
