"""Results -> figures, with matplotlib (loaded only here). PNG, SVG or PDF by the file's name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boundby.measure import results
from boundby.model.units import duration
from boundby.results.write import check, open_whole

SUFFIXES = (".png", ".svg", ".pdf")
#: Of Okabe and Ito: colour-blind readers tell them apart.
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#8a8f94"


def check_name(path: str | Path) -> None:
    """Refuse a name, or an installation, with which no figure can be written. Cheap: call it before hard work."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise results.MeasureError(f"No figure can be written as {path}.", f"Name it with one of {' '.join(SUFFIXES)}.")
    check(path)
    _matplotlib()


def draw(result: results.Result, path: str | Path) -> None:
    """Write the figure of a result, whole or not at all.

    Raises:
        MeasureError: matplotlib is missing, or the name has another suffix.
    """
    check_name(path)
    figure = figure_of(result)
    with open_whole(path) as file:
        figure.savefig(file, format=Path(path).suffix.lower()[1:], dpi=150)


def _matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError:
        raise results.MeasureError(
            "Figures need matplotlib, which is not installed.", "pip install matplotlib"
        ) from None


def figure_of(result: results.Result) -> Any:
    """The figure as a ``matplotlib.figure.Figure``."""
    drawn = {
        results.Latency: _latency,
        results.Methods: _methods,
        results.MethodsBySize: _by_size,
        results.StagesResult: _stages,
        results.StagesComparison: _stages_comparison,
        results.Throughput: _throughput,
        results.Devices: _devices,
        results.LatencyComparison: _comparison,
        results.SizesComparison: _sizes_comparison,
    }[type(result)]
    figure = _matplotlib().Figure(figsize=(9, 4.2), layout="constrained")
    drawn(figure, result)  # type: ignore[operator]
    return figure


def _scale(*values: float) -> tuple[float, str]:
    """Nanoseconds in one unit of an axis, and its name."""
    most = max(values)
    return next((pair for pair in ((1e3, "us"), (1e6, "ms")) if most < 1000 * pair[0]), (1e9, "s"))


def _plain(axes: Any, title: str, x: str, y: str) -> None:
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)


def _over_sizes(axes: Any, title: str, y: str) -> None:
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False)
    _plain(axes, title, "size", y)


def _latency(figure: Any, latency: results.Latency) -> None:
    series, counts = figure.subplots(1, 2, width_ratios=(3, 2))
    warm, samples = np.array(latency.warmup_ns), np.array(latency.samples_ns)
    scale, unit = _scale(float(np.percentile(samples, 99)))
    series.plot(np.arange(len(warm)), warm / scale, ".", color=ORANGE, markersize=4, label="warm-up, apart")
    series.plot(
        np.arange(len(warm), len(warm) + len(samples)), samples / scale, ".", color=BLUE, markersize=4, label="samples"
    )
    series.axhline(latency.median_ns / scale, color=RED, linewidth=1, label=f"median {duration(latency.median_ns)}")
    _cap(series, np.concatenate([warm, samples]) / scale, samples / scale)
    block = f"block of {latency.calls_per_sample:,} calls" if latency.calls_per_sample > 1 else "call"
    _plain(series, latency.name, block, f"time per call ({unit})")
    series.legend(frameon=False, fontsize="small")
    _histogram(counts, [(latency, BLUE, "")], scale)
    _plain(counts, "", f"time per call ({unit})", "samples")


def _cap(axes: Any, everything: Any, samples: Any) -> None:
    """Far-off values would flatten the rest: those above twice the samples' p99 sit at the edge, and are counted."""
    top = 2 * float(np.percentile(samples, 99))
    above = int((everything > top).sum())
    if above:
        axes.set_ylim(0, top)
        _above(axes, above)
    else:
        axes.set_ylim(bottom=0)


def _above(axes: Any, count: int) -> None:
    where = {"transform": axes.transAxes, "ha": "right", "va": "top"}
    axes.text(0.99, 0.99, f"{count} above", **where, fontsize="small", color=GREY)


def _histogram(axes: Any, latencies: Sequence[tuple[results.Latency, str, str]], scale: float) -> None:
    every = np.concatenate([np.array(latency.samples_ns) for latency, _, _ in latencies]) / scale
    low, high = float(every.min()), float(np.percentile(every, 99))
    bins = np.linspace(low, max(high, low * 1.001), 40)
    for latency, color, label in latencies:
        axes.hist(np.array(latency.samples_ns) / scale, bins=bins, color=color, alpha=0.6, label=label or None)
        if latency.interval is not None:
            axes.axvspan(
                latency.interval.low_ns / scale, latency.interval.high_ns / scale, color=color, alpha=0.35, linewidth=0
            )
        axes.axvline(latency.median_ns / scale, color=RED if len(latencies) == 1 else color, linewidth=1.2)
    cut = int((every > bins[-1]).sum())
    if cut:
        _above(axes, cut)


def _methods(figure: Any, methods: results.Methods) -> None:
    axes = figure.subplots()
    every = [*methods.latencies, *([methods.with_copy] if methods.with_copy is not None else [])]
    names = [latency.method for latency in methods.latencies] + ["copy inside"] * (methods.with_copy is not None)
    scale, unit = _scale(*(latency.p99_ns for latency in every))
    for index, latency in enumerate(every):
        is_wrong = (
            latency.method == "naive" and latency.device != "cpu"
        )  # on the CPU a call returns when its work is done
        axes.barh(index, latency.median_ns / scale, color=GREY if is_wrong else BLUE, hatch="//" if is_wrong else None)
        axes.plot([latency.median_ns / scale, latency.p99_ns / scale], [index, index], color=RED, linewidth=1.5)
        if latency.std_ns is not None:
            axes.errorbar(
                latency.mean_ns / scale, index, xerr=latency.std_ns / scale, color="black", capsize=3, linewidth=1
            )
        end = max(latency.p99_ns, latency.mean_ns + (latency.std_ns or 0)) / scale
        note = "  WRONG: enqueueing only" if is_wrong else ""
        if latency is methods.with_copy and methods.copy_ns is not None:
            axes.barh(
                index,
                max(methods.copy_ns, 0) / scale,
                left=methods.latencies[-1].median_ns / scale,
                color=ORANGE,
                hatch="//",
            )
            note = f"  of it {duration(max(methods.copy_ns, 0))} the inputs' copy"
        axes.text(end, index, f"  {duration(latency.median_ns)}{note}", va="center")
    axes.set_yticks(range(len(names)), names)
    axes.margins(x=0.3)
    _plain(axes, methods.latencies[-1].name, f"median per call, line to p99, mean and standard deviation ({unit})", "")


def _by_size(figure: Any, found: results.MethodsBySize) -> None:
    axes = figure.subplots()
    sizes = [point.size for point in found.points]
    for what in dict.fromkeys(what for point in found.points for what in point.methods.said):
        said = [point.methods.said.get(what, np.nan) / point.methods.best.median_ns for point in found.points]
        axes.plot(sizes, said, "o-", markersize=4, label=what)
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set_yscale("log")
    _over_sizes(axes, found.points[0].methods.best.name, "so many times the right figure")


def _stages_comparison(figure: Any, found: results.StagesComparison) -> None:
    of_host, of_device = figure.subplots(1, 2)
    every = {stage.name: None for side in (found.a, found.b) for stage in side.stages}
    positions = np.arange(len(every))
    medians = [float(np.median(stage.host_ns)) for side in (found.a, found.b) for stage in side.stages]
    scale, unit = _scale(*medians)
    for axes, title, field in ((of_host, "on the host", "host_ns"), (of_device, "on the device", "device_ns")):
        for number, (letter, side, color) in enumerate((("A", found.a, BLUE), ("B", found.b, ORANGE))):
            times = {stage.name: getattr(stage, field) for stage in side.stages}
            heights = [float(np.median(times[name])) / scale if times.get(name) else 0.0 for name in every]
            label = f"{letter}: {duration(side.pass_ns)} a pass"
            axes.barh(positions + 0.4 * number - 0.2, heights, 0.38, color=color, label=label)
        axes.set_yticks(positions, list(every))
        axes.invert_yaxis()
        _plain(axes, title, f"median per stage ({unit})", "")
    of_host.legend(frameon=False)


def _stages(figure: Any, stages: results.StagesResult) -> None:
    axes, lanes = figure.subplots(1, 2)
    _pass(lanes, stages)
    names = [stage.name for stage in stages.stages]
    host = [float(np.median(stage.host_ns)) for stage in stages.stages]
    device = [float(np.median(stage.device_ns)) if stage.device_ns else 0.0 for stage in stages.stages]
    scale, unit = _scale(*host, *device)
    positions = np.arange(len(names))
    axes.barh(positions - 0.2, np.array(host) / scale, 0.38, color=ORANGE, label="host")
    if any(stage.device_ns for stage in stages.stages):
        axes.barh(positions + 0.2, np.array(device) / scale, 0.38, color=BLUE, label="device")
    axes.set_yticks(positions, names)
    axes.invert_yaxis()
    axes.legend(frameon=False)
    _plain(
        axes,
        f"end to end {duration(stages.end_to_end_ns / max(1, stages.passes))} a pass",
        f"median per stage ({unit})",
        "",
    )


def _pass(axes: Any, stages: results.StagesResult) -> None:
    """A pass as its median: when each stage runs on the host, and when its work runs on the device."""
    if not all(stage.begin_ns for stage in stages.stages):
        axes.set_axis_off()  # a result of before beginnings were kept
        return
    scale, unit = _scale(
        *(float(np.median(stage.begin_ns)) + float(np.median(stage.host_ns)) for stage in stages.stages)
    )
    palette = (BLUE, ORANGE, GREEN, RED, GREY)
    on_device = any(stage.device_ns for stage in stages.stages)
    for number, stage in enumerate(stages.stages):
        if "/" in stage.name:  # inside another one
            continue
        color = palette[number % len(palette)]
        begin = float(np.median(stage.begin_ns)) / scale
        axes.barh(0, float(np.median(stage.host_ns)) / scale, left=begin, color=color, label=stage.name)
        if stage.device_ns and stage.wait_ns:
            behind = begin + float(np.median(stage.wait_ns)) / scale
            axes.barh(1, float(np.median(stage.device_ns)) / scale, left=behind, color=color)
    axes.set_yticks([0, 1] if on_device else [0], ["host", "device"] if on_device else ["host"])
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    _plain(axes, "one pass, at the median", f"from its first stage ({unit})", "")


def _throughput(figure: Any, found: results.Throughput) -> None:
    rate, delay = figure.subplots(1, 2)
    sizes = np.array([point.size for point in found.points])
    rate.plot(sizes, [point.samples_per_s for point in found.points], "o-", color=BLUE, markersize=4)
    rate.plot([found.best.size], [found.best.samples_per_s], "o", color=RED, label=f"best: {found.best.size:,}")
    _plain(rate, found.name, "batch size", "samples per second")
    rate.set_ylim(bottom=0)
    scale, unit = _scale(*(point.median_ns for point in found.points))
    delay.plot(sizes, [point.median_ns / scale for point in found.points], "o-", color=ORANGE, markersize=4)
    if found.latency_limit_ns is not None:
        delay.axhline(found.latency_limit_ns / scale, color=RED, linewidth=1, label="latency limit")
        delay.legend(frameon=False)
    _plain(delay, f"{found.device_name}", "batch size", f"latency of a batch ({unit})")
    for axes in (rate, delay):
        axes.set_xscale("log", base=2)
        if found.limit is not None and found.stopped_by == "memory":
            axes.axvline(found.limit, color=GREY, linestyle="--", linewidth=1, label="out of memory")
    delay.set_yscale("log")
    rate.legend(frameon=False)


def _qualities(axes: Any, sizes: list[int], found: results.Devices) -> None:
    for label, color, qualities in (
        ("CPU", ORANGE, [point.cpu_quality for point in found.points]),
        (found.gpu_name or "", BLUE, [point.gpu_quality for point in found.points]),
    ):
        if any(value is not None for value in qualities):
            axes.plot(
                sizes, [np.nan if value is None else value for value in qualities], "o-", color=color, label=label
            )
    _over_sizes(axes, "quality of the result", found.quality or "quality")


def _devices(figure: Any, found: results.Devices) -> None:
    is_judged = any(point.cpu_quality is not None for point in found.points)
    axes, quality = figure.subplots(1, 2) if is_judged else (figure.subplots(), None)
    sizes = [point.size for point in found.points]
    if quality is not None:
        _qualities(quality, sizes, found)
    lines: list[tuple[str, str, list[float | None]]] = [("CPU", ORANGE, [point.cpu_ns for point in found.points])]
    if found.gpu is not None:
        lines.append((f"{found.gpu_name}", BLUE, [point.gpu_ns for point in found.points]))
        lines.append((f"{found.gpu_name}, with copies", GREEN, [point.gpu_with_copies_ns for point in found.points]))
    scale, unit = _scale(*(value for _, _, values in lines for value in values if value is not None))
    for label, color, values in lines:
        axes.plot(
            sizes, [value / scale if value is not None else np.nan for value in values], "o-", color=color, label=label
        )
    for where, color in ((found.break_even, BLUE), (found.break_even_with_copies, GREEN)):
        if where is not None and where > sizes[0]:
            axes.axvline(where, color=color, linestyle="--", linewidth=1)
            axes.text(where, axes.get_ylim()[1], f" {where:,.0f}", color=color, va="top")
    axes.set_yscale("log")
    _over_sizes(axes, found.name, f"time per call ({unit})")


def _comparison(figure: Any, comparison: results.LatencyComparison) -> None:
    axes = figure.subplots()
    a, b = comparison.a, comparison.b
    scale, unit = _scale(a.p99_ns, b.p99_ns)
    _histogram(axes, [(a, BLUE, f"A: {a.name}"), (b, ORANGE, f"B: {b.name}")], scale)
    axes.legend(frameon=False)
    verdict = {True: "differ significantly", False: "do not differ significantly", None: "too few samples"}
    low, high = comparison.ratio_low, comparison.ratio_high
    title = f"B / A = {comparison.ratio:.3f} ({low:.3f}-{high:.3f}): {verdict[comparison.significant]}"
    _plain(axes, title, f"time per call ({unit})", "samples")


def _sizes_comparison(figure: Any, found: results.SizesComparison) -> None:
    axes = figure.subplots()
    for what in dict.fromkeys(change.what for change in found.changes):
        those = [change for change in found.changes if change.what == what]
        ratios = np.array([change.ratio for change in those])
        ends = np.array([(change.low or change.ratio, change.high or change.ratio) for change in those]).T
        apart = np.abs(ends - ratios)
        axes.errorbar([change.size for change in those], ratios, apart, fmt="o-", markersize=4, capsize=3, label=what)
    axes.axhline(1, color=GREY, linewidth=1)
    _over_sizes(axes, f"B: {found.b.name}; A: {found.a.name}", "B / A")
