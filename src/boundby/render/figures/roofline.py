"""The roofline: how many operations each region does for each byte, how fast, and what the device can do at most."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING

from boundby.document import measurements
from boundby.model.gpus import Gpu, find_gpu
from boundby.render.figures import style
from boundby.results.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Work of each region against the device's peaks"
HEIGHT_LINES = 22
#: Precisions whose peaks are drawn, by what Gpu calls them.
PRECISIONS = ("bf16", "fp16", "tf32", "fp32")


@style.of_report
def roofline(report: Report, look: style.Look) -> Figure:
    """Regions as points, the larger the more time their kernels take, under the roof of the first device.

    Raises UserError where no sizes of inputs are known, or nothing computes.
    """
    with_work = [
        region
        for region in measurements.regions_with_work(report)
        if region.work and region.work.flops and region.work.bytes
    ]
    if not with_work:
        raise style.nothing(
            "the trace does not tell the sizes of operators' inputs",
            "Capture with torch.profiler.profile(record_shapes=True), or boundby profile --torch-ops with shapes.",
        )
    gpu = next((gpu_found for device in report.devices if (gpu_found := find_gpu(device.name))), None)
    figure = style.new_figure(report, look, look.line_in * HEIGHT_LINES, TITLE)
    axes = figure.subplots()
    points: list[tuple[int, float, float]] = []
    longest = max(region.work.known_ns for region in with_work if region.work)
    for number, region in enumerate(with_work, 1):
        done = region.work
        if done is None or done.tflops is None:
            continue
        x, y = done.flops / (done.measured_bytes or done.bytes), done.tflops
        area = look.font_pt * (1 + look.font_pt * done.known_ns / longest)  # the time of their kernels
        axes.scatter([x], [y], s=area, color=style.INK, alpha=0.55, linewidths=0, zorder=3)
        points.append((number, x, y))
        name = style.name("/".join(region.path[-2:]) or "(all)", look, look.width_in / 3)
        axes.plot([], [], " ", label=f"{number}  {name}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _place: f"{value:g}")
    if gpu is not None:
        _roof(axes, gpu)
    _number(axes, points, look)
    axes.set_xlabel("operations for each byte of inputs and outputs (FLOP/byte)")
    axes.set_ylabel("TFLOP/s")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, handlelength=0, handletextpad=0)
    return figure


def _number(axes: Axes, points: list[tuple[int, float, float]], look: style.Look) -> None:
    """A number beside each point; points that lie on each other share their label."""
    labels: list[tuple[list[int], float, float]] = []
    for number, x, y in points:
        spot = axes.transData.transform((x, y))
        near = (
            numbers
            for numbers, x_there, y_there in labels
            if hypot(*(axes.transData.transform((x_there, y_there)) - spot)) < look.font_pt * axes.figure.dpi / 72
        )
        if (shared := next(near, None)) is None:
            labels.append(([number], x, y))
        else:
            shared.append(number)
    for numbers, x, y in labels:
        text = ", ".join(map(str, numbers))
        axes.annotate(text, (x, y), textcoords="offset points", xytext=(5, -4), va="top", color=style.INK)


def _roof(axes: Axes, gpu: Gpu) -> None:
    """Memory bandwidth, and the peak of each precision."""
    low, high = axes.get_xlim()
    bottom, _ = axes.get_ylim()
    top = max(peak for precision in PRECISIONS if (peak := gpu.tflops(precision)))
    high = max(high, 3 * top / gpu.memory_gb_per_s * 1e3)
    low = min(low, 0.1)
    slope = gpu.memory_gb_per_s / 1e3
    axes.plot([low, top / slope], [low * slope, top], color=style.FAINT, linewidth=0.8)
    seen: set[float] = set()
    for precision in PRECISIONS:
        peak = gpu.tflops(precision)
        if not peak or peak in seen:
            continue
        seen.add(peak)
        axes.plot([peak / slope, high], [peak, peak], color=style.FAINT, linewidth=0.8)
        said = f"{precision} {peak:g} TFLOP/s"  # above the roof, where no point can be
        axes.text(peak / slope * 0.9, peak, said, ha="right", va="center", color=style.FAINT)
    middle = (low * low * top / slope) ** (1 / 3)  # a third of the way up, in the figure's logarithms
    axes.text(middle * 0.9, middle * slope, f"{gpu.memory_gb_per_s:,.0f} GB/s", ha="right", color=style.FAINT)
    axes.set_xlim(low, high)
    axes.set_ylim(min(bottom, low * slope) / 1.5, 2 * top)
