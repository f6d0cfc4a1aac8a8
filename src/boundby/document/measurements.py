"""What was measured beside the account, in words and as points of a drawing: the GPUs' counters, memory that allocators
held, the backward pass beside the forward one, and work by the sizes of operators' inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from boundby.claims.limits import limit
from boundby.document.blocks import clean
from boundby.model import units
from boundby.model.arrays import median, quantile
from boundby.model.scale import LABEL, LIST, SLIGHT, SMALL, TABLE
from boundby.model.statistics import CONFIDENCE
from boundby.results.report import Counters, DeviceReport, MemoryPoint, RegionReport, Report, Work
from boundby.trace.vocabulary.range_names import BACKWARD

#: The high quantile of steps, as of regions.
_HIGH = CONFIDENCE
COUNTER_COLUMNS = ("kernel", "time", "SMs", "issue", "tensor", "DRAM", "PCIe", "alone")


def counter_sentences(device: DeviceReport) -> tuple[str, ...]:
    """What the device's counters say while it is busy, and which limit that is."""
    counters = device.counters
    if counters is None or counters.busy is None:
        return ()
    over = "while" if counters.busy.is_unmixed else "of samples in which"
    return tuple(
        filter(
            None,
            (
                limit(counters.busy),
                f"Hardware counters (mean {over} the GPU is busy): {usual_counters(counters.busy)}.",
            ),
        )
    )


def usual_counters(counters: Counters) -> str:
    """``SMs active 51 %, instruction issue 3 %, tensor cores 0 %, occupancy 2 %, DRAM 3 %, PCIe in 0 %, out 3 %``."""
    values = {
        "SMs active": counters.sm_active,
        "instruction issue": counters.sm_issue,
        "tensor cores": counters.tensor_active,
        "occupancy": counters.warps,
        "DRAM": counters.dram,
        "PCIe in": counters.pcie_receive,
        "out": counters.pcie_send,
        "NVLink in": counters.nvlink_receive,
        "NVLink out": counters.nvlink_send,
    }
    return ", ".join(f"{name} {units.percent(value)}" for name, value in values.items() if value is not None)


def counters_title(device: DeviceReport) -> str:
    """What stands over the table; empty where nothing was sampled."""
    counters = device.counters
    if counters is None or counters.window is None:
        return ""
    return f"GPU {device.id} over its window: {usual_counters(counters.window)}"


def counters_by_kernel(device: DeviceReport) -> list[tuple[str, ...]]:
    """One row a kernel, as COLUMNS; ``alone``: how much of its samples' time it fills."""
    rows = device.counters.kernels[:LIST] if device.counters else ()
    return [_row(clean(row.name), units.duration(row.total_ns), row.counters) for row in rows]


def counters_by_region(report: Report) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Path, and one row as COLUMNS, of each region whose samples it fills for the most part, longest first."""
    counted = [
        (region, region.counters)
        for region in report.regions
        if region.path and region.counters and region.counters.is_unmixed
    ]
    counted.sort(key=lambda pair: (-pair[1].sampled_ns, pair[0].path))
    return [
        (region.path, _row("/".join(region.path[-2:]), units.duration(counters.sampled_ns), counters))
        for region, counters in counted[:LIST]
    ]


def _row(name: str, time: str, counters: Counters) -> tuple[str, ...]:
    pcie = [value for value in (counters.pcie_receive, counters.pcie_send) if value is not None]
    values = (counters.sm_active, counters.sm_issue, counters.tensor_active, counters.dram, max(pcie, default=None))
    cells = ("" if value is None else units.percent(value) for value in values)
    return (name, time, *cells, units.percent(counters.alone_fraction))


def overlap_sentence(device: DeviceReport) -> str:
    """How much of communication is hidden; empty where it takes next to nothing."""
    communication = device.communication
    if communication is None or communication.total_ns < SMALL * device.window_ns:
        return ""
    hidden = f"other kernels hide {units.percent(communication.hidden_fraction)} of it"
    hidden = hidden if communication.exposed_ns < communication.total_ns else "no other kernel hides any of it"
    return f"Communication runs for {units.duration(communication.total_ns)}; {hidden}."


class Drawn(Struct, frozen=True):
    """Counters over time as points of a drawing 1,000 wide and 120 high, by the words of the legend."""

    lines: tuple[tuple[str, str], ...]
    first: str
    last: str


def drawn_counters(device: DeviceReport) -> Drawn | None:
    """SMs active, issue, tensor cores and DRAM over time; None: nothing to draw."""
    points = device.counters.points if device.counters else ()
    if len(points) < 2:
        return None
    first, last = points[0].time_ns, points[-1].time_ns
    x = [1_000 * (point.time_ns - first) / max(last - first, 1) for point in points]
    every = [point.counters for point in points]
    named = {
        "SMs active": [sample.sm_active for sample in every],
        "SM issue": [sample.sm_issue for sample in every],
        "tensor cores": [sample.tensor_active for sample in every],
        "DRAM": [sample.dram for sample in every],
    }
    lines = tuple((name, _line(x, values)) for name, values in named.items() if any(v is not None for v in values))
    return Drawn(lines, f"{first / 1e9:.6f} s", f"{last / 1e9:.6f} s")


def _line(x: Sequence[float], values: Sequence[float | None]) -> str:
    shown = ((at, min(value, 1.0)) for at, value in zip(x, values, strict=True) if value is not None)
    return " ".join(f"{at:.1f},{118 - 116 * value:.1f}" for at, value in shown)


# Memory that the framework's allocator held, and the backward pass beside the forward one, in words.

#: Regions told, at most, and the least share of what they are told for.

BEFORE = "(before the recording)"
PASSES = ("region", "forward", "backward", "backward/forward")


def memory_titles(device: DeviceReport) -> Iterator[str]:
    """``peak 2.45 GB in use (2.63 GB reserved) at 0.030 s, in Qwen2Model_*/lm_head``, and what it was at both ends."""
    memory = device.memory
    if memory is None:
        return
    where = f", in {'/'.join(memory.peak_path[-2:])}" if memory.peak_path else ""
    reserved = f" ({units.size(memory.peak_reserved_bytes)} reserved)" if memory.peak_reserved_bytes else ""
    peak = f"peak {units.size(memory.peak_bytes)} in use{reserved} at {memory.peak_ns / 1e9:.6f} s{where}"
    first, last = units.size(max(memory.first_bytes, 0)), units.size(max(memory.last_bytes, 0))
    yield f"GPU {device.id}: {peak}; {first} at the start of the recording, {last} at its end"


def memory_held(device: DeviceReport) -> list[tuple[str, str, str]]:
    """What holds the peak: (who allocated it, bytes, share), most first."""
    memory = device.memory
    if memory is None:
        return []
    parts = [("/".join(holder.path[-2:]) or "(no range)", holder.bytes) for holder in memory.held]
    parts.append((BEFORE, memory.before_bytes))
    return [
        (name, units.size(held_bytes), units.percent(held_bytes / max(memory.peak_bytes, 1)))
        for name, held_bytes in sorted(parts, key=lambda item: (-item[1], item[0]))
        if held_bytes
    ]


class Lines(Struct, frozen=True):
    """Memory over time as points of a drawing 1,000 wide and 120 high, and what its ends stand for."""

    in_use: str
    reserved: str
    first: str
    last: str
    most: str


def memory_lines(points: Sequence[MemoryPoint]) -> Lines:
    """The drawing."""
    first, last = (point.time_ns for point in (points[0], points[-1]))
    most = max(max(point.bytes, point.reserved_bytes) for point in points) or 1

    def drawn(values: Iterable[int]) -> str:
        return " ".join(
            f"{1_000 * (point.time_ns - first) / max(last - first, 1):.1f},{118 - 116 * value / most:.1f}"
            for point, value in zip(points, values, strict=True)
        )

    in_use, reserved = drawn(point.bytes for point in points), drawn(point.reserved_bytes for point in points)
    return Lines(in_use, reserved, f"{first / 1e9:.6f} s", f"{last / 1e9:.6f} s", units.size(most))


def backward_passes(report: Report) -> list[tuple[tuple[str, ...], str, str, str]]:
    """The regions whose operators have a backward pass on record: kernel time forward, backward, and their ratio."""
    whole = max((region.backward_kernels_ns for region in report.regions), default=0)
    # What holds the backward pass, too, is no forward pass.
    both = {
        region.path[:depth]
        for region in report.regions
        if region.name.startswith(BACKWARD)
        for depth in range(1, len(region.path) + 1)
    }
    innermost: dict[tuple[int, int], RegionReport] = {}
    for region in report.regions:
        if region.path and region.path not in both and region.backward_kernels_ns >= max(SMALL * whole, 1):
            innermost[region.backward_kernels_ns, region.kernels.total_ns] = (
                region  # the innermost of a chain comes last
            )
    ordered = sorted(innermost.values(), key=lambda region: (-region.backward_kernels_ns, region.path))[:LIST]
    return [
        (
            region.path,
            units.duration(region.kernels.total_ns),
            units.duration(region.backward_kernels_ns),
            f"{region.backward_kernels_ns / region.kernels.total_ns:.1f}" if region.kernels.total_ns else "",
        )
        for region in ordered
    ]


# Work by the sizes of operators' inputs, in words: how near each region comes to what the device can do at most.

#: Regions with so much of the known kernel time are told, at most so many.

WORK_COLUMNS = ("region", "work", "rate", "traffic", "roofline")


class WorkRow(Struct, frozen=True):
    """One region's: ``5.77 TFLOP``, ``193 TFLOP/s``, ``1,550 GB/s``, ``56 % (memory)``."""

    path: tuple[str, ...]
    work: str
    rate: str
    traffic: str
    roofline: str

    def cells(self, name: str) -> tuple[str, ...]:
        """As COLUMNS, the region called so."""
        return (name, self.work, self.rate, self.traffic, self.roofline)


OPERATOR_COLUMNS = ("operator", "sizes", "calls", "time", "share", *WORK_COLUMNS[1:])
#: Sizes of more characters lose their end: a list of hundreds of tensors is no shape to read.
LONGEST_SIZES = LABEL


def operator_rows(report: Report) -> list[tuple[str, ...]]:
    """Operators with most kernel time, by the sizes of their inputs; as OPERATOR_COLUMNS."""
    rows = []
    for operator in report.operators[:TABLE]:
        sizes = _sizes(operator.sizes)
        sizes = sizes if len(sizes) <= LONGEST_SIZES else f"{sizes[:LONGEST_SIZES]} ..."
        work_cells = ("",) * 5 if operator.work is None else _work_row((), operator.work).cells("")
        figures = units.count(operator.calls), units.duration(operator.total_ns), units.percent(operator.share)
        rows.append((operator.name, sizes, *figures, *work_cells[1:]))
    return rows


COLLECTIVE_COLUMNS = ("collective", "message", "ranks", "count", "time", "median", "fastest", "speed", "waiting")


def collective_rows(report: Report) -> list[tuple[str, ...]]:
    """Collectives of which the size is told, most time first; as COLLECTIVE_COLUMNS."""
    return [
        (
            collective.name,
            units.size(collective.bytes),
            "" if collective.ranks is None else units.count(collective.ranks),
            units.count(collective.count),
            units.duration(collective.total_ns),
            units.duration(collective.median_ns),
            units.duration(collective.fastest_ns),
            units.bandwidth(collective.gb_per_s * 1e9),
            units.percent(collective.waiting_ns / collective.total_ns) if collective.total_ns else "",
        )
        for collective in report.collectives
    ]


STEP_COLUMNS = ("part of a step", "median", "p95", "share")
_STEP_PARTS = (
    ("GPU at work", "device_ns"),
    ("blocked", "input_ns"),
    ("host code, launches, syncs", "host_ns"),
    ("initialization", "compile_ns"),
    ("other", "other_ns"),
    ("whole step", "length_ns"),
)


def step_rows(report: Report) -> list[tuple[str, ...]]:
    """Where a step's time goes, over all steps of all devices; as STEP_COLUMNS."""
    steps = report.steps
    if len(steps) < 2:
        return []
    whole = max(sum(step.length_ns for step in steps), 1)
    rows: list[tuple[str, ...]] = []
    for name, key in _STEP_PARTS:
        values = np.array([getattr(step, key) for step in steps], np.int64)
        high = units.duration(quantile(values, _HIGH))
        rows.append((name, units.duration(median(values)), high, units.percent(int(values.sum()) / whole)))
    queued = [step.queue_median for step in steps if step.queue_median is not None]
    if queued:
        high = f"{quantile(np.array(queued), _HIGH):,.0f}"
        rows.append(("operations in the queue", f"{median(queued):,.0f}", high, ""))
    return rows


def _sizes(text: str) -> str:
    """``8944x1024, 1024x2816``: those of tensors; of a list of tensors how many it holds."""
    try:
        sizes = json.loads(text) if text else []
    except ValueError:
        return text
    shown = []
    for size in sizes if isinstance(sizes, list) else ():
        if not isinstance(size, list):  # a damaged trace may hold anything there
            continue
        if size and all(isinstance(number, int) for number in size):
            shown.append("x".join(map(str, size)))
        elif size:
            shown.append(f"{len(size)} tensors")
    return ", ".join(shown)


def work_title(report: Report) -> str:
    """What is known, and model FLOPs utilization; empty where nothing is."""
    whole = _whole(report)
    if whole is None:
        return ""
    share = units.percent(whole.known_ns / max(whole.kernels_ns, 1))
    shares = f"The sizes of inputs tell the work of {share} of kernel time"
    used = whole.of_window(sum(device.window_ns for device in report.devices))
    if used is None:
        return f"{shares}; the device's peaks are not known"
    in_steps, window = units.percent(report.step_mfu or 0.0), units.percent(used)
    step = "" if report.step_mfu is None or in_steps == window else f" and {in_steps} of the time in steps"
    return f"{shares}. At the device's peak, matrix products would take {window} of the window{step} (MFU)"


def work_rows(report: Report) -> tuple[WorkRow, ...]:
    """What is told of the chosen regions."""
    return tuple(_work_row(region.path, region.work) for region in regions_with_work(report) if region.work is not None)


def regions_with_work(report: Report) -> list[RegionReport]:
    """The regions with most known kernel time, once each: what only passes work on to one inside it is left out."""
    whole = _whole(report)
    if whole is None:
        return []
    innermost: dict[tuple[int, int, int], RegionReport] = {}
    for region in report.regions:
        work = region.work
        if work is not None and work.known_ns >= SLIGHT * whole.known_ns and work.flops + work.bytes:
            innermost[work.known_ns, work.flops, work.bytes] = region  # the innermost of a chain comes last
    return sorted(innermost.values(), key=lambda region: (-(region.work.known_ns if region.work else 0), region.path))[
        :LIST
    ]


def _whole(report: Report) -> Work | None:
    root = next((region for region in report.regions if not region.path), None)
    return root.work if root is not None and root.work is not None and root.work.known_ns else None


def _operations(flops: int) -> str:
    """``0.246 TFLOP``; empty of none."""
    for unit, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if flops >= unit / 100:
            return f"{flops / unit:,.3g} {name}"
    return f"{flops:,} FLOP" if flops else ""


def _work_row(path: tuple[str, ...], work: Work) -> WorkRow:
    nearer = "compute" if (work.at_peak_ns or 0) >= (work.at_bandwidth_ns or 0) else "memory"
    roof = work.roofline_fraction
    rate = f"{work.tflops:,.3g} TFLOP/s" if work.tflops and work.flops >= work.bytes else ""
    measured = "" if work.measured_bytes is None else " measured"
    return WorkRow(
        path,
        _operations(work.flops),
        rate,
        f"{work.gb_per_s:,.0f} GB/s{measured}" if work.gb_per_s else "",
        "" if roof is None else f"{units.percent(roof)} ({nearer})",
    )
