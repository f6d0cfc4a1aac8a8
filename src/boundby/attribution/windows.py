"""Which part of the timeline is analysed: the window of each device, from what the user asked for."""

from __future__ import annotations

import fnmatch

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from boundby.attribution.groundwork import DeviceOperations, TraceContext
from boundby.attribution.regions import Regions, project
from boundby.correlation.correlate import MOST_LATENCY_NS
from boundby.model.arrays import Int64Array, marked, pick, places, unique
from boundby.model.errors import SelectionError, did_you_mean
from boundby.model.intervals import NOTHING, nearest
from boundby.model.late import expression
from boundby.model.units import FURTHEST_NS, duration, plural
from boundby.structure.found import is_found
from boundby.structure.steps import likely_steps
from boundby.trace.tables import Trace

_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1_000_000_000}
#: No trace has an instant beyond; sums of such times stay in range.
_FAR_NS = FURTHEST_NS // 2
_TIME = expression(r"^\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*(ns|us|ms|s|)\s*$")


class DeviceWindow(Struct, frozen=True):
    """What was asked for. ``kind``: gpu, all, span or nvtx; ``skip_first`` instances of the steps are left out."""

    kind: str
    low_ns: int | None = None
    high_ns: int | None = None
    range_glob: str | None = None
    skip_first: int = 0


def parse_window(text: str, skip_first: int = 0) -> DeviceWindow:
    """``gpu`` | ``all`` | ``START:END`` (seconds, or with ns/us/ms/s; either may be left out) | ``nvtx:NAME``.

    Raises SelectionError for anything else.
    """
    if skip_first < 0:
        raise SelectionError("The number of steps to skip is negative.", "Give --skip-first 0 or more.")
    if text in ("gpu", "all"):
        return DeviceWindow(text, skip_first=skip_first)
    if text == "nvtx:":
        raise SelectionError("The window nvtx: names no range.", "Write nvtx:NAME, such as nvtx:step or 'nvtx:step *'.")
    if text.startswith("nvtx:"):
        return DeviceWindow("nvtx", range_glob=text[5:], skip_first=skip_first)
    low, colon, high = text.partition(":")
    if colon:
        bounds = [_time(part) if part.strip() else None for part in (low, high)]
        if None in bounds or bounds[0] < bounds[1]:  # type: ignore[operator]
            return DeviceWindow("span", bounds[0], bounds[1], skip_first=skip_first)
        raise SelectionError(f"The window {text!r} ends before it starts.", "Give START:END with START < END.")
    raise SelectionError(
        f"{text!r} is not a window.", "Use gpu, all, START:END (such as 1.5s:2s or 200ms:), or nvtx:NAME."
    )


def _time(text: str) -> int:
    match = _TIME.match(text)
    if not match:
        raise SelectionError(f"{text!r} is not a time.", "Write a number with ns, us, ms or s, such as 1.5s.")
    from decimal import Decimal  # any number of digits, and a decimal one is what it says

    number, unit = match.groups()
    return round(max(Decimal(-_FAR_NS), min(Decimal(number) * _UNIT_NS[unit], Decimal(_FAR_NS))))


def device_window(
    window: DeviceWindow,
    context: TraceContext,
    operations: DeviceOperations,
    shift_ns: int,
    lost_until_ns: int | None = None,
) -> tuple[int, int] | None:
    """The window of one device on the host's clock: (low, high).

    ``gpu``: first operation's start to last one's end, as nsys does, and the head and the tail of the program's steps
    around them; where work was lost it reaches to where the last work has ended by what launches and syncs say (what
    was lost before the first operation lies before the window). ``all``: the whole trace. A span is meant on the
    trace's own clock, as nsys shows it. A range's window reaches from its begin to its end on the device (`_reach`).
    None: nothing is left.
    """
    low, high = int(operations.table.start_ns.min()), int(operations.table.end_ns.max())
    if window.kind == "gpu":
        high = high if lost_until_ns is None else max(high, lost_until_ns)
        if len(steps := _annotated_steps(context)):
            begin, end, launched = _reach(context, operations)
            steps = steps[launched[steps]]
            first, last = _confirmed(context.trace, steps) if len(steps) > 1 else context.trace.span_ns
            low = min(low, max(first, int(begin[steps].min(initial=low))))
            high = max(high, min(last, int(end[steps].max(initial=high))))
    elif window.kind == "all":
        span = context.trace.span_ns
        low, high = min(low, span[0] + shift_ns), max(high, span[1])
    elif window.kind == "span":
        low, high = _span(window, context.trace.span_ns, shift_ns, low, high)
    elif window.kind == "nvtx":
        rows = matching_ranges(context.trace, context.ownership.regions, window.range_glob or "*")
        low, high = _hull(context, operations, rows)
    if window.skip_first:
        low = max(low, _after_first(window, context, operations))
    return (low, high) if low < high else None


def _span(window: DeviceWindow, trace_ns: tuple[int, int], shift_ns: int, low: int, high: int) -> tuple[int, int]:
    """The span that was asked for; an end that was not is that of the work."""
    first, last = trace_ns
    if (window.low_ns or first) >= last or (window.high_ns is not None and window.high_ns <= first):
        between = f"{duration(first)} to {duration(last)}"
        raise SelectionError(
            "The window lies outside the trace.", f"The trace runs from {between}: choose a window that lies there."
        )
    low = low if window.low_ns is None else window.low_ns + shift_ns
    return low, high if window.high_ns is None else window.high_ns + shift_ns


def empty_window() -> SelectionError:
    """The error for a window that holds nothing of any device or thread."""
    return SelectionError(
        "The window is empty: nothing in it takes any time.",
        "Choose a longer window, or skip fewer steps (--skip-first).",
    )


def host_window(window: DeviceWindow, context: TraceContext) -> tuple[int, int, dict[int, int]]:
    """The window of a trace without GPU work, and where it begins in processes whose first instances are left out."""
    trace, ownership = context.trace, context.ownership
    low, high = trace.span_ns
    if window.kind == "span":
        low = low if window.low_ns is None else window.low_ns
        high = high if window.high_ns is None else window.high_ns
    elif window.kind == "nvtx":
        rows = matching_ranges(trace, ownership.regions, window.range_glob or "*")
        low, high = int(trace.ranges.start_ns[rows].min()), int(trace.ranges.end_ns[rows].max())
    begins = {}
    if window.skip_first:
        ranges, skipped = trace.ranges, window.skip_first
        begins = {
            process: max(low, int(ranges.start_ns[rows[skipped]] if len(rows) > skipped else ranges.end_ns[rows[-1]]))
            for process, rows in skipped_steps(window, context).items()
        }
    if low >= high:
        raise empty_window()
    return low, high, begins


def matching_ranges(trace: Trace, regions: Regions, glob: str) -> npt.NDArray[np.intp]:
    """Ranges whose own name, folded name or path (joined with /) matches a glob; SelectionError if none does."""
    by_name = np.array([fnmatch.fnmatchcase(name, glob) or name == glob for name in trace.names] or [False], bool)
    by_region = np.array([region_matches(regions, region, glob) for region in range(len(regions))], bool)
    rows = np.flatnonzero(by_name[trace.ranges.name] | by_region[regions.of_range])
    if len(rows) == 0:
        import difflib

        names = sorted({name for name in regions.name if name})
        some = list(dict.fromkeys([*difflib.get_close_matches(glob, names, n=3, cutoff=0.4), *names]))[:5]
        hint = f"The report's ranges include: {', '.join(some)}." if some else "The report holds no NVTX ranges."
        raise SelectionError(f"No NVTX range matches {glob!r}.", did_you_mean(glob, names) + hint)
    return rows


def region_matches(regions: Regions, region: int, glob: str) -> bool:
    """True if the region's name or its whole path matches the glob (literal ``*`` of folded names included)."""
    path = "/".join(regions.path(region))
    name = regions.name[region]
    if region > 0 and name.endswith("*") and glob == name.rstrip("*").rstrip(" _-:#="):  # step: of step *
        return True
    return region > 0 and (glob in (name, path) or fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(path, glob))


def regions_matching(regions: Regions, glob: str) -> npt.NDArray[np.bool_]:
    """Mask over regions: those that match the glob, and all that lies in them."""
    return regions.under(np.array([region_matches(regions, region, glob) for region in range(len(regions))], bool))


def _hull(context: TraceContext, operations: DeviceOperations, rows: npt.NDArray[np.intp]) -> tuple[int, int]:
    begin, end, launched = _reach(context, operations)
    rows = rows[launched[rows]] if launched[rows].any() else rows
    return int(begin[rows].min()), int(end[rows].max())


def _reach(context: TraceContext, operations: DeviceOperations) -> tuple[Int64Array, Int64Array, npt.NDArray[np.bool_]]:
    """When each range begins and ends on a device, and whether it launched anything there (else: on the host).

    It takes from its first work to its last and, while it is open on the host, the time before and after in which the
    device has nothing to do. No such head has a range whose first work waits for longer than any launch takes: the
    device does something that is not on record.
    """
    ranges, table, busy = context.trace.ranges, operations.table, operations.busy()
    of_operation, is_sole = context.calls.of_operation[operations.rows], len(table) == len(context.trace.operations)
    of_device = context.trace, context.calls, context.ownership.regions, context.launch_range, operations.rows
    first, last = context.projected if is_sole else project(*of_device)
    launched = last > first
    begin, end = np.where(launched, first, ranges.start_ns), np.where(launched, last, ranges.end_ns)
    rows = np.flatnonzero(launched)
    first, last = first[rows], last[rows]

    running = places(busy.start, first) - 1  # what began before it
    free_since = np.minimum(pick(busy.end, running, np.iinfo(np.int64).min), first)
    head = np.maximum(np.minimum(ranges.start_ns[rows], first), free_since)
    call = of_operation[places(table.start_ns, first)]
    is_late = first - pick(context.calls.end_ns, call, 0) > MOST_LATENCY_NS
    begin[rows] = np.where(is_late, first, head)

    following = places(busy.start, last)
    free_until = pick(busy.start, np.where(following < len(busy.start), following, NOTHING), np.iinfo(np.int64).max)
    is_over = pick(busy.end, following - 1, 0) <= last
    tail = np.minimum(np.maximum(ranges.end_ns[rows], last), free_until)
    end[rows] = np.where(is_over & ~ranges.is_open[rows], tail, last)
    return begin, end, launched


def _confirmed(trace: Trace, steps: npt.NDArray[np.intp]) -> tuple[int, int]:
    """From when to when steps count: beyond what more than one row of the report confirms, for as long as the longest
    of the other steps takes. One that goes on for longer while nothing happens may have a wrong time."""
    lasted = trace.ranges.end_ns[steps] - trace.ranges.start_ns[steps]
    longest = int(np.sort(lasted)[-2])
    first, last = trace.confirmed_ns
    return first - longest, last + longest


def _annotated_steps(context: TraceContext) -> npt.NDArray[np.intp]:
    """The instances of the program's steps, where a person, a framework or a profiler has marked them."""
    regions, step = context.ownership.regions, context.step_region
    if step is None or is_found(regions.domain[step]):
        return np.empty(0, np.intp)
    return np.flatnonzero(regions.of_range == step)


def _after_first(window: DeviceWindow, context: TraceContext, operations: DeviceOperations) -> int:
    """Where what counts begins on the device: after the first instances of every process that works on it."""
    steps = skipped_steps(window, context)
    start, end, _ = _reach(context, operations)
    own = steps.keys() & set(unique(operations.table.process).tolist())
    skipped = window.skip_first
    return max(
        int(start[rows[skipped]] if len(rows) > skipped else end[rows[-1]])
        for rows in (steps[process] for process in own or steps)
    )


def skipped_steps(window: DeviceWindow, context: TraceContext) -> dict[int, npt.NDArray[np.intp]]:
    """The instances whose first ones ``skip_first`` leaves out, in order of time, by process: of the named range,
    else of the program's steps, from the process's first GPU work (or the start of the chosen span) on."""
    ranges = context.trace.ranges
    rows = _step_ranges(window, context)
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    process = context.trace.process_of_thread[ranges.thread[rows]]
    by_process = {number: rows[process == number] for number in unique(process).tolist()}
    if window.range_glob is None:
        by_process = {number: _since(window, context, number, own) for number, own in by_process.items()}
    by_process = {number: own for number, own in by_process.items() if len(own)}
    most = max(map(len, by_process.values()), default=0)
    if most <= window.skip_first:
        what = ("step", "steps") if window.range_glob is None else ("range of that name", "ranges of that name")
        only = f"There {'is' if most == 1 else 'are'} only {plural(most, *what)}"
        of_each = " in any process" if len(by_process) > 1 else ""
        raise SelectionError(
            f"{only}{of_each}, so the first {window.skip_first} cannot be skipped.",
            "Skip fewer with --skip-first.",
        )
    return by_process


def _since(
    window: DeviceWindow, context: TraceContext, process: int, rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """Those of these ranges of a process that lie, in part at least, in what is looked at of it."""
    trace = context.trace
    start, end = trace.ranges.start_ns[rows], trace.ranges.end_ns[rows]
    if window.kind == "span":
        low, high = window.low_ns, window.high_ns
        return rows[(end > (-np.inf if low is None else low)) & (start < (np.inf if high is None else high))]
    work = trace.operations.start_ns[trace.operations.process == process]
    return rows[end > work.min()] if window.kind == "gpu" and len(work) else rows


def _step_ranges(window: DeviceWindow, context: TraceContext) -> npt.NDArray[np.intp]:
    """All instances of the named range (of what lies in each other the outermost), else of the program's steps."""
    trace, regions = context.trace, context.ownership.regions
    if window.range_glob is not None:
        rows = matching_ranges(trace, regions, window.range_glob)
        around = nearest(regions.range_parent, marked(rows, len(trace.ranges)))
        return rows[pick(around, regions.range_parent[rows], NOTHING) < 0]
    if len(trace.ranges) == 0:
        raise SelectionError(
            "The report holds no NVTX ranges, so there are no steps to skip.",
            "Choose the window by time instead: --window START:END.",
        )
    best = context.step_region
    if best is not None:
        return np.flatnonzero(regions.of_range == best)
    likely = likely_steps(context.step_candidates)
    if not likely:
        raise SelectionError("No range repeats, so there are no steps to skip.", "Choose the window by time instead.")
    raise SelectionError(
        "No range is plainly the program's step, so none can be skipped.",
        f"Name it with --window nvtx:NAME; candidates: {', '.join(likely)}.",
    )
