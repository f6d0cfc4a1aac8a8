"""Plot data -> the compact JSON that the page's script draws from, embedded so that nothing can end the script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from boundby.document.blocks import clean
from boundby.model import units
from boundby.model.causes import CauseInfo
from boundby.render.page.content import RegionRows, path_in_domain
from boundby.results.plot_data import AccountLane, CauseBins, Gap, InstanceSeries, PlotData, RangeLane, Spread, WorkLane
from boundby.results.report import Report

# What could end the data's element or be taken for a line's end; JSON reads the escapes as the same characters.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})

Json = dict[str, Any]


def embed(words: Iterable[tuple[CauseInfo, str]], plot_data: PlotData | None, shown: RegionRows) -> object:
    """The data as the text of a ``<script type="application/json">``; ``words``: what each cause means,
    by its number."""
    data: Json = {
        "causes": [
            {"key": cause.key, "label": cause.label, "letter": cause.letter, "meaning": meaning or cause.meaning}
            for cause, meaning in words
        ],
        "facts": [row.facts for row in shown.rows],
        "icicle": [[row.row.depth, sum(row.row.time.values()), row.row.region.verdict.bound] for row in shown.rows],
        "whole": shown.rows[0].whole_ns if shown.rows else 0,
        "plot_data": _plot_data(plot_data, shown)
        if plot_data is not None and plot_data.end_ns > plot_data.start_ns
        else None,
    }
    return as_script(data)


def as_script(data: Json) -> object:
    """JSON that no text of a trace can leave."""
    from markupsafe import Markup

    text = _json(data)
    if "\\" in text or not text.isprintable():  # else there is nothing to clean
        text = _json(_cleaned(data))
    return Markup(text.translate(_ESCAPES))


def _json(data: Json) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


MOST_JSON = 3_000_000  # characters of a result that a page carries to be downloaded


def report_json(report: Report) -> object:
    """The whole result for the button that downloads it; empty where it would make the page heavy."""
    from markupsafe import Markup

    text = json.dumps(report.to_dict(), separators=(",", ":"), allow_nan=False)  # ASCII: names may hold anything
    return Markup(text.translate(_ESCAPES)) if len(text) <= MOST_JSON else ""


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def _plot_data(plot_data: PlotData, shown: RegionRows) -> Json:
    rows = {row.path: row.number for row in shown.rows}
    paths = [path_in_domain(region.path, region.domain) for region in plot_data.regions]
    return {
        "span": plot_data.end_ns - plot_data.start_ns,
        "origin": plot_data.start_ns,
        "edges": (plot_data.edges_ns - plot_data.start_ns).tolist(),
        "regions": paths,
        "rows": [rows.get(path, -1) for path in paths],  # the region's row in the table
        "lanes": [_lane(lane, plot_data) for lane in plot_data.lanes],
        "ranges": [_ranges(lane, plot_data.start_ns) for lane in plot_data.ranges],
        "work": [_work(lane, plot_data.start_ns) for lane in plot_data.work],
        "names": list(plot_data.names),
        "gaps": [_gap(gap, plot_data) for gap in plot_data.gaps],
        "instances": [_series(series, plot_data.start_ns) for series in plot_data.instances],
    }


def _lane(lane: AccountLane, plot_data: PlotData) -> Json:
    drawn: Json = {
        "kind": lane.kind,
        "id": lane.id,
        "name": f"GPU {lane.id}" if lane.kind == "device" else f"{lane.name or 'thread'} ({lane.id})",
        "device": lane.name,
        "low": lane.window_start_ns - plot_data.start_ns,
        "high": lane.window_end_ns - plot_data.start_ns,
        "gpu": _fractions(lane.gpu_utilization) if lane.kind == "device" else None,
        "cpu": None if lane.cpu_utilization is None else _fractions(lane.cpu_utilization),
        "cpuSource": lane.cpu_source,
        "seg": None,
        "fine": None,
    }
    if lane.segments is not None:
        drawn["seg"] = {
            "s": _starts(lane.segments.start_ns, plot_data.start_ns),
            "l": (lane.segments.end_ns - lane.segments.start_ns).tolist(),
            "c": lane.segments.cause.tolist(),
            "r": lane.segments.region.tolist(),
        }
    if lane.fine is not None:
        drawn["fine"] = _fine(lane.fine, plot_data.start_ns)
    return drawn


def _fine(bins: CauseBins, origin: int) -> Json:
    causes = np.flatnonzero(bins.cause_ns.any(axis=0))
    return {
        "low": int(bins.edges_ns[0]) - origin,
        "high": int(bins.edges_ns[-1]) - origin,
        "n": len(bins.edges_ns) - 1,
        "c": causes.tolist(),
        "v": [bins.cause_ns[:, cause].tolist() for cause in causes],
    }


def _ranges(lane: RangeLane, origin: int) -> Json:
    who = f"{lane.thread or 'thread'} ({lane.tid})" if lane.tid is not None else f"process {lane.pid}, start/end"
    return {"who": who, "depth": lane.depth, "r": lane.region.tolist(), **_blocks(lane, origin)}


def _work(lane: WorkLane, origin: int) -> Json:
    is_stream, thread = lane.kind == "stream", f"{lane.thread or 'thread'} ({lane.number})"
    return {
        "who": f"stream {lane.number} of process {lane.pid}" if is_stream else thread,
        "label": f"stream {lane.number}" if is_stream else "",
        "device": lane.device,
        "k": lane.name.tolist(),
        "c": lane.cause.tolist() if is_stream else None,
        **_blocks(lane, origin),
    }


def _blocks(lane: RangeLane | WorkLane, origin: int) -> Json:
    merged = bool((lane.count > 1).any())
    return {
        "s": _starts(lane.start_ns, origin),
        "l": (lane.end_ns - lane.start_ns).tolist(),
        "n": lane.count.tolist() if merged else None,
        "v": lane.covered_ns.tolist() if merged else None,
    }


def _gap(gap: Gap, plot_data: PlotData) -> Json:
    lane = next(
        number for number, lane in enumerate(plot_data.lanes) if lane.kind == "device" and lane.id == gap.device
    )
    return {
        "lane": lane,
        "s": gap.start_ns - plot_data.start_ns,
        "l": gap.length_ns,
        "c": gap.cause,
        "by": [[cause, ns] for cause, ns in enumerate(gap.cause_ns) if ns],
        "call": gap.call,
        "who": (f"{gap.thread or 'thread'} ({gap.tid})") if gap.tid is not None else "",
        "r": gap.region,
        "before": gap.before,
        "after": gap.after,
    }


def _series(series: InstanceSeries, origin: int) -> Json:
    return {
        "r": series.region,
        "n": series.count,
        "warm": series.warm_up,
        "thinned": series.thinned,
        "i": series.index.tolist(),
        "s": _starts(series.start_ns, origin),
        "h": series.host_ns.tolist(),
        "p": series.projected_ns.tolist() if (series.projected_ns >= 0).any() else None,
        "hm": series.host_median_ns,
        "pm": series.projected_median_ns,
        "hs": _spread(series.host),
        "ps": _spread(series.projected) if series.projected else None,
        "text": summary(series),
    }


def summary(series: InstanceSeries) -> str:
    """The instances in two sentences."""
    text = f"{units.plural(series.count, 'instance')}. "
    if series.warm_up:
        first = f"The first {series.warm_up:,} differ" if series.warm_up > 1 else "The first one differs"
        text += f"{first} from the later ones and {'are' if series.warm_up > 1 else 'is'} marked as warm-up. "
    after = " after warm-up" if series.warm_up else ""
    text += f"Median{after}: {units.duration(series.host_median_ns)} on the host"
    if series.projected_median_ns is not None:
        text += f", {units.duration(series.projected_median_ns)} projected on the GPU"
    text += "."
    if series.thinned:
        text += f" {len(series.index):,} are drawn: of each run of neighbours the shortest and the longest."
    return text


def _spread(spread: Spread) -> Json:
    edges = [round(edge) for edge in spread.edges_ns.tolist()]
    return {"e": edges, "c": spread.counts.tolist(), "last": spread.has_last}


def _starts(start_ns: npt.NDArray[np.int64], origin: int) -> list[int]:
    """Differences of neighbouring starts, the first from the origin: shorter than the instants."""
    return np.diff(start_ns, prepend=origin).tolist() if len(start_ns) else []


def _fractions(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 3) for value in values.tolist()]
