"""Results of every kind, made up, for what shows and saves them."""

from __future__ import annotations

from msgspec.structs import replace

from boundby.measure.comparisons import compare
from boundby.measure.results import (
    METHOD_MEANING,
    BatchPoint,
    Devices,
    DeviceState,
    Latency,
    LatencyComparison,
    MeasuredOn,
    Methods,
    MethodsBySize,
    MethodsPoint,
    Mistake,
    Result,
    SizePoint,
    StagesResult,
    StageTimes,
    Throughput,
)

MACHINE = MeasuredOn("3.11.2", "Linux", "Model CPU @ 3 GHz", 8, 0.5, "2.13.0", 8)
COOL = DeviceState("NVML", 250.0, 400.0, 61.0, 1410.0, 1980.0, 1593.0, ())


def latency(*, name: str = "bench.py:model", scale: float = 1.0, number: int = 100, device: str = "cuda:0") -> Latency:
    blocks = tuple(round(scale * (1_000_000 + 7_919 * (index * 37 % 101))) for index in range(number))
    return Latency(
        name=name,
        method="event" if device != "cpu" else "wall",
        device=device,
        device_name="Model GPU" if device != "cpu" else "Model CPU @ 3 GHz",
        clock=METHOD_MEANING["event" if device != "cpu" else "wall"],
        block_ns=blocks,
        calls_per_sample=10,
        host_block_ns=tuple(block // 5 for block in blocks) if device != "cpu" else None,
        first_call_ns=1_234_567_890,
        warmup_ns=(2e6, 1.5e5, 1.4e5, 1.4e5),
        warmup_calls=52,
        is_steady=True,
        stopped_by="precision",
        confidence=0.95,
        precision_asked=0.01,
        mode="inference",
        graph=False,
        flush_l2=False,
        fresh_inputs=False,
        compiled_graphs=2,
        before=COOL if device != "cpu" else None,
        after=replace(COOL, throttling=("software power cap",)) if device != "cpu" else None,
        machine=MACHINE,
        mistakes=(
            Mistake("host-sync", "The function waits for the device once in a call: bench.py:12.", "Keep it there."),
        ),
    )


def throughput() -> Throughput:
    points = tuple(
        BatchPoint(2**n, 1e6 * (1 + 2**n / 16), 9e5, 2e6, 50, 60_000_000 + 3_000_000 * 2**n, 2**n << 20)
        for n in range(7)
    )
    return Throughput(
        "bench.py:model", "cuda:0", "Model GPU", "wall clock", points, replace(points[-1], batches=200, total_ns=10**9),
        "memory", 68, None, "the memory of cuda:0 ends between 64 and 68", 0, "inference", MACHINE,
    )  # fmt: skip


def faster() -> Throughput:
    """The same in half the time, but for the first size."""
    first, *rest = throughput().points
    halved = [
        replace(point, median_ns=point.median_ns / 2, low_ns=point.low_ns / 4, high_ns=point.high_ns / 4)
        for point in rest
    ]
    best = replace(throughput().best, total_ns=throughput().best.total_ns // 2)
    return replace(throughput(), points=(first, *halved), best=best)


def devices() -> Devices:
    points = tuple(
        SizePoint(4**n, 2e4 * 4**n, 5e4 + 1e3 * 4**n, 9e4 + 5e3 * 4**n, n != 3, 0.25 if n == 3 else 1e-6)
        for n in range(5)
    )
    return Devices(
        "bench.py:model", "Model CPU @ 3 GHz", "cuda:0", "Model GPU", points, 2.6, 6.0, 1e-3, 1e-5, "sizes", None,
        MACHINE,
        (Mistake("results-differ", "CPU and GPU do not give the same at size 64.", "Random numbers."),),
    )  # fmt: skip


def stages() -> StagesResult:
    return StagesResult(
        "cuda:0",
        "Model GPU",
        "CUDA events on the current stream",
        (
            StageTimes("model1", (30_000,) * 5, (5_000_000,) * 5, (0, 1_000, 2_000, 3_000, 4_000), (0,) * 5),
            StageTimes("host", (3_000_000,) * 5, (1_000,) * 5, (4_900_000,) * 5, (31_000,) * 5),
        ),
        31_000_000,
        5,
        False,
        (38_000_000, 41_000_000),
    )


def methods_by_size() -> MethodsBySize:
    def at(size: int) -> MethodsPoint:
        naive, right = replace(latency(scale=0.1), method="naive"), latency(scale=size / 10)
        return MethodsPoint(size, Methods((naive, right), latency(scale=size / 5), naive))

    return MethodsBySize((at(1), at(64)))


def comparison() -> LatencyComparison:
    return compare(latency(), latency(name="bench.py:faster", scale=0.8))


def every() -> dict[str, Result]:
    return {
        "latency": latency(),
        "latency_cpu": latency(device="cpu"),
        "methods": Methods(
            (replace(latency(scale=0.1), method="naive"), replace(latency(), method="synchronised"), latency())
        ),
        "methods_by_size": methods_by_size(),
        "stages": stages(),
        "stages_comparison": compare(stages(), replace(stages(), end_to_end_ns=50_000_000, synchronised=True)),
        "throughput": throughput(),
        "devices": devices(),
        "devices_cpu": replace(
            devices(), gpu=None, gpu_name=None, break_even=None, break_even_with_copies=None, mistakes=()
        ),
        "comparison": comparison(),
        "throughput_comparison": compare(throughput(), faster()),
        "devices_comparison": compare(devices(), devices()),
        "methods_comparison": compare(methods_by_size(), methods_by_size()),
    }
