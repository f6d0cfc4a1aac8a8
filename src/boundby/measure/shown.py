"""Results -> what a terminal shows, as plain ASCII: the figure first, then how it was got, then warnings."""

from __future__ import annotations

import io
import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from boundby.measure.results import (
    NAIVE,
    BatchPoint,
    Comparison,
    Devices,
    DeviceState,
    Latency,
    Methods,
    Mistake,
    Result,
    StagesResult,
    Throughput,
)
from boundby.model import units
from boundby.model.units import duration, duration_range, percent, plural, size

ColorSystem = Literal["standard", "256", "truecolor"]
Line = Text | Table

DEFAULT_WIDTH = 100
STRONG, DIM, WARN = "bold", "dim", "bold yellow"
DOCS = "docs/measuring.md"


def render(result: Result, *, width: int = DEFAULT_WIDTH, color_system: ColorSystem | None = None) -> str:
    """The view of any result; ``color_system=None`` means no colour."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, 40),
        force_terminal=color_system is not None,
        color_system=color_system,
        no_color=color_system is None,
        legacy_windows=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    for line in _lines(result):
        console.print(line)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _lines(result: Result) -> Iterator[Line]:
    yield from _SHOWN[type(result)](result)
    yield from _mistakes(result.mistakes)


def _latency(latency: Latency) -> Iterator[Line]:
    yield _head(latency.name, f"{duration(latency.median_ns)} (median)")
    yield Text(f"{latency.device_name} ({latency.device}), {latency.clock}{_how(latency)}", DIM)
    if latency.device == "cpu":
        yield Text(CPU_ONLY, DIM)
    yield Text()
    yield pairs_grid(_figures(latency))
    said = list(mistaken(latency))
    if said:
        yield Text()
        yield Text("WHAT MISTAKES WOULD HAVE SAID", STRONG)
        yield pairs_grid([(what, f"{duration(ns):>8}   {times(ns / latency.median_ns)}") for what, ns in said])


#: Every result of the CPU says so.
CPU_ONLY = "On the CPU a call returns when its work is done: the wall clock is the right one."


def mistaken(latency: Latency) -> Iterator[tuple[str, float]]:
    """What the usual mistakes would have said, from what was measured anyway: (mistake, nanoseconds a call)."""
    if latency.warmup_calls and latency.first_call_ns:
        yield "one call, no warm-up", float(latency.first_call_ns)
    host = latency.host_ns
    if host is not None and not latency.graph:
        yield "no synchronisation (time until a call returned)", host


def _how(latency: Latency) -> str:
    ways = [
        f"{latency.mode} mode" if latency.mode else "",
        "CUDA graph replay" if latency.graph else "",
        "L2 flushed before each call" if latency.flush_l2 else "",
        "fresh inputs for each call" if latency.fresh_inputs else "",
        f"torch.compile made {latency.compiled_graphs} graphs" if latency.compiled_graphs else "",
    ]
    return "".join(f", {way}" for way in ways if way)


def _figures(latency: Latency) -> Iterator[tuple[str, str]]:
    interval = latency.interval
    if interval is not None:
        yield (
            f"{percent(interval.confidence)} interval",
            f"{between(interval.low_ns, interval.high_ns)} (of the {interval.of}, by {interval.how})",
        )
    std = latency.std_ns
    yield "mean", duration(latency.mean_ns) + (f", standard deviation {duration(std)}" if std is not None else "")
    yield (
        "percentiles",
        f"p90 {duration(latency.p90_ns)}, p99 {duration(latency.p99_ns)}, "
        f"range {between(latency.min_ns, latency.max_ns)}",
    )
    number, block = len(latency.block_ns), latency.calls_per_sample
    of = f" of {block:,} calls each; percentiles are those of such blocks" if block > 1 else ""
    yield "samples", f"{number:,}{of} ({_STOPPED.get(latency.stopped_by, latency.stopped_by)})"
    if latency.warmup_calls:
        yield "first call", f"{duration(latency.first_call_ns)} (apart)"
    yield "warm-up", _warmup(latency)
    for label, state in (("before", latency.before), ("after", latency.after)):
        if state is not None:
            yield f"GPU {label}", _state(state)


_STOPPED = {
    "precision": "enough for the precision asked for",
    "budget": "ended by the time budget",
    "max_samples": "as many as allowed",
    "rounds": "taken in turns",
}


def _warmup(latency: Latency) -> str:
    if latency.warmup_calls == 0:
        return "none"
    calls = "1 call" if latency.warmup_calls == 1 else f"{latency.warmup_calls:,} calls"
    if latency.is_steady is None:
        return f"{calls}, as asked for"
    return f"{calls}, until times had settled" if latency.is_steady else f"{calls}, and times had not settled"


def _state(state: DeviceState) -> str:
    parts = []
    if state.power_w is not None:
        limit = f" of {state.power_limit_w:.0f}" if state.power_limit_w is not None else ""
        parts.append(f"{state.power_w:.0f}{limit} W")
    if state.temperature_c is not None:
        parts.append(f"{state.temperature_c:.0f} C")
    if state.sm_clock_mhz is not None:
        highest = f" of {state.max_sm_clock_mhz:.0f}" if state.max_sm_clock_mhz is not None else ""
        parts.append(f"SM clock {state.sm_clock_mhz:.0f}{highest} MHz")
    if state.throttling is not None:
        parts.append(f"throttled: {', '.join(state.throttling)}" if state.throttling else "not throttled")
    if state.performance_state is not None:
        parts.append(f"performance state P{state.performance_state}")
    if state.persistence_mode is not None:
        parts.append(f"persistence mode {'on' if state.persistence_mode else 'off'}")
    return f"{', '.join(parts)} ({state.source})"


def _methods(methods: Methods) -> Iterator[Line]:
    best = methods.latencies[-1]
    yield from _latency(best)
    if len(methods.latencies) == 1:
        return
    table = grid("METHOD", ">MEDIAN", ">INTERVAL", ">P99", ">SAMPLES", f">/ {best.method.upper()}", "")
    for one in methods.latencies:
        note = "does not wait: wrong" if one.method == NAIVE else ""
        table.add_row(one.method, *_row(one), f"{one.median_ns / best.median_ns:.3f}", note)
    copied = methods.with_copy
    if copied is not None and methods.copy_ns is not None:
        note = f"the inputs' copy to the device adds {duration(max(methods.copy_ns, 0))}"
        ratio = f"{copied.median_ns / best.median_ns:.3f}"
        table.add_row(f"{copied.method}, copy inside", *_row(copied), ratio, note)
    yield Text()
    yield Text("METHODS", STRONG)
    yield table


def _row(one: Latency) -> tuple[str, str, str, str]:
    """Median, interval, p99 and how many samples."""
    interval = between(one.interval.low_ns, one.interval.high_ns) if one.interval else ""
    return duration(one.median_ns), interval, duration(one.p99_ns), f"{len(one.block_ns):,}"


def _stages(stages: StagesResult) -> Iterator[Line]:
    passes = max(1, stages.passes)
    yield _head("pipeline", f"{duration(stages.end_to_end_ns / passes)} a pass")
    how = ", the host waiting for the device after every stage" if stages.synchronised else ""
    total = f"{stages.passes:,} passes in {duration(stages.end_to_end_ns)}"
    if stages.warmup_passes:
        total += f", after {plural(stages.warmup_passes, 'pass', 'passes')} of warm-up"
    yield Text(f"{stages.device_name} ({stages.device}), {stages.clock}; {total}{how}", DIM)
    if stages.device == "cpu":
        yield Text(CPU_ONLY, DIM)
    yield Text()
    on_device = any(stage.device_ns is not None for stage in stages.stages)
    table = grid("STAGE", ">TIMES", ">HOST", *((">DEVICE", ">BEHIND") if on_device else ()), ">HOST TOTAL")
    for stage in stages.stages:
        device = (median_duration(stage.device_ns), median_duration(stage.wait_ns)) if on_device else ()
        table.add_row(
            stage.name, f"{len(stage.host_ns):,}", median_duration(stage.host_ns), *device, duration(sum(stage.host_ns))
        )
    yield table
    yield Text()
    yield Text(
        "Medians. "
        + (
            "DEVICE is between the stage's two events on the stream, waiting for the host included; BEHIND is how "
            "long the stream took to come to the stage after the host had."
            if on_device
            else "HOST is the wall clock's."
        ),
        DIM,
    )
    if stages.synchronised_estimate_ns is not None:
        low, high = stages.synchronised_estimate_ns
        more = change_range(low, high, stages.end_to_end_ns)
        yield Text(
            f"Waiting for the device after every stage would have taken about {duration_range(low, high)} in all, "
            f"{more} (estimated from these times; synchronise=True measures it)."
        )


def _throughput(found: Throughput) -> Iterator[Line]:
    best = found.best
    yield _head(found.name, f"{samples_rate(best)} at batch size {best.size:,}")
    yield Text(
        f"{found.device_name} ({found.device}), {found.clock}{f', {found.mode} mode' if found.mode else ''}", DIM
    )
    if found.device == "cpu":
        yield Text(CPU_ONLY, DIM)
    yield Text(
        f"Measured again: {best.batches:,} batches of {best.size:,} back to back in {duration(best.total_ns)}. "
        f"The search ended because {found.reason}."
    )
    yield Text()
    memory = any(point.peak_memory_bytes is not None for point in found.points)
    table = grid(">BATCH", ">LATENCY", ">SAMPLES/S", *((">PEAK MEMORY",) if memory else ()), "")
    most = max(point.samples_per_s for point in found.points)
    for point in found.points:
        over = found.latency_limit_ns is not None and point.median_ns > found.latency_limit_ns
        note = " over the latency limit" if over else " best" if point.size == best.size else ""
        row = [f"{point.size:,}", duration(point.median_ns), amount(point.samples_per_s)]
        row += [size(point.peak_memory_bytes)] if memory else []
        table.add_row(*row, "#" * round(20 * point.samples_per_s / most) + note)
    yield table
    if found.memory_returned_bytes:
        yield Text(f"{size(found.memory_returned_bytes)} more is in use on {found.device} than after the first size.")


def _devices(found: Devices) -> Iterator[Line]:
    yield _head(found.name, _pays(found))
    yield Text(f"CPU: {found.cpu_name}" + (f"; GPU: {found.gpu_name} ({found.gpu})" if found.gpu else ""), DIM)
    if found.gpu is None:
        yield Text("There is no GPU here, or the program does not use torch: these are the CPU's times alone.", DIM)
    yield Text()
    if found.gpu is None:
        table = grid(">SIZE", ">CPU", *((f">{found.quality.upper()}",) if found.quality else ()))
        for point in found.points:
            judged = () if point.cpu_quality is None else (f"{point.cpu_quality:.4g}",)
            table.add_row(f"{point.size:,}", duration(point.cpu_ns), *judged)
        yield table
        return
    table = grid(
        ">SIZE",
        ">CPU",
        ">GPU",
        ">WITH COPIES",
        ">GPU GAIN",
        ">WITH COPIES",
        found.quality.upper() if found.quality else "RESULTS",
    )
    for point in found.points:
        gpu, copies = point.gpu_ns, point.gpu_with_copies_ns
        same = {True: "equal", False: f"differ by {point.largest_difference or 0:.3g}", None: "not compared"}[
            point.equal
        ]
        if point.cpu_quality is not None and point.gpu_quality is not None:
            same = f"CPU {point.cpu_quality:.4g}, GPU {point.gpu_quality:.4g}"
        table.add_row(
            f"{point.size:,}",
            duration(point.cpu_ns),
            duration(gpu),
            duration(copies),
            f"{point.cpu_ns / gpu:.2f}x" if gpu else "",
            f"{point.cpu_ns / copies:.2f}x" if copies else "",
            same,
        )
    yield table


def _pays(found: Devices) -> str:
    if found.gpu is None:
        return "times on the CPU"
    inside = _from_size(found, found.break_even)
    outside = _from_size(found, found.break_even_with_copies)
    return f"the GPU pays {inside}; with copies of inputs and result {outside}"


def _from_size(found: Devices, where: float | None) -> str:
    if where is None:
        return f"at no size up to {found.points[-1].size:,}"
    if where <= found.points[0].size:
        return f"at every size from {found.points[0].size:,} on"
    return f"from size {where:,.0f} on"


def _comparison(comparison: Comparison) -> Iterator[Line]:
    a, b = comparison.a, comparison.b
    yield _head("B against A", _verdict(comparison))
    how = (
        f"measured in {comparison.interleaved_rounds} turns"
        if comparison.interleaved_rounds
        else "each measured by itself"
    )
    low, high = f"{comparison.ratio_low:.3f}", f"{comparison.ratio_high:.3f}"
    yield Text(
        f"ratio of medians {comparison.ratio:.3f}, {percent(comparison.confidence)} interval {low}-{high} "
        f"(block bootstrap); p = {p_value_text(comparison.p_value)} (Mann-Whitney U, two-sided); {how}",
        DIM,
    )
    if a.device == b.device == "cpu":
        yield Text(CPU_ONLY, DIM)
    yield Text()
    table = grid("", ">MEDIAN", ">INTERVAL", ">MEAN", ">P99", ">SAMPLES", "NAME")
    for letter, one in (("A", a), ("B", b)):
        median, interval, *rest = _row(one)
        table.add_row(letter, median, interval, duration(one.mean_ns), *rest, one.name)
    yield table
    if a.mistakes or b.mistakes:
        yield Text()
        yield Text(f"NOTE FOR EACH ({DOCS} explains each)", STRONG)
    for letter, one in (("A", a), ("B", b)):
        for mistake in one.mistakes:
            yield from _mistake(mistake, f"{letter}: ")


def _verdict(comparison: Comparison) -> str:
    change = comparison.ratio - 1
    if comparison.significant is None:
        return "too few samples to tell whether they differ"
    if not comparison.significant:
        return "no significant difference"
    return f"B takes {units.change(change).lstrip('+-')} {'less' if change < 0 else 'more'} time"


_SHOWN: dict[type, Callable[[Any], Iterator[Line]]] = {
    Latency: _latency,
    Methods: _methods,
    StagesResult: _stages,
    Throughput: _throughput,
    Devices: _devices,
    Comparison: _comparison,
}


def _mistakes(mistakes: Sequence[Mistake]) -> Iterator[Line]:
    if mistakes:
        yield Text()
        yield Text(f"NOTE ({len(mistakes)}; {DOCS} explains each)", STRONG)
    for mistake in mistakes:
        yield from _mistake(mistake)


def _mistake(mistake: Mistake, prefix: str = "") -> Iterator[Line]:
    line = Text("! ", WARN)
    line.append(f"{prefix}{mistake.code}: ", STRONG)
    line.append(f"{mistake.message} {mistake.advice}".rstrip(), "")
    table = Table.grid()
    table.add_column(width=2, no_wrap=True)
    table.add_column()
    table.add_row(line[:2], line[2:])
    yield table


def _head(name: str, what: str) -> Text:
    line = Text(f"{clean(name)}: ")
    line.append(what, STRONG)
    return line


def clean(text: str) -> str:
    """A name on one line, with nothing in it that a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def pairs_grid(pairs: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for label, value in pairs:
        table.add_row(Text(label), Text(value))
    return table


def grid(*headings: str) -> Table:
    """``>`` before a heading puts the column to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=DIM)
    for heading in headings:
        right = heading.startswith(">")
        text = heading.removeprefix(">")
        table.add_column(Text(text), justify="right" if right else "left", overflow="fold")
    return table


def between(low: float, high: float) -> str:
    """A range of times with one digit more than ``duration``: the two ends of a narrow one must not read the same."""
    scale, unit = next((pair for pair in _UNITS if high < 1000 * pair[0]), _UNITS[-1])
    ends = (low / scale, high / scale)
    digits = next((n for n in range(4) if f"{ends[0]:.{n}f}" != f"{ends[1]:.{n}f}" and high / scale * 10**n >= 999), 3)
    digits = min(digits, 1) if unit == "ns" else digits
    return f"{ends[0]:.{digits}f}-{ends[1]:.{digits}f} {unit}"


_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))


def times(ratio: float) -> str:
    return f"{ratio:,.2f} times the median" if ratio < 100 else f"{ratio:,.0f} times the median"


def median_duration(values: Sequence[int] | None) -> str:
    return duration(plain.median(values)) if values else ""


def samples_rate(point: BatchPoint) -> str:
    return f"{amount(point.samples_per_s)} samples/s"


def amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def change_range(low: int, high: int, base: int) -> str:
    ends = [units.change(end / base - 1) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def p_value_text(value: float | None) -> str:
    if value is None:
        return "not tested"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}" if value > 0 else "<1e-300"
