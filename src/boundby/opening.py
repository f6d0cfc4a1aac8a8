"""From what a user names (an export, a report, a folder) to a timeline, and what the report says of its source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from boundby.attribution.timeline import Timeline, build_timeline, select
from boundby.attribution.windows import parse_window, step_region
from boundby.capture import (
    command_of,
    export_sqlite,
    export_to_temporary,
    find_in_folder,
    find_nsys,
    is_run,
    typed_command,
)
from boundby.model.units import percent
from boundby.readers import read_sqlite
from boundby.results.report import TraceSummary
from boundby.trace.facts import TraceWarning
from boundby.trace.tables import OpKind, Trace

Progress = Callable[[str, float | None], None]

REPORT_KINDS = {".nsys-rep": "nsys-rep", ".qdrep": "nsys-qdrep", ".qdstrm": "nsys-rep"}


def open_timeline(
    path: Path,
    selection: tuple[str, int, tuple[int, ...], tuple[int, ...], bool],
    nsys: str | PathLike[str] | None,
    keep_export: bool,
    step: Progress,
    *,
    find: bool = True,
) -> tuple[Trace, Timeline]:
    """Read a report and work out the timeline of what was selected of it."""
    window, skip_first, devices, processes, fold = selection
    chosen = parse_window(window, skip_first)
    path, name, guessed = _chosen(path)
    with _as_sqlite(path, nsys, keep_export, step) as (database, source):
        trace = read_sqlite(database, name=name, source=source, progress=step)
        trace = replace(trace, warnings=(*guessed, *trace.warnings))
        if database != path:
            trace.backtraces.load()  # the export is about to go
    step("accounting for every nanosecond", None)
    trace = select(trace, devices, processes)
    return trace, build_timeline(trace, chosen, fold=fold, find=find)


def _chosen(path: Path) -> tuple[Path, str, tuple[TraceWarning, ...]]:
    """The file to read, what the report is called, and a warning where a folder did not tell which file is meant."""
    if not path.is_dir():
        return path, str(path), ()
    file = find_in_folder(path)
    if is_run(path):
        return file, str(path), ()
    text = f"boundby profile did not make the folder {path}: {file.name}, the only report in it, was taken"
    return file, str(file), (TraceWarning("folder", f"{text}."),)


@contextlib.contextmanager
def _as_sqlite(
    path: Path, nsys: str | PathLike[str] | None, keep_export: bool, step: Progress
) -> Iterator[tuple[Path, str]]:
    """The report as an SQLite export and what it was: itself, or made from it by a real nsys."""
    kind = REPORT_KINDS.get(path.suffix.lower())
    if kind is None:
        yield path, "nsys-sqlite"
        return
    tool = find_nsys(nsys)

    def exporting(fraction: float | None) -> None:
        step("exporting with nsys", fraction)

    if keep_export:
        yield export_sqlite(path, path.with_suffix(".sqlite"), tool, progress=exporting), kind
        return
    with export_to_temporary(path, tool, progress=exporting) as exported:
        yield exported, kind


def describe(trace: Trace, timeline: Timeline, skip_first: int) -> TraceSummary:
    """What was analysed: the file, the program, what was captured, and what lowers certainty."""
    shifts = [
        TraceWarning(
            "clock-skew",
            f"GPU {trace.gpus[device.index].id}'s clock is off: {percent(device.shift.early_fraction)} of its "
            f"operations start before their launch. Shifted by {device.shift.shift_ns / 1e6:+.3f} ms for attribution.",
        )
        for device in timeline.devices
        if device.shift.shift_ns
    ]
    if (trace.operations.kind == OpKind.GRAPH).any():
        text = (
            "CUDA graphs were traced as one operation each: kernels, copies and gaps inside them cannot be seen, and "
            "all their time counts as compute. Capture with --cuda-graph-trace=node to see them."
        )
        shifts.append(TraceWarning("graph-level", text))
    steps = step_region(timeline.trace, timeline.ownership.regions) if skip_first else None
    if steps is not None and timeline.window.range_glob is None:
        path = "/".join(timeline.ownership.regions.path(steps))
        total = int((timeline.ownership.regions.of_range == steps).sum())
        shifts.insert(0, TraceWarning("skipped-first", f"The first {skip_first} of {total} {path} were left out."))
    return TraceSummary(
        path=trace.path,
        source=trace.source,
        nsys_version=trace.nsys_version,
        schema_version=trace.schema_version,
        command=typed_command(trace.command) or command_of(Path(trace.path)),
        gpus=trace.gpus,
        captured=trace.captured,
        warnings=(*shifts, *trace.warnings),
        duration_ns=trace.span_ns[1] - trace.span_ns[0],
    )
