"""What the GPUs' counters say, in words and as the points of a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from boundby.claims.limits import limit
from boundby.document.text import clean
from boundby.model import units
from boundby.model.scale import LIST
from boundby.results.report import Counters, DeviceReport, Report

COLUMNS = ("kernel", "time", "SMs", "issue", "tensor", "DRAM", "PCIe", "alone")
#: Kernels and regions told, at most.
MOST_ROWS = LIST


def told(device: DeviceReport) -> tuple[str, ...]:
    """What the device's counters say while it is busy, and which limit that is."""
    found = device.counters
    if found is None or found.busy is None:
        return ()
    mixed = "" if found.busy.is_unmixed else " (the samples hold idle time, too)"
    return tuple(filter(None, (limit(found.busy), f"Counters while busy{mixed}: {usual(found.busy)}.")))


def usual(counters: Counters) -> str:
    """``SMs active 51 %, issue 3 %, tensor cores 0 %, warps 2 %, DRAM 3 %, PCIe in 0 %, out 3 %``."""
    values = {
        "SMs active": counters.sm_active,
        "issue": counters.sm_issue,
        "tensor cores": counters.tensor_active,
        "warps": counters.warps,
        "DRAM": counters.dram,
        "PCIe in": counters.pcie_receive,
        "out": counters.pcie_send,
        "NVLink in": counters.nvlink_receive,
        "NVLink out": counters.nvlink_send,
    }
    return ", ".join(f"{name} {units.percent(value)}" for name, value in values.items() if value is not None)


def title(device: DeviceReport) -> str:
    """What stands over the table; empty where nothing was sampled."""
    found = device.counters
    if found is None or found.window is None:
        return ""
    return f"GPU {device.id} over its window: {usual(found.window)}"


def kernels(device: DeviceReport) -> list[tuple[str, ...]]:
    """One row a kernel, as COLUMNS; ``alone``: how much of its samples' time it fills."""
    rows = device.counters.kernels[:MOST_ROWS] if device.counters else ()
    return [_row(clean(row.name), units.duration(row.total_ns), row.counters) for row in rows]


def regions(report: Report) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Path, and one row as COLUMNS, of each region whose samples it fills for the most part, longest first."""
    found = [
        (region, region.counters)
        for region in report.regions
        if region.path and region.counters and region.counters.is_unmixed
    ]
    found.sort(key=lambda pair: (-pair[1].sampled_ns, pair[0].path))
    return [
        (region.path, _row("/".join(region.path[-2:]), units.duration(counters.sampled_ns), counters))
        for region, counters in found[:MOST_ROWS]
    ]


def _row(name: str, time: str, counters: Counters) -> tuple[str, ...]:
    pcie = [value for value in (counters.pcie_receive, counters.pcie_send) if value is not None]
    values = (counters.sm_active, counters.sm_issue, counters.tensor_active, counters.dram, max(pcie, default=None))
    cells = ("" if value is None else units.percent(value) for value in values)
    return (name, time, *cells, units.percent(counters.alone_fraction))


class Drawn(NamedTuple):
    """Counters over time as points of a drawing 1,000 wide and 120 high, by the words of the legend."""

    lines: tuple[tuple[str, str], ...]
    first: str
    last: str


def drawn(device: DeviceReport) -> Drawn | None:
    """SMs active, issue, tensor cores and DRAM over time; None: nothing to draw."""
    points = device.counters.points if device.counters else ()
    if len(points) < 2:
        return None
    first, last = points[0].time_ns, points[-1].time_ns
    x = [1_000 * (point.time_ns - first) / max(last - first, 1) for point in points]
    every = [point.counters for point in points]
    named = {
        "SMs active": [one.sm_active for one in every],
        "SM issue": [one.sm_issue for one in every],
        "tensor cores": [one.tensor_active for one in every],
        "DRAM": [one.dram for one in every],
    }
    lines = tuple((name, _line(x, values)) for name, values in named.items() if any(v is not None for v in values))
    return Drawn(lines, f"{first / 1e9:.6f} s", f"{last / 1e9:.6f} s")


def _line(x: Sequence[float], values: Sequence[float | None]) -> str:
    shown = ((at, min(value, 1.0)) for at, value in zip(x, values, strict=True) if value is not None)
    return " ".join(f"{at:.1f},{118 - 116 * value:.1f}" for at, value in shown)
