"""The rows of the page's region table, and what unfolds below each."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from boundby.document import sentences
from boundby.document.blocks import Segment, clean, region_name, segments
from boundby.document.view import Row, select, window_total
from boundby.model import units
from boundby.model.causes import BOUND_LABEL, NOUN
from boundby.model.scale import HARDLY
from boundby.results.report import Distribution, RegionReport, Report

# Rows beyond these, those with the least share, are left out: they are some 2 kB each, and nobody reads them.
MOST_ROWS = 300
# Rows below this share, of the account and of the host's time alike, start hidden.
SMALL_SHARE = HARDLY

Fact = tuple[str, str]


def path_in_domain(path: tuple[str, ...], domain: str) -> str:
    """``step/forward [MPI]``: the domain is named where it is not the default one."""
    return region_name(path) + (f" [{clean(domain)}]" if domain not in ("", "default") else "")


class TableRow(Struct, frozen=True):
    """A row of the view, with what the table sorts by and what unfolds below it."""

    number: int
    row: Row
    whole_ns: int  # all windows

    @property
    def path(self) -> str:
        return path_in_domain(self.row.region.path, self.row.region.domain)

    @property
    def is_small(self) -> bool:
        host = self.row.region.host.total_ns / self.whole_ns if self.whole_ns else 0.0
        return max(self.row.region.share, host) < SMALL_SHARE

    @property
    def each_ns(self) -> float:
        return sentences.each_ns(self.row.region)

    @property
    def own_ns(self) -> int:
        return sum(self.row.region.time_exclusive.values())

    @property
    def own_share(self) -> float:
        return self.own_ns / self.whole_ns if self.whole_ns else 0.0

    @property
    def bar(self) -> tuple[Segment, ...]:
        return segments(self.row.time)

    @property
    def facts(self) -> list[tuple[str, list[Fact]]]:
        """Groups of (label, value): every figure of the region; "not captured" is said."""
        region = self.row.region
        return [
            ("Verdict", list(_verdict(region, self.whole_ns))),
            ("Time", list(_time(region))),
            ("GPU", list(_gpu(region))),
            ("Host", list(_host(region))),
        ]


class RegionRows(Struct, frozen=True):
    rows: tuple[TableRow, ...]
    left_out: int
    outside: TableRow | None  # what no range owns


def select_rows(report: Report, min_share: float | None) -> RegionRows:
    """Every region, or those with the most share where they are too many, in the order of the tree."""
    chosen = select(report, min_share or 0.0)
    if len(chosen.rows) > MOST_ROWS:
        shares = sorted((row.region.share for row in chosen.rows), reverse=True)
        chosen = select(report, max(shares[MOST_ROWS - 1], 1e-9))
    whole = window_total(report)
    rows = tuple(TableRow(number, row, whole) for number, row in enumerate(chosen.rows[:MOST_ROWS]))
    named = sum(bool(region.path) for region in report.regions)
    outside = TableRow(-1, chosen.outside, whole) if chosen.outside is not None and rows else None
    return RegionRows(rows, named - len(rows), outside)


def _verdict(region: RegionReport, whole: int) -> Iterable[Fact]:
    verdict = region.verdict
    yield "bound by", BOUND_LABEL.get(verdict.bound, verdict.bound)
    yield "decided by", {"replay": "replaying the trace without each cause"}.get(verdict.decided_by, "the account")
    yield "confidence", sentences.confidence(verdict).removeprefix("Confidence ").rstrip(".")
    for item in verdict.savings[:4]:
        if item.saving_ns > sentences.WORTH_NAMING * whole:
            yield f"without {NOUN.get(item.cause, item.cause)}", f"saves {units.duration(item.saving_ns)}"


def _time(region: RegionReport) -> Iterable[Fact]:
    yield "account, with what lies inside", units.duration(region.total_ns)
    yield "account, its own", units.duration(sum(region.time_exclusive.values()))
    yield "host interval", _distribution(region.host)
    yield "projected interval", _distribution(region.projected) if region.projected else "launches nothing"


def _distribution(spread: Distribution) -> str:
    if spread.count == 1:
        return units.duration(spread.total_ns)
    figures = f"median {units.duration(spread.median_ns)}, p95 {units.duration(spread.p95_ns)}"
    return f"{figures}, longest {units.duration(spread.max_ns)}, total {units.duration(spread.total_ns)}"


def _gpu(region: RegionReport) -> Iterable[Fact]:
    yield "GPU utilization, projected", units.percent(region.gpu_utilization)
    yield "GPU utilization, host interval", units.percent(region.gpu_utilization_host)
    kernels = region.kernels
    yield "kernels", f"{kernels.count:,}, median {units.duration(kernels.median_ns)}" if kernels.count else "none"
    if region.graphs and region.graphs.count:
        yield "CUDA graphs", f"{region.graphs.count:,}, {units.duration(region.graphs.total_ns)}"
    gaps = region.gaps
    figures = f"{gaps.count:,}, {units.duration(gaps.total_ns)}, longest {units.duration(gaps.longest_ns)}"
    yield "gaps", figures if gaps.count else "none"
    for direction, copies in sorted(region.memcpy.items()):
        yield (
            f"copies {direction}",
            f"{copies.count:,}, {units.size(copies.bytes)}, {units.duration(copies.total_ns)}, "
            f"{units.bandwidth(copies.bandwidth_bytes_per_s)}, {copies.pageable_count:,} pageable",
        )
    if region.launch_latency:
        latency = region.launch_latency
        yield "launch latency", f"median {units.duration(latency.median_ns)}, p95 {units.duration(latency.p95_ns)}"
    if region.queue_depth_median is not None:
        yield "queue depth, median", f"{region.queue_depth_median:g}"


def _host(region: RegionReport) -> Iterable[Fact]:
    yield "CPU utilization", units.percent(region.cpu_utilization)
    yield (
        "CUDA API calls",
        f"{region.api.calls:,}, {units.duration(region.api.total_ns)}, {units.rate(region.api.per_ms)}",
    )
    sync = region.sync
    yield "blocking syncs", f"{sync.count:,}, blocked {units.duration(sync.blocked_ns)}, {units.rate(sync.per_ms)}"
    if asleep := sentences.blocked_on(region.blocked_on):
        yield "blocked on", asleep.removeprefix("Blocked on: ").rstrip(".")
    yield "threads", str(region.threads)
    if region.open_instances:
        yield "never closed", units.plural(region.open_instances, "instance")
