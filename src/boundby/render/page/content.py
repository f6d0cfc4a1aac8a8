"""What the page says besides the region table and the drawings: accounts, findings, what-if, tables, capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from boundby import __about__
from boundby.document import measurements, pattern_cards, report_document, sentences, view
from boundby.document.blocks import Section, Segment, clean, region_name, segments
from boundby.document.sentences import captured_by, not_captured
from boundby.document.view import Row, select, window_total
from boundby.model import units
from boundby.model.causes import BOUND_LABEL, CAUSE_INFO, HOST_MEANING, NOUN, CauseInfo, info, scenario_label
from boundby.model.scale import A_FEW_LINES, COLUMN, HARDLY, PAGE_ROWS, TABLE
from boundby.render import to_html
from boundby.render.page.evidence_words import evidence, evidence_label
from boundby.results.plot_data import Gap, PlotData
from boundby.results.report import Distribution, Finding, RegionReport, Report, WhatIf
from boundby.rules.builtin import builtin
from boundby.structure.steps import SLOWER
from boundby.trace.facts import PYTORCH

BEST_FINDINGS = A_FEW_LINES
#: Sections that the page has as all formats do.
SUMS = ("tops", "peaks", "steps", "operators", "collectives", "passes", "payloads")

#: (device id, scenario) -> the cause that would bound next, None: nothing worth 1 % of what is left.
NextBounds = Mapping[tuple[int, str], str | None]


def context(report: Report, plot_data: PlotData | None, next_bounds: NextBounds) -> dict[str, object]:
    """Everything the template names, but the regions and the drawings' data."""
    accounts = view.accounts(report)
    whole_ns = view.longest_window(report)
    items = [
        RankedFinding(rank, finding, whole_ns, bool(report.devices)) for rank, finding in enumerate(report.findings, 1)
    ]
    saving = [item for item in items if item.finding.severity != sentences.NOTE]
    unchecked = sentences.could_not_check(report.not_checked, every=report.analysis.show_all)
    cards = pattern_cards.by_subject(report, links=True)
    return {
        "title": sentences.what_ran(report),
        "facts": sentences.circumstances(report),
        "version": __about__.__version__,
        "report": report,
        "accounts": accounts,
        "ended": sentences.end_above(report),
        "in_full": len(accounts) <= view.IN_FULL,
        "summaries": view.summaries(accounts),
        "found": saving[BEST_FINDINGS : sentences.MOST_FINDINGS],
        "smaller": saving[sentences.MOST_FINDINGS :],
        "notes": [item for item in items if item.finding.severity == sentences.NOTE],
        "best": saving[:BEST_FINDINGS],
        "saving_count": len(saving),
        "nothing_found": sentences.nothing_found(report),
        "unchecked": unchecked,
        "unchecked_count": sum(len(rules.split(", ")) for _, rules in unchecked),
        "scenarios": _scenarios(report, next_bounds),
        "no_predictions": sentences.no_predictions(report),
        "captured": _captured(report),
        "window_told": _WINDOWS.get(report.analysis.window, report.analysis.window)
        if report.devices
        else sentences.window(report) or "the host's time",
        "missing": not_captured(report),
        "captured_by": captured_by(report),
        "sums": list(_sums(report, has_kernels=plot_data is not None and bool(plot_data.kernels))),
        "counted": list(_counted(report)),
        "counter_columns": measurements.COUNTER_COLUMNS,
        "memories": list(_memories(report)),
        "causes": list(CAUSE_INFO.values()),
        "info": info,
        "meanings": meanings(report),
        "share_of": view.share_of(report).replace("SHARE", "Share"),
        "terms": [term for term in sentences.TERMS if report.devices or not term.is_of_gpu],
        "slower": SLOWER,
        "bound_phrase": sentences.bound_phrase,
        "cards": dict(zip([account.name for account in accounts[: pattern_cards.MOST_DEVICES]], cards, strict=False)),
        "region_cards": cards[len(accounts[: pattern_cards.MOST_DEVICES]) :],
        "place": "page",
        **to_html.KINDS,
        "rule_texts": _rule_texts(report),
        "legend": [row for row in CAUSE_INFO.values() if any(account.time.get(row.key) for account in accounts)],
        "plot_data": plot_data,
        **(_drawn(plot_data) if plot_data is not None else {}),
    }


def _counted(report: Report) -> Iterator[tuple[object, ...]]:
    """Of each device with counters: title, curves and rows."""
    for device in report.devices:
        if title := measurements.counters_title(device):
            rows = measurements.counters_by_kernel(device) + [row for _, row in measurements.counters_by_region(report)]
            yield title, measurements.drawn_counters(device), rows


def _memories(report: Report) -> Iterator[tuple[object, ...]]:
    """Of each device whose memory is on record: titles, who holds it, and its curve."""
    for device in report.devices:
        if device.memory is None:
            continue
        for title in measurements.memory_titles(device):
            yield title, measurements.memory_held(device), measurements.memory_lines(device.memory.points)


def _sums(report: Report, *, has_kernels: bool) -> Iterator[Section]:
    """Sections that all formats have. ``has_kernels``: the page has a table of kernels of its own, which says more."""
    for part in report_document.sections(report):
        if part.id == "tops" and has_kernels:
            others = (block for block in part.blocks if getattr(block, "columns", ()) is not report_document.KERNELS)
            part = replace(part, title="CUDA calls with most time", short="CUDA calls", blocks=tuple(others))
        if part.id in SUMS and part.blocks:
            yield part


def _rule_texts(report: Report) -> dict[str, tuple[str, object]]:
    """Titles and pages of the rules that found something: the page of a report explains itself. Rules' pages are about
    GPUs: none of a report without GPU work."""
    rule_ids = {item.rule for item in report.findings if report.devices}
    return {rule.id: (rule.title, _lines(rule.text)) for rule in builtin() if rule.id in rule_ids}


def _lines(text: str) -> object:
    """Our own text, escaped, with its line breaks."""
    from markupsafe import escape

    return escape(text)


def meanings(report: Report) -> list[tuple[CauseInfo, str]]:
    """What each cause says of a device's time; of a thread's where there is no GPU work, empty for some there."""
    on_host = bool(report.threads) and not report.devices
    if not on_host:
        told = sentences.meanings(report.devices)
        return [(row, told.get(row.key, "")) for row in CAUSE_INFO.values()]
    spent = {key for thread in report.threads for key, ns in thread.time.items() if ns}
    return [(row, HOST_MEANING.get(row.key, "") if row.key in spent else "") for row in CAUSE_INFO.values()]


def _drawn(plot_data: PlotData) -> dict[str, object]:
    """What stands around the drawings."""
    longest: list[tuple[int, Gap]] = sorted(enumerate(plot_data.gaps), key=lambda item: (-item[1].length_ns, item[0]))
    return {
        "longest_gaps": longest[:TABLE],
        "region_names": [region_name(region.path) for region in plot_data.regions],
        "region_ends": [_path_end(region.path) for region in plot_data.regions],
        "cpu_sources": sorted({lane.cpu_source for lane in plot_data.lanes if lane.cpu_source}),
        "binned": [lane for lane in plot_data.lanes if lane.fine is not None],
        "merged": any(
            (count > 1).any() for count in [*(x.count for x in plot_data.ranges), *(x.count for x in plot_data.work)]
        ),
    }


def _path_end(path: tuple[str, ...]) -> str:
    """The last parts of a long path: they tell regions apart."""
    name = region_name(path)
    return name if len(name) <= COLUMN or len(path) <= 2 else f"…/{region_name(path[-2:])}"


class RankedFinding(Struct, frozen=True):
    """A finding in its place."""

    rank: int
    finding: Finding
    whole_ns: int  # what its saving is set against
    has_gpu: bool

    @property
    def where(self) -> str:
        return region_name(self.finding.region) if self.finding.region else ""

    @property
    def priority(self) -> str:
        return sentences.priority(self.finding)

    @property
    def worth(self) -> str:
        return sentences.worth(self.finding)

    @property
    def saves_fraction(self) -> str:
        """``2-4 %`` of the window; ``up to 4 %`` where the low end is next to nothing; empty where nothing is told, or
        another run saves it."""
        if not self.finding.saving_ns or not self.whole_ns or sentences.saves_elsewhere(self.finding.remedy):
            return ""
        low, high = self.finding.saving_ns
        first, last = units.percent(low / self.whole_ns), units.percent(high / self.whole_ns)
        if first == last or low == 0:
            return last
        return f"up to {last}" if first == units.percent(1e-9) else f"{first.removesuffix(' %')}-{last}"

    @property
    def evidence(self) -> list[tuple[str, str]]:
        return [
            (
                evidence_label(key, self.finding.rule, has_gpu=self.has_gpu, is_list=not isinstance(value, int)),
                evidence(key, value),
            )
            for key, value in self.finding.evidence.items()
        ]


class ScenarioRow(Struct, frozen=True):
    """One prediction: ``fraction`` of the window is left, ``then`` bounds it ("" for nothing; None: not worked out)."""

    label: str
    prediction: WhatIf
    fraction: float
    length: str
    change: str
    then: str | None


def _scenarios(report: Report, next_bounds: NextBounds) -> list[tuple[view.ShownAccount, list[ScenarioRow]]]:
    """For each device whose window any scenario changes: its account, and the predictions, shortest first."""
    notable, groups = sentences.notable_scenarios(report), []
    for device, account in zip(report.devices, view.accounts(report), strict=False):
        rows = [
            ScenarioRow(
                scenario_label(item.scenario),
                item,
                min(item.predicted_ns / item.baseline_ns, 1.0) if item.baseline_ns else 0.0,
                sentences.predicted_length(item),
                sentences.predicted_change(item),
                (next_bounds[key] or "") if (key := (device.id, item.scenario)) in next_bounds else None,
            )
            for _, item in sorted(notable, key=lambda pair: (pair[1].predicted_ns, pair[1].scenario))
            if item.device == device.id
        ]
        if rows:
            groups.append((account, rows))
    return groups


_WINDOWS = {"gpu": "from the first GPU work to the last", "all": "the whole trace"}
_CAPTURED = {
    "kernels": "GPU kernels",
    "cuda_api": "CUDA API calls",
    "memcpy": "memory copies",
    "sync": "CUDA synchronizations",
    "cuda_graphs": "CUDA graphs",
    "nvtx": "NVTX ranges",
    "osrt": "OS runtime calls",
    "cpu_scheduling": "CPU scheduling",
    "cpu_samples": "CPU samples",
    "gpu_metrics": "GPU metrics",
    "backtraces": "backtraces",
    "python_stacks": "Python stacks",
    "shapes": "sizes of inputs",
    "memory": "allocations",
}

_OF_PYTORCH = {"nvtx": "operators and named blocks"}


def _captured(report: Report) -> list[str]:
    """What the recording holds, by its names; without CPU samples, what its backtraces are of."""
    captured = report.trace.captured
    labels = {**_CAPTURED, **(_OF_PYTORCH if report.trace.source == PYTORCH else {})}
    if not captured.cpu_samples:
        labels["backtraces"] = "backtraces of CUDA and OS calls"
    return [label for key, label in labels.items() if getattr(captured, key, False)]


# The rows of the page's region table, and what unfolds below each.

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
    if len(chosen.rows) > PAGE_ROWS:
        shares = sorted((row.region.share for row in chosen.rows), reverse=True)
        chosen = select(report, max(shares[PAGE_ROWS - 1], 1e-9))
    whole = window_total(report)
    rows = tuple(TableRow(number, row, whole) for number, row in enumerate(chosen.rows[:PAGE_ROWS]))
    named = sum(bool(region.path) for region in report.regions)
    outside = TableRow(-1, chosen.outside, whole) if chosen.outside is not None and rows else None
    return RegionRows(rows, named - len(rows), outside)


def _verdict(region: RegionReport, whole: int) -> Iterable[Fact]:
    verdict = region.verdict
    yield "bound by", BOUND_LABEL.get(verdict.bound, verdict.bound)
    yield "decided by", {"replay": "replaying the trace without each cause"}.get(verdict.decided_by, "the account")
    if sure := sentences.confidence(verdict):
        yield "confidence", sure.removeprefix("Confidence ").rstrip(".")
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
