"""The rows of the page's region table, and what unfolds below each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from boundby.model import units
from boundby.model.causes import BOUND_LABEL, LETTER, WITHOUT
from boundby.render import sentences
from boundby.render.bars import Segment, segments
from boundby.render.text import clean, part_name, region_name
from boundby.render.view import Row, select, window_total
from boundby.results.report import Distribution, RegionReport, Report

# Rows beyond these, those with the least share, are left out: they are some 2 kB each, and nobody reads them.
MOST_ROWS = 300
# Rows below this share, of the account and of the host's time alike, start hidden.
SMALL_SHARE = 0.005

Fact = tuple[str, str]


@dataclass(frozen=True)
class RegionRow:
    """One row. ``facts`` unfold below it: groups of (label, value)."""

    number: int
    depth: int
    label: str
    path: str
    found: bool
    small: bool
    instances: int
    open_instances: int
    each: str
    each_ns: float
    total_ns: int
    own_ns: int
    share: float
    own_share: float
    bar: tuple[Segment, ...]
    bound: str
    bound_key: str
    letter: str
    confidence: str
    saves_ns: int | None
    because: str
    facts: tuple[tuple[str, tuple[Fact, ...]], ...]


@dataclass(frozen=True)
class RegionRows:
    rows: tuple[RegionRow, ...]
    left_out: int
    outside: RegionRow | None  # what no range owns


def select_rows(report: Report, min_share: float | None) -> RegionRows:
    """Every region, or those with the most share where they are too many, in the order of the tree."""
    chosen = select(report, min_share or 0.0)
    if len(chosen.rows) > MOST_ROWS:
        shares = sorted((row.region.share for row in chosen.rows), reverse=True)
        chosen = select(report, max(shares[MOST_ROWS - 1], 1e-9))
    whole = window_total(report)
    rows = tuple(_row(number, row, whole) for number, row in enumerate(chosen.rows[:MOST_ROWS]))
    named = sum(bool(region.path) for region in report.regions)
    outside = None
    if chosen.outside is not None and rows:
        outside = _row(-1, chosen.outside, whole)
    return RegionRows(rows, named - len(rows), outside)


def _row(number: int, row: Row, whole: int) -> RegionRow:
    region, verdict = row.region, row.region.verdict
    own = sum(region.time_exclusive.values())
    total = sum(row.time.values())
    return RegionRow(
        number=number,
        depth=row.depth,
        label=row.label,
        path=region_name(region.path) + (f" [{clean(region.domain)}]" if region.domain not in ("", "default") else ""),
        found=region.found,
        small=max(region.share, region.host.total_ns / whole if whole else 0.0) < SMALL_SHARE,
        instances=region.instances,
        open_instances=region.open_instances,
        each=row.each,
        each_ns=(total or region.host.total_ns) / max(region.instances, 1),
        total_ns=total,
        own_ns=own,
        share=row.share,
        own_share=own / whole if whole else 0.0,
        bar=segments(row.time),
        bound=sentences.bound_word(verdict),
        bound_key=verdict.bound,
        letter=LETTER.get(verdict.bound, ""),
        confidence=verdict.confidence,
        saves_ns=verdict.saving_ns if row.is_judged else None,
        because=clean(verdict.because) if row.is_judged else "",
        facts=tuple(_facts(region, whole)),
    )


def _facts(region: RegionReport, whole: int) -> Iterable[tuple[str, tuple[Fact, ...]]]:
    """Every figure of a region, in groups; "not captured" is said."""
    verdict = region.verdict
    judged: list[Fact] = [
        ("bound by", BOUND_LABEL.get(verdict.bound, verdict.bound)),
        ("decided by", {"replay": "replaying the trace without each cause"}.get(verdict.decided_by, "the account")),
        ("confidence", sentences.confidence(verdict).removeprefix("Confidence ").rstrip(".")),
    ]
    judged += [
        (WITHOUT.get(item.cause, item.cause), f"saves {units.duration(item.saving_ns)}")
        for item in verdict.savings[:4]
        if item.saving_ns > sentences.WORTH_NAMING * whole
    ]
    yield "Verdict", tuple(judged)
    yield (
        "Time",
        (
            ("account, with what lies inside", units.duration(region.total_ns)),
            ("account, its own", units.duration(sum(region.time_exclusive.values()))),
            *_distribution("host interval", region.host),
            *(
                _distribution("projected interval", region.projected)
                if region.projected
                else [("projected interval", "launches nothing")]
            ),
        ),
    )
    yield "GPU", tuple(_gpu(region))
    yield "Host", tuple(_host(region))


def _distribution(what: str, found: Distribution) -> list[Fact]:
    if found.count == 1:
        return [(what, units.duration(found.total_ns))]
    figures = f"median {units.duration(found.median_ns)}, p95 {units.duration(found.p95_ns)}"
    return [(what, f"{figures}, longest {units.duration(found.max_ns)}, total {units.duration(found.total_ns)}")]


def _gpu(region: RegionReport) -> Iterable[Fact]:
    yield "GPU utilization, projected", units.percent(region.gpu_utilization)
    yield "GPU utilization, host interval", units.percent(region.gpu_utilization_host)
    kernels = region.kernels
    yield "kernels", f"{kernels.count:,}, median {units.duration(kernels.median_ns)}" if kernels.count else "none"
    if region.graphs and region.graphs.count:
        yield "CUDA graphs", f"{region.graphs.count:,}, {units.duration(region.graphs.total_ns)}"
    gaps = region.gaps
    told = f"{gaps.count:,}, {units.duration(gaps.total_ns)}, longest {units.duration(gaps.longest_ns)}"
    yield "gaps", told if gaps.count else "none"
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


def name_of(path: tuple[str, ...]) -> str:
    """``step/forward``: as the rows name it."""
    return "/".join(part_name(part) for part in path) if path else "(no range)"
