"""Results -> what a terminal shows, as plain ASCII: the figure first, then how it was got, then warnings."""

from __future__ import annotations

import io
import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from boundby.measure import results
from boundby.model import units
from boundby.model.scale import COLUMN, NOTABLE
from boundby.model.units import duration, duration_range, percent, plural, size

ColorSystem = Literal["standard", "256", "truecolor"]
Line = Text | Table
HasState = results.Latency | results.StagesResult | results.SweepSummary

DEFAULT_WIDTH = units.LINE
STRONG, DIM, WARN = "bold", "dim", "bold yellow"
DOCS = "docs/measuring.md"


def render(result: results.Result, *, width: int = DEFAULT_WIDTH, color_system: ColorSystem | None = None) -> str:
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


def _lines(result: results.Result) -> Iterator[Line]:
    yield from _SHOWN[type(result)](result)
    yield from _mistakes(result.mistakes)


def _latency(latency: results.Latency) -> Iterator[Line]:
    yield _head(latency.name, f"{duration(latency.median_ns)} (median)")
    yield from _where(latency, _how(latency))
    yield Text()
    yield pairs_grid(_figures(latency))
    said = list(mistaken(latency))
    if said:
        yield Text()
        yield Text("WHAT MISTAKES WOULD HAVE SAID", STRONG)
        yield pairs_grid([(what, f"{duration(ns):>8}   {times(ns / latency.median_ns)}") for what, ns in said])


def _where(one: results.Latency | results.StagesResult | results.Throughput, how: str) -> Iterator[Text]:
    """What it was measured on, by which clock, and how."""
    yield Text(f"{one.device_name} ({one.device}), {one.clock}{how}", DIM)
    if one.device == "cpu":
        yield Text(CPU_ONLY, DIM)


#: Every result of the CPU says so.
CPU_ONLY = "On the CPU a call returns when its work is done: the wall clock is the right one."


def mistaken(latency: results.Latency) -> Iterator[tuple[str, float]]:
    """What the usual mistakes would have said, from what was measured anyway: (mistake, nanoseconds a call)."""
    if latency.warmup_calls and latency.first_call_ns:
        yield "one call, no warm-up", float(latency.first_call_ns)
    host = latency.host_ns
    if host is not None and not latency.graph:
        yield "no synchronisation (time until a call returned)", host


def _how(latency: results.Latency) -> str:
    ways = [
        f"{latency.mode} mode" if latency.mode else "",
        "CUDA graph replay" if latency.graph else "",
        "L2 flushed before each call" if latency.flush_l2 else "",
        "fresh inputs for each call" if latency.fresh_inputs else "",
        f"torch.compile made {latency.compiled_graphs} graphs" if latency.compiled_graphs else "",
    ]
    return "".join(f", {way}" for way in ways if way)


def _figures(latency: results.Latency) -> Iterator[tuple[str, str]]:
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


def _warmup(latency: results.Latency) -> str:
    if latency.warmup_calls == 0:
        return "none"
    calls = "1 call" if latency.warmup_calls == 1 else f"{latency.warmup_calls:,} calls"
    if latency.is_steady is None:
        return f"{calls}, as asked for"
    return f"{calls}, until times had settled" if latency.is_steady else f"{calls}, and times had not settled"


def _state(state: results.DeviceState) -> str:
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


def _methods(methods: results.Methods) -> Iterator[Line]:
    best = methods.best
    yield from _latency(best)
    if len(methods.latencies) == 1:
        return
    table = grid("METHOD", ">MEDIAN", ">INTERVAL", ">P99", ">SAMPLES", f">/ {best.method.upper()}", "")

    def row(name: str, one: results.Latency, note: str) -> None:
        table.add_row(name, *_row(one), f"{one.median_ns / best.median_ns:.3f}", note)

    for latency in methods.latencies:
        row(latency.method, latency, "does not wait: wrong" if latency.method == results.NAIVE else "")
        if latency.method == results.NAIVE and methods.loop is not None:
            row(f"loop of {methods.loop.calls_per_sample}", methods.loop, "does not wait after the last: wrong")
    if methods.with_copy is not None and methods.copy_ns is not None:
        note = f"the inputs' copy to the device adds {duration(max(methods.copy_ns, 0))}"
        row(f"{methods.with_copy.method}, copy inside", methods.with_copy, note)
    yield Text()
    yield Text("METHODS", STRONG)
    yield table


def _by_size(found: results.MethodsBySize) -> Iterator[Line]:
    best = [point.methods.best for point in found.points]
    yield _head(best[0].name, f"{duration(best[0].median_ns)} to {duration(best[-1].median_ns)} (medians)")
    yield from _where(best[0], _how(best[0]))
    every = list(dict.fromkeys(what for point in found.points for what in point.methods.said))
    table = grid(">SIZE", f">{best[0].method.upper()}", *(f">{what.upper()}" for what in every))
    for point in found.points:
        right, said = point.methods.best.median_ns, point.methods.said
        cells = [f"{amount(said[what] / right)}x" if what in said else "" for what in every]
        table.add_row(f"{point.size:,}", duration(right), *cells)
    yield Text()
    yield Text("WHAT MISTAKES WOULD HAVE SAID, as so many times the right figure", STRONG)
    yield table
    yield Text()
    for what in every:
        ratios = {
            point.size: point.methods.said.get(what, np.nan) / point.methods.best.median_ns for point in found.points
        }
        wrong = [size for size, ratio in ratios.items() if abs(ratio - 1) > NOTABLE]
        yield Text(f"{what}: {_wrong_at(wrong, list(ratios))}.")


def _wrong_at(wrong: Sequence[int], sizes: Sequence[int]) -> str:
    """``off by more than 10 % at size 1 and 16``."""
    off = f"off by more than {percent(NOTABLE)}"
    if not wrong:
        return f"within {percent(NOTABLE)} at every size"
    if len(wrong) == len(sizes):
        return f"{off} at every size"
    return f"{off} at size {', '.join(f'{size:,}' for size in wrong)}"


def _row(one: results.Latency) -> tuple[str, str, str, str]:
    """Median, interval, p99 and how many samples."""
    interval = between(one.interval.low_ns, one.interval.high_ns) if one.interval else ""
    return duration(one.median_ns), interval, duration(one.p99_ns), f"{len(one.block_ns):,}"


def _stages(stages: results.StagesResult) -> Iterator[Line]:
    yield _head("pipeline", f"{duration(stages.pass_ns)} a pass")
    how = ", the host waiting for the device after every stage" if stages.synchronised else ""
    total = f"{stages.passes:,} passes in {duration(stages.end_to_end_ns)}"
    if stages.warmup_passes:
        total += f", after {plural(stages.warmup_passes, 'pass', 'passes')} of warm-up"
    yield from _where(stages, f"; {total}{how}")
    yield Text()
    on_device = any(stage.device_ns is not None for stage in stages.stages)
    columns = ">DEVICE", ">MEAN", ">BEHIND"
    table = grid("", "STAGE", ">TIMES", ">HOST", ">MEAN", *(columns if on_device else ()))
    for stage, mark in zip(stages.stages, marks_of(stages), strict=True):
        device = (*_middle(stage.device_ns), median_duration(stage.wait_ns)) if on_device else ()
        table.add_row(mark, stage.name, f"{len(stage.host_ns):,}", *_middle(stage.host_ns), *device)
    yield table
    yield Text()
    yield from _one_pass(stages)
    yield Text(
        "HOST and DEVICE are medians. "
        + (
            "DEVICE is between the stage's two events on the stream, waiting for the host included; BEHIND is how "
            "long after the host the GPU comes to the stage."
            if on_device
            else "HOST is the wall clock's."
        ),
        DIM,
    )
    yield from _pace(stages)
    if stages.after is not None:
        yield Text(f"GPU after: {_state(stages.after)}", DIM)
    if stages.synchronised_estimate_ns is not None:
        low, high = stages.synchronised_estimate_ns
        more = change_range(low, high, stages.end_to_end_ns)
        yield Text(
            f"Waiting for the device after every stage would have taken about {duration_range(low, high)} in all, "
            f"{more} (estimated from these times; synchronise=True measures it)."
        )


def _middle(values: Sequence[int] | None) -> tuple[str, str]:
    """Median and mean."""
    return (median_duration(values), duration(plain.mean(values))) if values else ("", "")


def marks_of(stages: results.StagesResult) -> list[str]:
    """What stands for each stage in the picture of a pass; nothing for those inside another one."""
    marks = iter(MARKS)
    return ["" if "/" in stage.name else next(marks, MARKS[-1]) for stage in stages.stages]


MARKS = "123456789abcdefghijklmnopqrstuvwxyz"


def _one_pass(stages: results.StagesResult) -> Iterator[Line]:
    """When each stage runs on the host, and what the GPU works on meanwhile."""
    shown = [(stage, mark) for stage, mark in zip(stages.stages, marks_of(stages), strict=True) if mark]
    if not all(stage.begin_ns for stage, _ in shown):
        return  # a result of before beginnings were kept
    host = [(plain.median(stage.begin_ns), plain.median(stage.host_ns), mark) for stage, mark in shown]
    device = [
        (begin + plain.median(stage.wait_ns), plain.median(stage.device_ns), mark)
        for (stage, mark), (begin, *_) in zip(shown, host, strict=True)
        if stage.wait_ns and stage.device_ns
    ]
    earlier = int(min((begin for begin, *_ in device), default=0) / max(stages.pass_ns, 1))
    device = [(begin - earlier * stages.pass_ns, length, mark) for begin, length, mark in device]
    most = max([stages.pass_ns, *(begin + length for begin, length, _ in (*host, *device))])
    for name, lane in (("host", host), ("GPU", device)):
        if lane:
            note = f"  work of {plural(earlier, 'pass', 'passes')} before" if earlier and name == "GPU" else ""
            yield Text(f"{name:<5}{_lane(lane, most)}{note}")
    yield Text(f"     one pass at the median, {duration(most)} wide", DIM)
    yield Text()


def _lane(parts: Sequence[tuple[float, float, str]], most: float) -> str:
    """``111..2222``: a dot where nothing runs."""
    cells = ["."] * COLUMN
    for begin, length, mark in parts:
        first, last = (round(COLUMN * end / most) for end in (begin, begin + length))
        cells[first : max(last, first + (length > 0))] = mark * (max(last, first + (length > 0)) - first)
    return "".join(cells[:COLUMN])


def _pace(stages: results.StagesResult) -> Iterator[Line]:
    """What BEHIND says: who waits for whom."""
    behind = [plain.median(stage.wait_ns) for stage in stages.stages if stage.wait_ns]
    if not behind or stages.synchronised:
        return
    passes = min(behind) / max(stages.pass_ns, 1)
    if passes >= 1:
        yield Text(f"The GPU sets the pace: the host is {passes:.1f} passes ahead of it, and would go on so.")
    elif max(behind) < NOTABLE * stages.pass_ns:
        yield Text("The host sets the pace: the GPU comes to each stage as soon as the host does, with no work left.")
    else:
        yield Text(f"Host and GPU overlap within a pass: the GPU is up to {duration(max(behind))} behind.")


def _stages_comparison(found: results.StagesComparison) -> Iterator[Line]:
    a, b = found.a, found.b
    if any(stage.significant for stage in found.stages) or a.synchronised != b.synchronised:
        change = units.change(b.pass_ns / a.pass_ns - 1)
        headline = f"a pass takes {duration(b.pass_ns)} instead of {duration(a.pass_ns)} ({change})"
    else:
        headline = "no stage differs significantly"
    yield _head("B against A", headline)
    for letter, run in (("A", a), ("B", b)):
        how = "the host waits for the device after every stage" if run.synchronised else "as it runs"
        yield Text(
            f"{letter}: {run.device_name} ({run.device}), {run.clock}; {plural(run.passes, 'pass', 'passes')}, {how}",
            DIM,
        )
    if a.device == b.device == "cpu":
        yield Text(CPU_ONLY, DIM)
    yield Text()
    yield _stages_beside(found)
    yield Text()
    yield Text(
        f"Medians. B / A is of the device's times where both have some, with its {percent(found.confidence)} interval.",
        DIM,
    )
    yield from _states(a, b)
    if b.synchronised and not a.synchronised:
        yield Text(
            "A HOST is the wall clock without waiting: the time to hand the work over. B HOST is the wall clock with a "
            "wait after each stage: each stage's time is right, and the pass is longer. A DEVICE, by events, is the "
            "stage's work on the device, with what it waits for the host in it, and costs nothing."
        )


def _stages_beside(found: results.StagesComparison) -> Table:
    of = [{stage.name: stage for stage in side.stages} for side in (found.a, found.b)]
    on_device = any(stage.device_ns is not None for stages in of for stage in stages.values())
    device = (">A DEVICE", ">B DEVICE") if on_device else ()
    table = grid("STAGE", ">A HOST", ">B HOST", *device, ">B / A", ">INTERVAL", "")
    changes = {stage.name: _changed(stage) for stage in found.stages}
    for name in dict.fromkeys((*of[0], *of[1])):
        both = [stages.get(name) for stages in of]
        clocks = ("host_ns", "device_ns") if on_device else ("host_ns",)
        times = [median_duration(getattr(stage, clock, None)) for clock in clocks for stage in both]
        table.add_row(name, *times, *changes.get(name, ()))
    return table


def _changed(stage: results.StageChange) -> tuple[str, str, str]:
    note = {True: "", False: "not significant", None: "too few passes"}[stage.significant]
    return f"{stage.ratio:.3f}", f"{stage.low:.3f}-{stage.high:.3f}", f"{note}{' (host)' * (stage.clock == 'host')}"


def _throughput(found: results.Throughput) -> Iterator[Line]:
    best = found.best
    yield _head(found.name, f"{samples_rate(best)} at batch size {best.size:,}")
    yield from _where(found, f", {found.mode} mode" if found.mode else "")
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
    if found.after is not None:
        yield Text(f"GPU after: {_state(found.after)}", DIM)


def _sizes_on_cpu(found: results.Devices) -> Any:
    table = grid(">SIZE", ">CPU", *((f">{found.quality.upper()}",) if found.quality else ()))
    for point in found.points:
        judged = () if point.cpu_quality is None else (f"{point.cpu_quality:.4g}",)
        table.add_row(f"{point.size:,}", duration(point.cpu_ns), *judged)
    return table


def _sizes(found: results.Devices, *, is_copied: bool) -> Any:
    beside = (">WITH COPIES",) if is_copied else ()
    head = found.quality.upper() if found.quality else "RESULTS"
    table = grid(">SIZE", ">CPU", ">GPU", *beside, ">GPU GAIN", *beside, head)
    for point in found.points:
        times = [point.gpu_ns, *((point.gpu_with_copies_ns,) if is_copied else ())]
        gains = [f"{point.cpu_ns / ns:.2f}x" if ns else "" for ns in times]
        table.add_row(f"{point.size:,}", duration(point.cpu_ns), *map(duration, times), *gains, _same(point))
    return table


def _same(point: results.SizePoint) -> str:
    """Whether both results are equal, or how good each is."""
    if point.cpu_quality is not None and point.gpu_quality is not None:
        return f"CPU {point.cpu_quality:.4g}, GPU {point.gpu_quality:.4g}"
    if point.equal is None:
        return "not compared"
    return "equal" if point.equal else f"differ by {point.largest_difference or 0:.3g}"


def _devices(found: results.Devices) -> Iterator[Line]:
    yield _head(found.name, _pays(found))
    yield Text(f"CPU: {found.cpu_name}" + (f"; GPU: {found.gpu_name} ({found.gpu})" if found.gpu else ""), DIM)
    if found.gpu is None:
        yield Text("There is no GPU here, or the program does not use torch: these are the CPU's times alone.", DIM)
    yield Text()
    if found.gpu is None:
        yield _sizes_on_cpu(found)
        return
    is_copied = _is_copied(found)
    yield _sizes(found, is_copied=is_copied)
    if not is_copied:
        yield Text(
            "Copies are not timed: what is timed has no inputs. Return it and them, fn, (x,), to see their cost.", DIM
        )
    if found.after is not None:
        yield Text(f"GPU after: {_state(found.after)}", DIM)


def _is_copied(found: results.Devices) -> bool:
    return any(point.gpu_with_copies_ns is not None for point in found.points)


def _pays(found: results.Devices) -> str:
    if found.gpu is None:
        return "times on the CPU"
    inside = _from_size(found, found.break_even)
    if not _is_copied(found):
        return f"the GPU pays {inside}"
    outside = _from_size(found, found.break_even_with_copies)
    return f"the GPU pays {inside}; with copies of inputs and result {outside}"


def _from_size(found: results.Devices, where: float | None) -> str:
    if where is None:
        return f"at no size up to {found.points[-1].size:,}"
    if where <= found.points[0].size:
        return f"at every size from {found.points[0].size:,} on"
    return f"from size {where:,.0f} on"


def _comparison(comparison: results.LatencyComparison) -> Iterator[Line]:
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
    for letter, side in (("A", a), ("B", b)):
        median, interval, *rest = _row(side)
        table.add_row(letter, median, interval, duration(side.mean_ns), *rest, side.name)
    yield table
    yield from _states(a, b)
    if a.mistakes or b.mistakes:
        yield Text()
        yield Text(f"NOTE FOR EACH ({DOCS} explains each)", STRONG)
    for letter, side in (("A", a), ("B", b)):
        for mistake in side.mistakes:
            yield from _mistake(mistake, f"{letter}: ")


def _states(a: HasState, b: HasState) -> Iterator[Line]:
    """Of both GPUs, where they are known."""
    states = [
        (f"{letter}: GPU after", _state(side.after)) for letter, side in (("A", a), ("B", b)) if side.after is not None
    ]
    if states:
        yield Text()
        yield pairs_grid(states)


def _sizes_comparison(found: results.SizesComparison) -> Iterator[Line]:
    a, b = found.a, found.b
    yield _head("B against A", _sizes_verdict(found))
    for letter, side in (("A", a), ("B", b)):
        yield Text(f"{letter}: {side.name}, {side.where}", DIM)
    yield Text()
    several = len({change.what for change in found.changes}) > 1
    table = grid(">SIZE", *(("",) if several else ()), ">A", ">B", ">B / A", ">BETWEEN", "")
    for change in found.changes:
        what = (change.what,) if several else ()
        table.add_row(f"{change.size:,}", *what, duration(change.a_ns), duration(change.b_ns), *_size_changed(change))
    yield table
    yield Text()
    yield Text(
        "Medians. BETWEEN is what B / A may be by the intervals of both; they differ where it leaves out 1.", DIM
    )
    yield from _states(a, b)


def _size_changed(change: results.SizeChange) -> tuple[str, str, str]:
    between = "" if change.low is None or change.high is None else f"{change.low:.3f}-{change.high:.3f}"
    note = {True: "", False: "no difference shown", None: "no interval on record"}[change.differs]
    return f"{change.ratio:.3f}", between, note


def _sizes_verdict(found: results.SizesComparison) -> str:
    """What a reader wants of each kind: the best batch, from where on a GPU pays; else how many sizes differ."""
    a, b = found.a, found.b
    if a.best is not None and b.best is not None:
        rates = [of_size.samples_per_s for of_size in (a.best, b.best)]
        sizes = f"at batch size {b.best.size:,} instead of {amount(rates[0])} at {a.best.size:,}"
        return f"{amount(rates[1])} samples/s {sizes} ({units.change(rates[1] / rates[0] - 1)})"
    if found.of == results.Devices.kind and a.has_gpu and b.has_gpu:
        return f"the GPU pays {_pays_from(b)}, and {_pays_from(a)} in A"
    sides = {"less": sum(change.differs is True and change.ratio < 1 for change in found.changes)}
    sides["more"] = sum(change.differs is True and change.ratio > 1 for change in found.changes)
    rates_told = [
        f"B takes {side} time at {number} of {plural(len(found.changes), 'size')}"
        for side, number in sides.items()
        if number
    ]
    return "; ".join(rates_told) or "no difference shown at any size"


def _pays_from(one: results.SweepSummary) -> str:
    return "at no size measured" if one.break_even is None else f"from size {one.break_even:,.0f} on"


def _verdict(comparison: results.LatencyComparison) -> str:
    change = comparison.ratio - 1
    if comparison.significant is None:
        return "too few samples to tell whether they differ"
    if not comparison.significant:
        return "no significant difference"
    return f"B takes {units.change(change).lstrip('+-')} {'less' if change < 0 else 'more'} time"


_SHOWN: dict[type, Callable[[Any], Iterator[Line]]] = {
    results.Latency: _latency,
    results.Methods: _methods,
    results.MethodsBySize: _by_size,
    results.StagesComparison: _stages_comparison,
    results.StagesResult: _stages,
    results.Throughput: _throughput,
    results.Devices: _devices,
    results.LatencyComparison: _comparison,
    results.SizesComparison: _sizes_comparison,
}


def _mistakes(mistakes: Sequence[results.Mistake]) -> Iterator[Line]:
    if mistakes:
        yield Text()
        yield Text(f"NOTE ({len(mistakes)}; {DOCS} explains each)", STRONG)
    for mistake in mistakes:
        yield from _mistake(mistake)


def _mistake(mistake: results.Mistake, prefix: str = "") -> Iterator[Line]:
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


def samples_rate(point: results.BatchPoint) -> str:
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
