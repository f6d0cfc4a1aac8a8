"""Memory that the framework's allocator held, and the backward pass beside the forward one, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from boundby.model import units
from boundby.model.scale import LIST, SMALL
from boundby.results.report import DeviceReport, MemoryPoint, RegionReport, Report
from boundby.trace.vocabulary.ranges import BACKWARD

#: Regions told, at most, and the least share of what they are told for.
MOST_ROWS, LEAST_SHARE = LIST, SMALL
BEFORE = "(before the recording)"
PASSES = ("region", "forward", "backward", "backward/forward")


def titles(device: DeviceReport) -> Iterator[str]:
    """``peak 2.45 GB in use (2.63 GB reserved) at 0.030 s, in Qwen2Model_*/lm_head``, and what it was at both ends."""
    memory = device.memory
    if memory is None:
        return
    where = f", in {'/'.join(memory.peak_path[-2:])}" if memory.peak_path else ""
    reserved = f" ({units.size(memory.peak_reserved_bytes)} reserved)" if memory.peak_reserved_bytes else ""
    peak = f"peak {units.size(memory.peak_bytes)} in use{reserved} at {memory.peak_ns / 1e9:.6f} s{where}"
    first, last = units.size(max(memory.first_bytes, 0)), units.size(max(memory.last_bytes, 0))
    yield f"GPU {device.id}: {peak}; {first} at the start of the recording, {last} at its end"


def held(device: DeviceReport) -> list[tuple[str, str, str]]:
    """What holds the peak: (who allocated it, bytes, share), most first."""
    memory = device.memory
    if memory is None:
        return []
    told = [("/".join(one.path[-2:]) or "(no range)", one.bytes) for one in memory.held]
    told.append((BEFORE, memory.before_bytes))
    return [
        (name, units.size(held_bytes), units.percent(held_bytes / max(memory.peak_bytes, 1)))
        for name, held_bytes in sorted(told, key=lambda item: (-item[1], item[0]))
        if held_bytes
    ]


class Lines(NamedTuple):
    """Memory over time as points of a drawing 1,000 wide and 120 high, and what its ends stand for."""

    in_use: str
    reserved: str
    first: str
    last: str
    most: str


def lines(points: Sequence[MemoryPoint]) -> Lines:
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


def passes(report: Report) -> list[tuple[tuple[str, ...], str, str, str]]:
    """The regions whose operators have a backward pass on record: kernel time forward, backward, and their ratio."""
    whole = max((region.backward_kernels_ns for region in report.regions), default=0)
    # What holds the backward pass, too, is no forward pass.
    both = {
        region.path[:depth]
        for region in report.regions
        if region.name.startswith(BACKWARD)
        for depth in range(1, len(region.path) + 1)
    }
    told: dict[tuple[int, int], RegionReport] = {}
    for region in report.regions:
        if region.path and region.path not in both and region.backward_kernels_ns >= max(LEAST_SHARE * whole, 1):
            told[region.backward_kernels_ns, region.kernels.total_ns] = region  # the innermost of a chain comes last
    ordered = sorted(told.values(), key=lambda region: (-region.backward_kernels_ns, region.path))[:MOST_ROWS]
    return [
        (
            region.path,
            units.duration(region.kernels.total_ns),
            units.duration(region.backward_kernels_ns),
            f"{region.backward_kernels_ns / region.kernels.total_ns:.1f}" if region.kernels.total_ns else "",
        )
        for region in ordered
    ]
