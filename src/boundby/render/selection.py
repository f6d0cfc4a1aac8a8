"""Which regions a table for people shows, in what order and how deep. Files for programs hold them all."""

from __future__ import annotations

from dataclasses import dataclass

from boundby.render.text import clean, part_name
from boundby.results.report import RegionReport, Report

DEFAULT_MIN_SHARE = 0.01
MAX_ROWS = 40  # one screen: beyond it, only an explicit --min-share shows more


@dataclass(frozen=True)
class Row:
    """One region in its place of the tree. ``label`` is its path from the row above that holds it."""

    region: RegionReport
    depth: int
    label: str


@dataclass(frozen=True)
class Selection:
    rows: tuple[Row, ...]
    left_out: int
    min_share: float
    outside: RegionReport | None  # the root, where what no range owns is worth a line
    outside_share: float


def select(report: Report, min_share: float | None = None) -> Selection:
    """Regions of at least ``min_share`` of the account, or of the host's time (hidden work has no account)."""
    threshold = max(DEFAULT_MIN_SHARE if min_share is None else min_share, report.analysis.min_share)
    whole = window_total(report)
    named = [region for region in report.regions if region.path]
    weights = [_weight(region, whole) for region in named]
    if min_share is None and sum(weight >= threshold for weight in weights) > MAX_ROWS:
        threshold = sorted(weights, reverse=True)[MAX_ROWS - 1]
    shown = {place for place, weight in enumerate(weights) if weight >= threshold}
    root = next((region for region in report.regions if not region.path), None)
    outside_share = sum(root.time_exclusive.values()) / whole if root and whole else 0.0
    return Selection(
        rows=_tree(named, shown),
        left_out=len(named) - len(shown),
        min_share=threshold,
        outside=root if named and outside_share > 0 and outside_share >= threshold else None,
        outside_share=outside_share,
    )


def window_total(report: Report) -> int:
    """All devices' windows, or all threads' time where there is no GPU work."""
    devices = sum(device.window_ns for device in report.devices)
    return devices or sum(thread.total_ns for thread in report.threads)


def longest_window(report: Report) -> int:
    """The longest device window (thread, without GPU work): what savings are set against."""
    return max(
        (*(device.window_ns for device in report.devices), *(thread.total_ns for thread in report.threads)), default=0
    )


def _weight(region: RegionReport, whole: int) -> float:
    return max(region.share, min(region.host.total_ns / whole, 1.0) if whole else 0.0)


def _tree(named: list[RegionReport], shown: set[int]) -> tuple[Row, ...]:
    """Indent under the nearest ancestor shown; where a parent is left out, the label carries its name.

    ``named`` is depth first, so that what holds a region is the last one above it whose path begins its own, whatever
    its domain: a library's ranges lie inside the program's. ``shown`` are places in ``named``.
    """
    above: list[tuple[RegionReport, Row | None]] = []  # what holds the next one, each with the nearest row shown
    rows: list[Row] = []
    for place, region in enumerate(named):
        while above and not _holds(above[-1][0], region):
            above.pop()
        outer = above[-1][1] if above else None
        if place in shown:
            outer = _row(region, outer)
            rows.append(outer)
        above.append((region, outer))
    return tuple(rows)


def _row(region: RegionReport, outer: Row | None) -> Row:
    """The domain is named where it is another than around it."""
    start, around = (len(outer.region.path), outer.region.domain) if outer else (0, "")
    label = "/".join(part_name(part) for part in region.path[start:])
    if _domain(region.domain) != _domain(around):
        label = f"{label} [{_domain(region.domain)}]"
    return Row(region, outer.depth + 1 if outer else 0, label)


def _holds(outer: RegionReport, inner: RegionReport) -> bool:
    depth = len(outer.path)
    return depth < len(inner.path) and inner.path[:depth] == outer.path


def _domain(name: str) -> str:
    return clean(name) or "default"
