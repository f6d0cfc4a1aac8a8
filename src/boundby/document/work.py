"""Work by the sizes of operators' inputs, in words: how near each region comes to what the device can do at most."""

from __future__ import annotations

from msgspec import Struct

from boundby.model import units
from boundby.model.scale import LIST, SLIGHT
from boundby.results.report import RegionReport, Report, Work

#: Regions with so much of the known kernel time are told, at most so many.
LEAST_SHARE, MOST_ROWS = SLIGHT, LIST
COLUMNS = ("region", "work", "rate", "traffic", "roofline")


class Row(Struct, frozen=True):
    """One region's: ``5.77 TFLOP``, ``193 TFLOP/s``, ``1,550 GB/s``, ``56 % (memory)``."""

    path: tuple[str, ...]
    work: str
    rate: str
    traffic: str
    roofline: str

    def cells(self, name: str) -> tuple[str, ...]:
        """As COLUMNS, the region called so."""
        return (name, self.work, self.rate, self.traffic, self.roofline)


def title(report: Report) -> str:
    """What is known, and model FLOPs utilization; empty where nothing is."""
    whole = _whole(report)
    if whole is None:
        return ""
    known = (
        f"sizes of inputs tell the work of {units.percent(whole.known_ns / max(whole.kernels_ns, 1))} of kernel time"
    )
    used = whole.of_window(sum(device.window_ns for device in report.devices))
    if used is None:
        return f"{known}; the device's peaks are not known"
    return f"{known}; matrix products would take {units.percent(used)} of the window at the device's peak (MFU)"


def rows(report: Report) -> tuple[Row, ...]:
    """What is told of the chosen regions."""
    return tuple(_row(region.path, region.work) for region in chosen(report) if region.work is not None)


def chosen(report: Report) -> list[RegionReport]:
    """The regions with most known kernel time, once each: what only passes work on to one inside it is left out."""
    whole = _whole(report)
    if whole is None:
        return []
    told: dict[tuple[int, int, int], RegionReport] = {}
    for region in report.regions:
        work = region.work
        if work is not None and work.known_ns >= LEAST_SHARE * whole.known_ns and work.flops + work.bytes:
            told[work.known_ns, work.flops, work.bytes] = region  # the innermost of a chain comes last
    return sorted(told.values(), key=lambda region: (-(region.work.known_ns if region.work else 0), region.path))[
        :MOST_ROWS
    ]


def _whole(report: Report) -> Work | None:
    root = next((region for region in report.regions if not region.path), None)
    return root.work if root is not None and root.work is not None and root.work.known_ns else None


def _row(path: tuple[str, ...], work: Work) -> Row:
    nearer = "compute" if (work.at_peak_ns or 0) >= (work.at_bandwidth_ns or 0) else "memory"
    roof = work.roofline_fraction
    rate = f"{work.tflops:,.3g} TFLOP/s" if work.tflops and work.flops >= work.bytes else ""
    measured = "" if work.measured_bytes is None else " measured"
    return Row(
        path,
        f"{work.flops / 1e12:,.3g} TFLOP" if work.flops >= 1e10 else f"{work.flops / 1e9:,.3g} GFLOP",
        rate,
        f"{work.gb_per_s:,.0f} GB/s{measured}" if work.gb_per_s else "",
        "" if roof is None else f"{units.percent(roof)} ({nearer})",
    )
